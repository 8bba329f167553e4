"""Whole models at many input sizes with their convolutions forced, a second or so each."""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import torch
from torch import nn

from opdb.algorithms.names import GUESS, Algorithm
from opdb.algorithms.swap import Swap, swapped
from opdb.bench.forced import KIND
from opdb.bench.kernels import launched_kernels
from opdb.bench.layers import time_layers
from opdb.bench.measure import CampaignWork
from opdb.bench.model import is_finite
from opdb.bench.readings import RunReadings, RunTarget, run_of
from opdb.bench.replay import capture, hold_device, warm_up
from opdb.bench.session import Session, release
from opdb.bench.stretch import MIN_REPLAYS, Timing, observe
from opdb.bench.visit import session_flags
from opdb.errors import InputError, OpdbError, UnsupportedError
from opdb.models import LoadedModel, load, load_to_look
from opdb.models.construction import ANY_FAILURE
from opdb.models.inputs import make
from opdb.models.norms import calibrate_batch_norms
from opdb.records import ALGORITHM_SETTING, ELSEWHERE, Json, ModelRun, Outcome, Workload
from opdb.store import Store
from opdb.sweep.rows import LayerFacts
from opdb.sweep.specs import SweepPolicy, SweepSpec

FIRST_SETTLE_S = 0.25
SETTLE_S = 0.05
WINDOW_S = 0.2
STRETCHES = 3
"""Short stretches, whose spread gives the interval: settling and windows are 1 s a cell."""

LAYER_PASSES = 5
SIZE_FREE = ("torchvision",)
"""Sources whose models do not depend on the size of the input: one is loaded for all sizes."""

FUNCTIONAL = "called as a function, outside every convolution layer"


@dataclass(frozen=True)
class SweepOptions:
    """Options of a cell: passes of warm-up, least passes measured, whether layers are timed."""

    warm_up: int = 10
    measure: int = 20
    layers: bool = True


@dataclass(frozen=True)
class SweepWork(CampaignWork[SweepSpec]):
    """Runs of a sweep, the model at hand kept from size to size.

    Those of one model and size are best side by side: then they are measured in the same minute.
    """

    options: SweepOptions = field(default_factory=SweepOptions)

    def measurer(self, session: Session, store: Store) -> Callable[[SweepSpec], ModelRun]:
        """Return what measures one run."""
        models = _Models(session, store)
        return lambda spec: measure_cell(session, spec, models, self.options)


class _Models:
    """The loaded model, on the device, and its inputs at the size that was asked for last."""

    def __init__(self, session: Session, store: Store) -> None:
        self._session, self._store = session, store
        self._loaded: LoadedModel | None = None
        self._of: SweepSpec | None = None
        self.workload: Workload | None = None

    def at(self, cell: SweepSpec) -> LoadedModel:
        """Return a cell's model with inputs of its size, batch norms calibrated on them.

        Raises:
            InputError: the model cannot be built.
        """
        if self._loaded is not None and self._of is not None:
            if self._of.workload == cell.workload:
                return self._loaded
            if not _same_model(self._of, cell):
                self.forget()
        self._of = None  # until all of what follows went well
        [self.workload] = self._store.workloads_by_key([cell.workload])
        device = self._session.platform.torch_device
        if self._loaded is None:
            self._loaded = load(cell.request, device=device)
        else:
            inputs = self.workload.inputs
            args = tuple(make(value, device) for value in inputs["args"])
            kwargs = {name: make(value, device) for name, value in inputs["kwargs"].items()}
            self._loaded = replace(self._loaded, args=args, kwargs=kwargs, inputs=inputs)
        calibrate_batch_norms(self._loaded)
        self._of = cell
        return self._loaded

    def forget(self) -> None:
        """Release the model."""
        self._loaded = self._of = None
        release(self._session)


def _same_model(one: SweepSpec, other: SweepSpec) -> bool:
    sizeless = [replace(cell.request, input_size=None) for cell in (one, other)]
    return sizeless[0] == sizeless[1] and one.request.source in SIZE_FREE


def measure_cell(
    session: Session, cell: SweepSpec, models: _Models, options: SweepOptions
) -> ModelRun:
    """Measure one cell; what cannot be measured is a run with that outcome.

    Raises:
        CannotMeasureError: the device stopped answering.
    """
    outcomes: dict[type[OpdbError], Outcome] = {
        UnsupportedError: "unsupported",
        InputError: "error",
    }

    def work(seen: RunReadings) -> None:
        seen.facts["input_size"] = cell.size
        try:
            _measure(session, cell, models, options, seen)
        except ANY_FAILURE:
            models.forget()  # it may be what takes the memory
            raise

    return run_of(session, RunTarget(cell.workload, cell.mode, outcomes, cell.setting), work)


def _measure(
    session: Session, cell: SweepSpec, models: _Models, options: SweepOptions, seen: RunReadings
) -> None:
    loaded = models.at(cell)
    assert models.workload is not None

    def step() -> Any:
        with torch.no_grad():
            return loaded.module(*loaded.args, **loaded.kwargs)

    if session.on_gpu:
        torch.cuda.reset_peak_memory_stats()
    with swapped(loaded.module, cell.algorithm) as swap:
        if not is_finite(step()):
            seen.flags.append("the model's outputs are not finite")
        seen.facts |= swap_facts(swap, models.workload)
        _check_forced(cell.algorithm, swap)
        if options.layers:
            _time_layers(session, loaded.module, step, seen)
        if session.on_gpu:
            seen.kernels = launched_kernels(step, hidden=cell.mode != "graph")
        issue: Callable[[], Any] = step
        if cell.mode == "graph":
            warm_up(step)
            issue = capture(step, 1).replay
        _observe(session, issue, options, seen)
        if session.on_gpu:
            torch.cuda.synchronize()
            seen.peak_memory_bytes = torch.cuda.max_memory_allocated()


def swap_facts(swap: Swap, workload: Workload) -> dict[str, Json]:
    """Return a swap's counts in one pass: convolutions, forced ones, those that ran otherwise."""
    total = sum(call.configuration.kind == KIND for call in workload.calls)
    facts: dict[str, Json] = {"convolutions": total}
    if not swap.algorithm.is_forced:
        return facts
    forced = sum(swap.layers[path].calls for path in swap.forced)
    elsewhere = {path: {"ran": "default", "why": why} for path, why in sorted(swap.refused.items())}
    known = sum(layer.calls for layer in swap.layers.values()) + len(swap.left)
    if total > known:
        elsewhere[FUNCTIONAL] = {"ran": "default", "why": f"{total - known} calls: {FUNCTIONAL}"}
    facts["forced"] = forced
    if elsewhere:
        facts[ELSEWHERE] = elsewhere
    if swap.algorithm.name == GUESS:
        guessed = {path: swap.layers[path].ran for path in swap.forced}
        facts["guessed"] = {path: sorted(set(ran.values())) for path, ran in guessed.items()}
    return facts


def _check_forced(algorithm: Algorithm, swap: Swap) -> None:
    """Check that an algorithm runs any convolution of a model.

    Raises:
        UnsupportedError: it runs none.
    """
    if not algorithm.is_forced or swap.forced:
        return
    if not swap.layers and not swap.left:
        raise UnsupportedError("the model has no convolution layer")
    why, count = Counter(swap.refused.values()).most_common(1)[0]
    raise UnsupportedError(
        f"{algorithm.name} runs none of {len(swap.refused)} convolutions ({count} of them: {why})"
    )


def _time_layers(
    session: Session, module: nn.Module, step: Callable[[], Any], seen: RunReadings
) -> None:
    """Time every leaf in place, and say what share of it convolutions took that ran otherwise."""
    hold = hold_device if session.on_gpu else None
    layers = time_layers(module, step, session.clock, passes=LAYER_PASSES, hold=hold)
    seen.layers = layers
    elsewhere: Mapping[str, Json] = seen.facts.get(ELSEWHERE, {})
    if elsewhere and FUNCTIONAL not in elsewhere:
        share = sum(layers.get(path, 0.0) for path in elsewhere) / sum(layers.values())
        seen.facts["share_elsewhere"] = share


def _observe(
    session: Session, issue: Callable[[], Any], options: SweepOptions, seen: RunReadings
) -> None:
    """Observe short stretches, together of as many passes as wanted or more."""
    for _ in range(options.warm_up):
        issue()
    settle_s = FIRST_SETTLE_S
    least = max(MIN_REPLAYS, math.ceil(options.measure / STRETCHES))
    for _ in range(STRETCHES):
        timing = Timing(settle_s, WINDOW_S, lag_s=session.lag_s, least=least)
        found = observe(issue, 1, session.clock, session.meter, timing)
        seen.repeats.append(found.stretch)
        seen.flags += session_flags(session, found)
        settle_s = SETTLE_S


NOMINAL_S = 1.9
"""Seconds of a cell where none was measured: the mean of the 593 published ones, on an H200."""


def planned_seconds(store: Store, cells: Sequence[SweepSpec], device: str) -> tuple[float, int]:
    """Return the likely seconds of cells on a device (slug), and how many cells that rests on.

    A cell counts with the mean of the model's cells under the algorithm, else of all cells under
    it, else of the model's, else of all; without any, with `NOMINAL_S`. Means, because their sum is
    asked for and a few cells take many times the median.
    """
    names = {head.workload.key: head.workload.name for head in store.heads()}
    took: defaultdict[_Sort, list[float]] = defaultdict(list)
    runs = SweepPolicy((device,)).runs(store)
    for run in runs:
        for sort in _sorts(names[run.workload], str(run.setting[ALGORITHM_SETTING])):
            took[sort].append(run.cost_s)
    usual = {sort: statistics.fmean(seconds) for sort, seconds in took.items()}
    each = [
        next(
            (usual[s] for s in _sorts(cell.request.name, cell.algorithm.name) if s in usual),
            NOMINAL_S,
        )
        for cell in cells
    ]
    return sum(each), len(runs)


_Sort: TypeAlias = tuple[str | None, str | None]
"""Cells of a model under an algorithm; None is any."""


def _sorts(model: str, algorithm: str) -> list[_Sort]:
    return [(model, algorithm), (None, algorithm), (model, None), (None, None)]


def convolution_layers(cell: SweepSpec) -> tuple[list[LayerFacts], list[str]]:
    """Return a model's convolution layers, and the path of each of their calls in order.

    Seen in one pass, on the meta device where it can be; where the pass fails, no calls are known.

    Raises:
        InputError: the model cannot be built.
    """
    loaded = load_to_look(cell.request)
    layers = {p: m for p, m in loaded.module.named_modules() if isinstance(m, nn.Conv2d)}
    calls: list[str] = []
    for path, layer in layers.items():
        layer.register_forward_hook(lambda *_, path=path: calls.append(path))
    try:
        with torch.no_grad():
            loaded.module(*loaded.args, **loaded.kwargs)
    except ANY_FAILURE:  # a model's forward is anyone's code
        calls = []
    facts = [  # after the pass, in which lazy layers learn their channels
        LayerFacts(path, layer.in_channels, layer.out_channels, tuple(layer.kernel_size))
        for path, layer in layers.items()
    ]
    return facts, calls
