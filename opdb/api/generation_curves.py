"""Generations over batch sizes and prompts: a table, a row a point and mode."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from opdb.api.generation_parts import FIGURES, Amounts, Figure, Generation
from opdb.api.generations import Generated, GenerationQuestion, answered
from opdb.api.predicted import Conditions
from opdb.api.predictions import Asking, Tell
from opdb.errors import InputError, OpdbError
from opdb.records import Json
from opdb.tables import Column, Report, Rows, Table

_READ = {
    "time_to_first_token_s": "first token",
    "time_per_output_token_s": "per token",
    "throughput_tokens_per_s": "tokens/s",
    "energy_per_prompt_token_j": "J, prompt token",
    "energy_per_output_token_j": "J, output token",
    "energy_per_request_j": "J, request",
}
"""The figures that people read in a table, by name, with shorter titles."""


@dataclass(frozen=True)
class Point:
    """One generation of a curve: batch size and amounts as asked, and what was found."""

    batch_size: int | None
    amounts: Amounts
    found: Generated | None
    failure: OpdbError | None = None

    @property
    def words(self) -> str:
        """The point as people name it."""
        batch = "" if self.batch_size is None else f"batch {self.batch_size}, "
        return f"{batch}prompt {self.amounts.prompt}, {self.amounts.tokens} tokens"


def _of(figure: Figure) -> tuple[Column[Generation], ...]:
    """Return the columns of a figure: its value, and the ends of its interval."""
    value, within = figure.columns()

    def end(number: int) -> Any:
        return lambda row: (found := figure.value(row)[1]) and found[number]

    return (
        Column(
            value,
            lambda row: figure.value(row)[0],
            title=_READ.get(figure.name),
            text=lambda row: figure.shown(row, unit=False),
        ),
        Column(f"{within}_low", end(0)),
        Column(f"{within}_high", end(1)),
    )


CURVES: Table[Generation] = Table(
    Column("batch_size", lambda row: row.batch_size, title="batch"),
    Column("prompt", lambda row: row.amounts.prompt, title="prompt"),
    Column("tokens", lambda row: row.amounts.tokens),
    Column("cache", lambda row: row.cache),
    Column("mode", lambda row: row.mode, title="mode"),
    Column("board", lambda row: row.prefill.prediction.board),
    Column("complete", lambda row: row.complete),
    *(column for figure in FIGURES for column in _of(figure)),
    Column("power_w", lambda row: row.power_w, title="power", unit="W"),
    Column("coverage_time", lambda row: row.coverage["time"], title="covered", unit="share"),
    Column("weight_bytes", lambda row: row.memory.seen.weight_bytes - row.cache_bytes),
    Column("cache_bytes", lambda row: row.cache_bytes, title="cache", unit="B"),
    Column("largest_batch", lambda row: row.largest_batch),
)


@dataclass(frozen=True, repr=False)
class GenerationCurves(Report):
    """Generations of a model over batch sizes and prompts, and why others have no answer."""

    model: str
    dtype: str
    points: Sequence[Point]

    @property
    def generations(self) -> list[Generation]:
        """Every generation that was predicted: by prompt, mode and batch size."""
        found = [one for point in self.points if point.found for one in point.found.generations]
        return sorted(found, key=lambda one: (one.amounts.prompt, one.mode, one.batch_size))

    @property
    def failures(self) -> list[Point]:
        """The points that have no answer."""
        return [point for point in self.points if point.failure is not None]

    def check(self) -> None:
        """Raise where a point has no answer, in one message that names them all.

        Raises:
            InputError: one has none.
        """
        if failed := self.failures:
            reasons = "\n".join(f"  {point.words}: {point.failure}" for point in failed)
            raise InputError(f"{len(failed)} of {len(self.points)} generations failed\n{reasons}")

    def rows(self) -> list[dict[str, Json]]:
        """Return each generation as data."""
        return [CURVES.document(each) for each in self.generations]

    def csv(self) -> str:
        """Return a row for each generation as CSV, quantities in base SI."""
        return CURVES.csv(self.generations)

    def to_dict(self) -> dict[str, Json]:
        """Return the curves as data: what `opdb generate --json` prints of several points."""
        failures = [{"of": point.words, "reason": str(point.failure)} for point in self.failures]
        head = {"model": self.model, "dtype": self.dtype}
        return {**head, "rows": self.rows(), "failures": failures}

    def blocks(self) -> Iterator[str | Rows[Any]]:
        """Yield the table that people read."""
        found = self.generations
        if not found:
            return
        first = found[0].prefill.prediction
        yield (
            f"{self.model}, {self.dtype}, {found[0].amounts.tokens} tokens, {found[0].cache} "
            f"cache, on {first.device.name} ({first.board})"
        )
        yield Rows(CURVES, found)
        if not all(each.complete for each in found):
            yield "incomplete: ≥ and ≤ are bounds, because operators are missing"
        notes = dict.fromkeys(note for each in found for note in each.notes)
        yield from (f"note: {note}" for note in notes)


def curves(
    asked: GenerationQuestion,
    batch_sizes: Sequence[int],
    prompts: Sequence[int],
    conditions: Conditions,
    *,
    db: str | None = None,
    tell: Tell | None = None,
) -> GenerationCurves:
    """Predict a generation at each batch size with each prompt; the other amounts are as asked.

    A point that has no answer, such as a batch that does not fit, does not stop the others. All
    are predicted for the board of the first one that is answered, unless one is named.
    """
    points: list[Point] = []
    batches: Sequence[int | None] = batch_sizes or [None]
    board: str | None = None
    with Asking(db, conditions, tell) as asking:
        for prompt, batch in product(prompts or [asked.amounts.prompt], batches):
            said = asked.said if batch is None else replace(asked.said, batch_size=batch)
            amounts = replace(asked.amounts, prompt=prompt)
            one = replace(asked, said=said, amounts=amounts)
            try:
                one.check(conditions)
                found = answered(one, asking, board)
            except OpdbError as error:
                points.append(Point(batch, amounts, None, error))
                continue
            points.append(Point(batch, amounts, found))
            board = board or found.generations[0].prefill.prediction.board
    first = next((point.found for point in points if point.found), None)
    model, dtype = (asked.model, "") if first is None else (first.model, first.dtype)
    return GenerationCurves(model, dtype, points)
