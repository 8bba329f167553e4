"""A crew whose workers are played: their messages wait in real pipes, their processes are none."""

from __future__ import annotations

import math
import multiprocessing
from collections.abc import Iterator, Sequence
from dataclasses import replace
from multiprocessing.connection import wait
from types import SimpleNamespace
from typing import Any

import pytest

from opdb.bench.platform import Platform, detect
from opdb.bench.request import BenchRequest
from opdb.cluster import crew
from opdb.cluster.crew import Crew, Worker
from opdb.cluster.devices import WorkerDevice
from opdb.cluster.messages import (
    Answered,
    Asked,
    Began,
    Bench,
    Failed,
    Finished,
    Go,
    Made,
    Make,
    Ready,
    Said,
    Turn,
    Visited,
)
from opdb.errors import CannotMeasureError
from tests.store import samples

CPU = detect("cpu")


class Process:
    """Notes what is done to it."""

    pid = 0

    def __init__(self, ends_when_asked: bool = True) -> None:
        self.done: list[object] = []
        self.exitcode: int | None = None
        self.ends_when_asked = ends_when_asked

    def is_alive(self) -> bool:
        return self.exitcode is None

    def terminate(self) -> None:
        self.done.append("terminated")
        if self.ends_when_asked:
            self.exitcode = 143

    def kill(self) -> None:
        self.done.append("killed")
        self.exitcode = -9

    def join(self, timeout: float | None = None) -> None:
        self.done.append(timeout)


class Played:
    """A worker's other end: `says` sends what it has to say, `heard` is what it was told."""

    def __init__(self, name: str, *says: object) -> None:
        self.here, self.there = multiprocessing.Pipe()
        self.process = Process()
        self.worker = Worker(WorkerDevice(name, None), self.process, self.here)  # type: ignore[arg-type]
        self.says(*says)

    def says(self, *messages: object) -> None:
        for message in messages:
            self.there.send(message)

    def ends(self) -> None:
        self.process.exitcode = -11
        self.there.close()

    @property
    def heard(self) -> list[Any]:
        found = []
        while self.there.poll():
            found.append(self.there.recv())
        return found


def on(board: str) -> Platform:
    return replace(CPU, board=replace(CPU.board, uuid=board))


def started(monkeypatch: pytest.MonkeyPatch, *players: Played) -> Crew:
    waiting: Iterator[Played] = iter(players)
    monkeypatch.setattr(crew, "_started", lambda place, url: next(waiting).worker)
    return Crew([player.worker.place for player in players], "sqlite:///nowhere")


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> tuple[Crew, Played, Played]:
    one, other = Played("cuda:0", Ready(on("GPU-1"))), Played("cuda:1", Ready(on("GPU-2")))
    return started(monkeypatch, one, other), one, other


class Shown:
    def __init__(self) -> None:
        self.seen: list[object] = []

    def say(self, text: str) -> None:
        self.seen.append(text)

    def begin(self, visits: int) -> None:
        self.seen.append(visits)

    def visited(self, configuration: object, visit: object, cost_s: float) -> None:
        self.seen.append((configuration, visit, cost_s))


def test_a_crew_is_those_that_have_their_device(monkeypatch: pytest.MonkeyPatch) -> None:
    ready, failed = Played("cuda:0", Ready(on("GPU-1"))), Played("cuda:7", Failed("no GPU", 3))
    made = started(monkeypatch, failed, ready)
    assert made.alive == [ready.worker] and made.failures == ["cuda:7: no GPU"]
    assert made.platforms == [on("GPU-1")] and [board.uuid for board in made.boards] == ["GPU-1"]
    lost = Played("cuda:0", Failed("no GPU", 3)), Played("cuda:1", Failed("none here", 3))
    with pytest.raises(CannotMeasureError, match=r"^cuda:0: no GPU$"):
        started(monkeypatch, *lost)
    assert [player.process.done for player in lost] == [["killed", None]] * 2


def test_workers_end_with_their_pipes_and_are_killed_if_they_do_not(
    two: tuple[Crew, Played, Played],
) -> None:
    made, one, other = two
    one.process.exitcode = 0
    with made as entered:
        assert entered is made
    assert one.process.done == [30.0, None] and other.process.done == [30.0, "killed", None]
    with pytest.raises(EOFError):
        one.there.recv()


def test_after_an_error_workers_are_told_to_stop(two: tuple[Crew, Played, Played]) -> None:
    made, one, other = two
    other.process.ends_when_asked = False
    with pytest.raises(ValueError, match="something"), made:
        raise ValueError("something")
    assert one.process.done[:2] == ["terminated", 30.0] and "killed" not in one.process.done
    assert other.process.done[:3] == ["terminated", 30.0, "killed"]


def test_ctrl_c_stops_all_workers(
    two: tuple[Crew, Played, Played], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, one, other = two

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(crew, "wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        made.bench(BenchRequest(), Shown())
    assert one.process.done[0] == other.process.done[0] == "terminated"


def test_a_bench_is_shown_as_one_and_its_results_are_those_of_all(
    two: tuple[Crew, Played, Played],
) -> None:
    made, one, other = two
    visited = Visited(samples.CONV, samples.visit(), 0.4)
    results: list[Any] = ["first", "second"]
    one.says(Said("calibrates"), Began(5), visited, Began(4), Finished(results[0]))
    other.says(Began(9), Said("settles"), Finished(results[1]))
    shown, request = Shown(), BenchRequest(retry=True)
    assert made.bench(request, shown) == results
    assert one.heard == other.heard == [Bench(request, 2)]
    assert "cuda:0: calibrates" in shown.seen and "cuda:1: settles" in shown.seen
    assert (samples.CONV, samples.visit(), 0.4) in shown.seen
    planned = [each for each in shown.seen if isinstance(each, int)]
    assert planned == sorted(set(planned)) and planned[-1] == 9, "the bar grows to the longest plan"
    one.says(Finished(None))
    other.says(Finished(results[1]))
    assert made.bench(request, shown) == results[1:]


def test_a_worker_alone_is_not_named(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = Played("cuda:0", Ready(CPU), Said("calibrates"), Finished(None))
    shown = Shown()
    assert started(monkeypatch, alone).bench(BenchRequest(), shown) == []
    assert shown.seen == ["calibrates"]


def test_what_a_worker_left_that_died_is_benched_by_the_others(
    two: tuple[Crew, Played, Played],
) -> None:
    made, one, other = two
    one.ends()
    other.says(Finished(None), Finished("the rest"))  # type: ignore[arg-type]
    request = BenchRequest(retry=True)
    with pytest.MonkeyPatch.context() as patch:
        tell = crew._tell
        told: list[object] = []

        def telling(worker: Worker, message: object) -> None:
            told.append((worker.name, message))
            tell(worker, message)

        patch.setattr(crew, "_tell", telling)
        found: list[Any] = list(made.bench(request, Shown()))
    assert found == ["the rest"]
    again = Bench(replace(request, retry=False), 1)
    assert told[-1] == ("cuda:1", again) and ("cuda:1", Bench(request, 2)) in told
    assert made.failures == ["cuda:0: its process ended by itself (exit status -11)"]
    assert one.process.done == [30.0], "it is waited for, so that its exit status is known"
    other.says(Failed("no driver", 3))
    with pytest.raises(CannotMeasureError, match=r"status -11\); cuda:1: no driver"):
        made.bench(request, Shown())


def test_who_failed_at_a_task_and_is_still_there_is_tried_again(
    two: tuple[Crew, Played, Played], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, one, other = two
    one.says(Failed("out of memory", 3), Finished(None))
    other.says(Finished(None), Finished(None), Finished(None))
    made.bench(BenchRequest(), Shown())
    assert made.alive == [other.worker]
    shown = Shown()
    made.bench(BenchRequest(), shown)
    assert shown.seen == ["cuda:0: out of memory; it is tried again"]
    assert made.alive == [one.worker, other.worker]
    one.worker.fail("gone")
    one.process.exitcode = -9
    other.says(Finished(None))
    made.bench(BenchRequest(), shown)
    assert len(shown.seen) == 1 and made.failures == ["cuda:0: gone"]
    lost = Played("cuda:7", Failed("no GPU", 3))
    ready = Played("cuda:0", Ready(CPU), Finished(None))
    started(monkeypatch, lost, ready).bench(BenchRequest(), shown)
    assert len(shown.seen) == 1, "who never had its device is not tried again"


def specs(*keys: str) -> list[Any]:
    return [SimpleNamespace(key=key) for key in keys]


def test_runs_are_made_by_whoever_asks(two: tuple[Crew, Played, Played]) -> None:
    made, one, other = two
    asked: list[tuple[str, str]] = []
    a, b, c = specs("a", "b", "c")

    def ask(spec: Any, device: str) -> Any:
        asked.append((spec.key, device))
        return "skip" if spec.key == "c" else "go"

    run: Any = "the run of "
    one.says(Asked("a"), Made("a", run + "a"), Asked("c"), Finished(None))
    other.says(Asked("b"), Made("b", run + "b"), Finished(None))
    work: Any = "the work"
    found = list(made.make(work, [a, b, c], ask))
    assert sorted(found, key=lambda each: str(each[0])) == [
        ("cuda:0", a, run + "a"),
        ("cuda:1", b, run + "b"),
    ]
    assert sorted(asked) == [("a", "cuda:0"), ("b", "cuda:1"), ("c", "cuda:0")]
    told = one.heard
    assert told == [Make(work, (a, b, c), 2), Answered("go"), Answered("skip")]
    assert list(made.make(work, [], ask)) == [] and one.heard == []


def test_the_run_of_a_worker_that_died_is_made_by_another_but_not_of_two(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    players = [Played(f"cuda:{n}", Ready(CPU)) for n in range(3)]
    made = started(monkeypatch, *players)
    spec, other = specs("a", "b")
    players[0].says(Asked("a"))
    players[0].ends()
    players[1].says(Finished(None), Asked("a"))
    players[1].ends()
    players[2].says(*[Finished(None)] * 2, Asked("a"), Asked("b"), Made("b", "run"), Finished(None))  # type: ignore[arg-type]
    work: Any = "the work"
    asked: list[str] = []

    def ask(of: Any, device: str) -> Any:
        asked.append(of.key)
        return "go"

    found = list(made.make(work, [spec, other], ask))
    assert found == [("cuda:2", other, "run")] and asked == ["a", "a", "b"]
    told = players[2].heard
    assert [each.workers for each in told if isinstance(each, Make)] == [3, 2, 1]
    assert [each.answer for each in told if isinstance(each, Answered)] == ["skip", "go"]
    players[2].says(Failed("no driver", 3))
    with pytest.raises(CannotMeasureError, match="; cuda:2: no driver"):
        list(made.make(work, [spec], ask))


def test_a_worker_hangs_that_tells_nothing_while_it_works() -> None:
    worker = Played("cuda:0").worker
    now_s = [1000.0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(crew, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
        assert not worker.hangs, "nothing was given to it"
        worker.begin(60.0, idle=False)
        for later_s, hangs in ((60.0, False), (60.5, True)):
            now_s[0] = 1000.0 + later_s
            assert worker.hangs == hangs
        for turn, hangs in (("awaited", False), ("over", False), ("has it", True), ("past", True)):
            worker.turn = turn
            assert worker.hangs == hangs
        worker.begin(60.0, idle=True)
        now_s[0] = math.inf
        assert not worker.hangs


def test_who_tells_nothing_for_too_long_is_ended(
    two: tuple[Crew, Played, Played], monkeypatch: pytest.MonkeyPatch
) -> None:
    made, one, other = two
    monkeypatch.setattr(crew, "SILENT_S", {Bench: 0.0, Make: 0.2})
    monkeypatch.setattr(crew, "LOOK_EVERY_S", 0.05)
    other.says(*[Finished(None)] * 2)
    made.bench(BenchRequest(), Shown())
    [failure] = made.failures
    assert failure.startswith("cuda:0: it told nothing for 0") and "nvidia-smi" in failure
    assert one.process.done == ["killed"]
    other.says(Asked("a"))  # it was told to go, and then is silent
    with pytest.raises(CannotMeasureError, match="cuda:1: it told nothing for 0 s"):
        list(made.make("the work", specs("a"), lambda spec, device: "go"))  # type: ignore[arg-type]


def test_an_idle_worker_may_be_silent(
    two: tuple[Crew, Played, Played], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was given nothing, was told to wait, or has told of its run."""
    made, one, other = two
    monkeypatch.setattr(crew, "SILENT_S", {Bench: 0.0, Make: 0.0})
    looked: list[int] = []

    def waiting(pipes: Sequence[Any], seconds: float) -> Any:
        assert seconds == 10.0
        looked.append(len(pipes))
        if len(looked) == 4:
            one.says(Finished(None))
            other.says(Finished(None))
        return wait(pipes, 0.01)

    monkeypatch.setattr(crew, "wait", waiting)
    one.says(Asked("a"))
    found = list(made.make("work", specs("a"), lambda spec, device: "skip"))  # type: ignore[arg-type]
    assert found == [] and made.failures == [] and len(looked) >= 4
    looked.clear()
    one.says(Made("a", "run"))  # type: ignore[arg-type]
    found = list(made.make("work", specs("a"), lambda spec, device: "go"))  # type: ignore[arg-type]
    assert len(found) == 1 and made.failures == []


@pytest.mark.parametrize(("stopped_s", "ended"), [(71.0, False), (69.0, True)])
def test_a_machine_that_was_stopped_ends_nobody(
    two: tuple[Crew, Played, Played],
    monkeypatch: pytest.MonkeyPatch,
    stopped_s: float,
    ended: bool,
) -> None:
    """As by Ctrl-Z: then more time has passed between two looks than a look takes."""
    made, one, other = two
    now_s = [1000.0]
    monkeypatch.setattr(crew, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    monkeypatch.setattr(crew, "SILENT_S", {Bench: 60.0, Make: 60.0})
    other.says(*[Finished(None)] * 2)
    looks: list[float] = []

    def waiting(pipes: Sequence[Any], seconds: float) -> Any:
        looks.append(now_s[0])
        if len(looks) == 2:
            now_s[0] += stopped_s
        if len(looks) == 3:
            one.says(Finished(None))
        return wait(pipes, 0.01)

    monkeypatch.setattr(crew, "wait", waiting)
    made.bench(BenchRequest(), Shown())
    assert bool(made.failures) == ended


def test_a_host_is_handed_on_when_who_has_it_is_gone(two: tuple[Crew, Played, Played]) -> None:
    made, one, other = two
    one.says(Turn("awaited"))
    other.says(Turn("awaited"))
    one.says(Turn("over"), Finished(None))
    other.says(Turn("over"), Finished(None))
    made.bench(BenchRequest(), Shown())
    for player in (one, other):
        assert [type(each) for each in player.heard] == [Bench, Go, Go]


def test_a_worker_that_is_gone_can_be_told_anything() -> None:
    player = Played("cuda:0")
    player.there.close()
    crew._tell(player.worker, Go())
