"""`opdb doctor`: what is fine on this machine for measuring, what is not, and what to do.

With --calibrate it works the GPU: it tests the power meters of its board and measures what the
board reaches.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Annotated, Any

import typer

from opdb.cli import options
from opdb.commands import _lazy as lazy
from opdb.derive.calibration import distrusted, power_meter
from opdb.doctor import Finding, examine, works
from opdb.errors import CannotMeasureError, CheckError, InputError, OpdbError
from opdb.records import BoardCalibration, MeterTest
from opdb.tables import Column, Listing, Rows, Table
from opdb.units import show as shown

PANEL = "measure"


FINDINGS: Table[Finding] = Table(
    Column("check", attrgetter("check"), title="check"),
    Column("result", attrgetter("result"), title="result"),
    Column("found", attrgetter("found"), title="found"),
    Column("advice", attrgetter("advice")),
)

UNITS = {
    "_flops_per_s": "FLOP/s",
    "_bytes_per_s": "B/s",
    "_bytes": "B",
    "_w": "W",
    "_s": "s",
}
"""The unit of a fact, by how its name ends; the longer ending first."""

RESULTS = {True: "passed", False: "failed", None: "not made"}


def _ending(name: str) -> str:
    return next((ending for ending in UNITS if name.endswith(ending)), "")


FACTS: Table[tuple[str, float | None]] = Table(
    Column(title="fact", text=lambda row: row[0].removesuffix(_ending(row[0])).replace("_", " ")),
    Column(title="measured", text=lambda row: shown(row[1], UNITS.get(_ending(row[0]), ""))),
)
"""A fact of a calibration, by its name with the unit in it, as people read it."""

TESTS: Table[MeterTest] = Table(
    Column("name", attrgetter("name"), title="test"),
    Column("passed", attrgetter("passed"), title="result", text=lambda test: RESULTS[test.passed]),
    Column("value", attrgetter("value")),
    Column("bound", attrgetter("bound")),
    Column("words", attrgetter("words"), title="what was seen"),
)


def _calibrated(found: BoardCalibration) -> Listing:
    board, (source, words) = found.board, power_meter(found.tests)
    failure: OpdbError | None = None
    if source is None and not distrusted(found.tests):
        said = f"{board.uuid}: {words}; times can be measured all the same"
        failure = CannotMeasureError(said)
    elif failed := [test.name for test in found.tests if test.passed is False]:
        failure = CheckError(f"{board.uuid}: failed: {', '.join(failed)}")
    limit = f", {found.power_limit_w:.0f} W limit" if found.power_limit_w else ""
    document = {
        "device": board.device,
        "board": board.uuid,
        "driver": found.driver,
        "power_limit_w": found.power_limit_w,
        "measured_at": found.measured_at,
        "cost_s": found.cost_s,
        "power_meter": source,
        "power_meter_words": words,
        "not_used": distrusted(found.tests),
        "facts": dict(found.facts),
        "tests": TESTS.documents(found.tests),
        "notes": list(found.notes),
    }
    parts: list[str | Rows[Any]] = [
        f"{board.device} ({board.uuid}), driver {found.driver}{limit}; tested {found.measured_at}",
        Rows(FACTS, list(found.facts.items())),
        "",
        Rows(TESTS, found.tests),
        "",
        words,
        *(f"note: {each}" for each in found.notes),
    ]
    return Listing(document, parts, failure)


def calibrate(
    device: str | None = None,
    *,
    again: bool = False,
    db: str | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> Listing:
    """Return the calibration of this GPU's board; make and store it where there is none.

    `device` is cuda or cuda:N, and `again` makes a new one. `tell` is given what is being done.
    """
    platform = lazy.session.detect(device)
    if platform.device.type != "cuda":
        raise CannotMeasureError(
            f"{platform.device.name} has no meters that opdb tests; run "
            "opdb doctor --calibrate on a machine with an NVIDIA GPU"
        )
    meter = lazy.session.open_meter(platform)
    try:
        with lazy.store.open_store(db) as store:
            session = lazy.session.open_session(platform, meter)
            found = lazy.calibrate.ensure_board_calibration(session, store, again=again, tell=tell)
            assert found is not None  # the device is a GPU
            return _calibrated(found)
    finally:
        meter.close()


def diagnose(db: str | None = None) -> Listing:
    """Check what measuring needs on this machine, and in the database `db` (a file or URL)."""
    findings = examine(db)
    healthy, words = works(findings)
    document = {"healthy": healthy, "words": words, "findings": FINDINGS.documents(findings)}
    advice = [f"{each.check}: {each.advice}" for each in findings if each.advice]
    parts: list[str | Rows[Any]] = [Rows(FINDINGS, findings), "", *advice]
    parts += [words] if healthy else []
    return Listing(document, parts, None if healthy else CheckError(words))


def run(
    calibrated: Annotated[
        bool,
        typer.Option(
            "--calibrate", help="Test the meters of this GPU, and what its board reaches."
        ),
    ] = False,
    device: Annotated[
        str | None,
        typer.Option(
            "--device", metavar="DEVICE", help="Of --calibrate: cuda or cuda:N.  [default: cuda]"
        ),
    ] = None,
    again: Annotated[
        bool,
        typer.Option("--again", help="Of --calibrate: test anew what is stored for this board."),
    ] = False,
    out: options.Output = options.Output(),
) -> None:
    """Check what measuring needs: GPU, driver, meters, torch, tools, database, disk.

    Nothing is changed, and no work is given to the GPU. Exit status 1 if something keeps a GPU from
    being measured; notes do not count.

    With --calibrate the power meters of the GPU are tested, and it is measured what its board
    reaches at most: stored for the board, its driver and its power limit, and shown from there the
    next time. A meter that fails a test is not used; exit status 1 if one failed.
    """
    if (device is not None or again) and not calibrated:
        raise InputError(
            f"{'--again' if again else '--device'} is about --calibrate: give that too"
        )
    found = (
        calibrate(device, again=again, db=out.db, tell=out.note) if calibrated else diagnose(out.db)
    )
    out.answer(found)
