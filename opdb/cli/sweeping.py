"""From what a user asks of a sweep to its cells, and from its runs to files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opdb.algorithms.names import Algorithm
from opdb.cli.console import note, progress
from opdb.cli.files import csv_text, make_folder, write_file
from opdb.cli.options import ModelOptions
from opdb.cli.selection import note_harvest, request_for
from opdb.errors import InputError, OpdbError
from opdb.models import ModelRequest
from opdb.records import Json, Mode, Workload
from opdb.settings import relevant_setting
from opdb.sweep.cells import Cell, Standing
from opdb.sweep.rows import LAYERS, OVERALL, Predicted, Row, same_kernels
from opdb.sweep.stages import FIRST

if TYPE_CHECKING:
    from opdb.predict import Predictor
    from opdb.store import Store

KIND = "conv2d"
IMAGE_AXES = 4
USUAL = (3, FIRST, FIRST)
"""Images where a model says nothing of its inputs."""


@dataclass(frozen=True)
class Asked:
    """What is swept: models, sizes, algorithms, in a mode; `stage` names the folder of results."""

    requests: tuple[ModelRequest, ...]
    sizes: tuple[int, ...]
    algorithms: tuple[Algorithm, ...]
    mode: Mode
    stage: str


def image_request(name: str, options: ModelOptions) -> ModelRequest:
    """Return the request of a model that takes one batch of images, whatever their size.

    Raises:
        InputError: there is no such model, or it takes something else.
    """
    from opdb.models import load_to_look

    request = request_for(name, options).checked()
    try:
        first = load_to_look(request).inputs["args"][:1]
    except InputError:
        if request.input_size is not None or request.inputs is not None:
            raise
        # A callable that gives a module alone: only with inputs can it be told what it takes.
        request = replace(request, input_size=USUAL)
        first = load_to_look(request).inputs["args"][:1]
    shape = first[0].get("shape", []) if first and isinstance(first[0], Mapping) else []
    if len(shape) != IMAGE_AXES:
        raise InputError(
            f"{name} takes no batch of images, so there are no sizes to sweep: its input is "
            f"{shape or 'no tensor'}"
        )
    return replace(request, inputs=None, input_size=(shape[1], *shape[2:]))


def sized(request: ModelRequest, size: int) -> ModelRequest:
    """Return a request with square images of so many pixels a side."""
    assert request.input_size is not None
    return replace(request, input_size=(request.input_size[0], size, size))


def _identity(what: Workload | ModelRequest, source: str | None, shape: Sequence[int]) -> Any:
    place = what.name, source, tuple(shape)
    return *place, what.batch_size, what.dtype, what.memory_format, what.phase


def known_workloads(store: Store) -> dict[Any, str]:
    """Return the keys of the harvested workloads that take one tensor, by what they are."""
    found = {}
    for head in store.heads():
        workload = head.workload
        args = workload.inputs.get("args") or []
        if len(args) == 1 and isinstance(args[0], Mapping) and "shape" in args[0]:
            shape = args[0]["shape"][1:]
            found[_identity(workload, workload.source, shape)] = workload.key
    return found


def cells_of(asked: Asked, known: Mapping[Any, str]) -> list[Cell]:
    """Return the cells of a sweep, those of one model and size side by side.

    What was not harvested has no workload key yet: it is empty.
    """
    cells = []
    for request in asked.requests:
        for size in asked.sizes:
            at = sized(request, size)
            key = known.get(_identity(at, at.source, at.input_size or ()), "")
            cells += [Cell(at, key, size, each, asked.mode) for each in asked.algorithms]
    return cells


def harvested_cells(
    store: Store, asked: Asked, *, quiet: bool
) -> tuple[list[Cell], list[OpdbError]]:
    """Harvest what is not known yet; return the cells, and why some sizes have none."""
    from opdb.harvest import harvest_in_both

    known = known_workloads(store)
    lacking = {repr(c.request): c.request for c in cells_of(asked, known) if not c.workload}
    errors: list[OpdbError] = []
    with progress(len(lacking), "harvest", quiet=quiet) as shown:
        for request in lacking.values():
            shown.doing(f"{request.name} {request.input_size}")
            try:
                found = harvest_in_both(request)
            except OpdbError as error:
                size = "x".join(map(str, request.input_size or ()))
                errors.append(InputError(f"{request.name} cannot be run at {size}: {error}"))
            else:
                estranged = store.save_workload(
                    found.workload, found.captured, swept=True, fingerprint=found.fingerprint
                )
                note_harvest(found.workload, found.failure, estranged, quiet=quiet)
                source, key = found.workload.source, found.workload.key
                known[_identity(request, source, request.input_size or ())] = key
            shown.done()
    return [cell for cell in cells_of(asked, known) if cell.workload], errors


class Results:
    """The rows of a sweep, read from the store: runs, layers' energies, predictions beside them."""

    def __init__(self, store: Store, device: str, settings: Mapping[str, Json]) -> None:
        self._store, self._device, self._settings = store, device, settings
        self._boards = {c.id: c.board.uuid for c in store.campaigns(device)}
        self._standing = Standing(store.algorithm_runs(device))
        self._predictors: dict[str, Predictor] = {}
        self._workloads: dict[str, Workload] = {}

    def rows(self, cells: Sequence[Cell], calls: Sequence[str]) -> list[Row]:
        """Return a row of each cell of one model that was run; `calls` as its layers are called."""
        found = []
        for size in dict.fromkeys(cell.size for cell in cells):
            runs = []
            for cell in cells:
                if cell.size == size and (run := self._run(cell)) is not None:
                    runs.append((cell, run))
            same = same_kernels([(cell.algorithm.name, run) for cell, run in runs])
            for cell, run in runs:
                row = Row(
                    cell,
                    run,
                    self._boards[run.campaign],
                    Predicted(),
                    same.get(cell.algorithm.name),
                    self._energies(cell, self._boards[run.campaign], calls),
                )
                found.append(replace(row, predicted=self._predicted(row)))
        return found

    def _run(self, cell: Cell) -> Any:
        state = self._standing.run(cell)
        if state is None:
            return None
        runs = self._store.model_runs(
            cell.workload, device=self._device, mode=cell.mode, setting=cell.setting
        )
        return next(run for run in runs if run.id == state.id)

    def _workload(self, cell: Cell) -> Workload:
        if cell.workload not in self._workloads:
            [self._workloads[cell.workload]] = self._store.workloads_by_key([cell.workload])
        return self._workloads[cell.workload]

    def _under(self, algorithm: Algorithm) -> dict[str, Json]:
        return {**self._settings, **algorithm.setting}

    def _energies(self, cell: Cell, board: str, calls: Sequence[str]) -> dict[str, float]:
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

    def _predicted(self, row: Row) -> Predicted:
        """Return what the operators say of a run, where all of them were measured so.

        Nothing of a partial run, and of forced convolutions nothing that hangs on the host's time.
        """
        from opdb.predict import Predictor

        cell, run = row.cell, row.run
        waits = run.mode == "eager" and cell.algorithm.is_forced
        if row.state != "full" or waits:
            return Predicted()
        name = cell.algorithm.name
        if name not in self._predictors:
            [device] = [d for d in self._store.devices() if d.slug == self._device]
            under = self._under(cell.algorithm)
            self._predictors[name] = Predictor(self._store, device, under)
        workload = self._workload(cell)
        prediction = self._predictors[name].answer(workload, run.mode, row.board).prediction
        if prediction.missing or prediction.estimated or prediction.workload.unsupported:
            return Predicted()
        return Predicted(prediction.time_s, prediction.energy_j)


def folder_of(asked: Asked, cell: Cell, device: str, output: Path) -> Path:
    """Return the folder of a model's files under one algorithm, as people's scripts expect it.

    What is not batch 1 in float32 says so at the end of the name.
    """
    return output / asked.stage / f"{_stem(cell)}_{device}{_unusual(cell.request)}"


def _stem(cell: Cell) -> str:
    return f"{cell.request.name.replace(':', '_').replace('/', '_')}_{cell.algorithm.slug}"


def _unusual(request: ModelRequest) -> str:
    said = [f"b{request.batch_size}"] if request.batch_size != 1 else []
    said += [request.dtype] if request.dtype != "float32" else []
    said += [request.memory_format] if request.memory_format != "contiguous" else []
    return "".join(f"_{each}" for each in said)


def write_results(
    asked: Asked, rows: Iterable[Row], layers: Any, device: str, output: Path
) -> list[Path]:
    """Write the two files of each algorithm of one model; return them.

    Raises:
        InputError: one cannot be written.
    """
    by_algorithm: dict[str, list[Row]] = {}
    for row in rows:
        by_algorithm.setdefault(row.cell.algorithm.name, []).append(row)
    written = []
    for some in by_algorithm.values():
        folder = folder_of(asked, some[0].cell, device, output)
        stem = _stem(some[0].cell)
        overall = csv_text(OVERALL, (_rounded(row.overall()) for row in some))
        lines = (_rounded(line) for row in some for line in row.layers(layers))
        in_place = csv_text(LAYERS, lines)
        written.append(write(folder / f"{stem}_overall.csv", overall.encode()))
        written.append(write(folder / f"{stem}_layers.csv", in_place.encode()))
    return written


def _rounded(line: Mapping[str, Json]) -> dict[str, Json]:
    """Return a line of a file with numbers of as many digits as a person can use."""
    return {n: float(f"{v:.6g}") if isinstance(v, float) else v for n, v in line.items()}


def write(path: Path, content: bytes) -> Path:
    """Write a file, its folder made where there is none.

    Raises:
        InputError: it cannot be written.
    """
    make_folder(path.parent)
    write_file(path, content)
    return path


def figures(rows: Sequence[Row], device: str) -> Iterator[tuple[str, bytes]]:
    """Yield the name and content of one model's figures: curves, and each algorithm's layers.

    Raises:
        InputError: matplotlib is not installed.
    """
    from opdb.sweep.figure import draw_curves, draw_slowest

    first = rows[0].cell
    stem = f"{_stem(first).removesuffix('_' + first.algorithm.slug)}_{device}"
    stem += _unusual(first.request)
    batch = f"batch {first.request.batch_size} {first.request.dtype}"
    title = f"{first.request.name}, {batch}, {first.mode}, on {device}"
    yield f"{stem}.png", draw_curves(rows, title)
    timed = sorted((row for row in rows if row.run.layers), key=lambda row: row.cell.size)
    last = {row.cell.algorithm.name: row for row in timed}
    for row in last.values():
        words = f"{title}\n{row.cell.algorithm.name} at {row.cell.size} pixels: slowest layers"
        yield f"{stem}_{row.cell.algorithm.slug}_layers.png", draw_slowest(row, words)


def has_matplotlib() -> bool:
    """Whether figures can be drawn here."""
    return find_spec("matplotlib") is not None


def draw_all(asked: Asked, rows: Sequence[Row], device: str, output: Path) -> list[Path]:
    """Draw one model's figures into the stage's folder; without matplotlib say how to have them.

    Raises:
        InputError: a file cannot be written.
    """
    if not has_matplotlib():
        note("no figures without matplotlib: pip install 'opdb[plots]'")
        return []
    folder = output / asked.stage
    return [write(folder / name, content) for name, content in figures(rows, device)]


def write_all(
    store: Store, asked: Asked, cells: Sequence[Cell], device: str, output: Path, *, quiet: bool
) -> list[Row]:
    """Write files and figures of all that was ever run of some cells; return their rows.

    Raises:
        InputError: a file cannot be written.
    """
    from opdb.bench.settings import current_settings
    from opdb.bench.sweep import convolution_layers

    results = Results(store, device, current_settings())
    found: list[Row] = []
    for name in dict.fromkeys(cell.request.name for cell in cells):
        of_model = [cell for cell in cells if cell.request.name == name]
        layers, calls = convolution_layers(of_model[0])
        rows = results.rows(of_model, calls)
        written = write_results(asked, rows, layers, device, output)
        if rows:
            written += draw_all(asked, rows, device, output)
        note("\n".join(f"written: {path}" for path in written), quiet=quiet)
        found += rows
    return found
