"""Making runs: which are claimed, asked for, made and told, on a device of the test's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from opdb import workers
from opdb.errors import ClaimLostError
from opdb.progress import Progress
from opdb.runs import ModelPolicy, ModelRunSpec
from opdb.spec import ModelSpec
from opdb.store import Store, open_store
from opdb.store.claims import Claims, held, release_dead_claims
from opdb.workers import Crew, Make, Work
from tests.store import samples

POLICY = ModelPolicy((samples.DEVICE.slug,), ("GPU-1",))


@dataclass(frozen=True)
class Noting(Work[ModelRunSpec]):
    """Stores a run in no time, and notes what happens."""

    happened: list[Any] = field(default_factory=list)
    lost: frozenset[str] = frozenset()

    @contextmanager
    def opened(
        self, store: Store, device: str | None, workers: int
    ) -> Iterator[tuple[str, str, Make[ModelRunSpec]]]:
        self.happened.append((store, device, workers))

        def make(spec: ModelRunSpec, claims: Claims) -> Any:
            assert claims.has(spec.key)
            self.happened.append(spec.request.name)
            if spec.key in self.lost:
                raise ClaimLostError("another took it over")
            if spec.request.name == "unstored":
                return None
            save(store, spec)
            return f"the run of {spec.request.name}"

        yield samples.DEVICE.slug, "GPU-1", make


def save(store: Store, spec: ModelRunSpec, outcome: Any = "ok") -> None:
    stored = len(store.run_states())
    run = samples.model_run(samples.workload(spec.request.name), f"run {stored}")
    store.save_model_run(replace(run, outcome=outcome))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(str(tmp_path / "opdb.sqlite")) as opened:
        opened.save_campaign(samples.campaign())
        yield opened


def specs_of(store: Store, *names: str) -> list[ModelRunSpec]:
    found = []
    for name in names:
        store.save_workload(workload := samples.workload(name))
        found.append(ModelRunSpec(ModelSpec(name), workload.key, "eager", ("GPU-1",)))
    return found


class Shown(Progress):
    def __init__(self) -> None:
        self.said: list[object] = []

    def doing(self, what: str) -> None:
        self.said.append(" ".join(what.split()))

    def done(self, count: int = 1) -> None:
        self.said.append(count)


NOBODY = Progress()


def test_each_run_is_made_once_and_told_as_it_is_stored(store: Store, tmp_path: Path) -> None:
    specs = specs_of(store, "a", "b", "unstored", "c")
    work = Noting(POLICY)
    told = []
    for spec, run in work.run(store, specs, "cuda:3", NOBODY, crew=Crew(2, tmp_path)):
        told.append((spec.request.name, run))
        assert [claim.task for claim in held(store)] == [spec.key], "no other is claimed yet"
        assert [(claim.scope, claim.board) for claim in held(store)] == [
            ("runs nvidia-h200", "GPU-1")
        ]
    assert told == [(name, f"the run of {name}") for name in "abc"]
    assert work.happened == [(store, "cuda:3", 2), "a", "b", "unstored", "c"]
    assert held(store) == []
    again = Noting(POLICY)
    assert list(again.run(store, [*specs[:2], specs[3]], None, NOBODY)) == []
    assert again.happened == [(store, None, 1)]
    anew = Noting(POLICY, again=True)
    assert [spec for spec, _ in anew.run(store, specs[:1], None, NOBODY)] == specs[:1]


def test_the_work_ends_at_a_run_that_may_not_begin(store: Store) -> None:
    specs, work = specs_of(store, "a", "b", "c"), Noting(POLICY)
    made = work.run(store, specs, None, NOBODY, may_begin=lambda s: s.request.name == "a")
    assert [spec for spec, _ in made] == specs[:1] and work.happened[1:] == ["a"]
    assert held(store) == []


def test_a_run_that_too_many_died_of_is_left_out(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "notes"
    folder.mkdir()
    specs, work, crew = specs_of(store, "a", "b"), Noting(POLICY), Crew(4, folder)
    with crew.trying(specs[0].key) as may:
        [note] = folder.iterdir()
        assert may
    assert not list(folder.iterdir()), "who comes to the end of a run lives"
    for number in range(workers.MOST_DEATHS):
        note.with_suffix(f".{number}").touch()
    assert [spec for spec, _ in work.run(store, specs, None, NOBODY, crew=crew)] == specs[1:]


def test_a_run_that_another_took_over_is_left_to_it(store: Store) -> None:
    specs = specs_of(store, "a", "b")
    work = Noting(POLICY, lost=frozenset({specs[0].key}))
    assert [spec for spec, _ in work.run(store, specs, None, NOBODY)] == specs[1:]


def test_what_failed_is_made_again_where_that_is_asked_for(store: Store) -> None:
    specs = specs_of(store, "a", "b")
    for spec in specs:
        save(store, spec, "error")
    assert Noting(POLICY).pending(store, specs) == Noting(POLICY).pending(store, specs[:1]) == []
    assert Noting(POLICY, retry=True).pending(store, specs) == specs
    assert Noting(POLICY, again=True).pending(store, specs[1:]) == specs[1:]


def of_another(store: Store, monkeypatch: pytest.MonkeyPatch, spec: ModelRunSpec) -> Claims:
    """Claim a run as a process of another machine does."""
    with monkeypatch.context() as patch:
        patch.setattr("opdb.store.claims.this_worker", lambda: "0123456789abcdef:7:1.00")
        claims = Claims(store, "runs nvidia-h200", "GPU-9")
    assert claims.take(spec.key)
    return claims


def test_the_runs_of_others_come_last_and_are_waited_for(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    specs = specs_of(store, "a", "b", "c", "d")
    others = [of_another(store, monkeypatch, spec) for spec in specs[:2]]
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 2:
            save(store, specs[0])
            others[0].give_back([specs[0].key])
        if len(waited) == 3:
            others[1].give_back([specs[1].key])

    monkeypatch.setattr("opdb.workers.time.sleep", sleep)
    work = Noting(POLICY)
    made = [spec for spec, _ in work.run(store, specs, None, NOBODY)]
    assert made == [specs[2], specs[3], specs[1]], "the other made the first"
    assert waited == [1.0, 1.0, 1.0]


class Unwaiting(ModelPolicy):
    """Takes over what the dead left, and waits for nobody."""

    waits = False


def test_who_does_not_wait_takes_what_was_left_meanwhile(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    specs = specs_of(store, "a", "b", "c")
    others = [of_another(store, monkeypatch, spec) for spec in specs[:2]]
    monkeypatch.setattr("opdb.workers.time.sleep", lambda _: pytest.fail("it waits for nobody"))
    work = Noting(Unwaiting(POLICY.devices, POLICY.boards))
    made = []
    for spec, _ in work.run(store, specs, None, NOBODY):
        made.append(spec)
        others[0].give_back([specs[0].key])
    assert made == [specs[2], specs[0]]


def test_the_claims_of_the_dead_are_released_first(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the work begins, and each time that it looks at what others have."""
    released: list[int] = []
    specs = specs_of(store, "a", "b")
    other = of_another(store, monkeypatch, specs[0])

    def releasing(of: Store) -> None:
        released.append(len(held(of)))
        if len(released) == 2:
            other.give_back([specs[0].key])
        release_dead_claims(of)

    monkeypatch.setattr(workers, "release_dead_claims", releasing)
    monkeypatch.setattr(
        "opdb.workers.time.sleep", lambda _: pytest.fail("nothing is left to wait for")
    )
    assert [spec for spec, _ in Noting(POLICY).run(store, specs, None, NOBODY)] == specs[::-1]
    assert released == [1, 1]


def test_progress_names_each_run_that_is_made(store: Store) -> None:
    specs, shown = specs_of(store, "a", "b", "unstored"), Shown()
    save(store, specs[0])
    made = list(Noting(POLICY).run(store, specs, "cpu", shown))
    assert made == [(specs[1], "the run of b")]
    assert shown.said == ["b batch 1 float32 eager", 1, "unstored batch 1 float32 eager"]
