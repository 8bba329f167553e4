"""`opdb harvest`: models to operators with counts."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

from opdb.api.harvests import Harvested, HarvestOptions, harvest_all
from opdb.cli.support import options
from opdb.cli.support.console import Terminal, note, print_json, show
from opdb.cli.support.selection import batch_sizes_among
from opdb.lookup.words import describe
from opdb.records import Workload
from opdb.units import plural

CompiledToo: TypeAlias = Annotated[
    str,
    typer.Option(
        "--mode",
        metavar="MODE",
        help="compile: what torch.compile makes of the models, too, on this machine's device.",
    ),
]


def run(
    models: Annotated[
        list[str],
        options.models("Summary files, folders of them, or model names."),
    ],
    batch_sizes: options.BatchSizes = None,
    said: options.ModelAtSizes = options.ModelArguments(),
    mode: CompiledToo = "eager",
    device: options.AnyDevice = None,
    anew: Annotated[
        bool,
        typer.Option("--anew", help="Harvest and compile again what stands in the database."),
    ] = False,
    out: options.Output = options.Output(),
) -> None:
    """List the operator calls of models.

    They are stored in the database. Neither weights nor a GPU are needed, unless it is asked what
    torch.compile makes of them: then each is compiled, as far as its fused groups, on the device.
    What was stored of the same code and packages stands, and is not harvested again.

    A summary file gives all of its batch sizes and variants, unless others are given here, and is
    then marked as processed.
    A model that fails does not stop the others; the exit status is then 2.
    """
    names, sizes = batch_sizes_among(models, batch_sizes)
    found = harvest_all(
        names,
        said.options.at_sizes(sizes),
        HarvestOptions(mode, device, anew),
        db=out.db,
        display=Terminal(quiet=out.quiet),
    )
    silent = out.quiet or out.as_json
    for line in found.notes:
        note(line, quiet=silent)
    if stood := sum(each.stood for each in found.stored):
        note(
            f"{plural(stood, 'workload')} of {len(found.stored)} stood in {found.location}, and "
            "nothing changed since: --anew harvests all the same",
            quiet=silent,
        )
    if out.as_json:
        print_json(found.to_dict())
    elif found.stored:
        _print(found)
    found.check()


def _print(harvested: Harvested) -> None:
    show(harvested, as_json=False)
    for stored in harvested.stored:
        each = stored.found
        name, captured = each.workload.name, each.captured
        _print_unsupported(name, each.workload)
        if captured is not None:
            print(
                f"{name} {describe(captured)}: {plural(len(captured.calls), 'call')} of "
                f"{plural(len(captured.occurrences()), 'configuration')} while it is captured in "
                "a CUDA graph, for it asks (mode graph)"
            )
            _print_unsupported(f"{name} while captured", captured)


def _print_unsupported(name: str, workload: Workload) -> None:
    for called, count in workload.unsupported.items():
        print(f"{name}: no operator describes {called} ({plural(count, 'call')})")
