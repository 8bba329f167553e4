"""Measure operators: what is pending on a device, what a model lacks, or a grid's combinations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, cast, get_args

from opdb.api.grids import BenchedGrid
from opdb.api.places import check_failures, chosen_places
from opdb.errors import InputError, UnknownNameError
from opdb.kinds import KINDS
from opdb.lookup.options import ModelOptions, ModelWords
from opdb.lookup.requests import checked_request
from opdb.lookup.words import describe, identity
from opdb.records import Access, Configuration, Json, Visit
from opdb.tables import Report, Rows, of_cells
from opdb.units import plural, show_duration

if TYPE_CHECKING:
    from opdb.bench.harvests import Stored
    from opdb.bench.rounds import Progress
    from opdb.bench.run import BenchRequest, BenchResult
    from opdb.cluster.devices import WorkerDevice
    from opdb.derive.precision import Reached
    from opdb.models import ModelRequest
    from opdb.plan.lacking import Lacking
    from opdb.store import Store


@dataclass(frozen=True)
class BenchOptions:
    """What is measured, where, and how exactly.

    `kinds` empty means all. `grid` is a grid file, of more than 10,000 combinations where `large`.
    `device` is cuda, cuda:N or cpu; `devices` several, as in "0,1". `cache_state` is what calls
    find in the caches; costs rest on "model" alone. `precision` and `duplicates` are shares,
    `algorithms` the names of algorithms that convolutions are forced to take.
    """

    kinds: Sequence[str] = ()
    grid: Path | None = None
    large: bool = False
    device: str | None = None
    devices: str | None = None
    max_seconds: float | None = None
    retry: bool = False
    this_board: bool = False
    rounds: int = 2
    precision: float = 0.02
    duplicates: float = 0.1
    cache_state: str = "model"
    algorithms: Sequence[str] = ()

    def check(self, model: str | None) -> None:
        """Check the options as far as that needs neither a device nor a database.

        Raises:
            InputError: an option has no such value, or two of them contradict each other.
        """
        if self.cache_state not in get_args(Access):
            raise UnknownNameError("--cache-state", self.cache_state, get_args(Access))
        if not 0 <= self.duplicates <= 1:
            raise InputError(
                f"--duplicates {self.duplicates:g}: give a share between 0 and 1, such as 0.9"
            )
        if self.precision <= 0:
            raise InputError(f"--precision {self.precision:g}: give a share above 0, such as 0.02")
        for kind in self.kinds:
            if kind not in KINDS:
                raise UnknownNameError("kind", kind, KINDS)
        if self.grid is not None and self.kinds:
            named = " ".join(self.kinds)
            raise InputError(f"{named} and --grid {self.grid}: give kinds or a grid")
        if self.grid is not None and model is not None:
            raise InputError(f"--model {model} and --grid {self.grid}: give one of them")

    def request(self) -> BenchRequest:
        """Return what is asked of a campaign, its algorithms found by name.

        Raises:
            InputError: there is no such algorithm, or it is not about convolutions.
        """
        from opdb.algorithms.names import algorithms_named
        from opdb.bench.run import BenchRequest

        forced = algorithms_named(list(self.algorithms))
        if any(each.is_forced for each in forced) and list(self.kinds) not in ([], ["conv2d"]):
            raise InputError(
                f"--algorithm {forced[0].name!r} is about convolutions: opdb bench conv2d, not "
                f"{' '.join(self.kinds)}"
            )
        return BenchRequest(
            kinds=frozenset(self.kinds) if self.kinds else None,
            device=self.device,
            max_s=self.max_seconds,
            retry=self.retry,
            this_board=self.this_board,
            rounds=self.rounds,
            precision=self.precision,
            duplicates=self.duplicates,
            access=cast(Access, self.cache_state),
            algorithms=tuple(forced),
        )


@dataclass(frozen=True)
class BenchedModel:
    """A harvested model whose operators are measured, and what was lacking of them before."""

    stored: Stored
    device: str
    lacking: Lacking

    @property
    def line(self) -> str:
        """What the model calls, how much of it is to be measured, and how long that takes."""
        workload, lacking = self.stored.found.workload, self.lacking
        left = f"all measured on {self.device}"
        if lacking.configurations:
            seconds = show_duration(lacking.seconds)
            left = f"{len(lacking.configurations)} to measure on {self.device}, about {seconds}"
        calls = plural(len(workload.occurrences()), "configuration")
        return f"{workload.name}, {describe(workload)}: {calls}, {left}"

    @property
    def document(self) -> Json:
        """The model, and what was lacking of it before."""
        workload = self.stored.found.workload
        return {
            **identity(workload),
            "configurations": len(workload.occurrences()),
            "lacking": len(self.lacking.configurations),
            "expected_s": self.lacking.seconds,
        }


@dataclass(frozen=True, repr=False)
class Benched(Report):
    """What campaigns measured, one a board; `failures` name the devices that failed, and why.

    `elsewhere` says that other boards of the devices have measurements, too.
    """

    results: Sequence[BenchResult]
    places: Sequence[WorkerDevice] = ()
    failures: Sequence[str] = ()
    model: BenchedModel | None = None
    grid: BenchedGrid | None = None
    elsewhere: bool = False

    def check(self) -> None:
        """Raise where a device failed, each named with the reason.

        Raises:
            CannotMeasureError: one did.
        """
        check_failures(self.failures, self.places)

    def rows(self) -> list[dict[str, Json]]:
        """Return each campaign as data."""
        return [_document(each) for each in self.results]

    def to_dict(self) -> dict[str, Json]:
        """Return what `opdb bench --json` prints."""
        several: dict[str, Json] = {"boards": self.rows(), "failures": list(self.failures)}
        found = several if self.places else self.rows()[0]
        grid = {} if self.grid is None else {"grid": self.grid.document}
        return found | grid | ({} if self.model is None else {"model": self.model.document})

    def blocks(self) -> Iterator[str | Rows[Any]]:
        """Yield a row a board."""
        header = ("device", "board", "configurations", "visits", "rejected", "took")
        rows = [
            (
                each.device,
                each.board,
                each.configurations,
                sum(each.outcomes.values()),
                each.rejected,
                show_duration(each.elapsed_s),
            )
            for each in self.results
        ]
        yield Rows(of_cells(*header), rows)


class _Silent:
    """Hears how a campaign goes and tells nobody."""

    def say(self, text: str) -> None:
        """Hear of a step that is no visit."""

    def begin(self, visits: int) -> None:
        """Hear how many visits are planned."""

    def visited(self, configuration: Configuration, visit: Visit, cost_s: float) -> None:
        """Hear of a finished visit."""


def bench(
    *,
    model: str | None = None,
    options: BenchOptions | None = None,
    db: str | None = None,
    progress: Progress | None = None,
    **said: Unpack[ModelWords],
) -> Benched:
    """Measure operators on this machine's device, as `opdb bench` does; it needs torch.

    `model` measures only what that model lacks, `said` are its options: batch_size, dtype … Without
    it everything that is pending is measured. Each visit is stored as soon as it is done.

    Raises:
        InputError: a name or option is not valid, or nothing is in the database.
        CannotMeasureError: there is no such device, or it failed.
    """
    asked = options or BenchOptions()
    found = bench_all(asked, model, ModelOptions.parse(**said), db=db, progress=progress)
    found.check()
    return found


def bench_all(
    asked: BenchOptions,
    model: str | None,
    said: ModelOptions,
    *,
    grid: BenchedGrid | None = None,
    db: str | None = None,
    progress: Progress | None = None,
) -> Benched:
    """Measure operators; devices that fail stop no others, and are among the `failures`.

    `grid` is that of the options where it was read before.

    Raises:
        InputError: a name or option is not valid, or nothing is in the database.
        CannotMeasureError: there is no such device.
    """
    asked.check(model)
    wanted = _requested(model, said)
    request = asked.request()
    if asked.grid is not None and grid is None:
        grid = BenchedGrid.of(asked.grid, large=asked.large)
    places = chosen_places(asked.device, asked.devices)
    _check_algorithms(request, places)
    if grid is not None:
        request = replace(request, configurations=grid.keys)
    shown = progress or _Silent()
    with _opened(db, create=grid is not None or wanted is not None) as store:
        of_model = None
        if grid is not None:
            grid.save(store, shown.say)
        elif wanted is not None:
            of_model, request = _of_model(store, wanted, request, places)
            shown.say(of_model.line)
        elif not store.usage():
            raise InputError(
                f"{store.location} holds no workload, so nothing is pending; start with, say, "
                "opdb harvest measurements/resnet50.yml"
            )
        results, failures = _bench(store, request, places, shown)
        boards = {b.uuid for r in results for b in store.boards(r.device)}
        others = bool(boards - {each.board for each in results})
    return Benched(results, places, failures, of_model, grid, others)


@contextmanager
def _opened(db: str | None, *, create: bool) -> Iterator[Store]:
    from opdb.store import open_store

    with open_store(db, create=create) as store:
        yield store


def _requested(model: str | None, said: ModelOptions) -> ModelRequest | None:
    """Return the model that is named; None where none is.

    Raises:
        InputError: there is no such model, or options of a model are given without one.
    """
    if model is not None:
        return checked_request(model, said)
    if said != ModelOptions():
        raise InputError("options of a model are given, but no model: add --model NAME")
    return None


def _check_algorithms(request: BenchRequest, places: Sequence[WorkerDevice]) -> None:
    """Check that this machine's device can force the algorithms; workers check their own.

    Raises:
        CannotMeasureError: it cannot.
    """
    if request.algorithms and not places:
        from opdb.bench.forced import check_algorithms
        from opdb.bench.platform import detect

        check_algorithms(list(request.algorithms), detect(request.device))


def _of_model(
    store: Store, wanted: ModelRequest, request: BenchRequest, places: Sequence[WorkerDevice]
) -> tuple[BenchedModel, BenchRequest]:
    """Harvest a model; return what it lacks on the device, and the request for just that."""
    from opdb.bench.harvests import harvest_into
    from opdb.bench.platform import detect
    from opdb.plan.lacking import configurations_of, lacking

    stored = harvest_into(store, wanted)
    request = replace(request, configurations=configurations_of(stored))
    platform = detect(places[0].name if places else request.device)
    found = BenchedModel(stored, platform.device.slug, lacking(store, request, platform))
    return found, request


def _bench(
    store: Store, request: BenchRequest, places: Sequence[WorkerDevice], shown: Progress
) -> tuple[list[BenchResult], list[str]]:
    """Bench here, or on several places; return what each campaign did and which places failed."""
    if not places:
        from opdb.bench.run import bench as bench_here

        return [bench_here(store, request, shown)], []
    from opdb.cluster.crew import Crew

    with Crew(list(places), store.url) as crew:
        return crew.bench(request, shown), crew.failures


def _document(result: BenchResult) -> dict[str, Json]:
    return {
        "device": result.device,
        "board": result.board,
        "campaign": result.campaign,
        "configurations": result.configurations,
        "visits": sum(result.outcomes.values()),
        "outcomes": dict(result.outcomes),
        "duplicates": result.duplicates,
        "anchors": result.anchors,
        "rejected": result.rejected,
        "device_time_s": result.cost_s,
        "device_time_per_configuration_s": result.typical_cost_s,
        "elapsed_s": result.elapsed_s,
        "stopped": result.stopped,
        "left_to_other_workers": len(result.elsewhere),
        "refused": [
            {"algorithm": algorithm, "reason": reason, "visits": count}
            for (algorithm, reason), count in sorted(result.refused.items())
        ],
        "reached": None if result.reached is None else _reached_document(result.reached),
    }


def _reached_document(reached: Reached) -> Json:
    return {
        "precision": reached.asked,
        "within": reached.within,
        "missed": dict(reached.missed),
        "without_energy": reached.unjudged,
        "median_half_width": reached.half_width,
    }
