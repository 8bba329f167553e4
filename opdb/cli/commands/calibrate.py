"""`opdb calibrate`: what this board's meters are worth, and what the board reaches at most."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from opdb.api.calibrations import calibrate
from opdb.cli.support import options
from opdb.cli.support.console import note, print_json, print_table
from opdb.derive.meter_tests import distrusted, power_meter
from opdb.errors import CannotMeasureError, CheckError
from opdb.records import Json
from opdb.units import show

if TYPE_CHECKING:
    from opdb.records import BoardCalibration

UNITS = {
    "_flops_per_s": "FLOP/s",
    "_bytes_per_s": "B/s",
    "_bytes": "B",
    "_w": "W",
    "_s": "s",
}
"""The unit of a fact, by how its name ends; the longer ending first."""

RESULTS = {True: "passed", False: "failed", None: "not made"}


def run(
    device: Annotated[
        str | None,
        typer.Option("--device", metavar="DEVICE", help="cuda or cuda:N.  [default: cuda]"),
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Test anew what is stored for this board.")
    ] = False,
    db: options.Db = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Test the power meters of this GPU, and measure what its board reaches at most.

    Stored for the board, its driver and its power limit, and shown from there the next time. A
    meter that fails a test is not used. Exit status 1 if one failed.
    """
    found = calibrate(device, again=again, db=db, tell=partial(note, quiet=quiet))
    if as_json:
        print_json(_document(found))
    else:
        _print(found)
    _check(found)


def _check(found: BoardCalibration) -> None:
    """Raise what keeps the board's meters from being used.

    Raises:
        CannotMeasureError: the board reports no power at all.
        CheckError: a test failed.
    """
    source, words = power_meter(found.tests)
    if source is None and not distrusted(found.tests):
        raise CannotMeasureError(f"{found.board.uuid}: {words}; times can be measured all the same")
    failed = [test.name for test in found.tests if test.passed is False]
    if failed:
        raise CheckError(f"{found.board.uuid}: failed: {', '.join(failed)}")


def _document(found: BoardCalibration) -> Json:
    source, words = power_meter(found.tests)
    return {
        "device": found.board.device,
        "board": found.board.uuid,
        "driver": found.driver,
        "power_limit_w": found.power_limit_w,
        "measured_at": found.measured_at,
        "cost_s": found.cost_s,
        "power_meter": source,
        "power_meter_words": words,
        "not_used": distrusted(found.tests),
        "facts": dict(found.facts),
        "tests": [
            {
                "name": test.name,
                "passed": test.passed,
                "value": test.value,
                "bound": test.bound,
                "words": test.words,
            }
            for test in found.tests
        ],
        "notes": list(found.notes),
    }


def _print(found: BoardCalibration) -> None:
    limit = f", {found.power_limit_w:.0f} W limit" if found.power_limit_w else ""
    print(
        f"{found.board.device} ({found.board.uuid}), driver {found.driver}{limit}; "
        f"tested {found.measured_at}"
    )
    rows = [(_fact_name(name), _shown(name, value)) for name, value in found.facts.items()]
    print_table(("fact", "measured"), rows)
    print()
    tests = [(test.name, RESULTS[test.passed], test.words) for test in found.tests]
    print_table(("test", "result", "what was seen"), tests)
    print()
    print(power_meter(found.tests)[1])
    for each in found.notes:
        print(f"note: {each}")


def _ending(name: str) -> str:
    return next((ending for ending in UNITS if name.endswith(ending)), "")


def _fact_name(name: str) -> str:
    return name.removesuffix(_ending(name)).replace("_", " ")


def _shown(name: str, value: float | None) -> str:
    return show(value, UNITS.get(_ending(name), ""))
