"""Whole models with their convolutions forced: measured at many sizes, and verified."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from opdb.algorithms.convolution import Swap, swapped
from opdb.algorithms.names import GUESS, WINOGRAD, Algorithm
from opdb.bench.model import CampaignWork, RunReadings, is_finite, run_of, time_layers
from opdb.bench.plan import FORCED_KIND
from opdb.bench.replay import (
    MIN_REPLAYS,
    Timing,
    capture,
    hold_device,
    launched_kernels,
    mean_time_s,
    observe,
    warm_up,
)
from opdb.bench.session import Platform, Session, open_session, release
from opdb.bench.visit import refusal, session_flags
from opdb.errors import CannotMeasureError, DatabaseError, OpdbError, UnsupportedError
from opdb.meters import NoMeter
from opdb.models import LoadedModel, load, load_to_look
from opdb.models.construction import ANY_FAILURE, calibrate_batch_norms
from opdb.models.inputs import seeded
from opdb.records import ELSEWHERE, Json, ModelRun, Workload
from opdb.store import Store
from opdb.studies.sweep.request import SweepPolicy, SweepSpec
from opdb.studies.sweep.rows import LayerFacts, same_kernels

FIRST_SETTLE_S = 0.25
SETTLE_S = 0.05
WINDOW_S = 0.2
STRETCHES = 3
"""Short stretches, whose spread gives the interval: settling and windows are 1 s a cell."""

LAYER_PASSES = 5
FUNCTIONAL = "called as a function, outside every convolution layer"


@dataclass(frozen=True)
class SweepOptions:
    warm_up: int = 10
    measure: int = 20


def sweep_work(
    policy: SweepPolicy, options: SweepOptions, *, retry: bool = False
) -> CampaignWork[SweepSpec]:
    """Return the runs of a sweep; those of one model and size, side by side, load it once."""
    return CampaignWork(policy, partial(_cell_measurer, options), retry)


def _cell_measurer(
    options: SweepOptions, session: Session, store: Store
) -> Callable[[SweepSpec], ModelRun]:
    models = _Models(session, store)
    return lambda spec: measure_cell(session, spec, models, options)


class _Models:
    def __init__(self, session: Session, store: Store) -> None:
        self._session, self._store = session, store
        self._loaded: tuple[Workload, LoadedModel] | None = None

    def at(self, cell: SweepSpec) -> tuple[Workload, LoadedModel]:
        """Return a cell's model with inputs of its size, batch norms calibrated on them."""
        if self._loaded is None or self._loaded[0].key != cell.workload:
            self.forget()
            [workload] = self._store.workloads_by_key([cell.workload])
            loaded = load(cell.request, device=self._session.platform.torch_device)
            calibrate_batch_norms(loaded)
            self._loaded = workload, loaded
        return self._loaded

    def forget(self) -> None:
        self._loaded = None
        release(self._session)


def measure_cell(
    session: Session, cell: SweepSpec, models: _Models, options: SweepOptions
) -> ModelRun:
    """Measure one cell; what cannot be measured is a run with that outcome."""

    def work(seen: RunReadings) -> None:
        seen.facts["input_size"] = cell.size
        try:
            _measure(session, cell, models, options, seen)
        except ANY_FAILURE:
            models.forget()  # it may be what takes the memory
            raise

    return run_of(session, cell.workload, cell.mode, work, cell.setting)


def _measure(
    session: Session, cell: SweepSpec, models: _Models, options: SweepOptions, seen: RunReadings
) -> None:
    workload, loaded = models.at(cell)

    def step() -> Any:
        with torch.no_grad():
            return loaded.module(*loaded.args, **loaded.kwargs)

    if session.on_gpu:
        torch.cuda.reset_peak_memory_stats()
    with swapped(loaded.module, cell.algorithm) as swap:
        if not is_finite(step()):
            seen.flags.append("the model's outputs are not finite")
        seen.facts |= swap_facts(swap, workload)
        _check_forced(cell.algorithm, swap)
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
    total = sum(call.configuration.kind == FORCED_KIND for call in workload.calls)
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


def planned_seconds(store: Store, cells: int, device: str) -> tuple[float, int]:
    """Return the likely seconds of so many cells on a device (slug), and how many that rests on."""
    took = [run.cost_s for run in SweepPolicy((device,)).runs(store)]
    return cells * (statistics.fmean(took) if took else NOMINAL_S), len(took)


def convolution_layers(cell: SweepSpec) -> tuple[list[LayerFacts], list[str]]:
    """Return a model's convolution layers, and the path of each of their calls in order.

    Seen in one pass, on the meta device where it can be; where the pass fails, no calls are known.
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
    facts = [
        LayerFacts(path, layer.in_channels, layer.out_channels, tuple(layer.kernel_size))
        for path, layer in layers.items()
    ]
    return facts, calls


LAYER_TOLERANCES = {"float64": 1e-6, "float32": 5e-3, "float16": 2e-2, "bfloat16": 6e-2}
"""The largest error of a layer's output, as a share of its largest value, against torch's own.

In float32, TF32 errs by 3e-4."""

WINOGRAD_FACTOR = 2.0
"""Winograd's transforms may err so many times as much: that of 5x5 errs by 5.4e-3 in float32 (seen
on an H200), with FMA alone. What cuDNN guesses may be one."""

OUTPUT_TOLERANCE = 5.0
"""The model's outputs may err so many times as much: errors add up over layers."""

PASSES = 10


@dataclass(frozen=True)
class Verification:
    """What was seen of one algorithm in a model at one size.

    `forced` of the `convolutions` calls ran by the algorithm, `refused` says why others did not.
    Errors are shares of the largest value; `time_s`, `default_s` and `kernels` (None where they
    could not be seen) are of one pass. `failure` says why it could not be looked at.
    """

    cell: SweepSpec
    convolutions: int
    forced: int = 0
    refused: Mapping[str, str] | None = None
    layer_error: float | None = None
    worst_layer: str | None = None
    output_error: float | None = None
    time_s: float | None = None
    default_s: float | None = None
    kernels: Mapping[str, int] | None = None
    same_kernels_as: str | None = None
    failure: str | None = None

    @property
    def tolerance(self) -> float:
        allowed = LAYER_TOLERANCES[str(self.cell.request.dtype)]
        name = self.cell.algorithm.name
        return WINOGRAD_FACTOR * allowed if name in (*WINOGRAD, GUESS) else allowed

    @property
    def holds(self) -> bool:
        """Whether it was looked at, and every error is within the tolerance.

        What torch itself runs is what the others are held against.
        """
        if self.failure is not None or not self.cell.algorithm.is_forced:
            return self.failure is None
        layer, output = self.layer_error or 0.0, self.output_error or 0.0
        return layer <= self.tolerance and output <= OUTPUT_TOLERANCE * self.tolerance


def unmetered(platform: Platform) -> Session:
    return open_session(platform, NoMeter("verifying takes no power"))


def verify(session: Session, cells: Sequence[SweepSpec], workload: Workload) -> list[Verification]:
    convolutions = sum(call.configuration.kind == FORCED_KIND for call in workload.calls)

    def step() -> Any:
        with torch.no_grad():
            return loaded.module(*loaded.args, **loaded.kwargs)

    try:
        loaded = load(cells[0].request, device=session.platform.torch_device)
        calibrate_batch_norms(loaded)
        own, default_s = _output(session, step), _pass_s(session, step, cells[0])
    except ANY_FAILURE as error:  # a model's code may raise anything
        failure = _failure(session, error)
        return [Verification(cell, convolutions, failure=failure) for cell in cells]
    found = []
    for cell in cells:
        plain = Verification(cell, convolutions, default_s=default_s)
        try:
            found.append(_looked_at(session, plain, loaded.module, step, own))
        except ANY_FAILURE as error:
            found.append(replace(plain, failure=_failure(session, error)))
        release(session)
    if session.on_gpu:
        found = [_with_kernels(each, loaded.module, step) for each in found]
    return _with_same_kernels(found)


def _output(session: Session, step: Callable[[], Any]) -> Any:
    """Return what a pass computes; one that draws random numbers draws the same ones every time."""
    with seeded(session.platform.torch_device):
        return step()


def _failure(session: Session, error: BaseException) -> str:
    if isinstance(error, (CannotMeasureError, DatabaseError)):
        raise error
    session.check_alive()
    return str(error) if isinstance(error, OpdbError) else ": ".join(refusal(error))


def _looked_at(
    session: Session, plain: Verification, module: nn.Module, step: Callable[[], Any], own: Any
) -> Verification:
    with swapped(module, plain.cell.algorithm) as swap:
        errors = _Errors(swap)
        with errors.watching():
            output = _output(session, step)
        time_s = _pass_s(session, step, plain.cell)
        worst = max(errors.found, key=lambda path: errors.found[path], default=None)
        return replace(
            plain,
            forced=sum(errors.calls[path] for path in swap.forced),
            refused=dict(swap.refused),
            layer_error=None if worst is None else errors.found[worst],
            worst_layer=worst,
            output_error=_largest_error(output, own),
            time_s=time_s,
        )


class _Errors:
    def __init__(self, swap: Swap) -> None:
        self._swap = swap
        self.found: dict[str, float] = {}
        self.calls: Counter[str] = Counter()

    def watching(self) -> ExitStack:
        stack = ExitStack()
        for path, layer in self._swap.layers.items():
            handle = layer.module.register_forward_hook(self._hook(path))
            stack.callback(handle.remove)
        return stack

    def _hook(self, path: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
            assert isinstance(module, nn.Conv2d)
            own = nn.Conv2d._conv_forward(module, args[0], module.weight, module.bias)
            error = _error(output, own)
            self.found[path] = max(self.found.get(path, 0.0), error)
            self.calls[path] += 1

        return hook


def _error(output: Tensor, own: Tensor) -> float:
    """Return the largest difference as a share of the largest value.

    Where torch's own is infinite or no number, so must the other be; else the error is infinite.
    """
    one, other = output.float(), own.float()
    same = (one == other) | (one.isnan() & other.isnan())
    difference = (one - other).abs().masked_fill(same, 0.0).max()
    finite = other.abs().masked_fill(~other.isfinite(), 0.0)
    share = float(difference / finite.max().clamp_min(torch.finfo(torch.float32).tiny))
    return share if share == share else float("inf")


def _largest_error(output: Any, own: Any) -> float:
    if isinstance(own, Tensor):
        return _error(output, own) if own.is_floating_point() and own.numel() else 0.0
    if isinstance(own, Mapping):
        return max((_largest_error(output[name], own[name]) for name in own), default=0.0)
    if isinstance(own, (list, tuple)):
        pairs = zip(output, own, strict=True)
        return max((_largest_error(one, other) for one, other in pairs), default=0.0)
    return 0.0


def _pass_s(session: Session, step: Callable[[], Any], cell: SweepSpec) -> float:
    if cell.mode != "graph":
        step()
        return mean_time_s(step, session.clock, PASSES)
    warm_up(step)
    graph = capture(step, 1)
    graph.replay()
    return mean_time_s(graph.replay, session.clock, PASSES)


def _with_kernels(seen: Verification, module: nn.Module, step: Callable[[], Any]) -> Verification:
    if seen.failure is not None:
        return seen
    with swapped(module, seen.cell.algorithm):
        step()
        return replace(seen, kernels=launched_kernels(step, hidden=seen.cell.mode != "graph"))


def _with_same_kernels(found: Sequence[Verification]) -> list[Verification]:
    same = same_kernels([(each.cell.algorithm.name, each.kernels) for each in found])
    return [replace(each, same_kernels_as=same.get(each.cell.algorithm.name)) for each in found]
