"""One training step, watched: forward pass, loss, backward pass, optimizer step."""

from __future__ import annotations

from typing import Any

from opdb.errors import InputError
from opdb.harvest.autograd import Backward
from opdb.harvest.recorder import Recorder
from opdb.models import LoadedModel
from opdb.models.loss import Loss
from opdb.operators import describe_update
from opdb.records import Call, Json


def train(recorder: Recorder, loaded: LoadedModel, training: Json) -> None:
    """Run one training step of a loaded model under a recorder that is watching.

    `training` names the optimizer, and of how many batches gradients add up before it steps.

    Raises:
        InputError: no output of the model can be trained on.
    """
    optimizer, accumulation = training["optimizer"], training["accumulation"]
    parameters = list(loaded.module.parameters())
    backward = recorder.backward = Backward(recorder.calls, recorder.unsupported, recorder.aside)
    loss_of = None
    try:
        for _ in range(accumulation):
            outputs = loaded.module(*loaded.args, **loaded.kwargs)
            with recorder.aside():
                loss_of = loss_of or _loss(loaded, outputs)
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


def _loss(loaded: LoadedModel, outputs: Any) -> Loss:
    try:
        return Loss.of(outputs)
    except InputError as error:
        raise InputError(f"{loaded.name!r} {error}") from error
