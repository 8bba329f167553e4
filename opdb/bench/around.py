"""What a pass does in Python around its calls, timed on the host alone.

Modules prepare arguments, look things up in configurations, make output classes. The host needs
time for it in an eager pass beside that of the calls, whatever the device: see
`opdb.bench.answered` for how it is timed.

A whole generation is timed in parts: what lies up to the choice of the first token, and a step, of
each sort of steps that its calls show. So few of its passes are made, as when it is harvested.
"""

from __future__ import annotations

import io
import logging
import math
import warnings
from bisect import bisect_left
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TypeAlias

import torch

from opdb.bench.answered import DIFFERENT, Keeping, times_around
from opdb.errors import OpdbError, UnsupportedError
from opdb.growth import CHOICE, apart_from, steps_of
from opdb.harvest.generation import AHEAD, Passes, longer
from opdb.harvest.watching import record
from opdb.models import LoadedModel, ModelRequest, load
from opdb.models.construction import ANY_FAILURE, one_line
from opdb.records import Harvest, Workload, made

RUNS = 4
"""As many times a generation is begun at most, to time steps that make different calls."""

Part: TypeAlias = tuple[tuple[str, str], ...]
"""What a pass, or a part of it, calls (see `made`)."""

Times: TypeAlias = dict[Part, float]
"""The time around each part, in containers."""

Known: TypeAlias = dict[tuple[str, str], dict[Part, float | str]]
"""The times around parts, or why there are none, by a model's name and a phase."""


def with_around(request: ModelRequest, found: Harvest, known: Known) -> Harvest:
    """Return a harvest whose workload has what is `around` its calls, or a note why it has not.

    What is timed is added to what is `known`.
    """
    try:
        timed = around(request, found.workload, known)
    except UnsupportedError as error:
        return replace(found, notes=(*found.notes, str(error)))
    return replace(found, workload=replace(found.workload, around=timed))


def around(request: ModelRequest, workload: Workload, known: Known) -> float | None:
    """Return how long Python around the calls of a pass takes, as a number of containers.

    That is its quiet time over the time of a container (`container_time_s`) on this host, so that
    it serves for other hosts. It is 0 where the calls one by one take longer: each looks up its
    module, which `nn.Sequential` does not. None of training steps: these are not timed.

    `workload` is what was harvested. Each part of it (all of a pass that is no generation) is timed
    once for all sizes and dtypes of a model that make the same calls: what is `known` grows.

    Raises:
        UnsupportedError: the pass fails on meta, or makes other calls from one time to the next, or
            a generation has too many sorts of steps.
    """
    if request.training is not None:
        return None
    parts = _parts(request, workload)
    times = known.setdefault((request.name, request.phase), {})
    missing = [part for part in dict.fromkeys(parts) if part not in times]
    if missing:
        try:
            with _unheard(), torch.no_grad():
                times.update(_timed(request, parts, times))
        except ANY_FAILURE as error:  # a forward is anyone's code
            said = str(error) if isinstance(error, OpdbError) else one_line(error)
            times.update(dict.fromkeys(missing, _untimed(request, said)))
    total = 0.0
    for part, count in Counter(parts).items():
        timed = times[part]
        if isinstance(timed, str):
            raise UnsupportedError(timed)
        total += timed * count
    return total


def _untimed(request: ModelRequest, why: str) -> str:
    return f"Python around the calls of {request.name!r} was not timed: {why}"


@contextmanager
def _unheard() -> Iterator[None]:
    """Keep back what a model prints, warns of and logs: it told that when it was harvested."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with (
            redirect_stdout(io.StringIO()),
            redirect_stderr(io.StringIO()),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


def _parts(request: ModelRequest, workload: Workload) -> list[Part]:
    """Return what the parts of a pass call, in order.

    Those of a generation of several tokens are what comes up to the first choice, each step, and
    what comes after the last choice. Any other pass is one part.

    Raises:
        UnsupportedError: the generation's calls do not show its steps.
    """
    if request.phase != "generate" or request.max_new_tokens == 1:
        return [workload.made]
    steps = steps_of(workload)
    if not steps:
        raise UnsupportedError(_untimed(request, "its steps are not seen"))
    before, after = apart_from(workload, steps)
    return [made(calls) for calls in (before, *(step.calls for step in steps), after)]


def _timed(request: ModelRequest, parts: Sequence[Part], known: Container[Part]) -> Times:
    """Return the times around those parts of a pass that are not known."""
    loaded = load(request, device="meta")
    if len(parts) > 1:
        return _timed_of_generation(loaded, parts, known)
    recorder = record(loaded, autocast=request.autocast, recorder_type=Keeping)
    assert isinstance(recorder, Keeping)
    run = partial(loaded.module, *loaded.args, **loaded.kwargs)
    return {parts[0]: max(math.fsum(times_around(run, recorder.answers)), 0.0)}


def _timed_of_generation(
    loaded: LoadedModel, parts: Sequence[Part], known: Container[Part]
) -> Times:
    """Return the times around those parts of a generation that are not known.

    Raises:
        UnsupportedError: too many of them differ, or its end is not how a step begins.
    """
    *steps, end = parts
    found: Times = {}
    runs = 0
    for number, part in enumerate(steps):
        if part not in known and part not in found:
            runs += 1
            if runs > RUNS:
                raise UnsupportedError("too many of its steps make other calls")
            found.update(_timed_at(loaded, number, steps, end))
    if end not in known and end not in found:
        raise UnsupportedError("what it calls at its end is not how a step begins")
    return found


def _timed_at(loaded: LoadedModel, number: int, steps: Sequence[Part], end: Part) -> Times:
    """Return the times around a step (0: what comes before the first), the one before it, the end.

    Later steps are reached by a longer prompt, as when a generation is harvested. The end is that
    beginning of a step which makes the same calls.

    Raises:
        UnsupportedError: the step makes other calls than in the harvest.
    """
    ahead = min(number, AHEAD)
    begun = longer(loaded, number - ahead, "meta")
    passes = max(ahead, 1) + 1
    recorder, bounds = _recorded(begun, passes, steps[number], ahead)
    run = partial(begun.module, *begun.args, **begun.kwargs)
    is_broken_off = len(recorder.marks) > passes
    times = times_around(run, recorder.answers, broken_off=is_broken_off)
    before = [0, *(answer.calls for answer in recorder.answers)]

    def between(first: int, last: int) -> float:
        """Add up the times before those calls from one to another, the latter not among them."""
        return max(math.fsum(times[bisect_left(before, first) : bisect_left(before, last)]), 0.0)

    found: Times = {}
    for place, (first, last) in enumerate(bounds, number - ahead):
        part = made(recorder.calls[first:last])
        if part == steps[place]:  # a longer prompt is no step
            found[part] = between(first, last)
            if part[: len(end)] == end:
                found[end] = between(first, first + len(end))
    return found


class _KeepingPasses(Keeping, Passes):
    """Keeps the output of every recorded call of a generation's first passes."""


def _recorded(
    begun: LoadedModel, passes: int, step: Part, place: int
) -> tuple[_KeepingPasses, list[tuple[int, int]]]:
    """Record the first passes of a generation; return from which call to which each part goes.

    The first time a model may make what it finds the next time.

    Raises:
        UnsupportedError: the part of that place makes other calls than the step.
    """
    for _ in range(2):
        watched = partial(_KeepingPasses, passes=passes, settled=True)
        recorder = record(begun, recorder_type=watched)
        assert isinstance(recorder, _KeepingPasses)
        kinds = [call.configuration.kind for call in recorder.calls]
        ends = [number for number, kind in enumerate(kinds, 1) if kind == CHOICE]
        bounds = list(pairwise([0, *ends]))
        if len(bounds) == passes and made(recorder.calls[slice(*bounds[place])]) == step:
            return recorder, bounds
    raise UnsupportedError(DIFFERENT)
