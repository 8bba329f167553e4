"""`opdb bench`: what is pending, measured on this device."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from opdb.cli import options
from opdb.cli.console import print_json
from opdb.cli.crews import check_failures, chosen_places
from opdb.cli.grids import BenchedGrid
from opdb.cli.predict import check_share
from opdb.cli.visiting import Visiting
from opdb.errors import InputError, UnknownNameError
from opdb.kinds import KINDS
from opdb.records import Access, Json
from opdb.units import counted, show, show_duration, show_share

if TYPE_CHECKING:
    from opdb.bench.run import BenchRequest, BenchResult
    from opdb.cluster.devices import Place
    from opdb.derive.precision import Reached
    from opdb.store import Store


def run(
    kinds: Annotated[
        list[str] | None,
        typer.Argument(metavar="KIND", help="Kinds of operator.  [default: all]"),
    ] = None,
    device: options.MeasuredDevice = None,
    devices: options.Devices = None,
    max_seconds: Annotated[
        float | None,
        typer.Option("--max-seconds", metavar="S", min=1, help="Stop after so many seconds."),
    ] = None,
    retry: Annotated[
        bool, typer.Option("--retry", help="Try again what failed before (out of memory, errors).")
    ] = False,
    this_board: Annotated[
        bool,
        typer.Option("--this-board", help="Measure what this very board lacks, not its device."),
    ] = False,
    rounds: Annotated[
        int,
        typer.Option(
            "--rounds",
            metavar="N",
            min=1,
            max=4,
            help="Visit each configuration so often at least; with 1, a tenth of them twice.",
        ),
    ] = 2,
    precision: Annotated[
        float,
        typer.Option(
            "--precision",
            metavar="SHARE",
            help="Go on, up to 4 rounds, until the 95 % interval of an energy is within ± this.",
        ),
    ] = 0.02,
    duplicates: Annotated[
        float,
        typer.Option(
            "--duplicates",
            metavar="SHARE",
            help="Measure this share of the configurations twice over, to test the intervals.",
        ),
    ] = 0.1,
    workload: Annotated[
        str,
        typer.Option(
            "--workload",
            metavar="NAME",
            help="What calls find in the caches: model (as inside one), reused, streamed, chain.",
        ),
    ] = "model",
    algorithms: options.Algorithms = None,
    grid: Annotated[
        Path | None,
        typer.Option(
            "--grid",
            metavar="FILE",
            help="Measure the combinations of a grid file, which belong to no model.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what a grid comes to and measure nothing.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Take a grid of more than 10,000 combinations.")
    ] = False,
    db: options.Db = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Measure every pending configuration of these kinds on this device; resumes where it stopped.

    What was harvested and lacks visits is pending. Each visit is stored as soon as it is done; one
    that heat, another process or a moving clock spoiled is kept and made again. Predictions rest
    on the workload model alone; the others are for comparing workloads, one visit each.

    --algorithm measures convolutions by algorithms that are named, forced (see docs/sweep.md); what
    one cannot run is stored as unsupported, with cuDNN's status, and nothing takes its place.

    A grid file (see measurements/grids/) names one operator and ranges of all that it is called
    with. Its configurations are stored, and those that lack visits are measured, in its order.
    """
    access = cast(Access, options.parse_workload(workload))
    check_share("--duplicates", duplicates)
    if precision <= 0:
        raise InputError(f"--precision {precision:g}: give a share above 0, such as 0.02")
    for kind in kinds or []:
        if kind not in KINDS:
            raise UnknownNameError("kind", kind, KINDS)
    if grid is None and (dry_run or yes):
        raise InputError("--dry-run and --yes are about a grid: give --grid FILE")
    if grid is not None and kinds:
        raise InputError(f"{' '.join(kinds)} and --grid {grid}: give kinds or a grid")
    forced = options.parse_algorithms(algorithms)
    if any(each.is_forced for each in forced) and kinds not in (None, [], ["conv2d"]):
        raise InputError(
            f"--algorithm {forced[0].name!r} is about convolutions: opdb bench conv2d, not "
            f"{' '.join(kinds or [])}"
        )
    benched = None if grid is None else BenchedGrid.of(grid, yes=yes, quiet=quiet)
    if benched is not None and dry_run:
        benched.print(as_json=as_json)
        return
    from opdb.bench.run import BenchRequest
    from opdb.store import open_store

    # What cannot be measured here is told before a database is opened.
    places = chosen_places(device, devices)
    if forced and not places:
        from opdb.bench.forced import check_algorithms
        from opdb.bench.platform import detect

        check_algorithms(forced, detect(device))
    request = BenchRequest(
        kinds=frozenset(kinds) if kinds else None,
        device=device,
        max_s=max_seconds,
        retry=retry,
        this_board=this_board,
        rounds=rounds,
        precision=precision,
        duplicates=duplicates,
        access=access,
        configurations=None if benched is None else benched.keys,
        algorithms=tuple(forced),
    )
    with open_store(db, create=benched is not None) as store, Visiting(quiet=quiet) as shown:
        if benched is not None:
            benched.save(store, shown.say)
        elif not store.usage():
            raise InputError(
                f"{store.location} holds no workload, so nothing is pending; start with, say, "
                "opdb harvest measurements/resnet50.yml"
            )
        results, failures = _bench(store, request, places, shown)
        measured = {each.device for each in results}
        boards = {board.uuid for device in measured for board in store.boards(device)}
    if as_json:
        document = _document(results[0]) if not places else _of_several(results, failures)
        print_json(document | ({} if benched is None else {"grid": benched.document}))
    else:
        others = bool(boards - {each.board for each in results})
        for each in results:
            _print(each, measured_elsewhere=others and not this_board, named=bool(places))
    check_failures(failures, places)


def _bench(
    store: Store, request: BenchRequest, places: list[Place], shown: Visiting
) -> tuple[list[BenchResult], list[str]]:
    """Bench here, or on several places; return what each campaign did and which places failed."""
    if not places:
        from opdb.bench.run import bench

        return [bench(store, request, shown)], []
    from opdb.cluster.crew import Crew

    with Crew(places, store.url) as crew:
        return crew.bench(request, shown), crew.failures


def _of_several(results: list[BenchResult], failures: list[str]) -> dict[str, Json]:
    return {"boards": [_document(each) for each in results], "failures": failures}


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


def _print(result: BenchResult, *, measured_elsewhere: bool, named: bool) -> None:
    if named:
        print(f"board {result.board}:")
    if result.elsewhere:
        elsewhere = counted(len(result.elsewhere), "configuration")
        print(f"other workers are at {elsewhere}, left to them")
    if result.campaign is None:
        print(f"nothing {'else ' if result.elsewhere else ''}is pending on {result.device}")
        if measured_elsewhere:
            print("other boards of this device count; --this-board measures what this one lacks")
        return
    visits = ", ".join(f"{count} {outcome}" for outcome, count in result.outcomes.items()) or "0"
    print(
        f"{result.device}: {counted(result.configurations, 'configuration')}, visits: {visits}; "
        f"{show_duration(result.elapsed_s)}"
    )
    if result.rejected:
        rejected = counted(result.rejected, "visit")
        print(f"rejected and kept: {rejected} (opdb status says why)")
    for (algorithm, reason), count in sorted(result.refused.items()):
        print(f"{algorithm}: {count} unsupported: {reason}")
    if result.reached is not None:
        _print_reached(result.reached, result.typical_cost_s)
    if result.stopped:
        print(f"stopped early: {result.stopped}; run it again to go on")


def _print_reached(reached: Reached, typical_cost_s: float | None) -> None:
    """Say what intervals are like now: how many as narrow as asked, and why others are not."""
    judged = reached.within + reached.missed.total()
    said = []
    if judged:
        said.append(
            f"within {100 * reached.asked:g} % (half the 95 % interval of the energy): "
            f"{reached.within} of {counted(judged, 'configuration')}"
        )
        said += [f"{count} not, {why}" for why, count in reached.missed.items()]
    if reached.unjudged:
        said.append(f"{reached.unjudged} with a time and no energy")
    if reached.half_width is not None:
        said.append(f"median half width {show_share(reached.half_width)}")
    if typical_cost_s is not None:
        said.append(f"median device time {show(typical_cost_s, 's', digits=2)} a configuration")
    if said:
        print("; ".join(said))
