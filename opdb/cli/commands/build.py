"""`opdb build`: the loop that fills the database where it matters, and its plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, TypeAlias

import typer

from opdb.api.build_sources import BuildOptions
from opdb.api.builds import BuildReport, build_all
from opdb.api.plans import MeasuringPlan, plan_all
from opdb.cli.support import options
from opdb.cli.support.console import Terminal, show
from opdb.cli.support.selection import batch_sizes_among
from opdb.cli.support.visiting import Visiting
from opdb.errors import InputError


@dataclass(frozen=True)
class BuildArguments:
    """What is to be built until when, and whether it is measured or only planned."""

    target: Annotated[
        float | None,
        typer.Option(
            "--target",
            metavar="SHARE",
            help="Share of each model's time and of its energy to be measured; attribution is to "
            "lie within 1 ± (1 - it).  [default: that of significant.yml, else 0.95]",
        ),
    ] = None
    gpu_seconds: Annotated[
        float | None,
        typer.Option(
            "--gpu-seconds", metavar="N", help="Measure for at most so long, calibration included."
        ),
    ] = None
    plan: Annotated[
        bool,
        typer.Option(
            "--plan", help="Show what would be measured, in which order; measure nothing."
        ),
    ] = False
    write: Annotated[
        bool,
        typer.Option(
            "--write", help="With --plan: write significant.yml as proposed.  [default: nothing]"
        ),
    ] = False
    mode: options.ModeName = "eager"
    batch_sizes: options.BatchSizes = None
    retry: Annotated[
        bool, typer.Option("--retry", help="Try again what failed before, operators and models.")
    ] = False
    runs: Annotated[
        int | None,
        typer.Option(
            "--runs",
            metavar="N",
            min=0,
            help="Run only so many of the models, drawn by lot.  [default: all]",
        ),
    ] = None

    def options(
        self, sizes: Sequence[int], device: str | None, devices: str | None
    ) -> BuildOptions:
        """Return what is asked for at batch sizes, on a device or on several.

        Raises:
            InputError: two options contradict each other.
        """
        if self.plan and devices is not None:
            raise InputError(
                f"--plan and --devices {devices}: a plan measures nothing; use --device"
            )
        if self.write and not self.plan:
            raise InputError("--write is for --plan; what is built is written in any case")
        return BuildOptions(
            target=self.target,
            gpu_seconds=self.gpu_seconds,
            mode=self.mode,
            batch_sizes=sizes,
            device=device,
            devices=devices,
            retry=self.retry,
            runs=self.runs,
            write=self.write or not self.plan,
        )


AnyDevice: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="DEVICE",
        help="cuda, cuda:N or cpu; with --plan also a device as opdb status names it.",
    ),
]


def run(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH",
            help="Folders of summary files, summary files, model names, or patterns of names "
            "such as 'resnet*' or 'torchvision.classification:*'.",
        ),
    ],
    asked: BuildArguments = BuildArguments(),
    said: options.ModelFormat = options.ModelArguments(),
    device: AnyDevice = None,
    devices: options.Devices = None,
    out: options.Output = options.Output(),
) -> None:
    """Measure what carries the models' time and energy, and the models, until a target holds.

    Harvests all models, benches the most significant operators of them all first, measures the
    models, compares, and adds operators until the target holds for each, for time and for energy.
    What the database has is not measured again. A model that fails does not stop the others.

    The list of what is significant, significant.yml, is kept beside the summary files.
    """
    names, sizes = batch_sizes_among(paths, asked.batch_sizes)
    how = asked.options(sizes, device, devices)
    display = Terminal(quiet=out.quiet)
    found: MeasuringPlan | BuildReport
    if asked.plan:
        found = plan_all(names, how, said.options, db=out.db, display=display)
    else:
        with Visiting(quiet=out.quiet) as shown:
            found = build_all(names, how, said.options, db=out.db, display=display, progress=shown)
    show(found, as_json=out.as_json)
    found.check()
