"""`opdb generate`: time and energy of whole generations, by the token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from opdb.cli import console, options
from opdb.cli.options import words_among
from opdb.commands import _lazy as lazy
from opdb.commands._predictions import (
    ALONE,
    ENGINES,
    SHARES,
    Figure,
    largest,
    line,
    memory_document,
    memory_line,
)
from opdb.commands.predict import Asking, Common, Conditions, Question, Tell, opened
from opdb.errors import InputError, OpdbError, kept, raise_all
from opdb.files import check_writable
from opdb.growth import lengths, window_of
from opdb.memory import Memory
from opdb.predict.compose import Prediction
from opdb.predict.figures import Amount, energy_of, time_of, total
from opdb.predict.generation import step_weights
from opdb.records import Json, Mode, Workload
from opdb.spec import CACHES, ModelSpec, dtype_from, dtype_words
from opdb.tables import Column, Report, Rows, Table
from opdb.units import show, show_share

PANEL = "predict"

MODES: tuple[Mode, ...] = ("graph", "eager")
"""The modes in which generations are predicted unless told otherwise."""


@dataclass(frozen=True, repr=False)
class Generation:
    """A generation in one mode: its prefill, and the steps that stand for all others.

    Each sequence of the batch has a `prompt` of so many tokens and gets `tokens` new ones. `steps`
    pairs each predicted step with how many steps it stands for. The first new token comes from the
    prefill, so that there is one step fewer than new tokens.
    """

    prompt: int
    tokens: int
    prefill: lazy.predictor.Answer
    steps: Sequence[tuple[float, lazy.predictor.Answer]]

    @property
    def workload(self) -> Workload:
        return self.prefill.prediction.workload

    @property
    def batch_size(self) -> int:
        return self.workload.batch_size

    @property
    def cache(self) -> str:
        return str(self.workload.inputs["generation"]["cache"])

    @property
    def passes(self) -> list[tuple[float, Prediction]]:
        return [(1.0, self.prefill.prediction), *((n, s.prediction) for n, s in self.steps)]

    @property
    def coverage(self) -> dict[str, float | None]:
        """The measured shares of all passes' time and energy; None where no energy is known."""
        times = [_weighed(n, p.time_s, p.coverage_time, p.complete) for n, p in self.passes]
        energies = [_weighed(n, p.energy_j, p.coverage_energy, p.complete) for n, p in self.passes]
        return {"time": _mean(times), "energy": _mean(energies)}

    @property
    def memory(self) -> Memory:
        answers = (self.prefill, *(each for _, each in self.steps))
        return max((each.memory for each in answers), key=lambda memory: memory.needed_bytes)

    @property
    def notes(self) -> list[str]:
        return list(dict.fromkeys(note for _, found in self.passes for note in found.notes))

    def configurations(self, of: str) -> Json:
        """Return the shares that are "missing" or "estimated" in some pass, each once."""
        shares = SHARES.documents(s for _, found in self.passes for s in getattr(found, of))
        return list({share["configuration"]: share for share in shares}.values())

    def time(self, part: str, per: float = 1) -> Amount | None:
        """Return the time of a part over a number: "reading" the prompt, "decoding", or "whole"."""
        return _over(total([(n, time_of(found)) for n, found in self._part(part)]), per)

    def energy(self, part: str, per: float = 1) -> Amount | None:
        return _over(total([(n, energy_of(found)) for n, found in self._part(part)]), per)

    def tokens_per_s(self, count: int) -> Amount | None:
        whole = self.time("whole")
        return whole and whole.inverse(self.batch_size * count)

    def _part(self, name: str) -> list[tuple[float, Prediction]]:
        return {"reading": self.passes[:1], "decoding": self.passes[1:], "whole": self.passes}[name]


def _over(whole: Amount | None, number: float) -> Amount | None:
    if whole is None or not number:
        return None
    within = whole.interval
    return Amount(whole.value / number, within and (within[0] / number, within[1] / number))


def _weighed(
    count: float, value: float | None, coverage: float | None, complete: bool
) -> tuple[float, float | None]:
    """Return the weight and the coverage of a pass: what is missing of it has a weight as well.

    The coverage is None where nothing of the pass is known, so that it has no weight.
    """
    if complete or not coverage:
        return count * (value or 0.0), coverage if complete else None
    return count * (value or 0.0) / coverage, coverage


def _mean(parts: Sequence[tuple[float, float | None]]) -> float | None:
    whole = sum(weight for weight, _ in parts)
    if not whole or any(value is None for _, value in parts):
        return None
    return sum(weight * value for weight, value in parts if value is not None) / whole


FIGURES: tuple[Figure[Generation], ...] = (
    Figure("time_to_first_token_s", "time to first token", "s", lambda of: of.time("reading")),
    Figure(
        "time_per_output_token_s",
        "time per output token",
        "s",
        lambda of: of.time("decoding", of.tokens - 1),
    ),
    Figure(
        "throughput_new_tokens_per_s",
        "throughput",
        "new tokens/s",
        lambda of: of.tokens_per_s(of.tokens),
    ),
    Figure(
        "throughput_prompt_tokens_per_s",
        "",
        "prompt tokens/s",
        lambda of: of.tokens_per_s(of.prompt),
        in_table=False,
    ),
    Figure("time_s", "time of the batch", "s", lambda of: of.time("whole"), in_table=False),
    Figure(
        "energy_per_prompt_token_j",
        "energy, prompt token",
        "J",
        lambda of: of.energy("reading", of.batch_size * of.prompt),
    ),
    Figure(
        "energy_per_output_token_j",
        "energy, output token",
        "J",
        lambda of: of.energy("decoding", of.batch_size * (of.tokens - 1)),
    ),
    Figure(
        "energy_per_output_token_with_prompt_j",
        "the same with the prompt's",
        "J",
        lambda of: of.energy("whole", of.batch_size * of.tokens),
        in_table=False,
    ),
    Figure(
        "energy_per_request_j",
        "energy, request",
        "J",
        lambda of: of.energy("whole", of.batch_size),
    ),
    Figure("energy_j", "energy of the batch", "J", lambda of: of.energy("whole"), in_table=False),
)
"""The quantities of a generation; `energy_per_output_token_j` is of the steps alone."""


CURVES: Table[Generation] = Table(
    Column("batch_size", lambda row: row.batch_size, title="batch"),
    Column("prompt_tokens_per_request", lambda row: row.prompt, title="prompt"),
    Column("new_tokens_per_request", lambda row: row.tokens),
    Column("cache", lambda row: row.cache),
    Column("mode", lambda row: row.prefill.prediction.mode, title="mode"),
    Column("device", lambda row: row.prefill.prediction.device.slug),
    Column("board", lambda row: row.prefill.prediction.board),
    Column("complete", lambda row: all(found.complete for _, found in row.passes)),
    Column("source_version", lambda row: row.passes[-1][1].workload.source_version),
    *(each.column(lambda row: row) for each in FIGURES),
    Column(
        "coverage",
        lambda row: row.coverage,
        title="covered",
        text=lambda row: show_share(row.coverage["time"]),
        members=("time", "energy"),
    ),
)

STEPS: Table[tuple[float, lazy.predictor.Answer]] = Table(
    Column("context", lambda row: row[1].prediction.workload.inputs["generation"]["context"]),
    Column("stands_for", lambda row: row[0]),
    Column("time_s", lambda row: row[1].prediction.time_s),
    Column("energy_j", lambda row: row[1].prediction.energy_j),
)

GENERATIONS: Table[Generation] = Table(
    *CURVES.columns,
    Column("missing", lambda row: row.configurations("missing")),
    Column("estimated", lambda row: row.configurations("estimated")),
    Column("memory", lambda row: memory_document(row.memory)),
    Column("steps", lambda row: STEPS.documents(row.steps)),
    Column("notes", lambda row: row.notes),
)


def _detailed(each: Generation) -> Iterator[str | Rows[Any]]:
    found = each.prefill.prediction
    yield (
        f"{each.workload.name}, batch {each.batch_size} {dtype_words(each.workload)}, "
        f"prompt {each.prompt}, "
        f"{each.tokens} new tokens, {each.cache} cache, {found.mode}, on "
        f"{found.device.name} ({found.board})"
    )
    yield memory_line(each.memory)
    if each.steps:
        yield ENGINES
    yield Rows(ALONE, [line(of.title, of.unit, of.get(each)) for of in FIGURES])
    yield "coverage: " + ", ".join(f"{n} {show_share(share)}" for n, share in each.coverage.items())
    for what in ("missing", "estimated"):
        if kinds := {share["kind"] for share in each.configurations(what)}:
            yield f"{what}: {', '.join(sorted(kinds))}"
    yield from (f"note: {note}" for note in each.notes)


@dataclass(frozen=True, repr=False)
class Generated(Report):
    """Generations of a model, and why some (in words) have no answer.

    One batch size with one prompt is printed in detail, several in one table.
    """

    model: str
    generations: Sequence[Generation]
    points: int = 1
    failures: Sequence[tuple[str, OpdbError]] = ()

    def check(self) -> None:
        raise_all([error for _, error in self.failures], "shown")

    def rows(self) -> list[dict[str, Json]]:
        return [GENERATIONS.document(each) for each in self.generations]

    def csv(self) -> str:
        return CURVES.csv(self.generations)

    def to_dict(self) -> dict[str, Json]:
        of = next((each.workload for each in self.generations), None)
        failures = [{"of": words, "reason": str(failure)} for words, failure in self.failures]
        dtype = {"dtype": of and of.dtype, "dtype_from": of and dtype_from(of)}
        return {"model": self.model, **dtype, "rows": self.rows(), "failures": failures}

    def blocks(self) -> Iterator[str | Rows[Any]]:
        found = self.generations
        if self.points == 1:
            for each in found:
                yield from _detailed(each)
        elif found:
            first = found[0].prefill.prediction
            yield (
                f"{self.model}, {dtype_words(first.workload)}, {found[0].tokens} new tokens, "
                f"{found[0].cache} cache, on {first.device.name} ({first.board})"
            )
            yield ENGINES
            yield Rows(GENERATIONS, found)
            yield from (
                f"note: {each}" for each in dict.fromkeys(n for g in found for n in g.notes)
            )


def generate(
    model: str,
    *,
    prompt: int | Sequence[int],
    tokens: int,
    batch_sizes: Sequence[int] = (),
    modes: Sequence[Mode] = MODES,
    conditions: Conditions | None = None,
    db: str | None = None,
    tell: Tell | None = None,
    check: bool = True,
    **said: Any,
) -> Generated:
    """Predict whole generations of a causal decoder, as `opdb generate MODEL` does.

    Each of `batch_size` sequences has a `prompt` of so many tokens and gets `tokens` new ones. The
    cache is static unless `cache` says dynamic. Passes that are stored need no torch. Of several
    prompts or `batch_sizes`, one that has no answer, such as a batch that does not fit, does not
    stop the others; it raises at the end, unless `check` leaves that to `check()` of what is
    returned. All are for the board of the first one that is answered, unless one is named.
    """
    conditions, spec = conditions or Conditions(), ModelSpec.parse(**said)
    prompts = [prompt] if isinstance(prompt, int) else list(prompt)
    points = [(length, one) for length in prompts for one in spec.at_sizes(batch_sizes)]
    for option, value in (("--tokens", tokens), *(("--prompt", length) for length in prompts)):
        if value < 1:
            raise InputError(f"{option} {value}: give 1 token or more")
    for mode in modes:
        lazy.predictor.check_mode(mode, MODES)
    board = None
    found: list[Generation] = []
    failures: list[tuple[str, OpdbError]] = []
    with opened(db, conditions, tell) as asking:
        for length, one in points:
            errors: list[OpdbError] = []
            with kept(errors, model):
                found += _answered(model, length, one, tokens, modes, asking, board)
                board = found[0].prefill.prediction.board
            if errors and len(points) == 1:
                raise errors[0]
            batch = "" if one.batch_size is None else f"batch {one.batch_size}, "
            failures += [(f"{batch}prompt {length}, {tokens} new tokens", e) for e in errors]
    if len(points) > 1:
        found.sort(key=lambda row: (row.prompt, row.prefill.prediction.mode, row.batch_size))
    answer = Generated(found[0].workload.name if found else model, found, len(points), failures)
    if check:
        answer.check()
    return answer


def _answered(
    model: str,
    prompt: int,
    said: ModelSpec,
    tokens: int,
    modes: Sequence[Mode],
    asking: Asking,
    board: str | None,
) -> list[Generation]:
    """Predict a generation in each mode, all for one board.

    It is the board that the conditions name, else `board` (a UUID), else that of a step.
    """
    answer = cache(asking.answer)
    passes = _passes(said, prompt, tokens)
    if board is None:
        [step, *_] = passes[1:] or passes
        board = answer(Question(model, step[0], modes[0])).prediction.board
    if len(passes) > 1:
        last = answer(Question(model, passes[-1][0], modes[0]), board).prediction.workload
        passes = _passes(said, prompt, tokens, window_of(last))
    made = []
    for mode in modes:
        [(_, prefill), *steps] = [
            (count, answer(Question(model, of_pass, mode), board)) for of_pass, count in passes
        ]
        made.append(Generation(prompt, tokens, prefill, steps))
    for each in made:
        memory = each.memory
        if memory.fits is False:
            raise InputError(
                f"batch {each.batch_size} does not fit: it needs about "
                f"{show(memory.needed_bytes, 'B')} ({show(memory.cache_bytes, 'B')} of cache), the "
                f"device has {show(memory.device_bytes, 'B')}{largest(memory.largest_batch)}"
            )
    return made


def _passes(
    said: ModelSpec, prompt: int, tokens: int, window: int | None = None
) -> list[tuple[ModelSpec, float]]:
    """Return what to predict, and how often each pass is run: the prefill, then steps.

    A static step depends on the cache's length alone, so that one stands for all, and another one
    for those that find a `window` full.
    """
    kind, whole = said.cache or CACHES[0], prompt + tokens
    if said.cache_length is not None and said.cache_length < whole:
        raise InputError(f"--cache-length {said.cache_length}: prompt and tokens need {whole}")
    length = said.cache_length or (whole if kind == "static" else None)
    said = replace(said, cache=kind, cache_length=length)
    found = [(replace(said, phase="prefill", input_size=(prompt,)), 1.0)]
    if tokens == 1:
        return found
    first, last = prompt, whole - 2
    full = [] if window is None or not first < window <= last else [window]
    if kind == "static":
        knots = [first, *full]
        counts = [float(end - start) for start, end in pairwise([*knots, last + 1])]
    else:  # where the window is full nothing grows any more
        knots = sorted({*lengths(first, last), *full, *(each - 1 for each in full)})
        counts = step_weights(knots, first, last)
    for context, count in zip(knots, counts, strict=True):
        found.append((replace(said, phase="decode", context=context), count))
    return found


_NOT_OF_IT = ("input_size", "memory_format", "phase", "optimizer", "accumulation", "autocast")


Tokens: TypeAlias = Annotated[
    int, typer.Option("--tokens", metavar="N", help="New tokens of each sequence.")
]


def run(
    models: Annotated[list[str], options.models("A causal decoder, or a summary file of one.")],
    prompt: Annotated[
        list[str],
        typer.Option(
            "--prompt",
            metavar="N…",
            help="Tokens of each sequence's prompt; several as in 128,512.",
        ),
    ],
    tokens: Tokens,
    batch_sizes: options.BatchSizes = None,
    mode: Annotated[
        list[str] | None,
        typer.Option(
            "--mode",
            metavar="MODE…",
            help="How work is issued: graph or eager; may be repeated.  [default: both]",
        ),
    ] = None,
    said: Annotated[
        ModelSpec, options.OfModel("batch_size", *_NOT_OF_IT, "context", "max_new_tokens")
    ] = ModelSpec(),
    conditions: Common = Conditions(),
    csv: Annotated[
        Path | None,
        typer.Option("--csv", metavar="FILE", help="Write a row for each point and mode."),
    ] = None,
    out: options.Output = options.Output(),
) -> None:
    """Predict what a generation takes: time to first token, time and joules per token.

    One prefill reads the prompt and gives the first token; a step gives each further one. A step
    with a static cache depends on the cache's length alone; with a dynamic one on the length that
    is filled, so that steps at several lengths are predicted and interpolated in between.

    Several batch sizes (-b 1 64) or prompts (--prompt 128,512) come in one table, which --csv
    writes; a point that has no answer does not stop the others, and the exit status is then 2.
    """
    [model, *others], texts, batches = words_among(models, mode, batch_sizes)
    if others:
        raise InputError(f"generations are of one model, not of {', '.join((model, *others))}")
    check_writable(csv)
    found = generate(
        model,
        prompt=options.parse_sizes(prompt, "--prompt"),
        tokens=tokens,
        batch_sizes=batches,
        modes=options.parse_modes(texts) or MODES,
        conditions=conditions,
        db=out.db,
        tell=out.note,
        check=False,
        **said.keywords(),
    )
    if csv is not None:
        console.save(csv, found.csv(), quiet=out.quiet or out.as_json)
    out.answer(found)
