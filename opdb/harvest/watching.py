"""Run a loaded model under a recorder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.utils._python_dispatch import TorchDispatchMode

from opdb.capturing import answering
from opdb.errors import OpdbError, UnsupportedError
from opdb.harvest.kept import differ, held
from opdb.harvest.memory import LiveMemory
from opdb.harvest.recorder import Recorder
from opdb.harvest.told import ToldGpu
from opdb.harvest.training import train
from opdb.models import LoadedModel
from opdb.models.autocast import autocast_refused
from opdb.models.construction import ANY_FAILURE, ModelFailureError, one_line
from opdb.models.inputs import tensors
from opdb.records import Call, Json, PassMemory


@dataclass(frozen=True)
class Recorded:
    """What a pass was seen to call (see `Workload`), and whether the model asked if it is captured.

    `notes` say what is unusual about how that was found.
    """

    calls: Sequence[Call]
    containers: int
    foreign_leaves: Mapping[str, int]
    unsupported: Mapping[str, int]
    memory: PassMemory | None
    asked: bool
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, recorder: Recorder) -> Recorded:
        """Return what a recorder has seen."""
        return cls(
            calls=recorder.calls,
            containers=recorder.containers,
            foreign_leaves=dict(recorder.foreign_leaves),
            unsupported=dict(recorder.unsupported),
            memory=None if recorder.memory is None else recorder.memory.seen(),
            asked=recorder.asked,
        )


def record(
    loaded: LoadedModel,
    *,
    training: Json | None = None,
    autocast: str | None = None,
    capturing: bool = False,
    recorder_type: Callable[[nn.Module], Recorder] | None = None,
    observer: Callable[[Recorder], TorchDispatchMode] | None = None,
) -> Recorder:
    """Run the loaded model under a recorder, and return the recorder with what a pass calls.

    Where the first pass leaves something in the model, a second one is what counts, unless the
    recorder knows that the model is `settled`.

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
            if not recorder.settled and differ(before, held(loaded.module)):
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
        if recorder.told_gpu:
            stack.enter_context(ToldGpu())
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
