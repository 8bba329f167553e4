"""`opdb doctor`: what is fine on this machine for measuring, what is not, and what to do.

With --calibrate it works the GPU: it tests the power meters of its board, measures what the board
reaches, and how fast this machine is as a host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opdb.cli import options
from opdb.cli.console import note, show
from opdb.derive.calibration import distrusted, power_meter
from opdb.derive.quiet import HostFactor, Slowdown
from opdb.doctor import Finding, Machine, examine, works
from opdb.errors import CannotMeasureError, CheckError, InputError
from opdb.records import BoardCalibration, Host, Json, MeterTest
from opdb.tables import RATIO, Column, Report, Rows, Table
from opdb.units import show as shown

if TYPE_CHECKING:
    from opdb.bench.session import Session
    from opdb.store import Store

PANEL = "measure"


def _result(finding: Finding) -> str:
    if finding.result == "not":
        return "NOT FINE" if finding.blocks else "note"
    return {"fine": "fine", "unknown": "cannot tell"}[finding.result]


FINDINGS: Table[Finding] = Table(
    Column("check", lambda finding: finding.check),
    Column("board", lambda finding: finding.board),
    Column("result", lambda finding: finding.result),
    Column("blocks", lambda finding: finding.blocks),
    Column("found", lambda finding: finding.found),
    Column("advice", lambda finding: finding.advice),
)
"""What one check found."""

Named = tuple[str, Finding]

CHECKS: Table[Named] = Table(
    Column("check", lambda row: row[0], title="check"),
    Column("result", lambda row: _result(row[1]), title="result"),
    Column("found", lambda row: row[1].found, title="found"),
)
"""A check by its name on this machine, and what it found."""

ADVICE: Table[Named] = Table(
    Column("check", lambda row: row[0], title="check"),
    Column("advice", lambda row: row[1].advice, title="what to do"),
)
"""A check by its name on this machine, and what to do about what it found."""


@dataclass(frozen=True)
class Diagnosis(Report):
    """The findings of all checks of a machine."""

    machine: Machine
    findings: Sequence[Finding]

    @cached_property
    def verdict(self) -> tuple[bool, str]:
        """Whether a GPU can be measured, and in one sentence what works."""
        return works(self.machine, self.findings)

    def check(self) -> None:
        healthy, words = self.verdict
        if not healthy:
            raise CheckError(words)

    def to_dict(self) -> Json:
        healthy, words = self.verdict
        return {
            "healthy": healthy,
            "words": words,
            "boards": [board.uuid for board in self.machine.boards],
            "findings": FINDINGS.documents(self.findings),
        }

    def blocks(self) -> Iterator[str | Rows[Any]]:
        named = [(self._name(each), each) for each in self.findings]
        yield Rows(CHECKS, named)
        if advised := [row for row in named if row[1].advice is not None]:
            yield ""
            yield Rows(ADVICE, advised)
        healthy, words = self.verdict
        if healthy:
            yield ""
            yield words

    def _name(self, finding: Finding) -> str:
        if finding.board is None or len(self.machine.boards) < 2:
            return finding.check
        return f"GPU {finding.board}: {finding.check}"


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
"""A test of a board's meters."""


@dataclass(frozen=True)
class HostAgainst:
    """How many times as long as a board's host this one takes to issue the same calls."""

    board: str
    device: str
    factor: HostFactor


FACTORS: Table[HostAgainst] = Table(
    Column("board", attrgetter("board"), title="host of board"),
    Column("device", attrgetter("device")),
    Column("factor", lambda row: row.factor.factor, title="times as long here", unit=RATIO),
    Column("calls", lambda row: row.factor.calls, title="calls"),
    Column("passes", lambda row: row.factor.passes, title="of passes"),
)
"""This host against that of a board."""


@dataclass(frozen=True)
class HostFound:
    """This host as calibrated: what was timed, how slow it was, and the hosts that it is held to.

    `models` are those whose calls were timed; none where no board has host times of small ones.
    """

    host: Host
    models: tuple[str, ...] = ()
    slowdown: Slowdown | None = None
    against: tuple[HostAgainst, ...] = ()

    def to_dict(self) -> Json:
        return {
            "id": self.host.id,
            "cpu": self.host.cpu,
            "models": list(self.models),
            "host_slowdown": self.slowdown and asdict(self.slowdown),
            "against": FACTORS.documents(self.against),
        }

    def blocks(self) -> Iterator[str | Rows[Any]]:
        if not self.models:
            yield NO_HOST_TIMES
            return
        yield f"host: the calls of {', '.join(self.models)} were timed"
        if self.slowdown is not None:
            yield f"host: meanwhile it took {self.slowdown.words}"
        if self.against:
            yield Rows(FACTORS, self.against)
        else:
            yield "host: no board has host times of these calls"


NO_HOST_TIMES = (
    "host: no board of this database has host times of a small model (inference, float32):"
    " this host is held against no other"
)


@dataclass(frozen=True, repr=False)
class Calibrated(Report):
    """The calibration of a board: which of its meters are used, and what it reaches at most.

    `host` is how fast this host is, now, against those of other boards.
    """

    found: BoardCalibration
    host: HostFound

    def check(self) -> None:
        board, tests = self.found.board.uuid, self.found.tests
        source, words = power_meter(tests)
        if source is None and not distrusted(tests):
            raise CannotMeasureError(f"{board}: {words}; times can be measured all the same")
        if failed := [test.name for test in tests if test.passed is False]:
            raise CheckError(f"{board}: failed: {', '.join(failed)}")

    def to_dict(self) -> Json:
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
            "host": self.host.to_dict(),
        }

    def blocks(self) -> Iterator[str | Rows[Any]]:
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
        yield ""
        yield from self.host.blocks()


def calibrate(
    device: str | None = None,
    *,
    again: bool = False,
    db: str | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> Calibrated:
    """Return the calibration of this GPU's board; make and store it where there is none.

    Host times of a few stored models are taken each time: how fast a host is changes by the minute.
    `device` is cuda or cuda:N, and `again` makes a new one. `tell` is given what is being done.
    """
    from opdb.bench.calibrate import ensure_board_calibration
    from opdb.bench.session import detect, open_meter, open_session
    from opdb.store import open_store

    platform = detect(device)
    if platform.device.type != "cuda":
        raise CannotMeasureError(
            f"{platform.device.name} has no meters that opdb tests; run "
            "opdb doctor --calibrate on a machine with an NVIDIA GPU"
        )
    meter = open_meter(platform)
    try:
        with open_store(db) as store:
            session = open_session(platform, meter)
            found = ensure_board_calibration(session, store, again=again, tell=tell)
            assert found is not None  # the device is a GPU
            return Calibrated(found, calibrate_host_in(store, session, tell))
    finally:
        meter.close()


def calibrate_host_in(store: Store, session: Session, tell: Callable[[str], None]) -> HostFound:
    """Time calls of stored models on this host, store the times, hold it against other hosts.

    The session's board must be stored.
    """
    from opdb.bench.host import calibrate_host
    from opdb.predict.predictor import CalibratedHost, predictor_for, workloads_to_time

    here, workloads = session.campaign.host, workloads_to_time(store)
    if not workloads:
        return HostFound(here)
    models = tuple(dict.fromkeys(each.name for each in workloads))
    tell(f"timing how long this host takes to issue {', '.join(models)}, some seconds")
    found = calibrate_host(session, workloads)
    store.save_host_calibration(found)
    host, against = CalibratedHost(store, found), []
    for device in store.devices():
        if device.type == "cpu":
            continue
        predictor = predictor_for(store, device)
        for board in predictor.boards:
            factor = predictor.host_factor(host, board)
            if factor is not None:
                against.append(HostAgainst(board, device.slug, factor))
    return HostFound(here, models, host.slowdown, tuple(against))


def diagnose(db: str | None = None) -> Diagnosis:
    """Check what measuring needs on this machine, and in the database `db` (a file or URL)."""
    return Diagnosis(*examine(db))


def run(
    calibrated: Annotated[
        bool,
        typer.Option(
            "--calibrate", help="Test the meters of this GPU, and what its board and host reach."
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
    found: Diagnosis | Calibrated = (
        calibrate(device, again=again, db=out.db, tell=partial(note, quiet=out.quiet))
        if calibrated
        else diagnose(out.db)
    )
    show(found, as_json=out.as_json)
    found.check()
