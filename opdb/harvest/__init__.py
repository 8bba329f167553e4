"""Watch a model at work and write down every operator call it makes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace

import torch
from torch import nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.utils._python_dispatch import TorchDispatchMode

from opdb.capturing import answering
from opdb.errors import OpdbError, UnsupportedError
from opdb.harvest.compiled import harvest_compiled
from opdb.harvest.digest import fingerprint
from opdb.harvest.kept import differ, held
from opdb.harvest.memory import LiveMemory
from opdb.harvest.recorder import OUTSIDE, Recorder, computes
from opdb.harvest.training import train
from opdb.models import LoadedModel, ModelRequest, load
from opdb.models.autocast import autocast_refused
from opdb.models.construction import (
    ANY_FAILURE,
    ModelFailureError,
    bytes_of,
    check_fits,
    one_line,
)
from opdb.models.inputs import tensors
from opdb.records import Call, Harvest, Json, Workload

__all__ = [
    "OUTSIDE",
    "Harvest",
    "Recorder",
    "computes",
    "fingerprint",
    "harvest",
    "harvest_compiled",
    "harvest_in_both",
    "record",
]


def harvest(request: ModelRequest) -> Workload:
    """Return the workload of a model: its operator calls in order, found without its weights.

    The pass runs on the meta device, with values for indices and masks (see
    `opdb.models.known.KnownValues`); a model that asks for others (`.item()`, shapes that depend on
    data) runs on the CPU instead, with inputs of the declared value classes.

    Raises:
        InputError: the model cannot be built or run; the message names the last call.
        UnsupportedError: the model enters autocast by itself, or autocast is asked for of a model
            that asks for values: what it casts on a GPU is known on meta alone.
    """
    return _first_pass(request).workload


def harvest_in_both(request: ModelRequest) -> Harvest:
    """Return the workload of a model, and what it calls while a CUDA graph captures it.

    A model of inference that asks whether it is captured is run a second time, and is answered yes.

    Raises:
        InputError, UnsupportedError: as `harvest` does, of the first pass.
    """
    first = _first_pass(request)
    workload = first.workload
    # What is found on the CPU depends on how it rounds, too.
    known = fingerprint(request) if first.device == "meta" else None
    if not first.asked or request.training is not None:
        return Harvest(workload, fingerprint=known)
    try:
        # Loaded anew: the first pass may have left something in the model.
        loaded = load(request, device=first.device)
        captured = _recorded(request, loaded, first.device, capturing=True).workload
    except (OpdbError, MemoryError) as error:
        return Harvest(workload, failure=str(error) or type(error).__name__)
    if (captured.calls, captured.unsupported) == (workload.calls, workload.unsupported):
        return Harvest(workload, fingerprint=known)
    return Harvest(workload, captured, fingerprint=known)


@dataclass(frozen=True)
class _Pass:
    """The result of one pass on a device, and whether the model asked if it is being captured."""

    workload: Workload
    device: str
    asked: bool


def _first_pass(request: ModelRequest) -> _Pass:
    loaded = None
    try:
        loaded = load(request, device="meta")
        return _recorded(request, loaded, "meta")
    except ModelFailureError as on_meta:
        # Any failure may come from missing values: only the CPU shows whether that was the reason.
        check_fits(_weights_bytes(loaded, on_meta), on_meta)
        if request.autocast is not None:
            raise UnsupportedError(
                f"{request.name!r} under autocast ({request.autocast}) cannot be harvested, for it "
                f"does not run on meta: {on_meta}"
            ) from on_meta
        try:
            return _recorded(request, load(request, device="cpu"), "cpu")
        except (MemoryError, RuntimeError) as error:  # there is no room for its inputs
            said = f"{on_meta}; on the CPU it fails too: {one_line(error)}"
            raise ModelFailureError(said) from error


def _weights_bytes(loaded: LoadedModel | None, failure: ModelFailureError) -> int:
    """Return the memory of a model's weights; of those made so far, if it could not be built."""
    if loaded is None:
        return failure.weights_bytes
    return bytes_of({*loaded.module.parameters(), *loaded.module.buffers()})


def _recorded(
    request: ModelRequest, loaded: LoadedModel, device: str, *, capturing: bool = False
) -> _Pass:
    training = request.training
    recorder = record(loaded, training=training, autocast=request.autocast, capturing=capturing)
    workload = Workload(
        name=loaded.name,
        source=loaded.source,
        source_version=loaded.source_version,
        inputs=loaded.inputs if training is None else {**loaded.inputs, "training": training},
        batch_size=loaded.batch_size,
        dtype=request.dtype,
        memory_format=request.memory_format,
        phase=request.phase,
        gradient=request.phase == "training",
        autocast=request.autocast,
        calls=tuple(_filled(recorder.calls, request.imbalance)),
        containers=recorder.containers,
        foreign_leaves=dict(recorder.foreign_leaves),
        unsupported=dict(recorder.unsupported),
        captured=capturing,
        memory=None if recorder.memory is None else recorder.memory.seen(),
    )
    return _Pass(workload, device, recorder.asked)


def _filled(calls: Iterable[Call], imbalance: float | None) -> Iterator[Call]:
    """Yield calls, the groups of grouped products filled as unevenly as is asked for."""
    for call in calls:
        inputs = dict(call.configuration.inputs)
        if imbalance and "offs" in inputs:
            inputs["offs"] = {**inputs["offs"], "values": {"imbalance": imbalance}}
            call = replace(call, configuration=replace(call.configuration, inputs=inputs))
        yield call


def record(
    loaded: LoadedModel,
    *,
    training: Json | None = None,
    autocast: str | None = None,
    capturing: bool = False,
    recorder_type: type[Recorder] | None = None,
    observer: Callable[[Recorder], TorchDispatchMode] | None = None,
) -> Recorder:
    """Run the loaded model under a recorder, and return the recorder with what a pass calls.

    Where the first pass leaves something in the model, a second one is what counts.

    `training` (see `ModelRequest.training`) asks for a whole training step, `autocast` for a
    pass on meta as it casts to that dtype on a GPU. A model that asks whether a CUDA graph is being
    captured gets the answer `capturing`, and the recorder keeps that it asked. `recorder_type` may
    keep more than a Recorder does. `observer` makes a dispatch mode that runs inside the
    recorder's own, for a second opinion.

    Raises:
        InputError: the pass fails; the message names the last call.
        UnsupportedError: the model enters autocast by itself, or returns an iterator.
    """
    recorder = (recorder_type or Recorder)(loaded.module)
    recorder.autocast = autocast
    recorder.declare(loaded)
    modes = {module: module.training for module in loaded.module.modules()}
    try:
        with torch.set_grad_enabled(training is not None):
            if _is_lazy(loaded.module):  # the first call replaces classes and makes parameters
                loaded.module(*loaded.args, **loaded.kwargs)
                recorder.know_weights()
            before = held(loaded.module)
            _watch(recorder, loaded, training, capturing, observer)
            if differ(before, held(loaded.module)):
                recorder.forget()
                _watch(recorder, loaded, training, capturing, observer)
    except OpdbError:
        raise
    except ANY_FAILURE as error:  # a model's forward is anyone's code and may raise anything
        device = next((str(t.device) for t in tensors(loaded.args)), "its own device")
        raise ModelFailureError(
            f"{loaded.name!r} fails on {device}: {one_line(error)}; "
            f"the last call was {recorder.last()}"
        ) from error
    finally:
        for module, mode in modes.items():
            module.training = mode
    return recorder


def _watch(
    recorder: Recorder,
    loaded: LoadedModel,
    training: Json | None,
    capturing: bool,
    observer: Callable[[Recorder], TorchDispatchMode] | None,
) -> None:
    """Run one pass, or one training step, under a recorder."""
    recorder.memory = LiveMemory(loaded)
    with ExitStack() as stack:
        stack.enter_context(recorder.watching())  # one thread at a time
        stack.enter_context(autocast_refused(loaded.name))
        seen = stack.enter_context(answering(capturing))
        if observer is not None:
            stack.enter_context(observer(recorder))
        if training is None:
            _check_done(loaded.name, loaded.module(*loaded.args, **loaded.kwargs))
        else:
            train(recorder, loaded, training)
    recorder.asked |= seen.asked


def _check_done(name: str, output: object) -> None:
    if isinstance(output, Iterator):
        raise UnsupportedError(
            f"{name!r} returns a {type(output).__name__}: what it computes runs after its pass; "
            "let it return a list"
        )


def _is_lazy(module: nn.Module) -> bool:
    return any(
        isinstance(m, LazyModuleMixin) and m.has_uninitialized_params() for m in module.modules()
    )
