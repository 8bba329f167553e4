"""`opdb generate`: time and energy of whole generations, by the token."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from opdb.cli import console, options
from opdb.cli.options import one_of, split, words_among
from opdb.commands import _lazy as lazy
from opdb.commands._figures import (
    ENGINES,
    LINES,
    SHARES,
    Line,
    engines_line,
    largest,
    memory_document,
    memory_line,
)
from opdb.commands.predict import Asking, Common, Conditions, Question, Tell, check_question, opened
from opdb.errors import InputError, OpdbError, kept
from opdb.files import check_writable
from opdb.growth import lengths, window_of
from opdb.memory import Memory
from opdb.predict.compose import Prediction
from opdb.predict.figures import Amount, energy_of, time_of, total
from opdb.predict.generation import experts_of, step_weights, work_shares
from opdb.records import Json, Mode, Workload
from opdb.spec import CACHES, ModelSpec, dtype_from, dtype_words
from opdb.tables import Column, Report, Rows, Table, quantity
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

    def part(self, name: str) -> list[tuple[float, Prediction]]:
        """Return the passes of a part: "reading" the prompt, "decoding" (all steps), or "whole".

        Decoding has none where the prefill's token is the only one.
        """
        return {"reading": self.passes[:1], "decoding": self.passes[1:], "whole": self.passes}[name]

    @property
    def power_w(self) -> float | None:
        """Mean power over the whole; None where a part is left out."""
        time_s, energy_j = amount_of(self.passes, "time"), amount_of(self.passes, "energy")
        if time_s is None or energy_j is None or not time_s.value or not self.complete:
            return None
        return energy_j.value / time_s.value

    @property
    def shares(self) -> dict[str, float]:
        return work_shares(self.passes)

    @property
    def coverage(self) -> dict[str, float | None]:
        """The measured shares of all passes' time and energy; None where no energy is known."""
        times = [_weighed(n, p.time_s, p.coverage_time, p.complete) for n, p in self.passes]
        energies = [_weighed(n, p.energy_j, p.coverage_energy, p.complete) for n, p in self.passes]
        return {"time": _mean(times), "energy": _mean(energies)}

    @property
    def complete(self) -> bool:
        return all(found.complete for _, found in self.passes)

    @property
    def cache_bytes(self) -> int:
        """The memory of the cache as it is at the end: keys and values of all layers."""
        return (self.steps[-1][1] if self.steps else self.prefill).memory.cache_bytes

    @property
    def memory(self) -> Memory:
        answers = (self.prefill, *(each for _, each in self.steps))
        return max((each.memory for each in answers), key=lambda memory: memory.needed_bytes)

    @property
    def bandwidth_bound_s(self) -> float | None:
        """The mean bandwidth bound of a step, in seconds; None where there is none."""
        return _mean([(count, step.bandwidth_bound_s) for count, step in self.steps])

    @property
    def experts(self) -> tuple[int, float] | None:
        """The experts of a layer, and how many a step uses on average; None without experts."""
        return experts_of(self.passes[-1][1].workload)

    @property
    def notes(self) -> list[str]:
        made = list(dict.fromkeys(found.workload.source_version for _, found in self.passes))
        mixed = f"the passes are those of several versions of the library: {', '.join(made)}"
        notes = dict.fromkeys(note for _, found in self.passes for note in found.notes)
        return [*([mixed] if len(made) > 1 else []), *notes]

    def configurations(self, of: str) -> Json:
        """Return the shares that are "missing" or "estimated" in some pass, each once."""
        shares = SHARES.documents(s for _, found in self.passes for s in getattr(found, of))
        return list({share["configuration"]: share for share in shares}.values())


def amount_of(passes: Sequence[tuple[float, Prediction]], measure: str) -> Amount | None:
    """Return the time or energy of passes, each so many times."""
    of = time_of if measure == "time" else energy_of
    return total([(count, of(found)) for count, found in passes])


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


@dataclass(frozen=True)
class Figure:
    """A quantity of a generation: part of it (reading, decoding or whole), divided by a number.

    `in_table` says whether a table of several generations shows it.
    """

    name: str
    title: str
    unit: str
    part: str
    of: str
    per: Callable[[Generation], float] | None = None
    inverse: bool = False
    in_table: bool = True

    def amount(self, found: Generation) -> Amount | None:
        """Return the value with its interval; None where it is not known."""
        passes = found.part(self.part)
        per = 1 if self.per is None else self.per(found)
        whole = amount_of(passes, self.of) if passes and per else None
        if whole is None:
            return None
        if self.inverse:
            return whole.inverse(per)
        within = whole.interval
        return Amount(whole.value / per, within and (within[0] / per, within[1] / per))

    def line(self, found: Generation) -> Line:
        """Return what people read; it is a bound where something of its part is missing."""
        complete = all(each.complete for _, each in found.part(self.part))
        return Line(self.title, self.unit, self.amount(found), None, is_bound=not complete)


def _steps(found: Generation) -> int:
    return found.tokens - 1


FIGURES = (
    Figure("time_to_first_token_s", "time to first token", "s", "reading", "time"),
    Figure("time_per_output_token_s", "time per output token", "s", "decoding", "time", _steps),
    Figure(
        "throughput_new_tokens_per_s",
        "throughput",
        "new tokens/s",
        "whole",
        "time",
        lambda found: found.batch_size * found.tokens,
        inverse=True,
    ),
    Figure(
        "throughput_prompt_tokens_per_s",
        "",
        "prompt tokens/s",
        "whole",
        "time",
        lambda found: found.batch_size * found.prompt,
        inverse=True,
    ),
    Figure("time_s", "time of the batch", "s", "whole", "time", in_table=False),
    Figure(
        "energy_per_prompt_token_j",
        "energy, prompt token",
        "J",
        "reading",
        "energy",
        lambda found: found.batch_size * found.prompt,
    ),
    Figure(
        "energy_per_output_token_j",
        "energy, output token",
        "J",
        "decoding",
        "energy",
        lambda found: found.batch_size * _steps(found),
    ),
    Figure(
        "energy_per_output_token_with_prompt_j",
        "the same with the prompt's",
        "J",
        "whole",
        "energy",
        lambda found: found.batch_size * found.tokens,
        in_table=False,
    ),
    Figure(
        "energy_per_request_j",
        "energy, request",
        "J",
        "whole",
        "energy",
        lambda found: found.batch_size,
    ),
    Figure("energy_j", "energy of the batch", "J", "whole", "energy", in_table=False),
)
"""The quantities of a generation; `energy_per_output_token_j` is of the steps alone."""


def _column(figure: Figure) -> Column[Generation]:
    return quantity(
        figure.name,
        figure.unit,
        figure.amount,
        title=figure.title if figure.in_table else None,
        text=lambda row: figure.line(row).value,
    )


CURVES: Table[Generation] = Table(
    Column("batch_size", lambda row: row.batch_size, title="batch"),
    Column("prompt_tokens_per_request", lambda row: row.prompt, title="prompt"),
    Column("new_tokens_per_request", lambda row: row.tokens),
    Column("cache", lambda row: row.cache),
    Column("mode", lambda row: row.prefill.prediction.mode, title="mode"),
    Column("device", lambda row: row.prefill.prediction.device.slug),
    Column("board", lambda row: row.prefill.prediction.board),
    Column("complete", lambda row: row.complete),
    Column("source_version", lambda row: row.passes[-1][1].workload.source_version),
    *map(_column, FIGURES),
    Column(
        "bandwidth_bound_per_output_token_s",
        lambda row: row.bandwidth_bound_s,
        title="bandwidth bound",
        unit="s",
    ),
    Column("power_w", lambda row: row.power_w, title="power", unit="W"),
    Column(
        "coverage",
        lambda row: row.coverage,
        title="covered",
        text=lambda row: show_share(row.coverage["time"]),
        members=("time", "energy"),
    ),
    Column("weight_bytes", lambda row: row.memory.weight_bytes),
    Column("cache_bytes", lambda row: row.cache_bytes, title="cache", unit="B"),
    Column("largest_batch", lambda row: row.memory.largest_batch),
)

STEPS: Table[tuple[float, lazy.predictor.Answer]] = Table(
    Column("context", lambda row: row[1].prediction.workload.inputs["generation"]["context"]),
    Column("stands_for", lambda row: row[0]),
    Column("time_s", lambda row: row[1].prediction.time_s),
    Column("bandwidth_bound_s", lambda row: row[1].bandwidth_bound_s),
    Column("energy_j", lambda row: row[1].prediction.energy_j),
)

GENERATIONS: Table[Generation] = Table(
    *CURVES.columns,
    Column("time_shares", lambda row: row.shares),
    Column("missing", lambda row: row.configurations("missing")),
    Column("estimated", lambda row: row.configurations("estimated")),
    Column("experts", lambda row: row.experts and row.experts[0]),
    Column("active_experts", lambda row: row.experts and row.experts[1]),
    Column("memory", lambda row: memory_document(row.memory)),
    Column("steps", lambda row: STEPS.documents(row.steps)),
    Column("notes", lambda row: row.notes),
)


def _detailed(each: Generation) -> Iterator[str | Rows[Any]]:
    """Yield what a generation takes in one mode, and what that rests on."""
    found = each.prefill.prediction
    yield (
        f"{each.workload.name}, batch {each.batch_size} {dtype_words(each.workload)}, "
        f"prompt {each.prompt}, "
        f"{each.tokens} new tokens, {each.cache} cache, {found.mode}, on "
        f"{found.device.name} ({found.board})"
    )
    yield memory_line(each.memory)
    if each.steps:
        yield engines_line(each.prefill.memory_rate, each.bandwidth_bound_s)
    yield Rows(
        LINES.without("measured", "predicted / measured"), [figure.line(each) for figure in FIGURES]
    )
    if each.power_w is not None:
        yield f"power: {show(each.power_w, 'W')}"
    if (experts := each.experts) is not None:
        yield f"experts: {experts[1]:.3g} of {experts[0]} in a layer of a step, on average"
    shares = (f"{name} {show_share(share)}" for name, share in each.shares.items())
    yield "device time: " + ", ".join(shares)
    known = {name: share for name, share in each.coverage.items() if share is not None}
    yield "coverage: " + ", ".join(f"{name} {show_share(known[name])}" for name in known)
    if not each.complete:
        yield "incomplete: what is missing is in neither time nor energy (lower bounds)"
    for what in ("missing", "estimated"):
        if kinds := {share["kind"] for share in each.configurations(what)}:
            yield f"{what}: {', '.join(sorted(kinds))}"
    yield from (f"note: {note}" for note in each.notes)
    yield ""


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
        if self.failures:
            reasons = "\n".join(f"  {words}: {failure}" for words, failure in self.failures)
            failed = f"{len(self.failures)} of {self.points} generations failed"
            raise InputError(f"{failed}\n{reasons}")

    def rows(self) -> list[dict[str, Json]]:
        return [GENERATIONS.document(each) for each in self.generations]

    def csv(self) -> str:
        """Return a row for each generation as CSV, quantities in base SI."""
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
            if any(each.steps for each in found):
                yield ENGINES
            yield Rows(GENERATIONS, found)
            if not all(each.complete for each in found):
                yield "incomplete: bounds, because operators are missing"
            notes = dict.fromkeys(note for each in found for note in each.notes)
            yield from (f"note: {note}" for note in notes)


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
    if len(points) == 1:
        _check(model, *points[0], tokens, modes, conditions)  # before a database is opened
    name, board = model, None
    found: list[Generation] = []
    failures: list[tuple[str, OpdbError]] = []
    with opened(db, conditions, tell) as asking:
        for length, one in points:
            errors: list[OpdbError] = []
            with kept(errors, model):
                _check(model, length, one, tokens, modes, conditions)
                made = _answered(model, length, one, tokens, modes, asking, board)
                board = board or made[0].prefill.prediction.board
                name = made[0].workload.name
                found += made
            if errors and len(points) == 1:
                raise errors[0]
            batch = "" if one.batch_size is None else f"batch {one.batch_size}, "
            failures += [(f"{batch}prompt {length}, {tokens} new tokens", e) for e in errors]
    if len(points) > 1:
        found.sort(key=lambda row: (row.prompt, row.prefill.prediction.mode, row.batch_size))
    answer = Generated(name, found, len(points), failures)
    if check:
        answer.check()
    return answer


def _check(
    model: str,
    prompt: int,
    said: ModelSpec,
    tokens: int,
    modes: Sequence[Mode],
    conditions: Conditions,
) -> None:
    for mode in modes:
        lazy.predictor.check_mode(mode, MODES)
        for of_pass, _ in _passes(said, prompt, tokens):
            check_question(Question(model, of_pass, mode), conditions)


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
    passes = _passes(said, prompt, tokens)
    if board is None:
        [step, *_] = passes[1:] or passes
        board = asking.board(Question(model, step[0], modes[0]))

    @cache
    def predicted(of_pass: ModelSpec, mode: Mode) -> lazy.predictor.Answer:
        return asking.answer(Question(model, of_pass, mode), board)

    if len(passes) > 1:
        last = predicted(passes[-1][0], modes[0]).prediction.workload
        passes = _passes(said, prompt, tokens, window_of(last))
    made = []
    for mode in modes:
        [(_, prefill), *steps] = [(count, predicted(of_pass, mode)) for of_pass, count in passes]
        made.append(Generation(prompt, tokens, prefill, steps))
    for each in made:
        memory = each.memory
        if memory.fits is False:
            raise InputError(
                f"batch {each.batch_size} does not fit: it needs about "
                f"{show(memory.needed_bytes, 'B')} ({show(each.cache_bytes, 'B')} of cache), the "
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
            autocompletion=one_of("graph", "eager"),
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
        prompt=_prompts(prompt),
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


def _prompts(given: list[str]) -> list[int]:
    found = []
    for text in split(given):
        if not re.fullmatch(r"-?[0-9]{1,10}", text):
            raise InputError(f"--prompt {text!r}: give whole numbers, as in 128 or 128,512")
        found.append(int(text))
    return list(dict.fromkeys(found))
