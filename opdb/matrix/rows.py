"""What the runs of a matrix say: a row a run for CSV, a line a combination for people."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from opdb.derive.costs import quantity_of, stretch_power_w
from opdb.matrix.cells import Cell, State
from opdb.records import Campaign, Json, ModelRun, Quantity
from opdb.units import rounded, show, show_share

SLOW_LOADER = 0.1
"""The share of a step in which the device waits for data from which on the loader is called so."""

_NAMED = 3
"""So many combinations a remark names; of more it says how many they are."""

_VERSIONS = ("torch", "cuda", "cudnn", "driver", "opdb")


@dataclass(frozen=True)
class Made:
    """A run of a matrix as far as it was made; `run` and its campaign None where it was not."""

    cell: Cell
    state: State
    run: ModelRun | None = None
    campaign: Campaign | None = None

    @property
    def reason(self) -> str | None:
        """Why it has no figures, where something is known of that."""
        if self.run is not None:
            return self.run.reason
        return self.cell.why_not if self.state == "not here" else None


@dataclass(frozen=True)
class Figures:
    """What a step took, over one run or several: times and energy with intervals.

    Several runs are one value each: what differs from process to process is in their interval. The
    interval of one run alone is that of its stretches. Times are means of all iterations timed,
    slow ones too. `waits` is the share of a step in which the device waited for data.
    """

    time_s: Quantity
    energy_j: Quantity | None
    energy_reason: str | None
    power_w: float | None
    data_time_s: float
    compute_time_s: float

    @property
    def waits(self) -> float:
        """The share of a step in which the device had nothing to do and the host waited."""
        idle_s = max(0.0, self.time_s.mean - self.compute_time_s)
        return min(self.data_time_s, idle_s) / self.time_s.mean


def figures(runs: Sequence[ModelRun]) -> Figures | None:
    """Return what good runs of one combination say; None where there is none."""
    good = [run for run in runs if run.outcome == "ok"]
    if not good:
        return None
    times = [[statistics.fmean(r.replay_times_s) for r in run.repeats] for run in good]
    powers = [[stretch_power_w(r) for r in run.repeats] for run in good]
    known = [p for some in powers for p in some if p is not None]
    energies = []
    if len(known) == sum(map(len, powers)):
        energies = [
            [p * t for p, t in zip(some, each, strict=True) if p is not None]
            for some, each in zip(powers, times, strict=True)
        ]
    facts = [run.facts for run in good]
    return Figures(
        time_s=_joined(times),
        energy_j=_joined(energies) if energies else None,
        energy_reason=None if energies else _no_energy(good),
        power_w=statistics.fmean(known) if energies else None,
        data_time_s=statistics.fmean(each["data_time_s"] for each in facts),
        compute_time_s=statistics.fmean(each["compute_time_s"] for each in facts),
    )


def _joined(values: Sequence[Sequence[float]]) -> Quantity:
    """Join the values of each run's stretches: by run where there are several."""
    return quantity_of(values[0] if len(values) == 1 else list(map(statistics.fmean, values)), None)


def _no_energy(runs: Iterable[ModelRun]) -> str:
    said = [flag for run in runs for flag in run.flags if flag.startswith("no power")]
    return said[0] if said else "no power was read"


def document(made: Made, command: str) -> dict[str, Json]:
    """Return a run as a flat row: what it is, what it took, where it ran, how to repeat it."""
    cell, run, campaign = made.cell, made.run, made.campaign
    facts = {} if run is None else run.facts
    environment = {} if campaign is None else campaign.environment
    found = None if run is None else figures([run])
    return {
        "label": cell.label,
        **_identity(cell),
        "state": made.state,
        "reason": made.reason,
        **_measured(cell, found),
        "peak_memory_bytes": None if run is None else run.peak_memory_bytes,
        "peak_resident_bytes": facts.get("peak_resident_bytes"),
        "device": cell.place.device or None,
        "board": None if campaign is None else campaign.board.uuid,
        "os": facts.get("os"),
        "host": facts.get("host"),
        **{name: environment.get(name) for name in _VERSIONS},
        "started_at": None if run is None else run.started_at,
        "run": None if run is None else run.id,
        "note": facts.get("note"),
        "flags": None if run is None else "; ".join(run.flags),
        "command": command,
    }


def _identity(cell: Cell) -> dict[str, Json]:
    one = cell.combination
    images = one.options.images
    return {
        "model": one.model,
        "batch_size": one.batch_size,
        "precision": one.precision if one.dtype == "float32" else one.dtype,
        "backend": cell.place.backend,
        "repeat": one.number,
        "input_size": None if one.input_size is None else "x".join(map(str, one.input_size)),
        "memory_format": "channels_last" if one.channels_last else "contiguous",
        "optimizer": one.optimizer,
        "grad_accum_steps": one.grad_accum_steps,
        "deterministic": one.options.deterministic,
        "cudnn_benchmark": one.options.cudnn_benchmark,
        "images": None if images is None else str(images.folder),
        "workers": None if images is None else images.workers,
        "iters": one.options.iters,
        "stretches": one.options.repeats,
    }


def _measured(cell: Cell, found: Figures | None) -> dict[str, Json]:
    images = cell.combination.images_per_step
    energy = None if found is None else found.energy_j
    return {
        "images_per_s": None if found is None else images / found.time_s.mean,
        "time_s": None if found is None else found.time_s.mean,
        "time_low_s": None if found is None else found.time_s.low,
        "time_high_s": None if found is None else found.time_s.high,
        "data_time_s": None if found is None else found.data_time_s,
        "compute_time_s": None if found is None else found.compute_time_s,
        "waits_for_data": None if found is None else found.waits,
        "energy_per_image_j": None if energy is None else energy.mean / images,
        "energy_low_j": None if energy is None or energy.low is None else energy.low / images,
        "energy_high_j": None if energy is None or energy.high is None else energy.high / images,
        "energy_reason": None if found is None else found.energy_reason,
        "power_w": None if found is None else found.power_w,
    }


@dataclass(frozen=True)
class Line:
    """The repeats of one combination, joined."""

    runs: tuple[Made, ...]

    @property
    def cell(self) -> Cell:
        """The first of them, which stands for all."""
        return self.runs[0].cell

    @property
    def figures(self) -> Figures | None:
        """What the good ones say together."""
        return figures([made.run for made in self.runs if made.run is not None])

    def cells(self) -> tuple[str, ...]:
        """Return the line's cells, under `HEADER`."""
        done = [m.run for m in self.runs if m.run is not None and m.run.outcome == "ok"]
        found, images = self.figures, self.cell.combination.images_per_step
        memory = [run.peak_memory_bytes for run in done if run.peak_memory_bytes is not None]
        resident = [run.facts["peak_resident_bytes"] for run in done]
        energy = None if found is None else found.energy_j
        return (
            self.cell.group,
            f"{len(done)} of {len(self.runs)}",
            "–" if found is None else rounded(images / found.time_s.mean, 4),
            _with_interval(None if found is None else found.time_s, "s", 1),
            "–" if found is None else _waiting(found.waits),
            _with_interval(energy, "J", images),
            show(max(memory, default=None), "B", digits=3),
            show(max(resident, default=None), "B", digits=3),
        )

    def remarks(self) -> list[str]:
        """Return what must be known beside the figures, or why there are none."""
        said = [
            made.state if made.reason is None else f"{made.state}: {made.reason}"
            for made in self.runs
            if made.state != "done"
        ]
        found = self.figures
        if found is not None and found.energy_reason is not None:
            said.append(found.energy_reason)
        flags = [flag for made in self.runs if made.run is not None for flag in made.run.flags]
        said += [flag for flag in flags if not flag.startswith("no power")]
        return list(dict.fromkeys(said))


HEADER: tuple[str, ...] = (
    *("training", "runs", "images/s", "a step", "waits for data", "energy an image"),
    *("peak memory", "on the host"),
)
"""What stands above the cells of a line."""


def _waiting(share: float) -> str:
    return show_share(share) + (", slow loader" if share >= SLOW_LOADER else "")


def _with_interval(value: Quantity | None, unit: str, per: int) -> str:
    """Return a quantity for people, with the half width of its interval in percent."""
    if value is None:
        return "–"
    told = show(value.mean / per, unit)
    if value.high is None or not value.mean:
        return told
    return f"{told} ± {rounded(100 * (value.high - value.mean) / value.mean, 2)} %"


def lines_of(made: Iterable[Made]) -> list[Line]:
    """Return a line for each combination, its repeats joined, in the order of the file."""
    found: dict[str, list[Made]] = {}
    for each in made:
        found.setdefault(each.cell.group, []).append(each)
    return [Line(tuple(some)) for some in found.values()]


def remarks_of(lines: Sequence[Line]) -> list[str]:
    """Return all remarks, each said once with the combinations that it concerns."""
    told: dict[str, list[str]] = {}
    for line in lines:
        for remark in line.remarks():
            told.setdefault(remark, []).append(line.cell.group)
    return [
        f"{', '.join(whom) if len(whom) <= _NAMED else f'{len(whom)} of {len(lines)}'}: {remark}"
        for remark, whom in told.items()
    ]


def mixed(made: Iterable[Made]) -> list[str]:
    """Say where figures of one table come from several boards, hosts or versions of torch."""
    campaigns = [each.campaign for each in made if each.campaign is not None]
    kinds = (
        ("boards", {c.board.uuid for c in campaigns}),
        ("hosts", {c.host.id for c in campaigns}),
        ("versions of torch", {str(c.environment.get("torch")) for c in campaigns}),
    )
    return [
        f"runs come from {len(found)} {what}: {', '.join(sorted(found))}"
        for what, found in kinds
        if len(found) > 1
    ]


def markdown(made: Sequence[Made], title: str) -> str:
    """Return the table of a matrix as Markdown, its remarks below."""
    lines = lines_of(made)
    rows = [HEADER, ("---", *["---:"] * (len(HEADER) - 1)), *(line.cells() for line in lines)]
    table = "\n".join("| " + " | ".join(_escaped(cell) for cell in row) + " |" for row in rows)
    said = [*remarks_of(lines), *mixed(made)]
    below = "".join(f"- {_escaped(remark)}\n" for remark in said)
    return f"# {title}\n\n{table}\n" + (f"\n{below}" if below else "")


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
