"""A bench that is killed at random moments, again and again, ends as one that nobody disturbed.

`OPDB_TEST_KILLS=20 pytest tests/bench/test_kills.py` kills more often than the usual five times.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import sqlite3
import time
from collections import Counter
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

from opdb.harvest.passes import harvest
from opdb.records import Visit
from opdb.spec import ModelSpec
from opdb.store import Store, open_store
from tests import warm
from tests.bench.calls import without_restoring

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("OPDB_TEST_KILLS", "5"))
LONGEST_LIFE_S = 1.2
SIZES = (32, 64, 96)[: 1 + KILLS // 10]
"""Input sizes of the model benched: enough that work is left for every kill."""

DUPLICATES = 0.3


def bench(database: Path, log: Path) -> None:
    """Run `opdb bench` in this process, visits short; note each visit that is saved."""
    import torch

    from opdb.bench import calibrate, visit
    from opdb.cli import main

    torch.set_num_threads(1)  # on a busy machine threads wait for each other a thousandfold
    visit.SETTLE_S, visit.WINDOW_S = 0.005, 0.03
    calibrate.BASE_WINDOW_S, calibrate.CONTAINER_ROUNDS = 0.02, 5
    save = Store.save_visit

    def noted(store: Store, made: Visit, *claim: Any) -> None:
        save(store, made, *claim)
        with log.open("a") as stream:
            stream.write(f"{made.id}\n")

    Store.save_visit = noted  # type: ignore[assignment,method-assign]
    options = ["--duplicates", str(DUPLICATES), "--quiet", "--device", "cpu"]
    raise SystemExit(main(["bench", *options, "--db", str(database)]))


def started(database: Path, log: Path) -> BaseProcess:
    """Start a bench in a process of its own, torch imported before it was forked."""
    context = multiprocessing.get_context("forkserver")
    warm.load_before_forks("opdb.commands.bench", "tests.bench.test_kills")
    process = context.Process(target=bench, args=(database, log))
    process.start()
    return process


def finished(database: Path, log: Path) -> None:
    process = started(database, log)
    process.join(timeout=120)
    assert process.exitcode == 0


def stored(database: Path) -> list[str]:
    """Return the ids of all visits, and check the file."""
    with sqlite3.connect(database) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        found = [row[0] for row in connection.execute("SELECT id FROM visit ORDER BY rowid")]
    connection.close()
    return found


def harvested(path: Path) -> Path:
    """Make a database with the operators of ResNet-18 on small images, in-place ones left out."""
    with open_store(str(path)) as store:
        for size in SIZES:
            request = ModelSpec("resnet18", input_size=(3, size, size))
            store.save_workload(without_restoring(harvest(request)))
    return path


def test_kills_at_random_moments_lose_nothing_and_repeat_nothing(tmp_path: Path) -> None:
    database, log = harvested(tmp_path / "killed.sqlite"), tmp_path / "log"
    log.touch()
    seed = random.SystemRandom().randrange(2**31)
    lives = random.Random(seed)
    kept = 0
    for _ in range(KILLS):
        process = started(database, log)
        time.sleep(lives.uniform(0, LONGEST_LIFE_S))
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL, f"seed {seed}: done before it was killed"
        found = stored(database)
        told = log.read_text().splitlines()
        assert found[: len(told)] == told, f"seed {seed}: every visit told of is stored, in order"
        assert len(told) <= len(found) <= len(told) + 1, "the last may not have come to be told"
        log.write_text("".join(f"{each}\n" for each in found))
        assert len(found) >= kept
        kept = len(found)
    finished(database, log)

    whole = harvested(tmp_path / "whole.sqlite")
    finished(whole, tmp_path / "whole.log")
    assert visits(database) == visits(whole), "as many of each configuration and role, none twice"
    assert set(visits(whole).values()) == {2}
    for each in (database, whole):
        with open_store(str(each)) as store:
            [board] = store.boards()
            costs = store.costs(board.uuid)
            called = {c.key for c in store.configurations_among(None, None)}
        assert costs.keys() == called
        assert {cost.visits for [cost] in costs.values()} == {2}


def visits(database: Path) -> Counter[tuple[str, str]]:
    """Count the good visits of each configuration and role."""
    with open_store(str(database)) as store:
        [board] = store.boards()
        made = store.visits(board.uuid)
    assert {visit.outcome for visit in made} == {"ok"}
    return Counter((visit.configuration, visit.role) for visit in made)
