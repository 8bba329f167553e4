"""Measure operators: what is pending on a device, what a model lacks, or a grid's combinations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Unpack, cast, get_args

from opdb.api.grids import BenchedGrid
from opdb.api.places import check_failures, measured_places
from opdb.errors import InputError, UnknownNameError
from opdb.growth import benched_configurations
from opdb.kinds import KINDS
from opdb.lookup.options import ModelOptions, ModelWords
from opdb.lookup.requests import checked_request
from opdb.lookup.words import describe, identity
from opdb.records import Access, Configuration, Json, Visit
from opdb.tables import Report
from opdb.units import plural, show, show_duration, show_share

if TYPE_CHECKING:
    from opdb.bench.further import SumsReached
    from opdb.bench.harvests import Stored
    from opdb.bench.request import BenchRequest
    from opdb.bench.rounds import Progress
    from opdb.bench.run import BenchResult
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
    find in the caches; costs rest on "model" alone. `duplicates` is a share, `algorithms` the names
    of algorithms that convolutions are forced to take.

    Where `rounds` is None, what models call is visited as often as their sums need: until the
    sampling part of the sums' 95 % intervals is within `precision` (None: 0.01), a share. Operators
    of no model, or all of them where a number of rounds is given, are visited until the interval of
    their own energy is (None: 0.02).
    """

    kinds: Sequence[str] = ()
    grid: Path | None = None
    large: bool = False
    device: str | None = None
    devices: str | None = None
    max_seconds: float | None = None
    retry: bool = False
    this_board: bool = False
    rounds: int | None = None
    precision: float | None = None
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
        if self.precision is not None and self.precision <= 0:
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
        from opdb.bench.allocation import SUM_PRECISION
        from opdb.bench.request import BenchRequest
        from opdb.derive.precision import PRECISION

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
            precision=self.precision or PRECISION,
            sum_precision=self.precision or SUM_PRECISION,
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
    def benched(self) -> int:
        """How many configurations are benched: of a whole generation, those of few steps."""
        return len(benched_configurations([self.stored.found.workload]))

    @property
    def line(self) -> str:
        """What the model calls, how much of it is to be measured, and how long that takes."""
        workload, lacking = self.stored.found.workload, self.lacking
        left = f"all measured on {self.device}"
        if lacking.configurations:
            seconds = show_duration(lacking.seconds)
            left = f"{len(lacking.configurations)} to measure on {self.device}, about {seconds}"
        calls = plural(len(workload.occurrences()), "configuration")
        if self.benched < len(workload.occurrences()):
            calls += f" ({self.benched} are benched, those of further steps interpolated)"
        return f"{workload.name}, {describe(workload)}: {calls}, {left}"

    @property
    def document(self) -> Json:
        """The model, and what was lacking of it before."""
        workload = self.stored.found.workload
        return {
            **identity(workload),
            "configurations": len(workload.occurrences()),
            "benched": self.benched,
            "lacking": len(self.lacking.configurations),
            "expected_s": self.lacking.seconds,
        }


@dataclass(frozen=True, repr=False)
class Benched(Report):
    """What campaigns measured, one a board; `failures` name the devices that failed, and why.

    `elsewhere` says that the measurements of other boards of the devices counted as well.
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

    def blocks(self) -> Iterator[str]:
        """Yield what each campaign did, in words."""
        for each in self.results:
            yield from _lines(each)
            if each.campaign is None and self.elsewhere:
                yield "other boards of this device count; --this-board measures what this one lacks"


def _lines(result: BenchResult) -> Iterator[str]:
    """Yield what a campaign did on a board, in words."""
    place = f"{result.device} ({result.board})"
    if result.elsewhere:
        elsewhere = plural(len(result.elsewhere), "configuration")
        yield f"{place}: other workers are at {elsewhere}, left to them"
    if result.campaign is None:
        yield f"nothing {'else ' if result.elsewhere else ''}is pending on {place}"
        return
    visits = ", ".join(f"{count} {outcome}" for outcome, count in result.outcomes.items()) or "0"
    yield (
        f"{place}: {plural(result.configurations, 'configuration')}, visits: {visits}; "
        f"{show_duration(result.elapsed_s)}"
    )
    if result.rejected:
        yield f"rejected and kept: {plural(result.rejected, 'visit')} (opdb status says why)"
    for (algorithm, reason), count in sorted(result.refused.items()):
        yield f"{algorithm}: {count} unsupported: {reason}"
    if result.sums is not None:
        yield _sums(result.sums)
    if result.reached is not None and (said := _precision(result.reached, result.typical_cost_s)):
        yield "; ".join(said)
    if result.stopped:
        yield f"stopped early: {result.stopped}; run it again to go on"


def _sums(sums: SumsReached) -> str:
    """Say how precise the sums of models are, as far as visits decide it."""
    return (
        f"models' sums of time and energy: {sums.within} of {sums.sums} within "
        f"{100 * sums.asked:g} % (sampling part of the 95 % interval; median "
        f"{show_share(sums.half_width)}, largest {show_share(sums.largest)})"
    )


def _precision(reached: Reached, typical_cost_s: float | None) -> list[str]:
    """Say what intervals are like now: how many as narrow as asked, and why others are not."""
    judged = reached.within + reached.missed.total()
    said = []
    if judged:
        said.append(
            f"within {100 * reached.asked:g} % (half the 95 % interval of the energy): "
            f"{reached.within} of {plural(judged, 'configuration')}"
        )
        said += [f"{count} not, {why}" for why, count in reached.missed.items()]
    if reached.unjudged:
        said.append(f"{reached.unjudged} with a time and no energy")
    if reached.half_width is not None:
        said.append(f"median half width {show_share(reached.half_width)}")
    if typical_cost_s is not None:
        said.append(f"median device time {show(typical_cost_s, 's', digits=2)} a configuration")
    return said


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
    from opdb.store import open_store

    asked.check(model)
    wanted = _requested(model, said)
    request = asked.request()
    if asked.grid is not None and grid is None:
        grid = BenchedGrid.of(asked.grid, large=asked.large)
    places = measured_places(asked.device, asked.devices)
    _check_algorithms(request, places)
    if grid is not None:
        request = replace(request, configurations=grid.keys)
    shown = progress or _Silent()
    with open_store(db, create=grid is not None or wanted is not None) as store:
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
        others = bool(boards - {each.board for each in results}) and not asked.this_board
    return Benched(results, places, failures, of_model, grid, others)


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
    from opdb.plan.lacking import lacking, of_model
    from opdb.store import take_in

    stored = harvest_into(store, wanted)
    request = of_model(request, stored)
    platform = detect(places[0].name if places else request.device)
    take_in(store, platform.device.slug)
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
        "sums": None if result.sums is None else _sums_document(result.sums),
    }


def _sums_document(sums: SumsReached) -> Json:
    return {
        "precision": sums.asked,
        "sums": sums.sums,
        "within": sums.within,
        "median_half_width": sums.half_width,
        "largest_half_width": sums.largest,
    }


def _reached_document(reached: Reached) -> Json:
    return {
        "precision": reached.asked,
        "within": reached.within,
        "missed": dict(reached.missed),
        "without_energy": reached.unjudged,
        "median_half_width": reached.half_width,
    }
