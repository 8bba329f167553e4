"""A whole workload measured: the truth that predictions are checked against."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from opdb.bench.kernels import launched_kernels
from opdb.bench.layers import time_layers
from opdb.bench.modes import REPLAYING, Passing, flags_of, issuing, output_difference
from opdb.bench.readings import RunReadings, RunTarget, run_of
from opdb.bench.replay import Clock
from opdb.bench.session import Session
from opdb.bench.stretch import Timing, observe
from opdb.bench.training import TrainingStep
from opdb.bench.visit import session_flags, waiting_flags
from opdb.compile.dynamo import compiled_frames
from opdb.derive.quiet import blocks_s
from opdb.derive.runs import (
    AGREEMENT,
    HOSTS_AGREEMENT,
    QUIET_BLOCKS,
    agreeing,
    repeat_spread,
)
from opdb.errors import InputError, NotCompiledError
from opdb.memory import Memory
from opdb.models import LoadedModel, ModelRequest, load
from opdb.models.inputs import numbers, tensors
from opdb.models.norms import calibrate_batch_norms
from opdb.records import Json, Mode, ModelRun
from opdb.units import show

SETTLE_S = 0.5
WINDOW_S = 1.0
REPEATS = 3
MAX_REDONE = 5
"""Repeats added where the first ones do not agree."""

HOSTS_REDONE = 13
"""So many where the host is the bottleneck: others' work holds it up in most seconds of some hosts,
and three seconds are waited for in which it does not."""

OUTRUN = 0.9
"""The host is the bottleneck where the device outruns it in this share of the passes or more."""

UNCHANGED: tuple[Mode, ...] = ("eager", "graph")
"""Modes that run the model's own kernels."""


@dataclass(frozen=True)
class RunOptions:
    """How to measure models: how many stretches, and whether layers are timed in place.

    A model whose `memory` does not fit is not made; None: that is not known.
    """

    repeats: int = REPEATS
    layers: bool = False
    memory: Memory | None = None


def measure(
    session: Session, request: ModelRequest, workload: str, mode: Mode, options: RunOptions
) -> ModelRun:
    """Load and measure a model; what cannot be measured is a run with that outcome.

    Raises:
        CannotMeasureError: the device stopped answering.
    """
    target = RunTarget(workload, mode, {InputError: "error", NotCompiledError: "unsupported"})
    return run_of(session, target, lambda seen: _measure(session, request, target, options, seen))


def _measure(
    session: Session,
    request: ModelRequest,
    target: RunTarget,
    options: RunOptions,
    seen: RunReadings,
) -> None:
    mode = target.mode
    before = compiled_frames()
    if options.memory is not None:
        _check_room(options.memory)
    loaded = load(request, device=session.platform.torch_device)
    step = _step(loaded, request, mode)
    first_s, outputs = _timed(step, session.clock)
    if not is_finite(outputs):
        seen.flags.append("the model's outputs are not finite")
    kept = None if mode in UNCHANGED else [t.cpu() for t in tensors(outputs)]
    if kept is not None:
        again = [t.cpu() for t in tensors(step())]
        seen.facts["eager_difference"] = output_difference(kept, again)
        del again
        if not kept:
            seen.flags.append("outputs hold no tensors: a compiler may leave out what makes none")
    del outputs  # outputs are compared on the host: of the device's memory a mode may need all
    if session.on_gpu:
        torch.cuda.reset_peak_memory_stats()
        if mode in UNCHANGED:
            seen.kernels = launched_kernels(step, hidden=mode != "graph")
    if options.layers:
        seen.layers = time_layers(loaded.module, step, session.clock)
    passing = Passing(loaded, step, session.clock, target.workload, session.graphs)
    with issuing(mode, passing, seen.facts) as issue:
        if kept is not None:
            found = [t.cpu() for t in tensors(issue())]
            if is_finite(kept) and not is_finite(found):
                seen.flags.append(f"outputs are finite in eager, and not in {mode}")
            seen.facts["output_difference"] = output_difference(kept, found)
            del kept, found
        if session.on_gpu and mode not in (*UNCHANGED, *REPLAYING):
            seen.kernels = launched_kernels(issue)
        # A short pass may be long the first time; then the stretch finds that it is not.
        timing = Timing(SETTLE_S, WINDOW_S, lag_s=session.lag_s, long=first_s > WINDOW_S)
        _observe(session, issue, timing, options, seen, replays=mode in REPLAYING)
        seen.facts |= quiet_facts(mode, seen)
    if mode == "eager" and compiled_frames() > before:
        seen.flags.append("the model compiles a part of itself: not all of it runs in eager")
    seen.flags += flags_of(seen.facts)
    if session.on_gpu:
        seen.peak_memory_bytes = torch.cuda.max_memory_allocated()


def _timed(step: Callable[[], Any], clock: Clock) -> tuple[float, Any]:
    """Make one pass and wait for it; return its seconds and its outputs."""
    first = clock.mark()
    outputs = step()
    last = clock.mark()
    clock.wait(last)
    return clock.elapsed_s(first, last), outputs


def _check_room(memory: Memory) -> None:
    """Check that a device has the memory that a model needs, before anything of it is made.

    Raises:
        MemoryError: it certainly has not.
    """
    if memory.fits is False:
        needed, there = show(memory.needed_bytes, "B"), show(memory.device_bytes, "B")
        raise MemoryError(f"needs about {needed}, the device has {there}")


def _observe(
    session: Session,
    issue: Callable[[], Any],
    timing: Timing,
    options: RunOptions,
    seen: RunReadings,
    *,
    replays: bool,
) -> None:
    """Observe stretches of passes, or of CUDA graphs, until as many agree as must."""
    bound, outrun, wanted = AGREEMENT, 1.0, options.repeats
    while len(seen.repeats) < wanted:
        found = observe(issue, 1, session.clock, session.meter, timing)
        seen.repeats.append(found.stretch)
        seen.flags += session_flags(session, found)
        if replays:  # an eager pass may wait for the host; a CUDA graph that does was issued late
            seen.flags += waiting_flags(found)
        outrun = min(outrun, found.outrun_share)
        bound, redone = (
            (HOSTS_AGREEMENT, HOSTS_REDONE) if outrun >= OUTRUN else (AGREEMENT, MAX_REDONE)
        )
        agree = repeat_spread(agreeing(seen.repeats)) <= bound
        wanted = options.repeats + (0 if agree else redone)
    if session.on_gpu:
        seen.facts["outrun_share"] = outrun
    spread = repeat_spread(agreeing(seen.repeats))
    if spread > bound:
        seen.flags.append(f"no three repeats agree: the fastest differ by {100 * spread:.1f} %")


def quiet_facts(mode: Mode, seen: RunReadings) -> dict[str, Json]:
    """Return how many blocks an eager run that waits for the host has; nothing of another."""
    if mode != "eager" or seen.facts.get("outrun_share", 0.0) < OUTRUN:
        return {}
    return {QUIET_BLOCKS: sum(len(blocks_s(repeat.replay_times_s)) for repeat in seen.repeats)}


def _step(loaded: LoadedModel, request: ModelRequest, mode: Mode) -> Callable[[], Any]:
    """Return what is measured: one pass, or one training step.

    Raises:
        InputError: a training step is not measured in this mode.
    """
    if request.training is not None:
        if mode not in UNCHANGED:
            raise InputError(f"training is not measured in mode {mode!r}; use eager or graph")
        return TrainingStep(loaded, request)
    if request.autocast is not None:
        raise InputError("a model under autocast is measured in training alone")
    calibrate_batch_norms(loaded)

    def infer() -> Any:
        with torch.no_grad():
            return loaded.module(*loaded.args, **loaded.kwargs)

    return infer


def is_finite(outputs: Any) -> bool:
    """Return whether every floating-point or complex number in a model's outputs is finite."""
    return all(
        bool(t.isfinite().all())
        for t in numbers(outputs)
        if t.dtype.is_floating_point or t.is_complex()
    )
