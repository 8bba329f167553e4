"""Test the power meters of a GPU, and measure what its board reaches at most."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from opdb.derive.meter_tests import distrusted, power_meter
from opdb.errors import CannotMeasureError, CheckError
from opdb.records import BoardCalibration, Json, MeterTest
from opdb.tables import Column, Report, Rows, Table
from opdb.units import show

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
    Column(title="measured", text=lambda row: show(row[1], UNITS.get(_ending(row[0]), ""))),
)
"""A fact of a calibration, by its name with the unit in it, as people read it."""

TESTS: Table[MeterTest] = Table(
    Column("name", attrgetter("name"), title="test"),
    Column("passed", attrgetter("passed"), title="result", text=lambda test: RESULTS[test.passed]),
    Column("value", attrgetter("value")),
    Column("bound", attrgetter("bound")),
    Column("words", attrgetter("words"), title="what was seen"),
)
"""A test of a board's meters."""


@dataclass(frozen=True, repr=False)
class Calibrated(Report):
    """The calibration of a board: which of its meters are used, and what it reaches at most."""

    found: BoardCalibration

    def check(self) -> None:
        """Raise what keeps the board's meters from being used.

        Raises:
            CannotMeasureError: the board reports no power at all.
            CheckError: a test failed.
        """
        board, tests = self.found.board.uuid, self.found.tests
        source, words = power_meter(tests)
        if source is None and not distrusted(tests):
            raise CannotMeasureError(f"{board}: {words}; times can be measured all the same")
        if failed := [test.name for test in tests if test.passed is False]:
            raise CheckError(f"{board}: failed: {', '.join(failed)}")

    def to_dict(self) -> Json:
        """Return what `opdb calibrate --json` prints."""
        found = self.found
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
            "tests": TESTS.documents(found.tests),
            "notes": list(found.notes),
        }

    def blocks(self) -> Iterator[str | Rows[Any]]:
        """Yield the board, a row a fact, a row a test, and which meter gives power."""
        found = self.found
        limit = f", {found.power_limit_w:.0f} W limit" if found.power_limit_w else ""
        yield (
            f"{found.board.device} ({found.board.uuid}), driver {found.driver}{limit}; "
            f"tested {found.measured_at}"
        )
        yield Rows(FACTS, list(found.facts.items()))
        yield ""
        yield Rows(TESTS, found.tests)
        yield ""
        yield power_meter(found.tests)[1]
        yield from (f"note: {each}" for each in found.notes)


def calibrate(
    device: str | None = None,
    *,
    again: bool = False,
    db: str | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> Calibrated:
    """Return the calibration of this GPU's board; make and store it where there is none.

    `device` is cuda or cuda:N, and `again` makes a new one. `tell` is given what is being done.

    Raises:
        CannotMeasureError: this is not an NVIDIA GPU, or it stopped answering.
        DatabaseError: the calibration cannot be saved.
    """
    from opdb.bench.board import ensure_board_calibration
    from opdb.bench.platform import detect, open_meter
    from opdb.bench.session import open_session
    from opdb.store import open_store

    platform = detect(device)
    if platform.device.type != "cuda":
        raise CannotMeasureError(
            f"{platform.device.name} has no meters that opdb tests; run opdb calibrate on a "
            "machine with an NVIDIA GPU"
        )
    meter = open_meter(platform)
    try:
        with open_store(db) as store:
            session = open_session(platform, meter)
            found = ensure_board_calibration(session, store, again=again, tell=tell)
    finally:
        meter.close()
    assert found is not None  # the device is a GPU
    return Calibrated(found)
