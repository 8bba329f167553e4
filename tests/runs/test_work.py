"""Making runs: which are claimed, asked for, made and told, on a device of the test's own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from opdb.errors import ClaimLostError
from opdb.models import ModelRequest
from opdb.runs import work as works
from opdb.runs.models import ModelPolicy, ModelSpec
from opdb.runs.progress import Display, Progress
from opdb.runs.work import Answer, Here, Make, Work, execute
from opdb.store import Store, open_store
from opdb.store.claims import Claims, held, release_dead_claims
from tests.store import samples

POLICY = ModelPolicy((samples.DEVICE.slug,), ("GPU-1",))


@dataclass(frozen=True)
class Noting(Work[ModelSpec]):
    """Stores a run in no time, and notes what happens."""

    happened: list[Any] = field(default_factory=list)
    lost: frozenset[str] = frozenset()

    @contextmanager
    def opened(
        self, store: Store, device: str | None, workers: int
    ) -> Iterator[tuple[str, str, Make[ModelSpec]]]:
        self.happened.append((store, device, workers))

        def make(spec: ModelSpec, claims: Claims) -> Any:
            assert claims.has(spec.key)
            self.happened.append(spec.request.name)
            if spec.key in self.lost:
                raise ClaimLostError("another took it over")
            if spec.request.name == "unstored":
                return None
            save(store, spec)
            return f"the run of {spec.request.name}"

        yield samples.DEVICE.slug, "GPU-1", make


def save(store: Store, spec: ModelSpec, outcome: Any = "ok") -> None:
    stored = len(store.run_states())
    run = samples.model_run(samples.workload(spec.request.name), f"run {stored}")
    store.save_model_run(replace(run, outcome=outcome))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(str(tmp_path / "opdb.sqlite")) as opened:
        opened.save_campaign(samples.campaign())
        yield opened


def specs_of(store: Store, *names: str) -> list[ModelSpec]:
    found = []
    for name in names:
        store.save_workload(workload := samples.workload(name))
        found.append(ModelSpec(ModelRequest(name), workload.key, "eager", ("GPU-1",)))
    return found


def go(_: ModelSpec) -> Answer:
    return "go"


def test_each_run_is_made_once_and_told_as_it_is_stored(store: Store) -> None:
    specs = specs_of(store, "a", "b", "unstored", "c")
    work = Noting(POLICY)
    told = []
    for spec, run in work.run(store, specs, "cuda:3", go, workers=2):
        told.append((spec.request.name, run))
        assert [claim.task for claim in held(store)] == [spec.key], "no other is claimed yet"
        assert [(claim.scope, claim.board) for claim in held(store)] == [
            ("runs nvidia-h200", "GPU-1")
        ]
    assert told == [(name, f"the run of {name}") for name in "abc"]
    assert work.happened == [(store, "cuda:3", 2), "a", "b", "unstored", "c"]
    assert held(store) == []
    again = Noting(POLICY)
    assert list(again.run(store, [*specs[:2], specs[3]], None, go)) == []
    assert again.happened == [(store, None, 1)]
    anew = Noting(POLICY, again=True)
    assert [spec for spec, _ in anew.run(store, specs[:1], None, go)] == specs[:1]


def test_without_specs_no_device_is_opened(store: Store) -> None:
    work = Noting(POLICY)
    assert list(work.run(store, [], None, go)) == [] and work.happened == []


def test_an_answer_skips_a_run_or_ends_the_work(store: Store) -> None:
    specs = specs_of(store, "a", "b", "c", "d")
    answers: dict[str, Answer] = {"a": "skip", "b": "go", "c": "stop", "d": "go"}
    work = Noting(POLICY)
    made = [spec for spec, _ in work.run(store, specs, None, lambda s: answers[s.request.name])]
    assert made == [specs[1]] and work.happened[1:] == ["b"] and held(store) == []


def test_a_run_that_another_took_over_is_left_to_it(store: Store) -> None:
    specs = specs_of(store, "a", "b")
    work = Noting(POLICY, lost=frozenset({specs[0].key}))
    assert [spec for spec, _ in work.run(store, specs, None, go)] == specs[1:]


def test_what_failed_is_made_again_where_that_is_asked_for(store: Store) -> None:
    specs = specs_of(store, "a", "b")
    for spec in specs:
        save(store, spec, "error")
    assert Noting(POLICY).pending(store, specs) == Noting(POLICY).pending(store, specs[:1]) == []
    assert Noting(POLICY, retry=True).pending(store, specs) == specs
    assert Noting(POLICY, again=True).pending(store, specs[1:]) == specs[1:]


def of_another(store: Store, monkeypatch: pytest.MonkeyPatch, spec: ModelSpec) -> Claims:
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

    monkeypatch.setattr("opdb.runs.work.time.sleep", sleep)
    work = Noting(POLICY)
    made = [spec for spec, _ in work.run(store, specs, None, go)]
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
    monkeypatch.setattr("opdb.runs.work.time.sleep", lambda _: pytest.fail("it waits for nobody"))
    work = Noting(Unwaiting(POLICY.devices, POLICY.boards))
    made = []
    for spec, _ in work.run(store, specs, None, go):
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

    monkeypatch.setattr(works, "release_dead_claims", releasing)
    monkeypatch.setattr(
        "opdb.runs.work.time.sleep", lambda _: pytest.fail("nothing is left to wait for")
    )
    assert [spec for spec, _ in Noting(POLICY).run(store, specs, None, go)] == specs[::-1]
    assert released == [1, 1]


class Shown(Progress):
    def __init__(self) -> None:
        self.said: list[object] = []

    def doing(self, what: str) -> None:
        self.said.append(what)

    def done(self, count: int = 1) -> None:
        self.said.append(count)


class Two:
    """A maker on two devices, of which the second was asked to stop."""

    boards, failures = (), ()

    def make(self, work: Any, specs: Sequence[ModelSpec], ask: Any) -> Iterator[Any]:
        for spec, device in zip(specs, ("cuda:0", "cuda:1"), strict=True):
            if ask(spec, device) == "go":
                yield device, spec, f"run of {work}"


def test_progress_names_each_run_and_where_there_are_several_its_device(store: Store) -> None:
    specs, shown = specs_of(store, "a", "b"), Shown()
    may: dict[str, Answer] = {"a": "go", "b": "stop"}
    made = list(
        execute(
            Two(),  # type: ignore[arg-type]
            "the work",  # type: ignore[arg-type]
            specs,
            shown,
            lambda spec: spec.request.name.upper(),
            lambda spec: may[spec.request.name],
        )
    )
    assert made == [(specs[0], "A on cuda:0", "run of the work")]
    assert shown.said == ["A on cuda:0", 1]
    here, shown = Here(store, "cpu"), Shown()
    work = Noting(POLICY)
    made = list(execute(here, work, specs, shown, lambda spec: spec.request.name))
    assert made == [(specs[0], "a", "the run of a"), (specs[1], "b", "the run of b")]
    assert shown.said == ["a", 1, "b", 1] and work.happened[0] == (store, "cpu", 1)


def test_where_nobody_looks_progress_shows_nothing() -> None:
    with Display().progress(3, "measure") as shown:
        shown.doing("a")
        shown.done()
