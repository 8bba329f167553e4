"""Watch a model at work and write down every operator call it makes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from opdb.capturing import answering
from opdb.errors import InputError, OpdbError, UnsupportedError
from opdb.harvest.autograd import BackwardWatch
from opdb.harvest.finding import fingerprint
from opdb.harvest.recorder import LiveMemory, Recorder
from opdb.models import LoadedModel, load
from opdb.models.construction import (
    ANY_FAILURE,
    Loss,
    ModelFailureError,
    bytes_of,
    calibrate_batch_norms,
    check_fits,
    one_line,
)
from opdb.models.inputs import seeded, tensors
from opdb.models.meta import autocast_refused, dynamo_deferred
from opdb.operators import describe_update
from opdb.records import Call, Harvest, Json, Workload
from opdb.spec import ModelSpec

WITH_VALUES = (
    "without values it fails, so it ran on the CPU, with random weights and inputs of a fixed "
    "seed: how often it calls what, and of which sizes, may depend on them"
)


def harvest(request: ModelSpec) -> Workload:
    """Return the workload of a model: its operator calls in order, found without its weights.

    The pass runs on the meta device, with values for indices and masks (see
    `opdb.models.meta.KnownValues`); a model that asks for others (`.item()`, shapes that depend on
    data) runs on the CPU instead, with inputs of the declared value classes, and is told that it
    runs on a GPU.

    Raises:
        InputError: the model cannot be built or run; the message names the last call.
        UnsupportedError: the model enters autocast by itself, or autocast is asked for of a model
            that asks for values: what it casts on a GPU is known on meta alone.
    """
    return _first_pass(request)[1]


@dynamo_deferred()
def harvest_in_both(request: ModelSpec) -> Harvest:
    """Return the workload of a model, and what it calls while a CUDA graph captures it.

    A model of inference that asks whether it is captured is run a second time, and is answered yes;
    but for a whole generation, which no graph captures.

    Raises:
        InputError, UnsupportedError: as `harvest` does, of the first pass.
    """
    device, workload, asked, notes = _first_pass(request)
    # What is found on the CPU depends on how it rounds, too.
    known = fingerprint(request) if device == "meta" else None
    alone = Harvest(workload, fingerprint=known, notes=notes)
    if not asked or request.training is not None or request.phase == "generate":
        return alone
    try:
        # Loaded anew: the first pass may have left something in the model.
        captured, *_ = _passed(request, device, capturing=True)
    except (OpdbError, MemoryError) as error:
        return Harvest(workload, failure=str(error) or type(error).__name__, notes=notes)
    same = (captured.calls, captured.unsupported) == (workload.calls, workload.unsupported)
    return alone if same else replace(alone, captured=captured)


def _first_pass(request: ModelSpec) -> tuple[str, Workload, bool, tuple[str, ...]]:
    """Return where the pass ran, what it called, if it asked whether it is captured, and notes."""
    try:
        return "meta", *_passed(request, "meta")
    except ModelFailureError as on_meta:
        # Any failure may come from missing values: only the CPU shows whether that was the reason.
        check_fits(on_meta)
        if request.autocast is not None:
            raise UnsupportedError(
                f"{request.name!r} under autocast ({request.autocast}) cannot be harvested, for it "
                f"does not run on meta: {on_meta}"
            ) from on_meta
        try:
            return "cpu", *_passed(request, "cpu")
        except (MemoryError, RuntimeError) as error:  # there is no room for its inputs
            said = f"{on_meta}; on the CPU it fails too: {one_line(error)}"
            raise ModelFailureError(said) from error


def _passed(
    request: ModelSpec, device: str, *, capturing: bool = False
) -> tuple[Workload, bool, tuple[str, ...]]:
    """Record a pass on meta, or on the CPU as on a GPU, its batch norms as in a measured run."""
    training = request.training
    loaded = load(request, device=device)
    frame = Workload(
        name=loaded.name,
        source=loaded.source,
        source_version=loaded.source_version,
        inputs=loaded.inputs if training is None else {**loaded.inputs, "training": training},
        batch_size=loaded.batch_size,
        dtype=loaded.dtype,
        memory_format=loaded.memory_format,
        phase=request.phase,
        gradient=request.phase == "training",
        autocast=request.autocast,
        captured=capturing,
    )
    on_cpu = device == "cpu"
    notes = [WITH_VALUES] if on_cpu else []
    if on_cpu and training is None:
        try:
            with seeded("cpu"):
                calibrate_batch_norms(loaded)
        except ANY_FAILURE as error:  # a forward is anyone's code
            notes.append(f"its batch norms could not be calibrated: {one_line(error)}")
    with seeded(device):
        recorder = record(
            loaded,
            training=training,
            autocast=request.autocast,
            capturing=capturing,
            told_gpu=on_cpu,
        )
    found = recorder.into(frame)
    found = replace(found, calls=tuple(_filled(found.calls, request.imbalance)))
    return found, recorder.asked, tuple(notes)


def _filled(calls: Iterable[Call], imbalance: float | None) -> Iterator[Call]:
    """Yield calls, the groups of grouped products filled as unevenly as is asked for."""
    for call in calls:
        inputs = dict(call.configuration.inputs)
        if imbalance and "offs" in inputs:
            inputs["offs"] = {**inputs["offs"], "values": {"imbalance": imbalance}}
            call = replace(call, configuration=replace(call.configuration, inputs=inputs))
        yield call


# Run a loaded model under a recorder.


def record(
    loaded: LoadedModel,
    *,
    training: Json | None = None,
    autocast: str | None = None,
    capturing: bool = False,
    told_gpu: bool = False,
    recorder_type: Callable[[nn.Module], Recorder] = Recorder,
) -> Recorder:
    """Run the loaded model under a recorder, and return the recorder with what a pass calls.

    Where the first pass leaves something in the model, a second one is what counts.

    `training` (see `ModelSpec.training`) asks for a whole training step, `autocast` for a
    pass on meta as it casts to that dtype on a GPU. A model that asks whether a CUDA graph is being
    captured gets the answer `capturing`, and the recorder keeps that it asked. With `told_gpu` it
    is told that its tensors are on a GPU. `recorder_type` may keep more than a Recorder does.

    Raises:
        InputError: the pass fails; the message names the last call.
        UnsupportedError: the model enters autocast by itself, or returns an iterator.
    """
    recorder = recorder_type(loaded.module)
    recorder.autocast.name = autocast
    recorder.declare(loaded)

    def watch() -> None:
        recorder.memory = LiveMemory(loaded, before)
        with (
            recorder.watching(),
            autocast_refused(loaded.name),
            answering(capturing) as seen,
            ToldGpu() if told_gpu else nullcontext(),
        ):
            if training is None:
                _check_done(loaded.name, loaded.module(*loaded.args, **loaded.kwargs))
            else:
                train(recorder, loaded, training)
        recorder.asked |= seen.asked

    try:
        with torch.set_grad_enabled(training is not None):
            before = held(loaded.module)
            watch()
            if differ(before, held(loaded.module)):
                recorder.forget()
                watch()
    except OpdbError:
        raise
    except ANY_FAILURE as error:  # a model's forward is anyone's code and may raise anything
        device = next((str(t.device) for t in tensors(loaded.args)), "its own device")
        raise ModelFailureError(
            f"{loaded.name!r} fails on {device}: {one_line(error)}; "
            f"the last call was {recorder.last()}",
            weights_bytes=bytes_of({*loaded.module.parameters(), *loaded.module.buffers()}),
        ) from error
    return recorder


def _check_done(name: str, output: object) -> None:
    if isinstance(output, Iterator):
        raise UnsupportedError(
            f"{name!r} returns a {type(output).__name__}: what it computes runs after its pass; "
            "let it return a list"
        )


# One training step, watched: forward pass, loss, backward pass, optimizer step.


def train(recorder: Recorder, loaded: LoadedModel, training: Json) -> None:
    """Run one training step of a loaded model under a recorder that is watching.

    `training` names the optimizer, and of how many batches gradients add up before it steps.
    """
    optimizer, accumulation = training["optimizer"], training["accumulation"]
    parameters = list(loaded.module.parameters())
    loss_of = None
    try:
        for _ in range(accumulation):
            backward = recorder.backward = BackwardWatch(
                recorder.calls, recorder.unsupported, recorder.aside
            )
            outputs = loaded.module(*loaded.args, **loaded.kwargs)
            with recorder.aside():
                loss_of = loss_of or _loss(loaded.name, outputs)
                if loss_of.targets is not None:
                    recorder.set_values(loss_of.targets, {"range": [0, loss_of.classes]})
            loss = loss_of(outputs)
            backward.run(loss / accumulation if accumulation > 1 else loss)
        if recorder.memory is not None:
            recorder.memory.saw_gradients(parameters)
        with recorder.aside():
            updated = [p for p in parameters if p.grad is not None]
            update = describe_update(optimizer, updated)
        recorder.calls.append(Call(update, "function", ""))
    finally:
        recorder.backward = None
        for parameter in parameters:
            parameter.grad = None


def _loss(name: str, outputs: Any) -> Loss:
    try:
        return Loss.of(outputs)
    except InputError as error:
        raise InputError(f"{name!r} {error}") from error


# Objects that a pass leaves in a model: a table of positions, a cache that the first call fills.

_BY_VALUE = (int, float, str)


def held(model: nn.Module) -> list[object]:
    """Return what the attributes of a model's modules hold, with what their containers hold.

    While the list is kept, no object that is made later can be taken for one of these.
    """
    found: list[object] = []
    for module in model.modules():
        for value in vars(module).values():
            found.append(value)
            if isinstance(value, dict):
                found += (*value, *value.values())
            elif isinstance(value, (list, tuple, set)):
                found += value
    return found


def differ(before: list[object], after: list[object]) -> bool:
    """Whether two times a model held other objects; numbers and texts count by their value."""
    return len(before) != len(after) or not all(map(_same, before, after))


def _same(one: object, other: object) -> bool:
    if one is other:
        return True
    # of one type: a tensor in the place of a number has no answer to whether it equals it
    return type(one) is type(other) and isinstance(one, _BY_VALUE) and one == other


# What a model is told of where its tensors are, when a pass on the CPU stands for one on a GPU.

_GPU, _CPU = torch.device("cuda"), torch.device("cpu")

_ANSWERS: dict[Any, Any] = {
    Tensor.device.__get__: _GPU,
    Tensor.is_cuda.__get__: True,  # type: ignore[attr-defined]
    Tensor.is_cpu.__get__: False,  # type: ignore[attr-defined]
}


class ToldGpu(TorchFunctionMode):
    """Tells a model that its tensors are on a GPU; what it then makes or moves there stays here.

    A model may call something else on the CPU: torchvision's `batched_nms` goes class by class
    there from 1,000 boxes on, on a GPU from 25,000 on.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in _ANSWERS:
            return _ANSWERS[func]
        args, kwargs = pytree.tree_map_only(
            torch.device, lambda at: _CPU if at.type == _GPU.type else at, (args, kwargs or {})
        )
        return func(*args, **kwargs)
