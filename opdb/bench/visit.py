"""One bounded visit: build a configuration, replay it, keep what was seen."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch

from opdb.algorithms.names import DEFAULT, Algorithm, algorithm_named
from opdb.bench.access import HOT_WEIGHTS, Steps, access_flags, steps_of
from opdb.bench.code import after_others
from opdb.bench.forced import built, guess_flags
from opdb.bench.kernels import launched_kernels
from opdb.bench.neighbours import NO_ROOM, among_neighbours, has_room
from opdb.bench.replay import Replay, Rotation, eager_times_s, mean_time_s, prepare
from opdb.bench.session import Session, new_id, now, release
from opdb.bench.stretch import Observation, Timing, observe
from opdb.derive.costs import AT_THE_LIMIT, stretch_power_w
from opdb.derive.rejection import WAITED
from opdb.errors import UnsupportedError, said_by
from opdb.footprint import bytes_moved
from opdb.models.construction import one_line
from opdb.operators import BuiltBackward, BuiltCall
from opdb.records import (
    Access,
    Calibration,
    Configuration,
    Device,
    Neighbours,
    Outcome,
    Outputs,
    Role,
    Stretch,
    Visit,
    Weights,
)
from opdb.settings import relevant_setting
from opdb.units import MEGA

SETTLE_S = 0.06
WINDOW_S = 0.17
RECOVER_S = 0.4
"""Settling after a stretch at the power limit: so long the clock takes to rise again."""

LOWERED = "clock below its highest"

TIMED_REPLAYS = 3

WAITING_SHARE = 0.1
"""Graphs of which more found the device idle are too short for how slowly the host issues them.

A host that is held up for some milliseconds once or twice in a window changes nothing."""

NEAR_LIMIT = 0.93
"""Mean power above this share of the limit says that the operator itself is at the limit."""

LOWERED_DUTIES = (0.7, 0.5, 0.35)
"""Busy shares tried in turn for an operator that draws more than the limit allows, from the first
that is expected to keep below it."""

CLOCK_EXPONENT = 1.7
"""Dynamic power goes with about this power of the clock: over 55 operators that an H200's limit
slowed down, time ∝ f^-0.66 and dynamic energy ∝ f^1.07 at the median (docs/measuring.md)."""

UNKNOWN_KERNELS = 20
"""Kernels of a call that could not be listed, to keep the launch queue from filling."""

CLOCK_TOLERANCE = 0.985
"""A mean clock below this share of the board's highest was held back."""

REFUSALS = (RuntimeError, MemoryError, ValueError, TypeError, IndexError, AttributeError)
"""Errors that torch raises when it will not run a call: a finding about it, not the bench's end."""

OUT_OF_HOST_MEMORY = "DefaultCPUAllocator: "
"""What the CPU's allocator calls itself; what it raises is a RuntimeError like any other."""


@dataclass(frozen=True)
class VisitRequest:
    """The call to visit, its role, and the busy share to begin with (1: back to back, no gaps).

    `algorithm` is the one that a convolution is forced to take (None: torch chooses).
    `kernels` are those that an earlier visit of the campaign saw, to save looking again. `weights`
    concerns the `access` of a model alone: the other workloads say themselves what weights are.
    """

    configuration: Configuration
    role: Role = "measurement"
    duty: float = 1.0
    weights: Weights = "cold"
    kernels: Mapping[str, int] | None = None
    access: Access = "model"
    algorithm: str | None = None

    @property
    def outputs(self) -> Outputs:
        """Where outputs go: a training step keeps what it makes, all else frees it soon.

        Anchors write to fresh memory, so that they can be held against those of any board.
        """
        c = self.configuration
        kept = c.gradient or c.pass_name != "forward" or self.role == "anchor"
        cold = self.access == "model" and self.weights == "cold"
        return "fresh" if kept and cold else "reused"

    @property
    def forced(self) -> Algorithm:
        """The algorithm as its name means it."""
        return algorithm_named(self.algorithm or DEFAULT)


@dataclass(frozen=True)
class _Reading:
    """The readings of one stretch of a measurement, from which a visit is made."""

    kernels: Mapping[str, int] | None
    replay: Replay | None = None
    stretch: Stretch | None = None
    restore: Stretch | None = None
    neighbours: Neighbours | None = None
    flags: tuple[str, ...] = ()


def visit(session: Session, request: VisitRequest) -> list[Visit]:
    """Measure one configuration once; what cannot be measured is a visit with that outcome.

    Where the power limit pulls the clock down, the stretch is kept in the role `limited` and
    repeated with gaps, until the operator runs at full clock or the gaps can grow no more. The
    last visit returned is the one in the role asked for.

    Raises:
        CannotMeasureError: the device stopped answering, so no further visit can succeed.
    """
    seen: list[_Reading] = []
    outcome: Outcome = "ok"
    reason = None
    visits = _VisitRecorder(session, request)
    release(session)
    try:
        seen += _measure(session, request)
    except UnsupportedError as error:
        outcome, reason = "unsupported", str(error)
    except REFUSALS as error:
        outcome, reason = refusal(error)
    if outcome != "ok":
        session.check_alive()
        return [visits.record(None, request.role, outcome, reason)]
    return [
        visits.record(s, request.role if s is seen[-1] else "limited", "ok", None) for s in seen
    ]


class _VisitRecorder:
    """Makes visits from readings; they share the device time spent."""

    def __init__(self, session: Session, request: VisitRequest) -> None:
        self._session, self._request = session, request
        self._started_at, self._began_s = now(), time.monotonic()

    def record(
        self, seen: _Reading | None, role: Role, outcome: Outcome, reason: str | None
    ) -> Visit:
        """Make one visit; the first one bears the cost."""
        cost_s = time.monotonic() - self._began_s
        self._began_s += cost_s
        configuration = self._request.configuration
        settings = {**self._session.campaign.settings, **self._request.forced.setting}
        replay = seen.replay if seen else None
        return Visit(
            id=new_id(),
            campaign=self._session.campaign.id,
            configuration=configuration.key,
            setting=relevant_setting(configuration.kind, settings),
            role=role,
            outcome=outcome,
            reason=reason,
            started_at=self._started_at,
            cost_s=cost_s,
            issue=replay.how if replay else "eager",
            weights="hot" if self._request.access in HOT_WEIGHTS else self._request.weights,
            copies=replay.copies if replay else 0,
            stretch=seen.stretch if seen else None,
            restore=seen.restore if seen else None,
            kernels=seen.kernels if seen else None,
            flags=seen.flags if seen else (),
            access=self._request.access,
            outputs=self._request.outputs,
            neighbours=seen.neighbours if seen else None,
        )


def refusal(error: BaseException) -> tuple[Outcome, str]:
    """Return the outcome that a refusal means, and its reason in one line."""
    said = said_by(error)
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)) or OUT_OF_HOST_MEMORY in said:
        return "out_of_memory", said or one_line(error)
    return "error", one_line(error)


def _measure(session: Session, request: VisitRequest) -> list[_Reading]:
    call = built(request.configuration, request.forced, session.platform.torch_device)
    with issuing(call):
        return _replayed(session, request, call)


def issuing(*calls: BuiltCall) -> AbstractContextManager[Any]:
    """Issue everything on the stream that kernels of these calls run on, where it is a certain one.

    All backward passes share one stream; issuing from another would make the two wait for each
    other.
    """
    streams = [call.stream for call in calls if isinstance(call, BuiltBackward) and call.stream]
    return torch.cuda.stream(streams[0]) if streams else nullcontext()


def _replayed(session: Session, request: VisitRequest, call: BuiltCall) -> list[_Reading]:
    l2_bytes = session.platform.device.l2_bytes or 0
    steps = _steps(call, request, l2_bytes)  # it keeps inputs before the first call changes them
    kernels = request.kernels
    if session.on_gpu and kernels is None:
        kernels = launched_kernels(call)
    if kernels is not None and not kernels:
        return [_Reading(kernels)]
    steps.restore()
    replay = _prepare(session, steps, steps.copies)
    eager = _eager_times_s(replay, steps, kernels)
    found = replay.flags + access_flags(steps, l2_bytes) + guess_flags(call, request.forced)
    seen = [
        _Reading(
            kernels,
            replay,
            replace(stretch, eager_times_s=eager),
            flags=found + flags,
        )
        for stretch, flags in _until_full_clock(session, replay, request.duty)
    ]
    if replay.how == "graph" and request.access == "model" and isinstance(steps, Rotation):
        seen[-1] = _beside_neighbours(session, request, seen[-1], steps, replay)
    if steps.restores:
        restore = _restoring(session, steps, call, request.access)
        seen = [replace(s, restore=restore) for s in seen]
    return seen


def _beside_neighbours(
    session: Session, request: VisitRequest, seen: _Reading, rotation: Rotation, replay: Replay
) -> _Reading:
    """Return what was seen with the call's time among neighbours, or the flag that says why not."""
    l2_bytes = session.platform.device.l2_bytes or 0
    if not has_room(rotation):
        return replace(seen, flags=(*seen.flags, NO_ROOM))
    call_s = _replay_time_s(session, replay) / replay.calls
    try:
        found = among_neighbours(rotation, call_s, l2_bytes)
        if found is not None and request.kernels is None:  # once a campaign is enough
            touched, cold = bytes_moved(request.configuration), request.weights == "cold"
            after = after_others(rotation, call_s, touched, l2_bytes, cold=cold)
            found = replace(found, after=after)
        return replace(seen, neighbours=found)
    except torch.OutOfMemoryError:  # the graphs of it took more; what was seen before is good
        return replace(seen, flags=(*seen.flags, NO_ROOM))


def _steps(call: BuiltCall, request: VisitRequest, l2_bytes: int) -> Steps:
    """Return the calls that a replay is made of."""
    if request.access == "model":
        cold, fresh = request.weights == "cold", request.outputs == "fresh"
        return Rotation(call, l2_bytes=l2_bytes, cold=cold, fresh=fresh)
    return steps_of(call, request.access, l2_bytes=l2_bytes)


def _eager_times_s(
    replay: Replay, step: Callable[[], None], kernels: Mapping[str, int] | None
) -> tuple[float, ...]:
    if replay.how != "graph":
        return ()  # the replay itself is eager
    launches = sum(kernels.values()) if kernels else UNKNOWN_KERNELS
    return eager_times_s(step, launches, replay.call_s)


def _restoring(session: Session, steps: Steps, call: BuiltCall, access: Access) -> Stretch:
    """Return what restoring the call's inputs costs, as first measured in this campaign."""
    restored = [call.inputs[i] for i in call.mutated]
    copies = steps.copies if access == "streamed" else 1
    key = repr([copies, *((t.shape, t.stride(), t.dtype) for t in restored)])
    if key not in session.restores:
        replay = _prepare(session, steps.restore, copies)
        stretch, _ = _observed(session, replay, 1.0, SETTLE_S)
        eager = _eager_times_s(replay, steps.restore, None)
        session.restores[key] = replace(stretch, eager_times_s=eager)
    return session.restores[key]


def _until_full_clock(
    session: Session, replay: Replay, duty: float
) -> Iterator[tuple[Stretch, tuple[str, ...]]]:
    """Observe stretches until one ran at full clock, or the gaps can grow no more.

    A clock that is low although the power is far from the limit was pulled down by the visit
    before: the same stretch is then repeated once.
    """
    recovered = False
    stretch, flags = _observed(session, replay, duty, SETTLE_S)
    yield stretch, flags
    expected = expected_duty(stretch, session.platform.device, session.campaign.calibration)
    duties = [d for d in LOWERED_DUTIES if d < duty and d <= expected] or [
        d for d in LOWERED_DUTIES[-1:] if d < duty
    ]
    while not is_at_full_clock(flags):
        if recovered or any(flag.startswith(AT_THE_LIMIT) for flag in flags):
            if not duties:
                return
            duty = duties.pop(0)
        recovered = True
        stretch, flags = _observed(session, replay, duty, SETTLE_S + RECOVER_S)
        yield stretch, flags


def expected_duty(stretch: Stretch, device: Device, calibration: Calibration) -> float:
    """Return the busy share at which a stretch at the power limit would keep below it.

    1 where that is not to be told.
    """
    limit_w, base_w = device.power_limit_w, calibration.base_power_w
    power_w = stretch_power_w(stretch)
    if not (limit_w and base_w and power_w and device.max_clock_hz and stretch.clock_samples_hz):
        return 1.0
    share = statistics.fmean(stretch.clock_samples_hz) / device.max_clock_hz
    dynamic_w = (power_w - base_w) / stretch.busy_share / share**CLOCK_EXPONENT
    return (NEAR_LIMIT * limit_w - base_w) / dynamic_w if dynamic_w > 0 else 1.0


def _prepare(session: Session, step: Callable[[], None], copies: int) -> Replay:
    return prepare(step, device_type=session.platform.device.type, copies=copies)


def _observed(
    session: Session, replay: Replay, duty: float, settle_s: float
) -> tuple[Stretch, tuple[str, ...]]:
    """Observe one stretch of a replay at a busy share."""
    gap_s = 0.0 if duty == 1 else _replay_time_s(session, replay) * (1 / duty - 1)
    timing = Timing(settle_s, WINDOW_S, gap_s, session.lag_s)
    seen = observe(replay.issue, replay.calls, session.clock, session.meter, timing)
    flags = session_flags(session, seen)
    return seen.stretch, flags + (waiting_flags(seen) if replay.how == "graph" else ())


def _replay_time_s(session: Session, replay: Replay) -> float:
    """Return the shortest of a few replays: the host may be held up while it issues one."""
    return min(mean_time_s(replay.issue, session.clock, 1) for _ in range(TIMED_REPLAYS))


def session_flags(session: Session, seen: Observation) -> tuple[str, ...]:
    """Say in words what the meter saw that makes a stretch doubtful."""
    reading = seen.reading
    flags = [f"clock held back: {reason}" for reason in reading.throttle_reasons]
    if reading.reason:
        flags.append(f"no power: {reading.reason}")
    flags += _clock_flags(session.platform.device, seen.stretch)
    return tuple(flags)


def waiting_flags(seen: Observation) -> tuple[str, ...]:
    """Say that the host was too slow for a stretch of CUDA graphs, where it was."""
    if seen.waited_share <= WAITING_SHARE:
        return ()
    return (f"{WAITED} before {100 * seen.waited_share:.0f} % of the replays",)


def _clock_flags(device: Device, stretch: Stretch) -> list[str]:
    if not device.max_clock_hz or not stretch.clock_samples_hz:
        return []
    clock = statistics.fmean(stretch.clock_samples_hz)
    if clock >= CLOCK_TOLERANCE * device.max_clock_hz:
        return []
    power = stretch_power_w(stretch)
    near = device.power_limit_w and power and power >= NEAR_LIMIT * device.power_limit_w
    what = AT_THE_LIMIT if near else LOWERED
    return [f"{what}: {clock / MEGA:.0f} of {device.max_clock_hz / MEGA:.0f} MHz"]


def is_at_full_clock(flags: Iterable[str]) -> bool:
    """Whether no flag says that the clock was below its highest."""
    return not any(flag.startswith((AT_THE_LIMIT, LOWERED)) for flag in flags)
