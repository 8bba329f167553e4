"""`opdb validate`: predictions held against measured runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, cast

import typer

from opdb.api.validations import known_models, validation
from opdb.cli.commands.predict import check_share
from opdb.cli.support import completing, options
from opdb.cli.support.console import Terminal, note, show
from opdb.errors import InputError, UnknownNameError
from opdb.garbage import gc_off_to_the_end
from opdb.records import Mode
from opdb.runs.progress import Display
from opdb.units import plural

if TYPE_CHECKING:
    from opdb.learning import Leaving
    from opdb.predict import Predictor
    from opdb.store import Store
    from opdb.tables import Report


@dataclass(frozen=True)
class ValidateArguments:
    """What predictions are held against, or which other check is made instead."""

    within: Annotated[
        float | None,
        typer.Option(
            "--within", metavar="SHARE", help="Exit 1 if an error of time or energy is larger."
        ),
    ] = None
    duplicates: Annotated[
        bool,
        typer.Option(
            "--duplicates",
            help="Instead: how often two independent measurements agree within their intervals.",
        ),
    ] = False
    transfer: Annotated[
        bool,
        typer.Option(
            "--transfer",
            help="Instead: predict each run from another board's costs, with and without factors.",
        ),
    ] = False
    kernels: Annotated[
        bool,
        typer.Option(
            "--kernels",
            help="Instead: kernels that a model launched and its operators did not, or reversed.",
        ),
    ] = False
    estimates: Annotated[
        str | None,
        typer.Option(
            "--estimates",
            metavar="WHAT",
            help="Instead: leave out one model, family or batch_size after the other, and predict "
            "it with estimates learned from the rest; beside simpler rules.",
        ),
    ] = None
    modes: Annotated[
        list[str] | None,
        typer.Option(
            "--mode",
            metavar="MODE…",
            autocompletion=completing.predicted_modes,
            help="Runs in these modes alone, as in compile,graph.  [default: all predicted ones]",
        ),
    ] = None

    @property
    def check_name(self) -> str | None:
        """The check that is made instead of predictions, where it is one of three."""
        names = ("duplicates", "transfer", "kernels")
        return next((name for name in names if getattr(self, name)), None)

    @property
    def leaving(self) -> Leaving:
        """What is left out of learning."""
        return cast("Leaving", self.estimates)

    def check(self) -> tuple[Mode, ...]:
        """Check that one thing is asked for, and return the modes whose runs are looked at.

        Raises:
            InputError: several are, or modes are named for another check than that of predictions;
                or an option has no such value.
        """
        check_share("--within", self.within)
        if self.estimates is not None:
            from opdb.learning import NAMES

            if self.estimates not in NAMES:
                raise UnknownNameError("group to leave out", self.estimates, NAMES)
        modes = options.parse_modes(self.modes)
        others = self.duplicates + self.transfer + self.kernels + (self.estimates is not None)
        if others + (self.within is not None) > 1:
            raise InputError(
                "--duplicates, --transfer, --kernels, --estimates and --within: give one at a time"
            )
        if modes and others:
            raise InputError(
                "--mode is about the table of predictions; give it without other checks"
            )
        from opdb.predict import check_mode

        for mode in modes:
            check_mode(mode)
        return modes


@gc_off_to_the_end()
def run(
    models: Annotated[
        list[str] | None,
        options.models("Models.  [default: all]"),
    ] = None,
    asked: ValidateArguments = ValidateArguments(),
    device: options.DeviceName = None,
    out: options.Output = options.Output(),
) -> None:
    """Hold predictions against the measured runs of models: all runs, and their errors by regime.

    Each board's run of a workload is held against what is predicted for that board, from its own
    operators' costs; runs for which other boards' costs stand in are counted apart. Intervals rest
    on other models alone.
    Runs with calls that were never measured, or that no operator describes, are listed apart.
    Four further checks look at what predictions rest on; each prints a table of its own.
    """
    chosen = asked.check()
    from opdb.predict import predictor_for
    from opdb.store import open_store

    with open_store(out.db, create=False) as store:
        predictor = predictor_for(store, device, estimates=False)
        of = known_models(store, models or [])
        if asked.check_name is not None:
            show(_checked(asked.check_name, store, predictor, of), as_json=out.as_json)
            return
        if asked.estimates is not None:
            found = _estimation(store, predictor, of, asked.leaving, Terminal(quiet=out.quiet))
            show(found, as_json=out.as_json)
            return
        held, left_out = validation(predictor, of, chosen)
    if left_out is not None:
        note(left_out, quiet=out.quiet or out.as_json)
    show(held, as_json=out.as_json)
    if asked.within is not None:
        held.check(asked.within)


def _checked(name: str, store: Store, predictor: Predictor, models: list[str]) -> Report:
    """Check one thing that predictions rest on."""
    from opdb.studies.agreement import duplicates, same_kernels, transfers

    checks = {"duplicates": duplicates, "transfer": transfers, "kernels": same_kernels}
    return checks[name](store, predictor, models)


def _estimation(
    store: Store, predictor: Predictor, models: list[str], leaving: Leaving, display: Display
) -> Report:
    """Leave groups out of learning, one after the other, each with a note when it is done."""
    from opdb.learning import leave_out
    from opdb.studies.left_out import Estimation

    groups = []
    for group in leave_out(store, predictor, leaving, models):
        display.note(f"without {group.group}: {plural(len(group.operators), 'operator')}")
        groups.append(group)
    return Estimation.of(leaving, groups)
