"""The trainings of a matrix, each in a process of its own, and the figure of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from opdb.bench.driver import NO_MPS, tell_cublas, train, why_no_amp
from opdb.bench.run import campaign
from opdb.bench.session import detect
from opdb.commands._predictions import blank_figure, png_of
from opdb.errors import CannotMeasureError, ClaimLostError, DatabaseError, InputError, OpdbError
from opdb.processes import DiedError, done_apart
from opdb.progress import Progress
from opdb.records import ModelRun
from opdb.runs import DriverOptions
from opdb.spec import ModelSpec
from opdb.store import Claims, Store, open_store
from opdb.store.database import Claim
from opdb.studies.sweep.rows import in_plain_numbers
from opdb.studies.train.rows import BackendDevice, JoinedRuns, MatrixPolicy, TrainingSpec
from opdb.workers import cuda_devices, runs_made


def trained_at(
    place: BackendDevice,
    store: Store,
    policy: MatrixPolicy,
    cells: Sequence[TrainingSpec],
    shown: Progress,
    request_of: Callable[[TrainingSpec], ModelSpec],
    workload_of: Callable[[ModelSpec], str],
    *,
    retry: bool = False,
    again: bool = False,
) -> Iterator[tuple[TrainingSpec, ModelRun | OpdbError]]:
    """Run the trainings of a matrix at one place, each in a process of its own.

    `workload_of` returns the key of what a request trains, harvested and stored. A training that
    cannot be made or stored ends with the error.
    """

    def make(spec: TrainingSpec) -> ModelRun | OpdbError:
        try:
            request = request_of(spec)
            workload, claim = workload_of(request), claims.claim(spec.key)
            given = request, workload, spec.place.backend, spec.options, claim, store.url
            run: ModelRun = done_apart(_train, *given, meanwhile=claims.renew_when_due)
            return run
        except DatabaseError:
            raise
        except (InputError, DiedError, ClaimLostError) as error:
            return error

    with Claims(store, policy.scope(place.device), place.board) as claims:
        yield from runs_made(store, claims, policy, cells, make, shown, retry=retry, again=again)


def places(backends: Collection[str]) -> dict[str, BackendDevice]:
    """Say of each backend's name where it is trained; a GPU is looked at in another process.

    A process that has looked at a GPU holds memory of it, and would be another process on the
    board to every training.
    """
    names = {name: _resolved(name) for name in backends}
    found = {name: _place(name) for name in set(names.values()) if name != "cuda"}
    if "cuda" in names.values():
        try:
            found["cuda"] = done_apart(_place, "cuda")
        except DiedError as error:
            raise CannotMeasureError(f"the GPU cannot be looked at: {error}") from error
    return {name: found[backend] for name, backend in names.items()}


def _resolved(backend: str) -> str:
    if backend != "auto":
        return backend
    return "cuda" if cuda_devices() else "cpu"


def _place(backend: str) -> BackendDevice:
    if backend == "mps":
        return BackendDevice(backend, why_not=NO_MPS)
    try:
        platform = detect(backend)
    except CannotMeasureError as error:
        return BackendDevice(backend, why_not=str(error))
    no_amp = why_no_amp(platform.torch_device)
    return BackendDevice(backend, platform.device.slug, platform.board.uuid, why_no_amp=no_amp)


def _train(
    request: ModelSpec,
    workload: str,
    device: str,
    options: DriverOptions,
    claim: Claim,
    url: str,
) -> ModelRun:
    tell_cublas(options)  # before the calibration, which multiplies matrices
    with open_store(url, create=False) as store, campaign(detect(device), store) as opened:
        run = train(opened, request, workload, options)
        store.save_model_run(run, claim)
    return run


# A matrix as a figure: images per second and energy an image against the batch size.

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKS, _DASHES = "osD^v<>PX*", ("-", "--", ":", "-.")

Value = tuple[float, float | None, float | None]
"""Mean, low and high end of its interval."""


def draw(lines: Sequence[JoinedRuns], title: str, command: str) -> bytes:
    """Draw throughput above and energy an image below, a colour a model, a mark a sort, as PNG.

    Of one model alone each sort has its colour. Bars are 95 % intervals. An energy that was not
    read is not drawn, and the panel says why.
    """
    drawn = [line for line in lines if line.figures is not None]
    figure = blank_figure(10.0, 8.0)
    above, below = figure.subplots(2, 1, sharex=True)
    _panel(above, drawn, _throughput, "images a second")
    if not _panel(below, drawn, _energy, "energy an image, J"):
        why = sorted({str(line.figures.energy_reason) for line in drawn if line.figures})
        text = "no energy:\n" + "\n".join(why)
        below.set_yticks([])
        below.text(0.5, 0.5, text, transform=below.transAxes, ha="center", va="center", wrap=True)
    _sizes(below, sorted({line.cell.combination.batch_size for line in drawn}))
    below.set_xlabel(f"batch size\n{command}")
    shared = _shared(drawn)
    figure.suptitle(", ".join([title, *(part for part in drawn[0].cell.parts if part in shared)]))
    handles = above.get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower center", fontsize=8, ncols=2, frameon=False)
    return png_of(figure)


def _throughput(line: JoinedRuns) -> Value | None:
    found, images = line.figures, line.cell.combination.images_per_step
    if found is None:
        return None
    time = found.time_s
    low = None if time.high is None else images / time.high
    high = None if time.low is None else images / time.low
    return images / time.mean, low, high


def _energy(line: JoinedRuns) -> Value | None:
    found, images = line.figures, line.cell.combination.images_per_step
    if found is None or found.energy_j is None:
        return None
    energy = found.energy_j
    low = None if energy.low is None else energy.low / images
    high = None if energy.high is None else energy.high / images
    return energy.mean / images, low, high


def _panel(
    axes: Any, lines: Sequence[JoinedRuns], value: Callable[[JoinedRuns], Value | None], label: str
) -> bool:
    axes.set_ylabel(label)
    axes.grid(alpha=0.3)
    shared = _shared(lines)
    models = list(dict.fromkeys(line.cell.combination.model for line in lines))
    sorts = list(dict.fromkeys(line.cell.parts for line in lines))
    found = False
    for (model, sort), some in _series(lines).items():
        points = [(line, v) for line in some if (v := value(line)) is not None]
        if not points:
            continue
        found = True
        number = sorts.index(sort)
        shade = models.index(model) if len(models) > 1 else number
        axes.errorbar(
            [line.cell.combination.batch_size for line, _ in points],
            [mean for _, (mean, _, _) in points],
            yerr=_bars([v for _, v in points]),
            color=_COLOURS[shade % len(_COLOURS)],
            marker=_MARKS[number % len(_MARKS)],
            linestyle=_DASHES[number % len(_DASHES)],
            linewidth=1.2,
            markersize=5,
            capsize=3,
            label=" ".join([model, *(part for part in sort if part not in shared)]),
        )
    if found:
        in_plain_numbers(axes)
    return found


def _series(lines: Sequence[JoinedRuns]) -> dict[tuple[str, tuple[str, ...]], list[JoinedRuns]]:
    found: dict[tuple[str, tuple[str, ...]], list[JoinedRuns]] = {}
    for line in sorted(lines, key=lambda line: line.cell.combination.batch_size):
        found.setdefault((line.cell.combination.model, line.cell.parts), []).append(line)
    return found


def _shared(lines: Sequence[JoinedRuns]) -> set[str]:
    return set.intersection(*(set(line.cell.parts) for line in lines))


def _bars(values: Sequence[Value]) -> list[list[float]]:
    below = [0.0 if low is None else mean - low for mean, low, _ in values]
    above = [0.0 if high is None else high - mean for mean, _, high in values]
    return [below, above]


def _sizes(axes: Any, sizes: Sequence[int]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xticks(list(sizes), labels=list(map(str, sizes)))
    axes.minorticks_off()
    if len(sizes) == 1:
        axes.set_xlim(sizes[0] / 2, sizes[0] * 2)
