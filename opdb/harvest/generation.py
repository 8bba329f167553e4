"""A whole generation from a few of its steps, where these show how all others grow.

A generation that begins with a longer prompt, and ends at as many tokens, makes the later steps of
the one that is asked for, but for the one right after the prefill, which finds another layout of a
window. So steps are recorded in pairs: the first, the last and one between. Where one rule for each
size holds in all three, the steps between follow from it. Where it does not, as around a sliding
window that fills up, each half is looked at in the same way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

from torch import nn

from opdb.growth import Growth, NotAlikeError
from opdb.harvest.recorder import Recorder
from opdb.harvest.watching import Recorded, record
from opdb.models import LoadedModel
from opdb.models.construction import seeded
from opdb.models.generation import BrokenOffError
from opdb.models.inputs import make
from opdb.records import Call, PassMemory, Workload

FEW = 16
"""As many steps are recorded all: to record some of them would take as long."""

AHEAD = 2
"""The passes before a pair of steps that is not the first: a prefill, and the step after it."""


def recorded(loaded: LoadedModel, device: str) -> Recorded:
    """Return what a whole generation calls.

    Few of its steps are recorded, if these show what the others call; a note says where not.
    """
    tokens = loaded.inputs["generation"]["max_new_tokens"]
    if tokens <= FEW:
        return Recorded.of(record(loaded))
    try:
        return _Generation(loaded, device).whole()
    except NotAlikeError as error:
        note = (
            f"all {tokens} passes of the generation were recorded, for few of them do not show "
            f"what the others call: {error}"
        )
        return replace(Recorded.of(record(loaded)), notes=(note,))


def longer(loaded: LoadedModel, by: int, device: str) -> LoadedModel:
    """Return a generation with a prompt that is so many tokens longer, and drawn anew."""
    [spec] = loaded.inputs["args"]
    batch, prompt = spec["shape"]
    spec = {**spec, "shape": [batch, prompt + by]}
    with seeded(device):
        tokens = make(spec, device)
    return replace(loaded, args=(tokens,), inputs={**loaded.inputs, "args": [spec]})


@dataclass(frozen=True)
class _Mark:
    """What had been recorded when a pass began, or the generation ended."""

    calls: int
    counts: Counter[tuple[str, str]]
    memory: int


class Passes(Recorder):
    """Records a generation, notes where each pass begins, and breaks off before one too many."""

    def __init__(self, model: nn.Module, passes: int, settled: bool) -> None:
        super().__init__(model)
        self.settled = settled
        self.marks: list[_Mark] = []
        self._passes = passes
        self._decoder = model.get_submodule("decoder")

    def forget(self) -> None:
        """Forget the calls of a generation before another."""
        super().forget()
        self.marks.clear()

    def enter_module(self, module: nn.Module, args: Any) -> None:
        """Note that a module call begins; that of the decoder is a pass."""
        mark = self.mark() if module is self._decoder else None
        super().enter_module(module, args)
        if mark is not None:
            self.marks.append(mark)
            if len(self.marks) > self._passes:
                raise BrokenOffError

    def mark(self) -> _Mark:
        """Return what has been recorded until now."""
        assert self.memory is not None
        counts = Counter({("containers", ""): self.containers})
        for name in _COUNTED:
            counts.update({(name, key): n for key, n in getattr(self, name).items()})
        return _Mark(len(self.calls), counts, self.memory.mark())


_COUNTED = ("foreign_leaves", "unsupported")
"""What a recorder counts by name."""


@dataclass(frozen=True)
class _Part:
    """A part of a generation: its calls, what was counted in it, and the memory that it took."""

    calls: tuple[Call, ...]
    counts: Counter[tuple[str, str]]
    memory: PassMemory

    @classmethod
    def between(cls, recorder: Passes, begin: _Mark | None, end: _Mark) -> _Part:
        """Return what was recorded between two marks, or from the beginning."""
        assert recorder.memory is not None
        begin = begin or _Mark(0, Counter(), 0)
        return cls(
            tuple(recorder.calls[begin.calls : end.calls]),
            end.counts - begin.counts,
            recorder.memory.seen(begin.memory, end.memory),
        )


class _Generation:
    """A whole generation: the parts of it that were recorded, and those that follow from these.

    Step `number` (from 1) is the pass that gives one more than so many new tokens.
    """

    def __init__(self, loaded: LoadedModel, device: str) -> None:
        self._loaded = loaded
        self._device = device
        self._prompt = loaded.inputs["args"][0]["shape"][1]
        self._tokens = loaded.inputs["generation"]["max_new_tokens"]
        self._frame = Workload(
            name=loaded.name,
            source=loaded.source,
            source_version=loaded.source_version,
            inputs={"args": []},
            batch_size=loaded.batch_size,
            dtype="",
            memory_format="",
            phase="decode",
        )
        self._recorded = 0
        self._steps: dict[int, _Part] = {}

    def whole(self) -> Recorded:
        """Return what the generation calls.

        Raises:
            NotAlikeError: few steps do not show what the others call.
        """
        first = self._pair(1)
        last = self._pair(self._tokens - 4, to_the_end=True)
        self._fill(1, self._tokens - 4)
        steps = [self._steps[number] for number in range(1, self._tokens - 1)]
        parts = [_Part.between(first, None, first.marks[1]), *steps]
        parts.append(_Part.between(last, last.marks[-2], last.marks[-1]))
        counts: Counter[tuple[str, str]] = Counter()
        for each in parts:
            counts.update(each.counts)
        leaves, unsupported = (
            {name: n for (of, name), n in counts.items() if of == what} for what in _COUNTED
        )
        return Recorded(
            calls=[call for each in parts for call in each.calls],
            containers=counts["containers", ""],
            foreign_leaves=leaves,
            unsupported=unsupported,
            memory=_most([each.memory for each in parts]),
            asked=first.asked,
        )

    def _pair(self, number: int, *, to_the_end: bool = False) -> Passes:
        """Record a step and the next one, and with `to_the_end` the last two after these.

        When its cache is nearly full, a model may need no padding, and call less.
        What the prompt lacks for that is taken for a part of it.

        Raises:
            NotAlikeError: as many passes were recorded as there are tokens.
        """
        ahead = min(number, AHEAD)
        steps = 3 if to_the_end else 2
        passes = ahead + steps + to_the_end
        self._recorded += passes
        if self._recorded > self._tokens:
            raise NotAlikeError("they change too often")
        watched = partial(Passes, passes=passes, settled=number > 1)
        recorder = record(longer(self._loaded, number - ahead, self._device), recorder_type=watched)
        assert isinstance(recorder, Passes)
        if to_the_end:
            recorder.marks.append(recorder.mark())
        if len(recorder.marks) != passes + 1:
            raise NotAlikeError(f"{len(recorder.marks)} passes for {passes} tokens")
        for each, (begin, end) in enumerate(
            pairwise(recorder.marks[ahead : ahead + steps + 1]), number
        ):
            self._steps.setdefault(each, _Part.between(recorder, begin, end))
        return recorder

    def _fill(self, low: int, high: int) -> None:
        """Find the steps between two pairs that were recorded, each begun by one of these.

        Raises:
            NotAlikeError: too many have to be recorded for that.
        """
        if high - low <= 2:
            return
        middle = (low + high) // 2
        self._pair(middle)
        try:
            self._steps |= dict(self._between(low, middle, high))
        except NotAlikeError:
            self._fill(low, middle)
            self._fill(middle, high)

    def _between(self, *pairs: int) -> Iterator[tuple[int, _Part]]:
        """Yield the steps that lie between pairs and follow from these.

        Raises:
            NotAlikeError: they do not follow.
        """
        known = [number for pair in pairs for number in (pair, pair + 1)]
        if len({str(sorted(self._steps[each].counts.items())) for each in known}) > 1:
            raise NotAlikeError("other modules are called")
        growth = Growth([self._as_pass(each) for each in dict.fromkeys(known)])
        growth.grows()  # each size follows a rule
        for number in range(known[0], known[-1]):
            if number not in self._steps:
                context = self._prompt + number - 1
                step = growth.at({"batch": self._frame.batch_size, "context": context})
                yield number, replace(self._steps[known[-1]], calls=step.calls)

    def _as_pass(self, number: int) -> Workload:
        inputs = {"args": [], "generation": {"context": self._prompt + number - 1}}
        return replace(self._frame, inputs=inputs, calls=self._steps[number].calls)


def _most(every: list[PassMemory]) -> PassMemory:
    """Return the memory of parts of one pass, which are never live at once."""
    return replace(
        every[0],
        activation_bytes=max(each.activation_bytes for each in every),
        peak_bytes=max(each.peak_bytes for each in every),
    )
