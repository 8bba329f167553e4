"""`opdb sweep`: convolution algorithms × input sizes, whole models, resumable."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, cast

import typer

from opdb.algorithms.names import DEFAULT
from opdb.api.places import check_failures
from opdb.api.sweeps import SweepQuestion, stored_sweep, sweep_all, sweep_plan, sweep_standing
from opdb.cli.support import options
from opdb.cli.support.console import Terminal, note, print_json, show
from opdb.errors import InputError, UnknownNameError
from opdb.records import Mode
from opdb.sweep.report import SweepLists
from opdb.sweep.stages import parse_sizes, sizes_of

MODES = ("graph", "eager")
"""In which modes a sweep's passes are issued."""


@dataclass(frozen=True)
class SweepArguments:
    """What is swept and how, and whether it is measured or only told of."""

    algorithms: options.Algorithms = None
    stage: Annotated[
        str,
        typer.Option(
            "--stage", metavar="NAME", help="sanity (1 size, verified), quick (10), full (100)."
        ),
    ] = "sanity"
    num_sizes: Annotated[
        int | None, typer.Option("--num-sizes", metavar="N", help="So many sizes, 224 to 512.")
    ] = None
    sizes: Annotated[
        str | None, typer.Option("--sizes", metavar="LIST", help="These sizes, as in 224,256.")
    ] = None
    batch_size: Annotated[
        int, typer.Option("--batch-size", "-b", metavar="N", min=1, help="Batch size.")
    ] = 1
    warm_up: Annotated[
        int, typer.Option("--warmup", metavar="N", min=1, help="Passes before measuring.")
    ] = 10
    measure: Annotated[
        int, typer.Option("--measure", metavar="N", min=2, help="Passes measured, at least.")
    ] = 20
    output_dir: Annotated[
        Path, typer.Option("--output-dir", metavar="FOLDER", help="Where files are written.")
    ] = Path("results")
    mode: Annotated[
        str | None,
        typer.Option(
            "--mode", metavar="MODE", help="graph or eager.  [default: graph on a GPU, else eager]"
        ),
    ] = None
    verify: Annotated[
        bool, typer.Option("--verify", help="Prove what ran: outputs, kernels, time.")
    ] = False
    plan: Annotated[
        bool, typer.Option("--plan", help="Say what is left and its seconds; measure nothing.")
    ] = False
    status: Annotated[
        bool,
        typer.Option("--status", help="Say what is done, running, failed, left; measure nothing."),
    ] = False
    files: Annotated[
        bool,
        typer.Option("--files", help="Write the files of what is stored; measure nothing."),
    ] = False
    retry: Annotated[
        bool, typer.Option("--retry", help="Try again what failed (errors, out of memory).")
    ] = False
    list_models: Annotated[
        bool, typer.Option("--list-models", help="List models that can be swept.")
    ] = False
    list_algorithms: Annotated[
        bool, typer.Option("--list-algorithms", help="List the algorithms.")
    ] = False

    def question(
        self,
        models: list[str],
        said: options.ModelArguments,
        device: str | None,
        devices: str | None,
    ) -> SweepQuestion:
        """Return what is asked for of models.

        Raises:
            InputError: an option has no such value, or two contradict each other.
        """
        sizes = None if self.sizes is None else parse_sizes(self.sizes)
        found = sizes_of(self.stage, self.num_sizes, sizes)
        algorithms = self.algorithms or ([] if self.status else [DEFAULT])
        forced = options.parse_algorithms(algorithms)
        of_models = replace(said.options, batch_size=self.batch_size)
        if self.mode is not None and self.mode not in MODES:
            raise UnknownNameError("--mode of a sweep", self.mode, MODES)
        mode = cast("Mode | None", self.mode)
        return SweepQuestion(
            models,
            tuple(found),
            tuple(forced),
            mode=mode,
            stage=self.stage,
            options=of_models,
            device=device,
            devices=devices,
            retry=self.retry,
            verify=self.verify,
        )


def run(
    models: Annotated[
        list[str] | None,
        options.models("Models that take images."),
    ] = None,
    asked: SweepArguments = SweepArguments(),
    said: options.ModelFormat = options.ModelArguments(),
    device: options.AnyDevice = None,
    devices: options.Devices = None,
    out: options.Output = options.Output(),
) -> None:
    """Run whole models at many input sizes, their convolutions forced to take named algorithms.

    At each size: time with its distribution, power, energy, every layer's time in place.
    Each run is stored as soon as it is done; a stage reuses what an earlier one measured. What an
    algorithm cannot run is stored as unsupported; a model in which it cannot run some layer is
    partial. Files for pandas are written under results/STAGE/.
    """
    if asked.list_models or asked.list_algorithms:
        _show_lists(SweepLists(asked.list_models, asked.list_algorithms), out)
        return
    if not models and not asked.status:
        raise InputError("give models, as in: opdb sweep resnet50 --algorithm all --stage quick")
    question = asked.question(models or [], said, device, devices)
    display = Terminal(quiet=out.quiet)
    if asked.status:
        show(sweep_standing(question, db=out.db), as_json=out.as_json)
    elif asked.files:
        found = stored_sweep(question, asked.output_dir, db=out.db, display=display)
        show(found, as_json=out.as_json)
    elif asked.plan:
        plan = sweep_plan(question, db=out.db, display=display)
        if out.as_json:
            print_json(plan.to_dict())
        else:
            display.note(plan.words)
    else:
        _measure(question, asked, out)


def _measure(question: SweepQuestion, asked: SweepArguments, out: options.Output) -> None:
    from opdb.sweep.measuring import SweepOptions

    found = sweep_all(
        question,
        SweepOptions(asked.warm_up, asked.measure),
        asked.output_dir,
        db=out.db,
        display=Terminal(quiet=out.quiet),
    )
    show(found, as_json=out.as_json)
    found.check()
    check_failures(found.failures, question.places)


def _show_lists(found: SweepLists, out: options.Output) -> None:
    show(found, as_json=out.as_json)
    if found.models and not out.as_json:
        note("and any other model that opdb harvests and that takes a batch of images")
