"""The runs of a matrix as tables: a row a run for machines, a line a combination for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from opdb.errors import CannotMeasureError, OpdbError
from opdb.matrix.replaying import command_of
from opdb.matrix.rows import Figures, Line, MatrixRun, lines_of, mixed, remarks_of
from opdb.models.usual import times
from opdb.records import Json, ModelRun, Quantity
from opdb.tables import MISSING, Column, Report, Rows, Table, in_markdown
from opdb.units import plural, rounded, show, show_share

if TYPE_CHECKING:
    from opdb.bench.options import ImageOptions
    from opdb.matrix.combination import Combination

SLOW_LOADER = 0.1
"""The share of a step in which the device waits for data from which on the loader is called so."""


def _of_campaign(name: str) -> Column[MatrixRun]:
    return Column(name, lambda made: made.campaign.environment.get(name) if made.campaign else None)


def _fact(name: str) -> Column[MatrixRun]:
    return Column(name, lambda made: made.run.facts.get(name) if made.run else None)


def _figure(name: str, of: Callable[[Figures], Json]) -> Column[MatrixRun]:
    return Column(name, lambda made: None if made.figures is None else of(made.figures))


def _energy(name: str, of: Callable[[Quantity], float | None]) -> Column[MatrixRun]:
    """Return the column of a step's energy (J), given per image."""

    def an_image(made: MatrixRun) -> float | None:
        energy = made.figures.energy_j if made.figures else None
        step_j = None if energy is None else of(energy)
        return None if step_j is None else step_j / made.cell.combination.images_per_step

    return Column(name, an_image)


def _said(name: str, of: Callable[[Combination], Json]) -> Column[MatrixRun]:
    return Column(name, lambda made: of(made.cell.combination))


def _of_images(name: str, of: Callable[[ImageOptions], Json]) -> Column[MatrixRun]:
    return _said(name, lambda one: of(one.options.images) if one.options.images else None)


RUNS: Table[MatrixRun] = Table(
    Column("label", lambda made: made.cell.label),
    _said("model", lambda one: one.model),
    _said("batch_size", lambda one: one.batch_size),
    _said("precision", lambda one: one.precision if one.dtype == "float32" else one.dtype),
    Column("backend", lambda made: made.cell.place.backend),
    _said("repeat", lambda one: one.number),
    _said("input_size", lambda one: times(one.input_size) if one.input_size is not None else None),
    _said("memory_format", lambda one: "channels_last" if one.channels_last else "contiguous"),
    _said("optimizer", lambda one: one.optimizer),
    _said("grad_accum_steps", lambda one: one.grad_accum_steps),
    _said("deterministic", lambda one: one.options.deterministic),
    _said("cudnn_benchmark", lambda one: one.options.cudnn_benchmark),
    _of_images("images", lambda images: str(images.folder)),
    _of_images("workers", lambda images: images.workers),
    _said("iters", lambda one: one.options.iters),
    _said("stretches", lambda one: one.options.repeats),
    Column("state", lambda made: made.state),
    Column("reason", lambda made: made.reason),
    Column("images_per_s", lambda made: made.images_per_s),
    _figure("time_s", lambda found: found.time_s.mean),
    _figure("time_low_s", lambda found: found.time_s.low),
    _figure("time_high_s", lambda found: found.time_s.high),
    _figure("data_time_s", lambda found: found.data_time_s),
    _figure("compute_time_s", lambda found: found.compute_time_s),
    _figure("waits_for_data", lambda found: found.waits),
    _energy("energy_per_image_j", lambda energy: energy.mean),
    _energy("energy_low_j", lambda energy: energy.low),
    _energy("energy_high_j", lambda energy: energy.high),
    _figure("energy_reason", lambda found: found.energy_reason),
    _figure("power_w", lambda found: found.power_w),
    Column("peak_memory_bytes", lambda made: made.run.peak_memory_bytes if made.run else None),
    _fact("peak_resident_bytes"),
    Column("device", lambda made: made.cell.place.device or None),
    Column("board", lambda made: made.campaign.board.uuid if made.campaign else None),
    *map(_fact, ("os", "host")),
    *map(_of_campaign, ("torch", "cuda", "cudnn", "driver", "opdb")),
    Column("started_at", lambda made: made.run.started_at if made.run else None),
    Column("run", lambda made: made.run.id if made.run else None),
    _fact("note"),
    Column("flags", lambda made: "; ".join(made.run.flags) if made.run else None),
    Column("command", lambda made: command_of(made.cell)),
)
"""A run as a flat row: what it is, what it took, where it ran, how to repeat it."""

STATES: Table[MatrixRun] = Table(
    Column(title="run", text=lambda made: made.cell.label),
    Column(title="state", text=lambda made: made.state),
    Column(title="why", text=lambda made: made.reason or ""),
)
"""Every run with its state."""


def _waiting(share: float) -> str:
    return show_share(share) + (", slow loader" if share >= SLOW_LOADER else "")


def _with_interval(value: Quantity | None, unit: str, per: int) -> str:
    """Return a quantity for people, with the half width of its interval in percent."""
    if value is None:
        return "–"
    text = show(value.mean / per, unit)
    if value.half_width is None or not value.mean:
        return text
    return f"{text} ± {rounded(100 * value.half_width / value.mean, 2)} %"


def _rate(line: Line) -> str:
    found = line.figures
    return MISSING if found is None else rounded(line.images_per_step / found.time_s.mean, 4)


def _most(title: str, of: Callable[[ModelRun], float | None]) -> Column[Line]:
    """Return the column of the most memory that a run took."""

    def cell(line: Line) -> str:
        known = [taken for run in line.done if (taken := of(run)) is not None]
        return show(max(known, default=None), "B", digits=3)

    return Column(title=title, text=cell)


LINES: Table[Line] = Table(
    Column(title="training", text=lambda line: line.cell.group),
    Column(title="runs", text=lambda line: f"{len(line.done)} of {len(line.runs)}"),
    Column(title="images/s", text=_rate),
    Column(
        title="a step",
        text=lambda line: _with_interval(line.figures.time_s if line.figures else None, "s", 1),
    ),
    Column(
        title="waits for data",
        text=lambda line: _waiting(line.figures.waits) if line.figures else MISSING,
    ),
    Column(
        title="energy an image",
        text=lambda line: _with_interval(
            line.figures.energy_j if line.figures else None, "J", line.images_per_step
        ),
    ),
    _most("peak memory", lambda run: run.peak_memory_bytes),
    _most("on the host", lambda run: run.facts["peak_resident_bytes"]),
)
"""A line for each combination, its repeats joined, as people read it."""


@dataclass(frozen=True, repr=False)
class MatrixReport(Report):
    """The runs of a matrix; `failures` say what could not be stored.

    With `states` people read every run with its state, too.
    """

    runs: Sequence[MatrixRun]
    failures: Sequence[str] = ()
    states: bool = False

    def to_dict(self) -> dict[str, Json]:
        """Return the runs, their counts by state, and what could not be stored."""
        return {
            "rows": RUNS.documents(self.runs),
            "states": dict(Counter(made.state for made in self.runs)),
            "failures": list(self.failures),
        }

    def csv(self) -> str:
        """Return a row for each run."""
        return RUNS.csv(self.runs)

    def blocks(self) -> Iterator[str | Rows[Any]]:
        """Yield a line for each combination, and remarks below."""
        if self.states:
            yield Rows(STATES, self.runs)
            yield ""
        lines = lines_of(self.runs)
        yield Rows(LINES, lines)
        yield from remarks_of(lines)
        yield from mixed(self.runs)

    def markdown(self, title: str) -> str:
        """Return the table as Markdown, its remarks below."""
        lines = lines_of(self.runs)
        remarks = [*remarks_of(lines), *mixed(self.runs)]
        below = "".join(f"- {in_markdown(remark)}\n" for remark in remarks)
        return f"# {title}\n\n{LINES.markdown(lines)}" + (f"\n{below}" if below else "")

    def check(self) -> None:
        """Raise what went wrong, every run named; a batch too large for its device is a result.

        Raises:
            CannotMeasureError: this machine can run nothing of the matrix.
            OpdbError: a run failed, or nothing of it could be stored.
        """
        if all(each.state == "not here" for each in self.runs):
            raise CannotMeasureError(
                f"nothing of the matrix can be run here: {self.runs[0].reason}"
            )
        lines = list(self.failures)
        lines += [f"{m.cell.label}: {m.reason}" for m in self.runs if m.state == "failed"]
        if lines:
            listed = "\n".join(f"  {line}" for line in lines)
            raise OpdbError(
                f"{len(lines)} of {plural(len(self.runs), 'run')} failed; what was finished is "
                f"stored, --retry tries the others again\n{listed}"
            )
