"""Host time of operators, measured in the order of their model, apart from device visits.

In a tight loop of one operator the host's caches are warm for it and its time comes out too low; in
random order they are cold for what a model calls again and again, and it comes out too high. In
the model's order it is what the model sees.

Other work on a host holds it up for a second here and there, all calls alike, by half and more. So
all blocks of rounds are kept, in moments before and after the visits of a bench, and the calls of
the quietest blocks count (`opdb.derive.quiet`).
"""

from __future__ import annotations

import gc
import itertools
import math
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn

from opdb.bench.session import Session, new_id, now, release
from opdb.bench.visit import issuing
from opdb.derive.quiet import BLOCK_S, LEAST_BLOCKS
from opdb.errors import UnsupportedError
from opdb.kinds import get_kind
from opdb.kinds.fused import NAME as FUSED
from opdb.operators import BuiltBackward, BuiltCall, build
from opdb.records import (
    Call,
    Configuration,
    Form,
    HostVisit,
)
from opdb.units import show

BLOCKS = LEAST_BLOCKS
"""Blocks of a moment, which lasts a second or more: on some hosts a process that begins to issue
calls speeds up by 20 to 30 % for so long."""

WARM_UP_ROUNDS = 3

MOST_S = 4.0
"""A moment of all calls of a pass takes so long at most. A longer pass waits for the device rather
than for the host: its distinct calls are made once a round, in the order of their first."""

MOST_MOMENTS = 4
"""So often at most are a workload's calls timed, once before the visits of a bench."""

CALLS_BETWEEN_SYNCHRONISING = 64
"""The launch queue must not fill, or the host would wait for the device inside a call; nor may it
run empty too often, for the first call after waiting is slower."""

GROUP_BYTES = 32 * 2**30  # Calls are built until they take so many, and measured together.

FEW_CALLS = 32
"""Workloads with fewer are measured together: each group takes a second, however few its calls, and
a build that takes up some calls of each of many models would spend its time so."""

AUTOGRAD_ENTRY = "less the {} in which autograd begins and ends"
GRAPH_ENTRY = "less the {} in which a compiled graph begins and ends"


def _kernels(count: int) -> Configuration:
    """Return a fused group of `count` kernels, alike but for their size, so that none are fused."""
    sizes = [64 * (number + 1) for number in range(count)]
    nodes = [
        {"op": "aten.cos.default", "args": [{"input": number}], "shape": [size]}
        for number, size in enumerate(sizes)
    ]
    outputs = [{"node": number, "dtype": "float32"} for number in range(count)]
    inputs = [{"shape": [size], "dtype": "float32"} for size in sizes]
    return Configuration(FUSED, {"nodes": nodes, "outputs": outputs}, {"inputs": inputs})


GRAPHS = (_kernels(1), _kernels(2))
"""Compiled graphs of one and of two kernels: what twice the first takes beyond the second, they
take to begin and to end. One without a kernel takes less: it does not turn to the device."""


def host_visits(session: Session, workloads: Sequence[Sequence[Call]]) -> Iterator[HostVisit]:
    """Measure the calls of workloads in their order, each distinct one by all its occurrences.

    Calls that cannot be built here are passed over; their device visit says why. What is too large
    for the memory is measured in parts.
    """
    for calls, order in _parts(session, workloads):
        yield from _measure(session, calls, order)
        calls.clear()
        release(session)


def few_at_once(workloads: Sequence[list[Call]]) -> Iterator[list[list[Call]]]:
    few: list[list[Call]] = []
    for calls in workloads:
        few.append(calls)
        if sum(map(len, few)) >= FEW_CALLS:
            yield few
            few = []
    if few:
        yield few


def _parts(
    session: Session, workloads: Sequence[Sequence[Call]]
) -> Iterator[tuple[list[tuple[Call, BuiltCall]], list[int]]]:
    """Yield distinct calls that the memory holds, and the places of all in their order.

    Who gets them clears the list, and so the memory.
    """
    calls: list[tuple[Call, BuiltCall]] = []
    places: dict[tuple[str, Form], int] = {}
    order: list[int] = []
    tried, size = set(), 0
    for call in itertools.chain.from_iterable(workloads):
        key = call.configuration.key, call.form
        if key not in tried:
            tried.add(key)
            built = built_on(call, session.platform.torch_device)
            if built is not None:
                places[key] = len(calls)
                calls.append((call, built))
                size += built.input_bytes * 3 + built.weight_bytes
        if key in places:
            order.append(places[key])
        if size >= GROUP_BYTES:
            yield calls, order
            calls, places, order, size = [], {}, [], 0
    if calls:
        yield calls, order


def built_on(call: Call, device: str) -> BuiltCall | None:
    try:
        built = build(call.configuration, form=call.form, device=device)
        built()
    except (UnsupportedError, RuntimeError, ValueError, TypeError, IndexError, AttributeError):
        return None
    return built


@dataclass(frozen=True)
class Timed:
    """A call as it is timed: `ready` returns what a model issues, inside `modes`, for one run.

    Calls of equal `state` ask for the same modes. One that `waits` for the device begins when that
    has nothing else to do: what is timed is to hold no other call's work.
    """

    ready: Callable[[], Callable[[], Any]]
    modes: Callable[[], AbstractContextManager[None]]
    state: tuple[object, ...] = ()
    waits: bool = False

    @classmethod
    def of(cls, built: BuiltCall) -> Timed:
        """Return how a call is timed: the call alone, its modes are entered outside of it."""
        asked = built.configuration
        state = (asked.pass_name, asked.gradient, asked.autocast)
        return cls(_readied(built), built.modes, state, get_kind(asked.kind).waits(asked))


def _readied(built: BuiltCall) -> Callable[[], Callable[[], Any]]:
    """Return what makes a call ready for one run.

    A module is called as its parent would, `self.child(x)`: looking up a child is a Python call.
    """
    if any(built.inputs[i].requires_grad for i in built.mutated):
        return lambda: built.bare
    bare: Any = built.bare
    if built.module is None or bare.func is not built.module:
        return lambda: bare
    parent: Any = nn.Module()
    parent.child = built.module
    args, kwargs = bare.args, bare.keywords
    return lambda: lambda: parent.child(*args, **kwargs)


def round_of(calls: Sequence[Timed], on_gpu: bool) -> Callable[[], list[float]]:
    """Return what makes all calls, one after the other, and returns the host time of each.

    Modes are entered anew where a call asks for others than the one before it: a model enters them
    once for many calls, and entering takes as long as a small call.
    """

    def one_round() -> list[float]:
        times = []
        entered: tuple[object, ...] | None = None
        with ExitStack() as stack:
            for place, call in enumerate(calls):
                if on_gpu and (call.waits or place % CALLS_BETWEEN_SYNCHRONISING == 0):
                    torch.cuda.synchronize()
                if call.state != entered:
                    stack.close()
                    stack.enter_context(call.modes())
                    entered = call.state
                issue = call.ready()
                start_ns = time.perf_counter_ns()
                issue()
                times.append((time.perf_counter_ns() - start_ns) * 1e-9)
        return times

    return one_round


def _took_s(one_round: Callable[[], list[float]]) -> float:
    """Return how long a round takes once it is warm and nothing holds it up, in seconds."""

    def once_s() -> float:
        start_s = time.perf_counter()
        one_round()
        return time.perf_counter() - start_s

    return min(once_s() for _ in range(WARM_UP_ROUNDS))


def blocks_of(one_round: Callable[[], list[float]]) -> list[list[float]]:
    """Make blocks of rounds; return the mean round of each, call by call."""
    rounds = math.ceil(BLOCK_S / _took_s(one_round))
    made = []
    for _ in range(BLOCKS):
        gc.disable()
        try:
            made.append([one_round() for _ in range(rounds)])
        finally:
            gc.enable()
    return [[statistics.fmean(times) for times in zip(*block, strict=True)] for block in made]


def by_call(blocks: Sequence[Sequence[float]], order: Sequence[int]) -> list[list[float]]:
    occurrences: dict[int, list[int]] = defaultdict(list)
    for position, place in enumerate(order):
        occurrences[place].append(position)
    return [
        [statistics.fmean(block[position] for position in occurrences[place]) for block in blocks]
        for place in sorted(occurrences)
    ]


def _measure(
    session: Session, group: Sequence[tuple[Call, BuiltCall]], order: Sequence[int]
) -> Iterator[HostVisit]:
    started_at = now()
    calls = [built for _, built in group]
    with issuing(*calls):
        entries = {words: _entry(words, session) for words in map(_entered, calls) if words}
        timed = [*map(Timed.of, calls)]
        for words, own in entries.items():
            entering = [place for place, built in enumerate(calls) if _entered(built) == words]
            order = _amid(order, entering, range(len(timed), len(timed) + len(own)))
            timed += own

        def one_round(order: Sequence[int]) -> list[float]:
            return round_of([timed[place] for place in order], session.on_gpu)()

        with torch.no_grad():
            if _took_s(lambda: one_round(order)) * BLOCKS > MOST_S:
                order = list(dict.fromkeys(order))
            times = by_call(blocks_of(lambda: one_round(order)), order)
    left = iter(times[len(calls) :])
    entries_s = {
        words: [entry_s(each) for each in zip(*itertools.islice(left, len(own)), strict=True)]
        for words, own in entries.items()
    }
    for (call, built), seen in zip(group, times, strict=False):
        words = _entered(built)
        less_s = entries_s.get(words, [0.0] * len(seen))
        yield HostVisit(
            id=new_id(),
            campaign=session.campaign.id,
            configuration=call.configuration.key,
            form=call.form,
            started_at=started_at,
            times_s=tuple(max(s - less, 0.0) for s, less in zip(seen, less_s, strict=True)),
            flags=(words.format(show(statistics.median(less_s), "s")),) if words else (),
        )


def _amid(order: Sequence[int], among: Sequence[int], places: Iterable[int]) -> list[int]:
    positions = [position for position, place in enumerate(order) if place in among]
    middle = positions[len(positions) // 2] + 1
    return [*order[:middle], *places, *order[middle:]]


def _entered(built: BuiltCall) -> str:
    """Say what a call enters that a model enters once for many calls; "" for nothing."""
    if isinstance(built, BuiltBackward):
        return AUTOGRAD_ENTRY
    return GRAPH_ENTRY if built.configuration.kind == FUSED else ""


def _entry(words: str, session: Session) -> tuple[Timed, ...]:
    """Return the calls that show how long entering takes (`entry_s`), timed among the others.

    A training step enters autograd once, for all of its calls; here each call enters it.
    """
    device = session.platform.torch_device
    if words == GRAPH_ENTRY:
        return tuple(Timed.of(build(graph, device=device)) for graph in GRAPHS)
    tensor = torch.ones(1, device=device, requires_grad=True)
    output, gradient = tensor.view(1), torch.ones(1, device=device)
    enter = partial(torch.autograd.grad, output, tensor, gradient, retain_graph=True)
    return (Timed(lambda: enter, nullcontext),)


def entry_s(times_s: Sequence[float]) -> float:
    first, *second = times_s
    return max(2 * first - second[0], 0.0) if second else first
