"""`opdb bench`: what is pending, measured on this device."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opdb.api.benches import Benched, BenchOptions, bench_all
from opdb.api.grids import BenchedGrid
from opdb.cli.support import completing, options
from opdb.cli.support.console import Terminal, print_json
from opdb.cli.support.visiting import Visiting
from opdb.errors import InputError
from opdb.units import plural, show, show_duration, show_share

if TYPE_CHECKING:
    from opdb.bench.run import BenchResult
    from opdb.derive.precision import Reached


@dataclass(frozen=True)
class BenchArguments:
    """What is measured, where, and how exactly; as `BenchOptions` has it."""

    device: options.MeasuredDevice = None
    devices: options.Devices = None
    max_seconds: Annotated[
        float | None,
        typer.Option("--max-seconds", metavar="S", min=1, help="Stop after so many seconds."),
    ] = None
    retry: Annotated[
        bool, typer.Option("--retry", help="Try again what failed before (out of memory, errors).")
    ] = False
    this_board: Annotated[
        bool,
        typer.Option("--this-board", help="Measure what this very board lacks, not its device."),
    ] = False
    rounds: Annotated[
        int,
        typer.Option(
            "--rounds",
            metavar="N",
            min=1,
            max=4,
            help="Visit each configuration so often at least; with 1, a tenth of them twice.",
        ),
    ] = 2
    precision: Annotated[
        float,
        typer.Option(
            "--precision",
            metavar="SHARE",
            help="Go on, up to 4 rounds, until the 95 % interval of an energy is within ± this.",
        ),
    ] = 0.02
    duplicates: Annotated[
        float,
        typer.Option(
            "--duplicates",
            metavar="SHARE",
            help="Measure this share of the configurations twice over, to test the intervals.",
        ),
    ] = 0.1
    cache_state: Annotated[
        str,
        typer.Option(
            "--cache-state",
            metavar="NAME",
            help="What calls find in the caches: model (as inside one), reused, streamed, chain.",
        ),
    ] = "model"
    algorithms: options.Algorithms = None
    grid: Annotated[
        Path | None,
        typer.Option(
            "--grid",
            metavar="FILE",
            help="Measure the combinations of a grid file, which belong to no model.",
        ),
    ] = None
    large: Annotated[
        bool, typer.Option("--yes", help="Take a grid of more than 10,000 combinations.")
    ] = False

    def options(self, kinds: list[str] | None) -> BenchOptions:
        """Return what is asked for, of kinds; of all where none is given."""
        said: dict[str, Any] = dict(vars(self))
        return BenchOptions(kinds=kinds or (), algorithms=said.pop("algorithms") or (), **said)


def run(
    kinds: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KIND",
            autocompletion=completing.kinds,
            help="Kinds of operator.  [default: all]",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            metavar="NAME",
            help="Measure what this model alone lacks; it is harvested where it was not.",
        ),
    ] = None,
    said: options.ModelArguments = options.ModelArguments(),
    how: BenchArguments = BenchArguments(),
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what a grid comes to and measure nothing.")
    ] = False,
    out: options.Output = options.Output(),
) -> None:
    """Measure every pending configuration of these kinds on this device; resumes where it stopped.

    What was harvested and lacks visits is pending. Each visit is stored as soon as it is done; one
    that heat, another process or a moving clock spoiled is kept and made again. Predictions rest
    on the cache state model alone; the others are for comparisons, one visit each.

    With --model it is what this model calls, at the batch size and so on that are given with it;
    how much is lacking and how long that takes is said first.

    --algorithm measures convolutions by algorithms that are named, forced (see docs/sweep.md); what
    one cannot run is stored as unsupported, with cuDNN's status, and nothing takes its place.

    A grid file (see measurements/grids/) names one operator and ranges of all that it is called
    with. Its configurations are stored, and those that lack visits are measured, in its order.
    """
    if how.grid is None and (dry_run or how.large):
        raise InputError("--dry-run and --yes are about a grid: give --grid FILE")
    asked = how.options(kinds)
    if dry_run:
        _show_grid(asked, model, out)
        return
    with Visiting(quiet=out.quiet) as shown:
        found = bench_all(asked, model, said.options, db=out.db, progress=shown)
    _show(found, this_board=how.this_board, as_json=out.as_json)
    found.check()


def _show_grid(asked: BenchOptions, model: str | None, out: options.Output) -> None:
    """Print what becomes of a grid's combinations, and measure nothing.

    Raises:
        InputError: it is no grid, or options contradict each other.
    """
    asked.check(model)
    assert asked.grid is not None
    found = BenchedGrid.of(asked.grid, large=asked.large, display=Terminal(quiet=out.quiet))
    if out.as_json:
        print_json(found.to_dict())
    else:
        print(*found.lines(), sep="\n")


def _show(found: Benched, *, this_board: bool, as_json: bool) -> None:
    if as_json:
        print_json(found.to_dict())
        return
    for each in found.results:
        measured_elsewhere = found.elsewhere and not this_board
        _print(each, measured_elsewhere=measured_elsewhere, named=bool(found.places))


def _print(result: BenchResult, *, measured_elsewhere: bool, named: bool) -> None:
    if named:
        print(f"board {result.board}:")
    if result.elsewhere:
        elsewhere = plural(len(result.elsewhere), "configuration")
        print(f"other workers are at {elsewhere}, left to them")
    if result.campaign is None:
        print(f"nothing {'else ' if result.elsewhere else ''}is pending on {result.device}")
        if measured_elsewhere:
            print("other boards of this device count; --this-board measures what this one lacks")
        return
    visits = ", ".join(f"{count} {outcome}" for outcome, count in result.outcomes.items()) or "0"
    print(
        f"{result.device}: {plural(result.configurations, 'configuration')}, visits: {visits}; "
        f"{show_duration(result.elapsed_s)}"
    )
    if result.rejected:
        rejected = plural(result.rejected, "visit")
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
            f"{reached.within} of {plural(judged, 'configuration')}"
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
