"""Predict whole generations: a prompt read by a prefill, then a step for each further token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack

from opdb.api.fitting import largest
from opdb.api.generation_parts import FIGURES, Amounts, Figure, Generation
from opdb.api.predicted import Conditions, Question
from opdb.api.predictions import Asking, Tell, check
from opdb.errors import InputError
from opdb.growth import lengths, window_of
from opdb.lookup.options import ModelOptions, ModelWords
from opdb.lookup.requests import request_for
from opdb.models import CACHES
from opdb.records import Json, Mode
from opdb.tables import MISSING, Column, Report, Rows, Table
from opdb.units import show, show_share

if TYPE_CHECKING:
    from opdb.predict import Answer

MODES: tuple[Mode, ...] = ("graph", "eager")
"""The modes in which generations are predicted unless told otherwise."""


LINES: Table[tuple[Figure, Generation]] = Table(
    Column(title="", text=lambda row: row[0].title),
    Column(title="predicted", text=lambda row: row[0].shown(row[1])),
    Column(title="95 % interval", text=lambda row: _within(row[0].value(row[1])[1], row[0].unit)),
)


def _shown(value: float | None, unit: str) -> str:
    if value is None:
        return MISSING
    return f"{value:.4g} {unit}" if "/" in unit else show(value, unit)


def _within(interval: tuple[float, float] | None, unit: str) -> str:
    return MISSING if interval is None else " to ".join(_shown(end, unit) for end in interval)


@dataclass(frozen=True, repr=False)
class Generated(Report):
    """A generation as predicted in one or several modes."""

    model: str
    dtype: str
    amounts: Amounts
    generations: Sequence[Generation]

    def rows(self) -> list[dict[str, Json]]:
        """Return each mode's generation as data."""
        return [each.document() for each in self.generations]

    def to_dict(self) -> dict[str, Json]:
        """Return the generation as data: what `opdb generate --json` prints."""
        first = self.generations[0]
        return {
            "model": self.model,
            "dtype": self.dtype,
            "batch_size": first.batch_size,
            "prompt": self.amounts.prompt,
            "tokens": self.amounts.tokens,
            "cache": first.cache,
            "rows": self.rows(),
        }

    def blocks(self) -> Iterator[str | Rows[Any]]:
        """Yield of each mode what it takes, and what that rests on."""
        for each in self.generations:
            found, amounts = each.prefill.prediction, self.amounts
            yield (
                f"{self.model}, batch {each.batch_size} {self.dtype}, prompt {amounts.prompt}, "
                f"{amounts.tokens} tokens, {each.cache} cache, {each.mode}, on "
                f"{found.device.name} ({found.board})"
            )
            yield _memory_line(each)
            yield Rows(LINES, [(figure, each) for figure in FIGURES])
            if each.power_w is not None:
                yield f"power: {show(each.power_w, 'W')}"
            shares = (f"{name} {show_share(share)}" for name, share in each.shares.items())
            if (experts := each.experts) is not None:
                yield f"experts: {experts[1]:.3g} of {experts[0]} in a layer of a step, on average"
            yield "device time: " + ", ".join(shares)
            covered = (
                f"{name} {show_share(value)}"
                for name, value in each.coverage.items()
                if value is not None
            )
            yield "coverage: " + ", ".join(covered)
            if not each.complete:
                yield "incomplete: what is missing is in neither time nor energy (lower bounds)"
            missing = {s.configuration.kind for _, p in each.passes for s in p.missing}
            if missing:
                yield f"missing: {', '.join(sorted(missing))}"
            estimated = {s.configuration.kind for _, p in each.passes for s in p.estimated}
            if estimated:
                yield f"estimated: {', '.join(sorted(estimated))}"
            yield from (f"note: {note}" for note in each.notes)
            yield ""


def _memory_line(found: Generation) -> str:
    weights = found.memory.seen.weight_bytes - found.cache_bytes
    return (
        f"memory: weights {show(weights, 'B')}, cache {show(found.cache_bytes, 'B')}, in all about "
        f"{show(found.memory.needed_bytes, 'B')}{largest(found.largest_batch)}"
    )


@dataclass(frozen=True)
class GenerationQuestion:
    """What is asked for: a model as named, what is said of it, how much, and in which modes."""

    model: str
    said: ModelOptions
    amounts: Amounts
    modes: Sequence[Mode] = MODES

    def check(self, conditions: Conditions) -> None:
        """Check what is asked for as far as that needs no database.

        Raises:
            InputError: an amount is none, options contradict each other, or a mode cannot be
                predicted.
        """
        from opdb.predict import check_mode

        self.amounts.check()
        for mode in self.modes:
            check_mode(mode, MODES)
            for said, _ in _passes(self.said, self.amounts):
                check(Question(self.model, said, mode), conditions)


Passes: TypeAlias = list[tuple[ModelOptions, float]]
"""What is said of each pass of a generation, and how often it is run."""


def generate(
    model: str,
    *,
    prompt: int,
    tokens: int,
    modes: Sequence[Mode] = MODES,
    conditions: Conditions | None = None,
    db: str | None = None,
    **said: Unpack[ModelWords],
) -> Generated:
    """Predict a whole generation of a causal decoder, as `opdb generate MODEL` does.

    Each of `batch_size` sequences has a `prompt` of so many tokens and gets `tokens` new ones. The
    cache is static unless `cache` says dynamic. Passes that are stored need no torch.

    Raises:
        InputError: the model is not known or no decoder, the generation ends beyond its positions,
            or the batch does not fit.
    """
    asked = GenerationQuestion(
        model, ModelOptions.parse(**said), Amounts(prompt, tokens), modes or MODES
    )
    return generated(asked, conditions or Conditions(), db=db)


def generated(
    asked: GenerationQuestion,
    conditions: Conditions,
    *,
    db: str | None = None,
    tell: Tell | None = None,
) -> Generated:
    """Answer a question about a generation, in each of its modes; `tell` hears of harvests.

    Raises:
        InputError: as `generate`.
    """
    asked.check(conditions)
    with Asking(db, conditions, tell) as asking:
        return answered(asked, asking)


def answered(asked: GenerationQuestion, asking: Asking, board: str | None = None) -> Generated:
    """Answer a checked question about a generation, in each of its modes, all for one board.

    It is the board that the conditions name, else `board` (a UUID), else that of a step.

    Raises:
        InputError: as `generate`.
    """
    passes = _passes(asked.said, asked.amounts)
    if board is None:
        [step, *_] = passes[1:] or passes
        board = asking.board(Question(asked.model, step[0], asked.modes[0]))

    @cache
    def predicted(said: ModelOptions, mode: Mode) -> Answer:
        return asking.answer(Question(asked.model, said, mode), board)

    if len(passes) > 1:
        last = predicted(passes[-1][0], asked.modes[0]).prediction.workload
        passes = _passes(asked.said, asked.amounts, window_of(last))
    made = []
    for mode in asked.modes:
        [(_, prefill), *steps] = [(count, predicted(said, mode)) for said, count in passes]
        made.append(Generation(asked.amounts, prefill, steps))
    for each in made:
        _check_fits(each)
    request = request_for(asked.model, passes[0][0])
    return Generated(request.name, request.dtype, asked.amounts, made)


def _passes(said: ModelOptions, amounts: Amounts, window: int | None = None) -> Passes:
    """Return what to predict, and how often each pass is run: the prefill, then steps.

    A static step depends on the cache's length alone, so that one stands for all, and another one
    for those that find a `window` full.
    """
    from opdb.compose.generation import weights

    prompt, tokens = amounts.prompt, amounts.tokens
    cache = said.cache or CACHES[0]
    if cache == "static" and said.cache_length is None:
        said = replace(said, cache_length=prompt + tokens)
    elif said.cache_length is not None and said.cache_length < prompt + tokens:
        raise InputError(
            f"--cache-length {said.cache_length}: prompt and tokens need {prompt + tokens}"
        )
    said = replace(said, cache=cache)
    prefill = replace(said, phase="prefill", input_size=(prompt,))
    found = [(prefill, 1.0)]
    if tokens == 1:
        return found
    first, last = prompt, prompt + tokens - 2
    within = window is not None and first < window <= last
    if cache == "static":
        knots, counts = [first], [float(tokens - 1)]
        if window is not None and within:
            knots, counts = [first, window], [float(window - first), float(last - window + 1)]
    else:
        knots = lengths(first, last)
        if window is not None and within:  # from there on nothing grows
            knots = sorted({*knots, window - 1, window})
        counts = weights(knots, first, last)
    for context, count in zip(knots, counts, strict=True):
        found.append((replace(said, phase="decode", context=context), count))
    return found


def _check_fits(found: Generation) -> None:
    """Check that a generation fits on its device.

    Raises:
        InputError: it certainly does not.
    """
    memory = found.memory
    if memory.fits is False:
        raise InputError(
            f"batch {found.batch_size} does not fit: it needs about "
            f"{show(memory.needed_bytes, 'B')} ({show(found.cache_bytes, 'B')} of cache), the "
            f"device has {show(memory.device_bytes, 'B')}{largest(found.largest_batch)}"
        )
