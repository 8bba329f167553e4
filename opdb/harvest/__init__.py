"""Watch a model at work and write down every operator call it makes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from opdb.errors import OpdbError, UnsupportedError
from opdb.harvest import generation
from opdb.harvest.compiled import harvest_compiled
from opdb.harvest.digest import fingerprint
from opdb.harvest.recorder import OUTSIDE, Recorder, computes
from opdb.harvest.watching import Recorded, record
from opdb.models import LoadedModel, ModelRequest, load
from opdb.models.construction import (
    ANY_FAILURE,
    ModelFailureError,
    bytes_of,
    check_fits,
    one_line,
    seeded,
)
from opdb.models.norms import calibrate_batch_norms
from opdb.records import Call, Harvest, Workload

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

WITH_VALUES = (
    "without values it fails, so it ran on the CPU, with random weights and inputs of a fixed "
    "seed: how often it calls what, and of which sizes, may depend on them"
)
"""What is said of a pass on the CPU."""

AS_ON_A_CPU = "told that it is on a GPU it fails, so these are the calls that it makes on a CPU"
"""What is said of a pass that was not told so."""


def harvest(request: ModelRequest) -> Workload:
    """Return the workload of a model: its operator calls in order, found without its weights.

    The pass runs on the meta device, with values for indices and masks (see
    `opdb.models.known.KnownValues`); a model that asks for others (`.item()`, shapes that depend on
    data) runs on the CPU instead, with inputs of the declared value classes, and is told that it
    runs on a GPU.

    Raises:
        InputError: the model cannot be built or run; the message names the last call.
        UnsupportedError: the model enters autocast by itself, or autocast is asked for of a model
            that asks for values: what it casts on a GPU is known on meta alone.
    """
    return _first_pass(request).workload


def harvest_in_both(request: ModelRequest) -> Harvest:
    """Return the workload of a model, and what it calls while a CUDA graph captures it.

    A model of inference that asks whether it is captured is run a second time, and is answered yes;
    but for a whole generation, which no graph captures.

    Raises:
        InputError, UnsupportedError: as `harvest` does, of the first pass.
    """
    first = _first_pass(request)
    workload = first.workload
    # What is found on the CPU depends on how it rounds, too.
    known = fingerprint(request) if first.device == "meta" else None
    if not first.asked or request.training is not None or request.phase == "generate":
        return Harvest(workload, fingerprint=known, notes=first.notes)
    try:
        # Loaded anew: the first pass may have left something in the model.
        captured = first.again(request, capturing=True).workload
    except (OpdbError, MemoryError) as error:
        failure = str(error) or type(error).__name__
        return Harvest(workload, failure=failure, notes=first.notes)
    if (captured.calls, captured.unsupported) == (workload.calls, workload.unsupported):
        return Harvest(workload, fingerprint=known, notes=first.notes)
    return Harvest(workload, captured, fingerprint=known, notes=first.notes)


class _ToldGpu(Recorder):
    told_gpu = True


@dataclass(frozen=True)
class _Pass:
    """The result of one pass, where it ran, and whether the model asked if it is being captured.

    With `told_gpu` the model was told that it runs on a GPU, though it did on the CPU.
    """

    workload: Workload
    device: str
    asked: bool
    told_gpu: bool
    notes: tuple[str, ...] = ()

    def again(self, request: ModelRequest, *, capturing: bool) -> _Pass:
        """Run another pass in the same place."""
        if self.device == "cpu":
            return _with_values(request, told_gpu=self.told_gpu, capturing=capturing)
        return _recorded(request, load(request, device=self.device), capturing=capturing)


def _first_pass(request: ModelRequest) -> _Pass:
    loaded = None
    try:
        loaded = load(request, device="meta")
        return _recorded(request, loaded)
    except ModelFailureError as on_meta:
        # Any failure may come from missing values: only the CPU shows whether that was the reason.
        check_fits(_weights_bytes(loaded, on_meta), on_meta)
        if request.autocast is not None:
            raise UnsupportedError(
                f"{request.name!r} under autocast ({request.autocast}) cannot be harvested, for it "
                f"does not run on meta: {on_meta}"
            ) from on_meta
        try:
            try:
                return _with_values(request, told_gpu=True)
            except ModelFailureError:  # it may have asked for what only a GPU has
                return _with_values(request, told_gpu=False)
        except (MemoryError, RuntimeError) as error:  # there is no room for its inputs
            said = f"{on_meta}; on the CPU it fails too: {one_line(error)}"
            raise ModelFailureError(said) from error


def _with_values(request: ModelRequest, *, told_gpu: bool, capturing: bool = False) -> _Pass:
    """Run a pass on the CPU, its batch norms calibrated as in a measured run."""
    loaded = load(request, device="cpu")
    notes = [WITH_VALUES] if told_gpu else [WITH_VALUES, AS_ON_A_CPU]
    if request.training is None:
        try:
            with seeded("cpu"):
                calibrate_batch_norms(loaded)
        except ANY_FAILURE as error:  # a forward is anyone's code
            notes.append(f"its batch norms could not be calibrated: {one_line(error)}")
    found = _recorded(request, loaded, "cpu", told_gpu=told_gpu, capturing=capturing)
    return replace(found, notes=(*found.notes, *notes))


def _weights_bytes(loaded: LoadedModel | None, failure: ModelFailureError) -> int:
    """Return the memory of a model's weights; of those made so far, if it could not be built."""
    if loaded is None:
        return failure.weights_bytes
    return bytes_of({*loaded.module.parameters(), *loaded.module.buffers()})


def _recorded(
    request: ModelRequest,
    loaded: LoadedModel,
    device: str = "meta",
    *,
    told_gpu: bool = False,
    capturing: bool = False,
) -> _Pass:
    training = request.training
    with seeded(device):
        if request.phase == "generate":
            found = generation.recorded(loaded, device)
        else:
            recorder = record(
                loaded,
                training=training,
                autocast=request.autocast,
                capturing=capturing,
                recorder_type=_ToldGpu if told_gpu else None,
            )
            found = Recorded.of(recorder)
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
        calls=tuple(_filled(found.calls, request.imbalance)),
        containers=found.containers,
        foreign_leaves=dict(found.foreign_leaves),
        unsupported=dict(found.unsupported),
        captured=capturing,
        memory=found.memory,
    )
    return _Pass(workload, device, found.asked, told_gpu, found.notes)


def _filled(calls: Iterable[Call], imbalance: float | None) -> Iterator[Call]:
    """Yield calls, the groups of grouped products filled as unevenly as is asked for."""
    for call in calls:
        inputs = dict(call.configuration.inputs)
        if imbalance and "offs" in inputs:
            inputs["offs"] = {**inputs["offs"], "values": {"imbalance": imbalance}}
            call = replace(call, configuration=replace(call.configuration, inputs=inputs))
        yield call
