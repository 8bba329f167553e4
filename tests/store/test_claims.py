"""Of many workers one measures a thing at a time, and none that died keeps it."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import pytest

from opdb.errors import ClaimLostError
from opdb.store import Claims, Store, claims
from opdb.store.claims import held
from tests import warm
from tests.store import samples

ROOT = Path(__file__).parents[2]
ELSEWHERE = "0123456789abcdef:77:1.00"
"""A worker of another machine, of which nothing can be seen."""


@pytest.fixture
def mine(store: Store) -> Claims:
    return Claims(store, "a-gpu", "GPU-1")


@pytest.fixture
def others(store: Store, monkeypatch: pytest.MonkeyPatch) -> Claims:
    with monkeypatch.context() as patch:
        patch.setattr(claims, "this_worker", lambda: ELSEWHERE)
        return Claims(store, "a-gpu", "GPU-2")


def test_what_one_has_no_other_gets(mine: Claims, others: Claims, store: Store) -> None:
    assert mine.take("one") and mine.take("one") and mine.has("one")
    assert not others.take("one") and not others.has("one")
    assert others.take("two") and not mine.take("two")
    assert mine.others() == {"two"} and others.others() == {"one"}
    assert Claims(store, "another-gpu", "GPU-3").take("one"), "another list"
    assert [(each.scope, each.task, each.board) for each in held(store)] == [
        ("a-gpu", "one", "GPU-1"),
        ("a-gpu", "two", "GPU-2"),
        ("another-gpu", "one", "GPU-3"),
    ]


def test_a_lease_that_ran_out_is_taken_over_and_its_visit_refused(
    filled: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(claims, "LEASE_S", -1.0)
        mine = Claims(filled, "a-gpu", "GPU-1")
        assert mine.take("one")
    filled.save_visit(samples.visit("in time"), mine.claim("one"))  # nobody took it meanwhile
    with monkeypatch.context() as patch:
        patch.setattr(claims, "this_worker", lambda: ELSEWHERE)
        others = Claims(filled, "a-gpu", "GPU-2")
    assert others.others() == set() and others.take("one")
    with pytest.raises(ClaimLostError, match="another worker took one over"):
        filled.save_visit(samples.visit("too late"), mine.claim("one"))
    assert "too late" not in {visit.id for visit in filled.visits("GPU-1")}
    filled.save_visit(samples.visit("theirs"), others.claim("one"))
    mine.give_back(["one"])
    assert others.others() == set() and len(held(filled)) == 1


def test_a_lease_begins_anew_as_its_worker_works(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = Claims(store, "a-gpu", "GPU-1")
    monkeypatch.setattr(claims, "LEASE_S", 100.0)
    mine.take("one")
    monkeypatch.setattr(claims, "LEASE_S", 1000.0)
    mine.renew_when_due()
    assert held(store)[0].left_s < 101
    monkeypatch.setattr(claims, "RENEW_EVERY_S", 0.0)
    mine.renew_when_due()
    assert 900 < held(store)[0].left_s < 1001


DIES = """
import os, signal, sys
from opdb.store import Claims, open_store
mine = Claims(open_store(sys.argv[1]), "a-gpu", "GPU-1")
assert all(mine.take(f"task {number}") for number in range(5))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_dead_process_had_is_free_at_once(
    store: Store, url: str, mine: Claims, others: Claims
) -> None:
    others.take("of another machine")
    died = subprocess.run(warm.command("-c", DIES, url), cwd=ROOT, check=False)
    assert died.returncode == -9
    assert mine.others() == {"of another machine"}
    assert mine.take("task 1")


MANY = """
import sys
from opdb.store import Claims, open_store
from tests.store import samples
store = open_store(sys.argv[1])
mine = Claims(store, "a-gpu", sys.argv[2])
for number in range(120):
    if mine.take(f"task {number}"):
        visit = samples.visit(f"{sys.argv[2]}-{number}")
        store.save_visit(visit, mine.claim(f"task {number}"))
"""


def test_four_workers_share_a_list_and_nothing_is_done_twice(filled: Store, url: str) -> None:
    names = [f"worker{number}" for number in range(4)]
    workers = [subprocess.Popen(warm.command("-c", MANY, url, name), cwd=ROOT) for name in names]
    assert [worker.wait(timeout=120) for worker in workers] == [0] * 4
    done = [visit.id.split("-") for visit in filled.visits("GPU-1") if visit.id.startswith("work")]
    assert Counter(number for _, number in done) == Counter(str(n) for n in range(120))
    # Nothing was given back: the workers are dead, and their claims are found to be free.
    assert Claims(filled, "a-gpu", "GPU-1").others() == set() == set(held(filled))
