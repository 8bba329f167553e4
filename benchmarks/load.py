"""Whether many processes may use one database at once: none fails, hangs or loses anything.

    python benchmarks/load.py --processes 10 --seconds 120
    python benchmarks/load.py --seconds 120 --postgres postgresql+psycopg://me@/postgres?host=/run

Each of the processes harvests a model in a batch size of its own and predicts a published one,
again and again, while one more benches everything that is pending, on the processor with the
windows of a visit shortened. At the end all that was harvested must be stored and have costs, these
must be what the visits give, and nobody hold a claim. Exit status 1 where that is not so.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
import traceback
from pathlib import Path

import opdb
from benchmarks.kills import context, shorten
from benchmarks.soak import on, postgres_databases, sqlite_databases
from opdb.store import open_store
from opdb.store.claims import held
from opdb.store.deriving import derived

MODEL = "mlp"
FIRST_SIZE = 17
"""The smallest batch size that the processes harvest."""


def ask(db: str, number: int, processes: int, until_s: float, report: Path) -> None:
    """Harvest and predict until the time is up; write what was done, how long each took, and why
    it ended early."""
    taken: dict[str, list[float]] = {"harvest": [], "predict": []}
    keys, failure, size = [], None, FIRST_SIZE + number
    try:
        conditions = on(db, "cuda")
        while time.monotonic() < until_s:
            begun_s = time.monotonic()
            found = opdb.harvest(MODEL, batch_size=size, db=db)
            keys += [workload.key for workload in found.workloads]
            harvested_s = time.monotonic()
            assert opdb.predict("resnet152", batch_size=32, conditions=conditions, db=db).time_s
            taken["harvest"].append(harvested_s - begun_s)
            taken["predict"].append(time.monotonic() - harvested_s)
            size += processes
    except Exception:  # noqa: BLE001  whatever it is, it is told
        failure = traceback.format_exc()
    report.write_text(json.dumps({"taken": taken, "keys": keys, "failure": failure}))


def bench(db: str, until_s: float, report: Path) -> None:
    """Bench what is pending until the time is up and nothing is pending any more."""
    shorten()
    visits, failure = 0, None
    try:
        while True:
            last = time.monotonic() >= until_s
            asked = opdb.BenchOptions(device="cpu", rounds=1, duplicates=0.0)
            made = sum(r.outcomes.total() for r in opdb.bench(options=asked, db=db).results)
            visits += made
            if last and not made:
                break
            time.sleep(0.2)
    except Exception:  # noqa: BLE001
        failure = traceback.format_exc()
    report.write_text(json.dumps({"visits": visits, "failure": failure}))


def load(db: str, processes: int, seconds: float) -> tuple[list[str], str]:
    """Let processes use a database at once; return what went wrong, and a line on what they did."""
    faults = []
    with tempfile.TemporaryDirectory() as folder:
        reports = [Path(folder, str(number)) for number in range(processes)]
        started = context().Process(target=int)
        started.start()
        started.join()
        until_s = time.monotonic() + seconds
        asking = [
            context().Process(target=ask, args=(db, number, processes, until_s, report))
            for number, report in enumerate(reports)
        ]
        benching = context().Process(target=bench, args=(db, until_s, Path(folder, "bench")))
        for process in (*asking, benching):
            process.start()
        for process in (*asking, benching):
            process.join(timeout=10 * seconds + 600)
            if process.exitcode != 0:
                process.kill()
                faults.append(f"a process ended with {process.exitcode}")
        found = [json.loads(report.read_text()) for report in reports if report.exists()]
        benched = json.loads(Path(folder, "bench").read_text())
    faults += [each["failure"] for each in (*found, benched) if each["failure"]]
    faults += lost(db, {key for each in found for key in each["keys"]})
    said = [f"{processes} processes in {seconds:g} s", f"{benched['visits']} visits benched"]
    for what in ("harvest", "predict"):
        took = [s for each in found for s in each["taken"][what]] or [0.0]
        middle = f"median {statistics.median(took):.2f} s, longest {max(took):.2f} s"
        said.append(f"{len(took)} times {what} ({middle})")
    return faults, "; ".join(said)


def lost(db: str, keys: set[str]) -> list[str]:
    """Say what is not there, not once or not right."""
    faults = []
    with open_store(db) as store:
        if gone := keys - {workload.key for workload in store.workloads()}:
            faults.append(f"{len(gone)} harvested workloads are not stored")
        [board] = [each for each in store.boards() if each.uuid.startswith("CPU-")]
        wanted = {c.key for w in store.workloads_by_key(list(keys)) for c in w.occurrences()}
        if missing := wanted - store.costs(board.uuid).keys():
            faults.append(f"{len(missing)} of {len(wanted)} configurations have no cost")
        if not derived(store, board.uuid).is_as_stored:
            faults.append("costs are not what the visits give")
        if held(store):
            faults.append("claims are left")
    return faults


def main() -> int:
    """Put a load on a database, and say what came of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--processes", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--postgres", metavar="URL", help="a database of a server, to connect to")
    asked = parser.parse_args()
    databases = postgres_databases(asked.postgres) if asked.postgres else sqlite_databases()
    with databases as fresh:
        faults, said = load(fresh(0), asked.processes, asked.seconds)
    print(f"{said}; {len(faults)} faults")
    for fault in faults:
        print(fault, file=sys.stderr)
    return int(bool(faults))


if __name__ == "__main__":
    raise SystemExit(main())
