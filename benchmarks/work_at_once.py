"""Whether many processes can harvest and predict on the database that another one fills.

    python -m benchmarks.work_at_once --processes 10 --seconds 300
    python -m benchmarks.work_at_once --postgres postgresql+psycopg://me@/postgres?host=/run

One process benches on the processor, its windows shortened and its power that of a recorded trace,
whatever the others harvest: half of their workloads are each one's own, half are everybody's. At
the end everything that any process was told is saved must be stored, and nothing else; no workload,
cost or count may be half there; and no process may have failed or shown a traceback. Exit status 1
where anything was not so.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, select

import opdb
from benchmarks.kills import Place, check_said, context, note_saves, shorten
from benchmarks.soak import postgres_databases, sqlite_databases
from opdb.bench import run
from opdb.meters import Reading
from opdb.store import Store, open_store, schema
from opdb.store.claims import held
from opdb.store.deriving import derived
from opdb.store.tallies import recount
from tests.meters.replay import ReplayMeter
from tests.paths import ROOT

OWN, SHARED = "mlp", "lstm"
MOST_S = 60.0
"""How long the first workload may take to measure."""

TRACE, TRACE_S = ROOT / "tests" / "data" / "h200_trace.json", 5.9


class LoopedMeter:
    """A recorded trace that begins anew where it ends."""

    name = "replay"

    def __init__(self) -> None:
        self._trace = ReplayMeter(TRACE)

    def window(self, start_s: float, end_s: float, *, lag_s: float = 0.0) -> Reading:
        """Return a part of the trace that is as long, all of it recorded."""
        long_s = end_s - start_s
        first_s = start_s % max(TRACE_S - long_s, 1e-3)
        return self._trace.window(first_s, first_s + long_s, lag_s=lag_s)

    def close(self) -> None:
        """Do nothing."""


def bench(db: str, seconds: float) -> None:
    """Measure what is pending, for some seconds."""
    options = opdb.BenchOptions(device="cpu", rounds=1, max_seconds=seconds)
    opdb.bench(options=options, db=db)


def ask(db: str, number: int, lap: int, processes: int) -> None:
    """Harvest and predict a workload of this process and one of all."""
    for model, size in ((OWN, lap * processes + number + 1), (SHARED, lap + 1)):
        opdb.harvest(model, batch_size=size, db=db)
        opdb.predict(model, batch_size=size, db=db)


def prepare(place: Place) -> None:
    """Let this process measure briefly, note what it saves, and read its power from the trace."""
    shorten()
    note_saves(place.log)
    run.open_meter = lambda platform: LoopedMeter()  # type: ignore[attr-defined]


def work(place: Place, db: str, number: int, processes: int, until_s: float) -> None:
    """Bench (number 0) or ask (1 to `processes`) until a moment; end this process."""
    said = os.open(place.said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(said, 1)
    os.dup2(said, 2)
    prepare(place)
    lap = 0
    while (left_s := until_s - time.monotonic()) > 0:
        if number == 0:
            bench(db, left_s)
        else:
            ask(db, number - 1, lap, processes)
        lap += 1
    print(f"{lap} laps", flush=True)


def at_once(db: str, folder: Path, processes: int, seconds: float) -> list[Place]:
    """Let one process bench and others ask for some seconds; return where each noted its saves.

    Raises:
        FaultError: one showed a traceback.
        SystemExit: one failed.
    """
    until_s = time.monotonic() + seconds
    places, started = [], []
    for number in range(processes + 1):
        place = Place(folder / str(number))
        place.folder.mkdir()
        process = context().Process(target=work, args=(place, db, number, processes, until_s))
        process.start()
        places.append(place)
        started.append(process)
    for process in started:
        process.join()
    for place in places:
        check_said(place)
    for process, place in zip(started, places, strict=True):
        if process.exitcode:
            sys.exit(f"exit status {process.exitcode}: {place.said.read_text()}")
    return places


def check(db: str, noted: set[str]) -> Counter[str]:
    """Check a database after all have ended; return how much is stored of what was made there."""
    with open_store(db) as store:
        [device] = [each.slug for each in store.devices() if each.type == "cpu"]
        [board] = [each.uuid for each in store.boards(device)]
        visits = {visit.id for visit in store.visits(board)}
        workloads = [each for name in (OWN, SHARED) for each in store.workloads(name)]
        stored = visits | {each.key for each in workloads}
        must(not noted - stored, f"saved and lost: {sorted(noted - stored)[:5]}")
        must(not stored - noted, f"stored and never said so: {sorted(stored - noted)[:5]}")
        for name in (OWN, SHARED):
            calls = Counter(len(each.calls) for each in workloads if each.name == name)
            must(len(calls) == 1, f"half a workload: {name} has so many calls: {dict(calls)}")
        must(derived(store, board).is_as_stored, "costs are not what the visits give")
        must(not held(store), f"still claimed: {held(store)}")
        check_counts(store)
        costs = [cost for found in store.costs(board).values() for cost in found]
        energies = sum(cost.energy_j is not None for cost in costs)
        must(energies > 0, "no cost has an energy: no visit was metered")
    return Counter(
        visits=len(visits), workloads=len(workloads), costs=len(costs), energies=energies
    )


def check_counts(store: Store) -> None:
    """Check that visits are counted as they are, and that SQLite finds its file whole."""

    def tallied(connection: Connection) -> list[Any]:
        return sorted(map(tuple, connection.execute(select(schema.tally))))

    with store.writing() as connection:
        before = tallied(connection)
        recount(connection, connection.scalars(select(schema.configuration.c.id)).all())
        must(tallied(connection) == before, "visits are counted wrongly")
        if connection.dialect.name == "sqlite":
            for pragma, right in (("integrity_check", [("ok",)]), ("foreign_key_check", [])):
                found = connection.exec_driver_sql(f"PRAGMA {pragma}").all()
                must(found == right, f"{pragma}: {found[:5]}")


def must(holds: bool, otherwise: str) -> None:
    """End with a message where something does not hold."""
    if not holds:
        sys.exit(otherwise)


def measure(fresh: Callable[[int], str], processes: int, seconds: float) -> Counter[str]:
    """Fill a database by many processes and check it; return what was done."""
    db = fresh(0)
    with tempfile.TemporaryDirectory(prefix="opdb-work-") as aside:
        folder = Path(aside)
        first = Place(folder / "first")  # a device has to be there before any can predict for it
        first.folder.mkdir()
        starter = context().Process(target=begin, args=(first, db))
        starter.start()
        starter.join()
        places = [first, *at_once(db, folder, processes, seconds)]
        noted = {key for place in places for key in place.noted()}
        done = check(db, noted)
        done["laps"] = sum(int(p.said.read_text().split()[-2]) for p in places[2:])
    return done


def empty(db: str) -> None:
    """Make a database that holds nothing."""
    with open_store(db):
        pass


def begin(place: Place, db: str) -> None:
    """Harvest and measure the first workload of all."""
    prepare(place)
    opdb.harvest(SHARED, batch_size=1, db=db)
    bench(db, MOST_S)


def main() -> int:
    """Let processes work on one database, and say what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--processes", type=int, default=10, help="that harvest and predict")
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--postgres", metavar="URL", help="a database of a server, to connect to")
    asked = parser.parse_args()
    url = asked.postgres
    with postgres_databases(url, empty) if url else sqlite_databases(empty) as fresh:
        done = measure(fresh, asked.processes, asked.seconds)
    print(
        f"{asked.processes} processes beside a bench: {done['laps']} laps, {done['workloads']} "
        f"workloads, {done['visits']} visits and {done['costs']} costs ({done['energies']} with an "
        "energy) stored; nothing lost"
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
