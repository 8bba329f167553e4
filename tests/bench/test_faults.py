"""What goes wrong in a campaign: a GPU that falls off, meters that lie."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from opdb.bench import run
from opdb.bench import session as session_module
from opdb.bench import visit as visit_module
from opdb.bench.session import Session
from opdb.bench.visit import VisitRequest, visit
from opdb.errors import CannotMeasureError
from opdb.meters import Reading
from opdb.records import Cost, Visit
from opdb.store import open_store
from tests.bench.calls import RELU
from tests.cli.conftest import Opdb, opdb  # noqa: F401
from tests.cli.test_bench import CALLS, harvested
from tests.meters.faulty import FAULTS, FaultyMeter
from tests.meters.replay import ReplayMeter

TRACE = Path(__file__).parents[1] / "data" / "h200_trace.json"
STICKY = "CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be late"
pytestmark = pytest.mark.usefixtures("short")


@pytest.fixture
def database(tmp_path: Path, opdb: Opdb) -> Path:  # noqa: F811
    """The database of `opdb`: harvested, nothing measured."""
    return harvested(tmp_path / "opdb.sqlite")


def seen(database: Path) -> tuple[list[Visit], list[Cost]]:
    """Return the visits of the one board of a database, and its costs."""
    with open_store(str(database)) as store:
        [board] = store.boards()
        costs = [cost for costs in store.costs(board.uuid).values() for cost in costs]
        return store.visits(board.uuid), costs


# A GPU that falls off


def broken(*_: object, **__: object) -> None:
    """Fail as every call of CUDA does once an error has spoiled its context."""
    raise torch.AcceleratorError(STICKY)


@pytest.fixture
def gone(session: Session, monkeypatch: pytest.MonkeyPatch) -> Session:
    """A session on a GPU that answers nothing any more: CUDA's errors stick."""
    device = replace(session.platform.device, type="cuda")
    cuda = SimpleNamespace(empty_cache=lambda: None)
    broken_torch = SimpleNamespace(**vars(torch) | {"zeros": broken, "cuda": cuda})
    monkeypatch.setattr(session_module, "torch", broken_torch)  # of sessions alone
    return replace(session, platform=replace(session.platform, device=device))


SAID = "stopped answering: CUDA error: an illegal .* was encountered; what was finished is stored"


def test_a_visit_in_which_the_gpu_falls_off_is_none(
    gone: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(visit_module, "built", broken)
    with pytest.raises(CannotMeasureError, match=SAID):
        visit(gone, VisitRequest(RELU))


def test_a_bench_whose_gpu_falls_off_keeps_its_visits_and_the_next_goes_on(
    opdb: Opdb,  # noqa: F811
    database: Path,
    gone: Session,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[Visit] = []

    def visited(session: Session, request: VisitRequest) -> list[Visit]:
        if len(made) == 2:
            gone.check_alive()
        made.extend(found := visit(session, request))
        return found

    with monkeypatch.context() as patch:
        patch.setattr(run, "visit", visited)
        ran = opdb("bench", "--device", "cpu", "--quiet", "--duplicates", 0)
    assert ran.status == 3 and ran.err.count("\n") == 1
    assert re.search(SAID, ran.err) and "nvidia-smi" in ran.err
    visits, costs = seen(database)
    assert [each.id for each in visits] == [each.id for each in made]
    assert {cost.configuration for cost in costs} == {each.configuration for each in made}
    ran = opdb("bench", "--device", "cpu", "--quiet", "--duplicates", 0)
    assert ran.status == 0, ran.err
    assert {cost.configuration for cost in seen(database)[1]} == {call.key for call in CALLS}


# Meters


class OfABoard:
    """A trace as a meter: idle in the first window, which is of base power, then a steady load."""

    def __init__(self) -> None:
        self._trace, self.asked = ReplayMeter(TRACE), 0

    def window(self, start_s: float, end_s: float, *, lag_s: float = 0.0) -> Reading:
        self.asked += 1
        begin_s = 0.2 if self.asked == 1 else 1.6
        return self._trace.window(begin_s, begin_s + 0.7)

    def close(self) -> None:
        pass


@pytest.mark.parametrize("fault", [None, *FAULTS])
def test_a_meter_that_lies_leaves_times_and_no_energy(
    fault: str | None,
    opdb: Opdb,  # noqa: F811
    database: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    change, said = FAULTS[fault] if fault else (lambda reading: reading, "")
    honest = OfABoard()

    def after_base_power(reading: Reading) -> Reading:
        return reading if honest.asked == 1 else change(reading)

    def meter(_: object) -> FaultyMeter:
        return FaultyMeter(honest, after_base_power)

    monkeypatch.setattr(run, "open_meter", meter)
    ran = opdb("bench", "relu", "linear", "--device", "cpu", "--quiet", "--duplicates", 0)
    assert ran.status == 0, ran.err
    visits, costs = seen(database)
    assert visits and {each.outcome for each in visits} == {"ok"}
    assert {cost.configuration for cost in costs} == {each.configuration for each in visits}
    assert all(cost.time_s is not None for cost in costs)
    assert {cost.energy_j is None for cost in costs} == {fault is not None}
    for each in visits:
        assert bool(each.stretch.power_samples) == (fault is None)
        told = [flag for flag in each.flags if flag.startswith("no power: ")]
        assert len(told) == (fault is not None) and all(said in flag for flag in told)
