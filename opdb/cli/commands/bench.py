"""`opdb bench`: what is pending, measured on this device."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from opdb.api.benches import BenchOptions, bench_all
from opdb.api.grids import BenchedGrid
from opdb.cli.support import completing, options
from opdb.cli.support.console import Terminal, print_json, show
from opdb.cli.support.visiting import Visiting
from opdb.errors import InputError


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
        int | None,
        typer.Option(
            "--rounds",
            metavar="N",
            min=1,
            max=4,
            help="Visit each configuration so often at least; with 1, a tenth of them twice.  "
            "[default: once where models call it, then as their sums need; else twice]",
        ),
    ] = None
    precision: Annotated[
        float | None,
        typer.Option(
            "--precision",
            metavar="SHARE",
            help="Go on, up to 4 visits each, until the 95 % intervals of models' sums are within "
            "± this (their sampling part); of operators of no model, or with --rounds, those of "
            "their energies.  [default: 0.01; for energies 0.02]",
        ),
    ] = None
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
    show(found, as_json=out.as_json)
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
