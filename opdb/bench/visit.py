"""One bounded visit: build a configuration, replay it, keep what was seen."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from opdb.algorithms.convolution import cudnn, forced_call, run
from opdb.algorithms.names import DEFAULT, DIRECT, GUESS, Algorithm, algorithm_named
from opdb.bench.neighbours import (
    NO_ROOM,
    after_others,
    among_neighbours,
)
from opdb.bench.replay import (
    Observation,
    Replay,
    Rotation,
    Timing,
    eager_times_s,
    launched_kernels,
    mean_time_s,
    observe,
    prepare,
)
from opdb.bench.session import Platform, Session, new_id, now, release
from opdb.derive.costs import AT_THE_LIMIT, WAITED, stretch_power_w
from opdb.errors import CannotMeasureError, UnsupportedError, said_by
from opdb.kinds.registry import relevant_setting
from opdb.memory import bytes_moved
from opdb.models.construction import one_line
from opdb.operators import BuiltBackward, BuiltCall, build
from opdb.records import (
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
"""Busy shares tried in turn for an operator that draws more than the limit allows."""

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
    """A call to visit, the role in which the visit is stored, and what the call finds.

    `algorithm` is the one that a convolution is forced to take (None: torch chooses).

    What earlier visits of the campaign saw makes no other request: `duty` is the busy share to
    begin with (1: back to back, no gaps), `kernels` are those launched, to save looking again.
    """

    configuration: Configuration
    role: Role = "measurement"
    weights: Weights = "cold"
    algorithm: str | None = None
    duty: float = field(default=1.0, compare=False)
    kernels: Mapping[str, int] | None = field(default=None, compare=False)

    @property
    def outputs(self) -> Outputs:
        """Where outputs go: a training step keeps what it makes, all else frees it soon.

        Anchors write to fresh memory, so that they can be held against those of any board.
        """
        c = self.configuration
        kept = c.gradient or c.pass_name != "forward" or self.role == "anchor"
        return "fresh" if kept and self.weights == "cold" else "reused"

    @property
    def forced(self) -> Algorithm:
        return algorithm_named(self.algorithm or DEFAULT)


@dataclass(frozen=True)
class _Reading:
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
    last visit returned is the one in the role asked for; the first bears the cost of them all.
    """
    seen: list[_Reading] = []
    outcome: Outcome = "ok"
    reason = None
    started_at, began_s = now(), time.monotonic()
    release(session)
    try:
        with session.settled() as flags:
            call = built(request.configuration, request.forced, session.platform.torch_device)
            with issuing(call):
                found = _replayed(session, request, call)
                flags += guess_flags(call, request.forced)
        seen += [replace(each, flags=(*each.flags, *flags)) for each in found]
    except UnsupportedError as error:
        outcome, reason = "unsupported", str(error)
    except REFUSALS as error:
        outcome, reason = refusal(error)
    if outcome != "ok":
        session.check_alive()
        seen = [_Reading(None)]
    configuration, campaign = request.configuration, session.campaign
    settings = {**campaign.settings, **request.forced.setting}
    cost_s = time.monotonic() - began_s
    return [
        Visit(
            id=new_id(),
            campaign=campaign.id,
            configuration=configuration.key,
            setting=relevant_setting(configuration.kind, settings),
            role=request.role if each is seen[-1] else "limited",
            outcome=outcome,
            reason=reason,
            started_at=started_at,
            cost_s=cost_s if each is seen[0] else 0.0,
            issue=each.replay.how if each.replay else "eager",
            weights=request.weights,
            copies=each.replay.copies if each.replay else 0,
            stretch=each.stretch,
            restore=each.restore,
            kernels=each.kernels,
            flags=each.flags,
            outputs=request.outputs,
            neighbours=each.neighbours,
        )
        for each in seen
    ]


def refusal(error: BaseException) -> tuple[Outcome, str]:
    said = said_by(error)
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)) or OUT_OF_HOST_MEMORY in said:
        return "out_of_memory", said or one_line(error)
    return "error", one_line(error)


def issuing(*calls: BuiltCall) -> AbstractContextManager[Any]:
    """Issue everything on the stream that kernels of these calls run on, where it is a certain one.

    All backward passes share one stream; issuing from another would make the two wait for each
    other.
    """
    streams = [call.stream for call in calls if isinstance(call, BuiltBackward) and call.stream]
    return torch.cuda.stream(streams[0]) if streams else nullcontext()


def _replayed(session: Session, request: VisitRequest, call: BuiltCall) -> list[_Reading]:
    l2_bytes = session.platform.device.l2_bytes or 0
    cold, fresh = request.weights == "cold", request.outputs == "fresh"
    # It keeps inputs before the first call changes them.
    rotation = Rotation(call, l2_bytes=l2_bytes, cold=cold, fresh=fresh)
    kernels = request.kernels
    if session.on_gpu and kernels is None:
        kernels = launched_kernels(call)
    if kernels is not None and not kernels:
        return [_Reading(kernels)]
    rotation.restore()
    replay = prepare(rotation, device_type=session.platform.device.type, copies=rotation.copies)
    eager = _eager_times_s(replay, rotation, kernels)
    seen = [
        _Reading(
            kernels,
            replay,
            replace(stretch, eager_times_s=eager),
            flags=replay.flags + flags,
        )
        for stretch, flags in _until_full_clock(session, replay, request.duty)
    ]
    if replay.how == "graph":
        seen[-1] = _beside_neighbours(session, request, seen[-1], rotation, replay)
    if rotation.restores:
        restore = _restoring(session, rotation)
        seen = [replace(s, restore=restore) for s in seen]
    return seen


def _beside_neighbours(
    session: Session, request: VisitRequest, seen: _Reading, rotation: Rotation, replay: Replay
) -> _Reading:
    l2_bytes = session.platform.device.l2_bytes or 0
    call_s = _replay_time_s(session, replay) / replay.calls
    try:
        found = among_neighbours(rotation, call_s, l2_bytes)
        if found is not None and request.kernels is None:  # once a campaign is enough
            touched, cold = bytes_moved(request.configuration), request.weights == "cold"
            after = after_others(rotation, call_s, touched, l2_bytes, cold=cold)
            found = replace(found, after=after)
        return replace(seen, neighbours=found)
    except torch.OutOfMemoryError:  # what was seen before is good
        return replace(seen, flags=(*seen.flags, NO_ROOM))


def _eager_times_s(
    replay: Replay, step: Callable[[], None], kernels: Mapping[str, int] | None
) -> tuple[float, ...]:
    if replay.how != "graph":
        return ()  # the replay itself is eager
    launches = sum(kernels.values()) if kernels else UNKNOWN_KERNELS
    return eager_times_s(step, launches, replay.call_s)


def _restoring(session: Session, rotation: Rotation) -> Stretch:
    key = repr([(t.shape, t.stride(), t.dtype) for t in rotation.mutated])
    if key not in session.restores:
        replay = prepare(rotation.restore, device_type=session.platform.device.type)
        stretch, _ = _observed(session, replay, 1.0, SETTLE_S)
        eager = _eager_times_s(replay, rotation.restore, None)
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
    duties = [lowered for lowered in LOWERED_DUTIES if lowered < duty]
    while not is_at_full_clock(flags):
        if recovered or any(flag.startswith(AT_THE_LIMIT) for flag in flags):
            if not duties:
                return
            duty = duties.pop(0)
        recovered = True
        stretch, flags = _observed(session, replay, duty, SETTLE_S + RECOVER_S)
        yield stretch, flags


def _observed(
    session: Session, replay: Replay, duty: float, settle_s: float
) -> tuple[Stretch, tuple[str, ...]]:
    gap_s = 0.0 if duty == 1 else _replay_time_s(session, replay) * (1 / duty - 1)
    timing = Timing(settle_s, WINDOW_S, gap_s, session.lag_s)
    seen = observe(replay.issue, replay.calls, session.clock, session.meter, timing)
    flags = session_flags(session, seen)
    return seen.stretch, flags + (waiting_flags(seen) if replay.how == "graph" else ())


def _replay_time_s(session: Session, replay: Replay) -> float:
    """Return the shortest of a few replays: the host may be held up while it issues one."""
    return min(mean_time_s(replay.issue, session.clock, 1) for _ in range(TIMED_REPLAYS))


def session_flags(session: Session, seen: Observation) -> tuple[str, ...]:
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
    return not any(flag.startswith((AT_THE_LIMIT, LOWERED)) for flag in flags)


# Convolutions with a forced algorithm, as calls to be measured.


def check_algorithms(algorithms: Iterable[Algorithm], platform: Platform) -> None:
    forced = [algorithm for algorithm in algorithms if algorithm.is_forced]
    if forced and platform.device.type != "cuda":
        named = ", ".join(repr(algorithm.name) for algorithm in forced)
        raise CannotMeasureError(
            f"no algorithm can be forced on {platform.device.name}: {named} "
            f"{'needs' if len(forced) == 1 else 'need'} an NVIDIA GPU; here there is {DEFAULT!r} "
            "alone"
        )
    if any(algorithm.number is not None or algorithm.name == GUESS for algorithm in forced):
        cudnn()
    if any(algorithm.name == DIRECT for algorithm in forced) and find_spec("triton") is None:
        raise CannotMeasureError(
            f"the algorithm {DIRECT!r} needs Triton, which this torch came without"
        )


def built(configuration: Configuration, algorithm: Algorithm, device: str) -> BuiltCall:
    if not algorithm.is_forced:
        return build(configuration, device=device)
    if configuration.pass_name != "forward":
        raise UnsupportedError("algorithms are forced in forward passes alone")
    mode = configuration.parameters.get("padding_mode", "zeros")
    if mode != "zeros":
        raise UnsupportedError(
            f"padding {mode!r} is made before the convolution, which is then another configuration"
        )
    call = build(configuration, form="function", device=device)
    return call.with_function(_by(algorithm.name))


def _by(algorithm: str) -> Callable[..., Tensor]:
    call = partial(forced_call, algorithm)

    def conv2d(*args: Any, **kwargs: Any) -> Tensor:
        return run(call(*args, **kwargs))

    return conv2d


def guess_flags(call: BuiltCall, algorithm: Algorithm) -> tuple[str, ...]:
    if algorithm.name != GUESS:
        return ()
    guessed = forced_call(GUESS, *call.bare.args, **call.bare.keywords).ran()
    return (f"cuDNN guessed {guessed}",)
