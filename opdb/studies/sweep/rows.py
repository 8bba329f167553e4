"""The rows of a sweep, with predictions beside stored runs; its tables, files and figures."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opdb.algorithms.names import ALGORITHMS, DEFAULT, GUESS, Algorithm
from opdb.commands._predictions import blank_figure, png_of
from opdb.derive.runs import RunCost, agreeing, run_cost
from opdb.errors import CheckError, InputError, OpdbError
from opdb.files import file_name, make_folder, write_file
from opdb.kinds.registry import relevant_setting
from opdb.packaging import install
from opdb.records import ELSEWHERE, Json, ModelRun, Quantity, Workload
from opdb.runs import RunTable, State
from opdb.spec import ModelSpec
from opdb.studies.sweep.request import (
    STATES,
    SweepPolicy,
    SweepRequest,
    SweepSpec,
    state_of,
    stored_run,
)
from opdb.tables import MISSING, Column, Listing, Report, Rows, Table, csv_text
from opdb.units import MILLI, plural, show, show_share

if TYPE_CHECKING:
    from opdb.predict.predictor import Predictor
    from opdb.store import Store
    from opdb.studies.sweep.measuring import Verification


@dataclass(frozen=True)
class LayerFacts:
    path: str
    in_channels: int
    out_channels: int
    kernel_size: tuple[int, ...]


@dataclass(frozen=True)
class SweepRow:
    """One cell with its run, its board (UUID), and what was predicted of it.

    `predicted` has time (s) and energy (J) of a pass, where its operators are measured. `same_as`
    is the first algorithm that ran the very same kernels at this size, where one did. `energies_j`
    are those of one call of its convolution layers, by path, where they are measured.
    """

    cell: SweepSpec
    run: ModelRun
    board: str
    predicted: tuple[float | None, float | None]
    same_as: str | None
    energies_j: Mapping[str, float]

    @property
    def state(self) -> State:
        return state_of(self.run.outcome, self.run.facts)

    @cached_property
    def iteration_s(self) -> list[float]:
        """The times of the measured passes of the stretches that agree."""
        if self.run.outcome != "ok":
            return []
        return [t for stretch in agreeing(self.run.repeats) for t in stretch.replay_times_s]

    @cached_property
    def cost(self) -> RunCost | None:
        return run_cost([self.run])

    @property
    def time_s(self) -> Quantity | None:
        return self.cost.time_s if self.cost and self.iteration_s else None

    @property
    def energy_j(self) -> Quantity | None:
        return self.cost.energy_j if self.cost else None

    @property
    def elsewhere(self) -> Mapping[str, Json]:
        """Why convolutions ran by another algorithm than the one named, and by which, by layer."""
        found: Mapping[str, Json] = self.run.facts.get(ELSEWHERE, {})
        return found

    def an_inference(self, pass_j: float | None) -> float | None:
        return None if pass_j is None else pass_j / (self.cell.request.batch_size or 1)

    @cached_property
    def reason(self) -> str | None:
        """Why there are no figures, or what must be known beside them."""
        whole = self.run.reason or ""
        said = [whole] if whole else []
        elsewhere = self.elsewhere.values()
        said += sorted({each["why"] for each in elsewhere if each["why"] not in whole})
        said += [flag for flag in self.run.flags if flag.startswith("no power")]
        return "; ".join(said) or None

    def layers(self, layers: Sequence[LayerFacts]) -> list[LayerTime]:
        times = self.run.layers
        if self.run.outcome != "ok" or not times:
            return []
        total_s = sum(times.values())
        timed = [layer for layer in layers if layer.path in times]
        return [LayerTime(self, each, times[each.path], total_s) for each in timed]

    def ran(self, path: str) -> str:
        """Return the algorithm by which a layer ran: cuDNN's guess where it was to guess."""
        if path in self.run.facts.get(ELSEWHERE, {}):
            return DEFAULT
        if self.cell.algorithm.name == GUESS:
            guessed = self.run.facts.get("guessed", {}).get(path)
            return " and ".join(guessed) if guessed else GUESS
        return self.cell.algorithm.name


def same_kernels(ran: Iterable[tuple[str, Mapping[str, int] | None]]) -> dict[str, str]:
    """By algorithm, the earlier one of the same kernels; what was not seen is like no other."""
    first: dict[frozenset[tuple[str, int]], str] = {}
    found = {}
    for algorithm, kernels in ran:
        if kernels:
            found[algorithm] = first.setdefault(frozenset(kernels.items()), algorithm)
    return {algorithm: other for algorithm, other in found.items() if other != algorithm}


@dataclass(frozen=True)
class LayerTime:
    """A convolution layer's time in place, and that of all leaf modules of the pass (seconds)."""

    row: SweepRow
    layer: LayerFacts
    time_s: float
    total_s: float


def _milli(seconds: float | None) -> float | None:
    return None if seconds is None else seconds / MILLI


def _time(name: str, of: Callable[[list[float]], float]) -> Column[SweepRow]:
    return Column(name, lambda row: _milli(of(row.iteration_s)) if row.time_s else None)


def _time_bound(side: str) -> Column[SweepRow]:
    return Column(
        f"mean_{side}_ms", lambda row: _milli(getattr(row.time_s, side)) if row.time_s else None
    )


def _energy_bound(side: str) -> Column[SweepRow]:
    return Column(
        f"energy_{side}_j",
        lambda row: row.an_inference(getattr(row.energy_j, side)) if row.energy_j else None,
    )


def _fact(name: str) -> Column[SweepRow]:
    return Column(name, lambda row: row.run.facts.get(name))


def _state(row: SweepRow) -> str:
    return row.run.outcome if row.state == "failed" else row.state


def _state_words(row: SweepRow) -> str:
    share = row.run.facts.get("share_elsewhere")
    return _state(row) + (f", {show_share(share)} elsewhere" if share else "")


OVERALL: Table[SweepRow] = Table(
    Column("model", lambda row: row.cell.request.name, "model"),
    Column("algorithm", lambda row: row.cell.algorithm.name, "algorithm"),
    Column("input_size", lambda row: row.cell.size, "size"),
    Column(
        "mean_ms",
        lambda row: _milli(row.time_s.mean) if row.time_s else None,
        "time",
        text=lambda row: show(row.time_s.mean if row.time_s else None, "s"),
    ),
    Column(
        "std_ms",
        lambda row: (
            _milli(statistics.stdev(row.iteration_s))
            if row.time_s and len(row.iteration_s) > 1
            else None
        ),
    ),
    _time("min_ms", min),
    _time("max_ms", max),
    Column("power_mean_w", lambda row: row.cost.power_w if row.cost and row.energy_j else None),
    Column(
        "energy_per_inference_j",
        lambda row: row.an_inference(row.energy_j.mean) if row.energy_j else None,
        "energy",
        "J",
    ),
    *map(_time_bound, ("low", "high")),
    *map(_energy_bound, ("low", "high")),
    Column("iterations", lambda row: len(row.iteration_s) if row.time_s else None),
    Column("state", _state, "state", text=_state_words),
    *map(_fact, ("convolutions", "forced")),
    Column(
        "elsewhere",
        lambda row: len(row.elsewhere) if row.cell.algorithm.is_forced and row.run.facts else None,
    ),
    _fact("share_elsewhere"),
    Column(
        "same_kernels_as",
        lambda row: row.same_as,
        "same kernels as",
        text=lambda r: r.same_as or "",
    ),
    Column("predicted_ms", lambda row: _milli(row.predicted[0])),
    Column("predicted_energy_j", lambda row: row.an_inference(row.predicted[1])),
    Column("mode", lambda row: row.run.mode),
    Column("batch_size", lambda row: row.cell.request.batch_size),
    Column("dtype", lambda row: row.cell.request.dtype),
    Column("board", lambda row: row.board),
    Column("reason", lambda row: row.reason, "why", text=lambda row: row.reason or ""),
)
"""The rows of a sweep's file of cells; people's scripts read the first nine columns."""

LAYERS: Table[LayerTime] = Table(
    Column("input_size", lambda each: each.row.cell.size),
    Column("layer", lambda each: each.layer.path),
    Column("in_channels", lambda each: each.layer.in_channels),
    Column("out_channels", lambda each: each.layer.out_channels),
    Column("kernel_size", lambda each: str(each.layer.kernel_size)),
    Column("mean_ms", lambda each: _milli(each.time_s)),
    Column("percentage", lambda each: 100 * each.time_s / each.total_s),
    Column("algorithm", lambda each: each.row.ran(each.layer.path)),
    Column("energy_j", lambda each: each.row.energies_j.get(each.layer.path)),
)
"""The rows of a sweep's file of convolution layers; percentages are of all leaf modules' time."""

KIND = "conv2d"


class SweepResults:
    def __init__(self, store: Store, device: str, settings: Mapping[str, Json]) -> None:
        self._store, self._device, self._settings = store, device, settings
        self._boards = {c.id: c.board.uuid for c in store.campaigns(device)}
        policy = SweepPolicy((device,))
        self._table = RunTable(policy, policy.runs(store))
        self._predictors: dict[str, Predictor] = {}
        self._workloads: dict[str, Workload] = {}

    def rows(self, cells: Sequence[SweepSpec], calls: Sequence[str]) -> list[SweepRow]:
        """Return a row of each cell of one model that was run; `calls` as its layers are called."""
        found = []
        for size in dict.fromkeys(cell.size for cell in cells):
            runs = []
            for cell in cells:
                if cell.size == size and (run := self._run(cell)) is not None:
                    runs.append((cell, run))
            good = [(c.algorithm.name, r.kernels) for c, r in runs if r.outcome == "ok"]
            same = same_kernels(good)
            for cell, run in runs:
                board = self._boards[run.campaign]
                row = SweepRow(
                    cell,
                    run,
                    board,
                    self._predicted(cell, run, board),
                    same.get(cell.algorithm.name),
                    self._energies(cell, board, calls),
                )
                found.append(row)
        return found

    def _run(self, cell: SweepSpec) -> ModelRun | None:
        return stored_run(self._store, self._table, cell, self._device)

    def _workload(self, cell: SweepSpec) -> Workload:
        if cell.workload not in self._workloads:
            [self._workloads[cell.workload]] = self._store.workloads_by_key([cell.workload])
        return self._workloads[cell.workload]

    def _under(self, algorithm: Algorithm) -> dict[str, Json]:
        return {**self._settings, **algorithm.setting}

    def _energies(self, cell: SweepSpec, board: str, calls: Sequence[str]) -> dict[str, float]:
        """Return the energy of each convolution layer's calls, where all are measured."""
        made = [c.configuration for c in self._workload(cell).calls if c.configuration.kind == KIND]
        if len(made) != len(calls):
            return {}
        setting = relevant_setting(KIND, self._under(cell.algorithm))
        costs = self._store.costs(board, {c.key for c in made})
        known = {
            key: cost.energy_j.mean
            for key, some in costs.items()
            for cost in some
            if cost.setting == setting and cost.energy_j is not None
        }
        found: dict[str, float] = {}
        missing = set()
        for path, configuration in zip(calls, made, strict=True):
            if configuration.key not in known:
                missing.add(path)
            else:
                found[path] = found.get(path, 0.0) + known[configuration.key]
        return {path: energy for path, energy in found.items() if path not in missing}

    def _predicted(
        self, cell: SweepSpec, run: ModelRun, board: str
    ) -> tuple[float | None, float | None]:
        """Return what operators say of a run, where all of them were measured: time, energy.

        A partial run has none, nor has a forced convolution whose time depends on the host.
        """
        waits = run.mode == "eager" and cell.algorithm.is_forced
        if state_of(run.outcome, run.facts) != "full" or waits:
            return None, None
        name = cell.algorithm.name
        if name not in self._predictors:
            from opdb.predict.predictor import predictor_for

            under = self._under(cell.algorithm)
            self._predictors[name] = predictor_for(
                self._store, self._device, under, estimates=False
            )
        workload = self._workload(cell)
        prediction = self._predictors[name].answer(workload, run.mode, board).prediction
        if prediction.missing or prediction.estimated or prediction.workload.unsupported:
            return None, None
        return prediction.time_s, prediction.energy_j


MODELS = ("vgg16", "densenet121", "resnet50", "resnet152", "googlenet", "alexnet")
"""The models that are published; any other that takes images can be swept as well."""

FORCED: Table[Algorithm] = Table(
    Column("algorithm", lambda each: each.name, "algorithm"),
    Column(
        "cudnn_number",
        lambda each: each.number,
        "cuDNN's number",
        text=lambda each: "" if each.number is None else each.number,
    ),
    Column("what", lambda each: each.words, "what runs"),
)


def lists(*, models: bool, algorithms: bool) -> Listing:
    """Return what can be swept: models by name, algorithms by name and number."""
    from opdb.models import names

    document: dict[str, Json] = {}
    parts: list[str | Rows[Any]] = []
    if models:
        others = [name for name in names("torchvision") if name not in MODELS]
        document["models"] = [*MODELS, *others]
        parts += document["models"]
    if algorithms:
        document["algorithms"] = FORCED.documents(ALGORITHMS.values())
        parts.append(Rows(FORCED, list(ALGORITHMS.values())))
    return Listing(document, parts)


@dataclass(frozen=True)
class GroupStanding:
    """A model under an algorithm, as `cell`: its sizes in each state, what its runs took (s)."""

    device: str
    cell: SweepSpec
    states: Counter[State]
    took_s: float


def _in_state(state: State) -> Column[GroupStanding]:
    return Column(state, lambda each: each.states[state], state)


STANDINGS: Table[GroupStanding] = Table(
    Column("device", lambda each: each.device),
    Column("model", lambda each: each.cell.request.name, "model"),
    Column("batch_size", lambda each: each.cell.request.batch_size),
    Column("dtype", lambda each: each.cell.request.dtype),
    Column("memory_format", lambda each: each.cell.request.memory_format),
    Column("mode", lambda each: each.cell.mode, "mode"),
    Column("algorithm", lambda each: each.cell.algorithm.name, "algorithm"),
    Column(title="sizes", text=lambda each: each.states.total()),
    *map(_in_state, STATES),
    Column("took_s", lambda each: each.took_s, "took", "s"),
)


def verdict(each: Verification) -> str:
    if each.failure is not None:
        return each.failure
    if not each.cell.algorithm.is_forced:
        return "torch's own"
    said = "yes" if each.holds else f"no: {each.worst_layer} errs more than {each.tolerance:g}"
    if each.time_s and each.default_s:
        said += f", {each.time_s / each.default_s:.2f} of torch's time"
    if each.same_kernels_as:
        said += f", the kernels of {each.same_kernels_as}"
    return said


VERIFIED: Table[Verification] = Table(
    Column("model", lambda each: each.cell.request.name, "model"),
    Column("algorithm", lambda each: each.cell.algorithm.name, "algorithm"),
    Column("input_size", lambda each: each.cell.size, "size"),
    Column("convolutions", lambda each: each.convolutions),
    Column(
        "forced",
        lambda each: each.forced,
        "forced",
        text=lambda each: f"{each.forced} of {each.convolutions}",
    ),
    Column("refused", lambda each: each.refused),
    Column(
        "layer_error",
        lambda each: each.layer_error,
        "largest error",
        text=lambda each: MISSING if each.layer_error is None else f"{each.layer_error:.1e}",
    ),
    Column("worst_layer", lambda each: each.worst_layer),
    Column("output_error", lambda each: each.output_error),
    Column("tolerance", lambda each: each.tolerance),
    Column("time_s", lambda each: each.time_s, "time", "s"),
    Column("default_time_s", lambda each: each.default_s),
    Column("kernels", lambda each: each.kernels),
    Column("same_kernels_as", lambda each: each.same_kernels_as),
    Column("failure", lambda each: each.failure),
    Column("holds", lambda each: each.holds, "verified", text=verdict),
)


@dataclass(frozen=True, repr=False)
class SweepReport(Report):
    """`errors` name the sizes at which a model cannot be run, `failures` devices that failed."""

    cells: Sequence[SweepRow]
    verified: Sequence[Verification] = ()
    errors: Sequence[OpdbError] = ()
    failures: Sequence[str] = ()

    def to_dict(self) -> dict[str, Json]:
        return {
            "rows": OVERALL.documents(self.cells),
            "composed": composed(self.cells),
            "verified": VERIFIED.documents(self.verified),
        }

    def blocks(self) -> Iterator[str | Rows[Any]]:
        if self.cells:
            yield Rows(OVERALL, self.cells)
        for quantity, errors in composed(self.cells).items():
            yield (
                f"{quantity} composed of operators against "
                f"{plural(round(errors['runs']), 'run')}: median error "
                f"{show_share(errors['median'])}, largest {show_share(errors['largest'])}"
            )
        if self.verified:
            yield ""
            yield Rows(VERIFIED, self.verified)

    def check(self) -> None:
        if self.errors:
            raise InputError("\n".join(str(error) for error in self.errors))
        wrong = [f"{each.cell.label}: {verdict(each)}" for each in self.verified if not each.holds]
        if wrong:
            raise CheckError("what ran is not verified:\n" + "\n".join(f"  {w}" for w in wrong))


def composed(rows: Sequence[SweepRow]) -> dict[str, dict[str, float]]:
    """Hold what operators say of runs against these: errors (shares) of time and of energy."""
    found: dict[str, dict[str, float]] = {}
    told = OVERALL.documents(rows)
    for quantity, predicted, measured in (
        ("time", "predicted_ms", "mean_ms"),
        ("energy", "predicted_energy_j", "energy_per_inference_j"),
    ):
        errors = [
            abs(each[predicted] / each[measured] - 1)
            for each in told
            if each[predicted] is not None and each[measured] is not None
        ]
        if errors:
            found[quantity] = {
                "runs": len(errors),
                "median": statistics.median(errors),
                "largest": max(errors),
            }
    return found


# The files and figures of a sweep, by model and algorithm.


def _stem(cell: SweepSpec) -> str:
    return file_name(f"{cell.request.name}_{cell.algorithm.slug}")


def _unusual(request: ModelSpec) -> str:
    """Return the end of a name, of what is not batch 1 in float32: people's scripts expect none."""
    said = [f"b{request.batch_size}"] if request.batch_size != 1 else []
    said += [str(request.dtype)] if request.dtype != "float32" else []
    said += [str(request.memory_format)] if request.memory_format != "contiguous" else []
    return "".join(f"_{each}" for each in said)


def write_results(
    asked: SweepRequest, rows: Iterable[SweepRow], layers: Any, device: str, output: Path
) -> list[Path]:
    by_algorithm: dict[str, list[SweepRow]] = {}
    for row in rows:
        by_algorithm.setdefault(row.cell.algorithm.name, []).append(row)
    written = []
    for some in by_algorithm.values():
        first = some[0].cell
        stem = _stem(first)
        folder = output / asked.stage / file_name(f"{stem}_{device}{_unusual(first.request)}")
        overall = csv_text(OVERALL.fields, map(_rounded, map(OVERALL.document, some)))
        lines = (line for row in some for line in row.layers(layers))
        in_place = csv_text(LAYERS.fields, map(_rounded, map(LAYERS.document, lines)))
        written.append(write(folder / f"{stem}_overall.csv", overall.encode()))
        written.append(write(folder / f"{stem}_layers.csv", in_place.encode()))
    return written


def _rounded(line: Mapping[str, Json]) -> dict[str, Json]:
    return {n: float(f"{v:.6g}") if isinstance(v, float) else v for n, v in line.items()}


def write(path: Path, content: bytes) -> Path:
    make_folder(path.parent)
    write_file(path, content)
    return path


def figure(rows: Sequence[SweepRow], device: str) -> tuple[str, bytes]:
    first = rows[0].cell
    stem = f"{_stem(first).removesuffix('_' + first.algorithm.slug)}_{device}"
    stem = file_name(stem + _unusual(first.request))
    batch = f"batch {first.request.batch_size} {first.request.dtype}"
    title = f"{first.request.name}, {batch}, {first.mode}, on {device}"
    return f"{stem}.png", draw_curves(rows, title)


def write_all(
    store: Store,
    asked: SweepRequest,
    cells: Sequence[SweepSpec],
    device: str,
    output: Path,
    note: Callable[[str], None],
) -> list[SweepRow]:
    from opdb.bench.session import current_settings
    from opdb.studies.sweep.measuring import convolution_layers
    from opdb.studies.sweep.rows import SweepResults

    results = SweepResults(store, device, current_settings())
    found: list[SweepRow] = []
    for name in dict.fromkeys(cell.request.name for cell in cells):
        of_model = [cell for cell in cells if cell.request.name == name]
        layers, calls = convolution_layers(of_model[0])
        rows = results.rows(of_model, calls)
        written = write_results(asked, rows, layers, device, output)
        if rows and find_spec("matplotlib") is not None:
            file, content = figure(rows, device)
            written.append(write(output / asked.stage / file, content))
        elif rows:
            note(f"no figures without matplotlib: {install('plots')}")
        for path in written:
            note(f"written: {path}")
        found += rows
    if lacking := len(cells) - len(found):
        note(f"not in these files: {plural(lacking, 'cell')} not measured")
    return found


_COLOURS = (
    *("#0072B2", "#D55E00", "#009E73", "#882255", "#E69F00"),
    *("#56B4E9", "#999999", "#CC79A7", "#B8A300", "#000000"),
)
_MARKS = "osD^v<>pX*"
_STYLES = dict(zip(ALGORITHMS, zip(_COLOURS, _MARKS, strict=True), strict=True))

_TICKS = 12
_HOLLOW = "input size, pixels a side; hollow: some convolution ran otherwise (partial)"


def draw_curves(rows: Sequence[SweepRow], title: str) -> bytes:
    """Draw one model's time and energy against the input's size, a line an algorithm, as PNG.

    Partial cells are hollow. What ran the same kernels as another algorithm, or nowhere, is named
    so beside the panels. An energy that was not read is not drawn, and the panel says so.
    """
    figure = blank_figure(9.0, 8.0)
    above, below = figure.subplots(2, 1, sharex=True)
    above.set_title(title)
    by = _by(rows)
    for axes, column, label in (
        (above, "mean_ms", "a pass, ms"),
        (below, "energy_per_inference_j", "an inference, J"),
    ):
        drawn = [_curve(axes, name, of, column) for name, of in by.items()]
        axes.set_ylabel(label)
        axes.grid(alpha=0.3)
        if any(drawn):
            in_plain_numbers(axes)
        else:
            axes.set_yticks([])
            axes.text(0.5, 0.5, "nothing was read", transform=axes.transAxes, ha="center")
    below.set_xlabel(_HOLLOW)
    sizes = sorted({row.cell.size for row in rows})
    below.set_xticks(sizes[:: math.ceil(len(sizes) / _TICKS)])
    handles = [_handle(name, of) for name, of in by.items()]
    figure.legend(handles=handles, loc="outside right upper", fontsize=8)
    return png_of(figure)


def _handle(algorithm: str, rows: Sequence[SweepRow]) -> Any:
    from matplotlib.lines import Line2D

    colour, mark = _STYLES[algorithm]
    if all(row.run.outcome != "ok" for row in rows):
        said = ", ".join(sorted({row.run.outcome.replace("_", " ") for row in rows}))
        return Line2D([], [], linestyle="", label=f"{algorithm}:\n{said}")
    same = {row.same_as for row in rows if row.run.outcome == "ok"}
    [other] = same if len(same) == 1 else [None]
    label = algorithm if other is None else f"{algorithm}:\nkernels of {other}"
    return Line2D([], [], color=colour, linewidth=1, marker=mark, markersize=4, label=label)


def in_plain_numbers(axes: Any) -> None:
    """Make the upright axis logarithmic, and write 0.6 where matplotlib would write 6e-01."""
    from matplotlib.ticker import LogFormatter

    class Plain(LogFormatter):
        def __call__(self, x: float, pos: int | None = None) -> str:
            return f"{x:g}" if super().__call__(x, pos) else ""

    axes.set_yscale("log")
    for which in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
        which(Plain(minor_thresholds=(1.5, 0.5)))


def _by(rows: Sequence[SweepRow]) -> dict[str, list[SweepRow]]:
    found: dict[str, list[SweepRow]] = {}
    for row in sorted(rows, key=lambda row: row.cell.size):
        found.setdefault(row.cell.algorithm.name, []).append(row)
    return found


def _curve(axes: Any, algorithm: str, rows: Sequence[SweepRow], column: str) -> bool:
    points = [(row, value) for row in rows if (value := OVERALL.document(row)[column]) is not None]
    if not points:
        return False
    colour, mark = _STYLES[algorithm]
    sizes = [row.cell.size for row, _ in points]
    axes.plot(sizes, [value for _, value in points], color=colour, linewidth=1)
    for partial, inside in ((False, colour), (True, "white")):
        chosen = [
            (row.cell.size, value)
            for row, value in points
            if bool(row.run.facts.get(ELSEWHERE)) == partial
        ]
        if chosen:
            style = {"color": colour, "markerfacecolor": inside, "markersize": 5}
            axes.plot(*zip(*chosen, strict=True), mark, **style)
    return True
