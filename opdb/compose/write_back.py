"""What the L2 writes back to memory while a call streams its weights from there.

What a call writes stays in the L2 until other data take its place, and must then be written to
memory. A call that computes, or reads what the L2 holds, hides that. One that reads its weights
from memory as fast as it can takes longer by what the memory takes to write (docs/measuring.md).
A call that is measured alone writes back what it leaves itself, not what others left.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass

PLACES = 2
"""An output takes the memory of the output before the last of its size, as in a replay."""

SMALL_SHARE = 1e-3
"""Less than this share of what the L2 keeps is not followed: 30 kB are written in 7 ns."""


@dataclass(frozen=True)
class Traffic:
    """The bytes of weights and inputs that a call reads, and of outputs that it writes."""

    weights: int
    inputs: int
    output: int


class _Queue:
    """What lies in the L2, first in, first out: [bytes, whether they are dirty] each."""

    def __init__(self, capacity: float) -> None:
        self._capacity = capacity
        self._held = 0.0
        self._queue: deque[list[float]] = deque()
        self._outputs: dict[int, deque[list[float]]] = defaultdict(deque)

    def read(self, size: float) -> float:
        """Bring in bytes from memory; return how many dirty ones give way."""
        return self._add([size, False])

    def write(self, size: int) -> float:
        """Bring in an output, in the place of an earlier one; return as `read` does."""
        outputs = self._outputs[size]
        if len(outputs) == PLACES:
            overwritten = outputs.popleft()
            self._held -= overwritten[0]
            overwritten[0] = 0.0
        added: list[float] = [size, True]
        outputs.append(added)
        return self._add(added)

    def _add(self, added: list[float]) -> float:
        self._queue.append(added)
        self._held += added[0]
        dirty = 0.0
        while self._held > self._capacity:
            first = self._queue[0]
            leaving = min(first[0], self._held - self._capacity)
            dirty += leaving if first[1] else 0.0
            first[0] -= leaving
            self._held -= leaving
            if not first[0]:
                self._queue.popleft()
        return dirty


def written_back(traffic: Sequence[Traffic], order: Sequence[int], capacity: float) -> list[float]:
    """Return how many dirty bytes more each call pushes out in a pass than alone, at the mean.

    `traffic` is that of the distinct calls, `order` the whole pass as places in it, which runs
    again and again; `capacity` is how many bytes the L2 keeps. It is below 0 where others push out
    what a call alone does.
    """
    moved = [_moved(each, capacity) for each in traffic]
    moving = [place for place in order if any(moved[place])]
    queue = _Queue(capacity)
    found: list[float] = []
    for _ in range(2):  # the first round leaves the L2 as the second finds it
        found = [0.0] * len(traffic)
        for place in moving:
            read, output = moved[place]
            if read:
                found[place] += queue.read(read)
            if output:
                found[place] += queue.write(output)
    times = Counter(order)
    return [
        size / times[place] - _alone(*moved[place], capacity) for place, size in enumerate(found)
    ]


def _moved(call: Traffic, capacity: float) -> tuple[float, int]:
    """Return the bytes that come from memory, and those of outputs; 0 for small ones.

    Weights come from memory, and of the inputs what the L2 cannot hold.
    """
    small = SMALL_SHARE * capacity
    read = call.weights + max(0.0, call.inputs - capacity)
    return (read if read > small else 0.0), (call.output if call.output > small else 0)


def _alone(read: float, output: int, capacity: float) -> float:
    """Return the bytes that each call writes back where one call runs again and again."""
    return 0.0 if PLACES * (read + output) <= capacity else output
