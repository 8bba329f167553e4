"""A matrix of trainings: its file, the stored runs that answer it, and their results as tables."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opdb.derive.costs import quantity_of, stretch_power_w
from opdb.errors import CannotMeasureError, InputError, OpdbError, UnknownNameError, shown
from opdb.files import read_text
from opdb.models import checked
from opdb.records import Campaign, Json, ModelRun, Quantity, canonical_json
from opdb.runs import BACKENDS, PRECISIONS, DriverOptions, ImageOptions, Policy, State
from opdb.spec import DTYPES, OPTIMIZERS, ModelSpec, nearest, times
from opdb.summary_files import parse_mapping, request_for, unknown_key
from opdb.tables import MISSING, Column, Report, Rows, Table
from opdb.units import plural, rounded, show, show_share

if TYPE_CHECKING:
    from opdb.store import RunState, Store


@dataclass(frozen=True)
class Combination:
    """One training of a matrix; `number` counts its repeats from 1, each a run of its own."""

    model: str
    batch_size: int = 1
    precision: str = "fp32"
    backend: str = "auto"
    input_size: tuple[int, ...] | None = None
    dtype: str = "float32"
    channels_last: bool = False
    optimizer: str = "sgd"
    grad_accum_steps: int = 1
    options: DriverOptions = field(default_factory=DriverOptions)
    number: int = 1

    @property
    def images_per_step(self) -> int:
        return self.batch_size * self.grad_accum_steps

    def parts(self, backend: str) -> tuple[str, ...]:
        """Return its properties on a backend besides its model, batch size and number.

        They depend only on what runs, not on the file: defaults are left out, so that a label stays
        the same when an axis is added.
        """
        precision = self.precision if self.dtype == "float32" else self.dtype
        return (precision, backend, *self._unusual())

    def group(self, backend: str) -> str:
        precision, *others = self.parts(backend)
        return f"{self.model}-b{self.batch_size}-{precision}-" + "+".join(others)

    def label(self, backend: str) -> str:
        number = f"#{self.number}" if self.number > 1 else ""
        return self.group(backend) + number

    def _unusual(self) -> list[str]:
        usual = Combination(self.model)
        names = ("input_size", "channels_last", "optimizer", "grad_accum_steps")
        said = _differing(self, usual, names)
        said += _differing(self.options, usual.options, ("deterministic", "cudnn_benchmark"))
        if self.options.images is not None:
            images = self.options.images
            said.append(f"images={images.folder}")
            said += [] if images.augment else ["no_augment"]
            how = [f.name for f in fields(images) if f.name not in ("folder", "augment")]
            said += _differing(images, ImageOptions(images.folder), how)
        said += _differing(self.options, usual.options, ("warmup_iters", "iters"))
        if self.options.repeats != usual.options.repeats:
            said.append(f"stretches={self.options.repeats}")
        return said + _differing(self.options, usual.options, ("nvtx",))


def _differing(one: Any, usual: Any, names: Iterable[str]) -> list[str]:
    """Return "name=value" of each option that is not at its default; its name alone if it is
    true."""
    found = []
    for name in names:
        value = getattr(one, name)
        if value != getattr(usual, name):
            text = "x".join(map(str, value)) if isinstance(value, tuple) else value
            found.append(name if value is True else f"{name}={text}")
    return found


MOST_RUNS = 10_000

_WHAT, _LEAST = "a matrix file", "models: [NAME]"
_SIZES = "one input's shape without the batch, such as [3, 224, 224], or a list of such"
_FOLDER = "a folder with one folder of images a class, or null for synthetic data"


@dataclass(frozen=True)
class _Entry:
    """The values of a key of the file: one that passes, or where `axis` a list of such."""

    allowed: str
    passes: Callable[[Any], bool]
    words: tuple[str, ...] = ()
    axis: bool = True


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_size(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(_least(1)(each) for each in value)


def _least(least: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and value >= least


def _word(words: tuple[str, ...]) -> _Entry:
    return _Entry("one or a list of " + ", ".join(words), lambda value: value in words, words)


def _count(least: int) -> _Entry:
    return _Entry(f"one or a list of whole numbers of {least} or more", _least(least))


_FLAG = _Entry("true, false or [false, true]", lambda value: isinstance(value, bool))

_KEYS: Mapping[str, _Entry] = {
    "models": _Entry("one or a list of model names", _is_text),
    "batch_sizes": _count(1),
    "precision": _word(PRECISIONS),
    "backend": _word(BACKENDS),
    "input_size": _Entry(_SIZES, lambda value: value is None or _is_size(value)),
    "dtype": _word(DTYPES),
    "channels_last": _FLAG,
    "optimizer": _word(OPTIMIZERS),
    "grad_accum_steps": _count(1),
    "deterministic": _FLAG,
    "cudnn_benchmark": _FLAG,
    "images": _Entry(_FOLDER, lambda value: value is None or _is_text(value)),
    "augment": _FLAG,
    "workers": _count(0),
    "pin_memory": _FLAG,
    "prefetch_factor": _count(1),
    "warmup_iters": _count(1),
    "iters": _count(1),
    "stretches": _count(1),
    "nvtx": _FLAG,
    "repeats": _Entry("a whole number of 1 or more", _least(1), axis=False),
    "note": _Entry("a text, or null", lambda value: value is None or _is_text(value), axis=False),
}
_OF_IMAGES = ("augment", "workers", "pin_memory", "prefetch_factor")
_OF_OPTIONS = ("deterministic", "cudnn_benchmark", "warmup_iters", "iters", "nvtx", "note")
_RENAMED = {"models": "model", "batch_sizes": "batch_size"}


def load_matrix(path: Path, *, allow_code: bool = False) -> list[Combination]:
    """Repeats are as far apart as possible, so that their spread shows drift."""
    document = parse_mapping(path, read_text(path, _WHAT), _WHAT, _LEAST)
    problems = _unknown(document, (*_KEYS, "variants"), "")
    variants = document.pop("variants", [])
    if not isinstance(variants, list) or not all(isinstance(each, dict) for each in variants):
        allowed = "a list of mappings that say what differs"
        problems.append(f"variants: found {shown(variants)}; allowed: {allowed}")
        variants = []
    if "models" not in document:
        problems.append(f"key models is missing; give {_KEYS['models'].allowed}")
    problems += _wrong(document, "")
    for number, variant in enumerate(variants):
        at = f"variants[{number}]."
        problems += [*_unknown(variant, tuple(_KEYS), at), *_wrong(variant, at)]
    said = [document, *({**document, **variant} for variant in variants)]
    if not problems:
        problems = [p for each in said for p in _contradictions(each)]
    if problems:
        raise InputError(f"{path}: " + "; ".join(dict.fromkeys(problems)))
    found: dict[str, Combination] = {}
    for each in said:
        for combination in _combinations(each):
            found.setdefault(combination.label(combination.backend), combination)
    for model in dict.fromkeys(combination.model for combination in found.values()):
        checked(ModelSpec(model, named_in=None if allow_code else str(path)))
    return sorted(found.values(), key=lambda combination: combination.number)


def _unknown(mapping: Mapping[str, Any], valid: tuple[str, ...], at: str) -> list[str]:
    return [unknown_key(key, valid, at) for key in mapping if key not in valid]


def _wrong(mapping: Mapping[str, Any], at: str) -> list[str]:
    problems = []
    for name, value in mapping.items():
        key = _KEYS.get(name)
        if key is None:
            continue
        if key.axis and isinstance(value, list) and not value:
            problems.append(f"{at}{name}: found []; allowed: {key.allowed}")
        for where, each in _places(name, value):
            if not key.passes(each):
                near = isinstance(each, str) and nearest(each, key.words)
                advice = f"; {near}" if near else ""
                problems.append(f"{at}{where}: found {shown(each)}; allowed: {key.allowed}{advice}")
            elif name == "images" and each is not None and not Path(each).is_dir():
                problems.append(f"{at}{where}: found {each!r}; there is no such folder")
    return problems


def _places(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    is_list = isinstance(value, list)
    if name == "input_size":  # one size is a list itself
        is_list = is_list and all(isinstance(each, list | None) for each in value)
    if not is_list or not _KEYS[name].axis:
        yield name, value
        return
    for number, each in enumerate(value):
        yield f"{name}[{number}]", each


def _values(said: Mapping[str, Any]) -> dict[str, list[Any]]:
    return {
        name: list(dict.fromkeys(_plain(each) for _, each in _places(name, value)))
        for name, value in said.items()
    }


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _contradictions(said: Mapping[str, Any]) -> Iterator[str]:
    values = _values(said)
    of_images = [name for name in _OF_IMAGES if name in values]
    if of_images and None in values.get("images", [None]):
        yield f"{of_images[0]} is for images: give a folder, in a variant where others have none"
    if 0 in values.get("workers", []) and "prefetch_factor" in values:
        yield "prefetch_factor needs workers: say workers 0 in a variant without it"
    if "amp" in values.get("precision", []) and set(values.get("dtype", [])) - {"float32"}:
        yield "precision amp is of a model in float32: say other dtypes in a variant with fp32"
    runs = math.prod(map(len, values.values())) * said.get("repeats", 1)
    if runs > MOST_RUNS:
        yield f"{runs} runs; a matrix has at most {MOST_RUNS}"


def _combinations(said: Mapping[str, Any]) -> Iterator[Combination]:
    values = _values(said)
    [repeats] = values.pop("repeats", [1])
    ordered = [name for name in _KEYS if name in values]
    for number in range(1, repeats + 1):
        for chosen in product(*(values[name] for name in ordered)):
            yield _combination(dict(zip(ordered, chosen, strict=True)), number)


def _combination(said: dict[str, Any], number: int) -> Combination:
    folder = said.pop("images", None)
    of_images = {name: said.pop(name) for name in _OF_IMAGES if name in said}
    images = None if folder is None else ImageOptions(Path(folder), **of_images)
    of_options = {name: said.pop(name) for name in _OF_OPTIONS if name in said}
    if "stretches" in said:
        of_options["repeats"] = said.pop("stretches")
    named = {_RENAMED.get(name, name): value for name, value in said.items()}
    options = DriverOptions(images=images, **of_options)
    return Combination(**named, options=options, number=number)


@dataclass(frozen=True)
class BackendDevice:
    """Where the runs of one backend are made: its name, the device (slug) and the board (UUID).

    `why_not` says why nothing can be run there, `why_no_amp` why not in mixed precision.
    """

    backend: str
    device: str = ""
    board: str = ""
    why_not: str | None = None
    why_no_amp: str | None = None


@dataclass(frozen=True)
class TrainingSpec:
    combination: Combination
    place: BackendDevice

    @property
    def label(self) -> str:
        return self.combination.label(self.place.backend)

    @property
    def group(self) -> str:
        return self.combination.group(self.place.backend)

    @property
    def parts(self) -> tuple[str, ...]:
        return self.combination.parts(self.place.backend)

    @property
    def key(self) -> str:
        return f"matrix {self.label}"

    @property
    def options(self) -> DriverOptions:
        return replace(self.combination.options, label=self.label)

    @property
    def why_not(self) -> str | None:
        if self.place.why_not is None and self.combination.precision == "amp":
            return self.place.why_no_amp
        return self.place.why_not


def cells_of(
    combinations: Iterable[Combination], places: Mapping[str, BackendDevice]
) -> list[TrainingSpec]:
    """Return the runs of a matrix; those that `auto` and a backend's name both mean, once."""
    found: dict[str, TrainingSpec] = {}
    for combination in combinations:
        cell = TrainingSpec(combination, places[combination.backend])
        found.setdefault(cell.label, cell)
    return list(found.values())


def labelled(cells: Sequence[TrainingSpec], labels: Collection[str]) -> list[TrainingSpec]:
    known = {cell.label for cell in cells}
    for label in labels:
        if label not in known:
            raise UnknownNameError("label", label, known)
    return [cell for cell in cells if not labels or cell.label in labels]


@dataclass(frozen=True)
class MatrixPolicy(Policy[TrainingSpec]):
    """A matrix counts the runs of a device that have its label and were made with its options."""

    retry = ("failed", "out of memory")

    def runs(self, store: Store) -> list[RunState]:
        each = [store.run_states(device=d, setting=None) for d in self.devices]
        return [run for some in each for run in some if isinstance(run.facts.get("label"), str)]

    def scope(self, device: str) -> str:
        return f"train {device}"

    def identity(self, spec: TrainingSpec) -> Hashable:
        """Return the device, label and options of a spec: anybody may give a run its label."""
        options = spec.combination.options
        of_run = canonical_json(options.setting), options.iters, options.warmup_iters
        return spec.place.device, spec.label, *of_run

    def run_identity(self, run: RunState) -> Hashable:
        facts = run.facts
        of_run = canonical_json(dict(run.setting)), facts.get("iters"), facts.get("warmup_iters")
        return run.device, facts["label"], *of_run

    def ended(self, run: RunState) -> State:
        state = super().ended(run)
        return "failed" if state == "unsupported" else state


_NAMED = 3
"""The most combinations that a remark names; of more it gives the number."""


@dataclass(frozen=True)
class MatrixRun:
    """A run of a matrix as far as it was made; `run` and its campaign None where it was not."""

    cell: TrainingSpec
    state: State
    run: ModelRun | None = None
    campaign: Campaign | None = None

    @cached_property
    def figures(self) -> StepFigures | None:
        return None if self.run is None else figures([self.run])

    @property
    def images_per_s(self) -> float | None:
        images = self.cell.combination.images_per_step
        return None if self.figures is None else images / self.figures.time_s.mean

    @property
    def reason(self) -> str | None:
        if self.run is not None:
            return self.run.reason
        return self.cell.why_not if self.state == "not here" else None


@dataclass(frozen=True)
class StepFigures:
    """The cost of a step, over one run or several: times and energy with intervals.

    Each of several runs is one value, so their interval includes differences between processes. The
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
        idle_s = max(0.0, self.time_s.mean - self.compute_time_s)
        return min(self.data_time_s, idle_s) / self.time_s.mean


def figures(runs: Sequence[ModelRun]) -> StepFigures | None:
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
    return StepFigures(
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


@dataclass(frozen=True)
class JoinedRuns:
    runs: tuple[MatrixRun, ...]

    @property
    def cell(self) -> TrainingSpec:
        return self.runs[0].cell

    @cached_property
    def figures(self) -> StepFigures | None:
        return figures([made.run for made in self.runs if made.run is not None])

    @property
    def done(self) -> list[ModelRun]:
        return [m.run for m in self.runs if m.run is not None and m.run.outcome == "ok"]

    @property
    def images_per_step(self) -> int:
        return self.cell.combination.images_per_step

    def remarks(self) -> list[str]:
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


def lines_of(made: Iterable[MatrixRun]) -> list[JoinedRuns]:
    found: dict[str, list[MatrixRun]] = {}
    for each in made:
        found.setdefault(each.cell.group, []).append(each)
    return [JoinedRuns(tuple(some)) for some in found.values()]


def remarks_of(lines: Sequence[JoinedRuns]) -> list[str]:
    """Return all remarks, each said once with the combinations that it concerns."""
    concerned: dict[str, list[str]] = {}
    for line in lines:
        for remark in line.remarks():
            concerned.setdefault(remark, []).append(line.cell.group)
    return [
        f"{', '.join(whom) if len(whom) <= _NAMED else f'{len(whom)} of {len(lines)}'}: {remark}"
        for remark, whom in concerned.items()
    ]


def request_of(cell: TrainingSpec, *, allow_code: bool) -> ModelSpec:
    """Return the model and workload that a run trains.

    That the matrix may name its model was checked as it was read; a summary file of that name may
    name code only where that is allowed.
    """
    from opdb.bench.driver import AMP_DTYPE

    one = cell.combination
    said = ModelSpec(
        batch_size=one.batch_size,
        input_size=one.input_size,
        dtype=one.dtype,
        memory_format=_memory_format(cell),
        phase="training",
        optimizer=one.optimizer,
        accumulation=one.grad_accum_steps,
        allow_code=allow_code,
    )
    request = request_for(one.model, said)
    if one.precision == "amp":
        request = replace(request, autocast=AMP_DTYPE)
    return checked(request)


def _memory_format(cell: TrainingSpec) -> str:
    return "channels_last" if cell.combination.channels_last else "contiguous"


SLOW_LOADER = 0.1
"""The share of a step in which the device waits for data from which on the loader is called so."""


def _of_campaign(name: str) -> Column[MatrixRun]:
    return Column(name, lambda made: made.campaign.environment.get(name) if made.campaign else None)


def _fact(name: str) -> Column[MatrixRun]:
    return Column(name, lambda made: made.run.facts.get(name) if made.run else None)


def _figure(name: str, of: Callable[[StepFigures], Json]) -> Column[MatrixRun]:
    return Column(name, lambda made: None if made.figures is None else of(made.figures))


def _energy(name: str, of: Callable[[Quantity], float | None]) -> Column[MatrixRun]:
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
)

STATES: Table[MatrixRun] = Table(
    Column(title="run", text=lambda made: made.cell.label),
    Column(title="state", text=lambda made: made.state),
    Column(title="why", text=lambda made: made.reason or ""),
)


def _waiting(share: float) -> str:
    return show_share(share) + (", slow loader" if share >= SLOW_LOADER else "")


def _with_interval(value: Quantity | None, unit: str, per: int) -> str:
    if value is None:
        return "–"
    text = show(value.mean / per, unit)
    if value.half_width is None or not value.mean:
        return text
    return f"{text} ± {rounded(100 * value.half_width / value.mean, 2)} %"


def _rate(line: JoinedRuns) -> str:
    found = line.figures
    return MISSING if found is None else rounded(line.images_per_step / found.time_s.mean, 4)


def _most(title: str, of: Callable[[ModelRun], float | None]) -> Column[JoinedRuns]:
    def cell(line: JoinedRuns) -> str:
        known = [taken for run in line.done if (taken := of(run)) is not None]
        return show(max(known, default=None), "B", digits=3)

    return Column(title=title, text=cell)


LINES: Table[JoinedRuns] = Table(
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


@dataclass(frozen=True, repr=False)
class MatrixReport(Report):
    """With `states` people read every run with its state, too."""

    runs: Sequence[MatrixRun]
    failures: Sequence[str] = ()
    states: bool = False

    def to_dict(self) -> dict[str, Json]:
        return {
            "rows": RUNS.documents(self.runs),
            "states": dict(Counter(made.state for made in self.runs)),
            "failures": list(self.failures),
        }

    def csv(self) -> str:
        return RUNS.csv(self.runs)

    def blocks(self) -> Iterator[str | Rows[Any]]:
        if self.states:
            yield Rows(STATES, self.runs)
            yield ""
        lines = lines_of(self.runs)
        yield Rows(LINES, lines)
        yield from remarks_of(lines)

    def check(self) -> None:
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
