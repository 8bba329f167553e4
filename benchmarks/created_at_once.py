"""How often several processes fail that create one database at once: none may.

    python benchmarks/created_at_once.py --rounds 100 --processes 8

Each round is a new file. All processes have imported what they need, and begin together; each opens
the database and saves a workload's operator in it. Exit status 1 where one failed.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
from multiprocessing.synchronize import Barrier
from pathlib import Path

from opdb.records import Configuration
from opdb.store import open_store

PROCESSES, ROUNDS = 8, 100


def create(path: Path, number: int, together: Barrier) -> None:
    """Open a database that does not exist yet, and save something of one's own."""
    of_own = {"input": {"shape": [number + 1], "dtype": "float32"}}
    together.wait()
    with open_store(str(path)) as store:
        store.save_configurations([Configuration("relu", {}, of_own)])


def failures(path: Path, processes: int) -> int:
    """Let processes create one database at once; return how many of them failed."""
    context = multiprocessing.get_context("fork")
    together = context.Barrier(processes)
    started = [
        context.Process(target=create, args=(path, number, together)) for number in range(processes)
    ]
    for process in started:
        process.start()
    for process in started:
        process.join()
    return sum(process.exitcode != 0 for process in started)


def main() -> int:
    """Create databases, round after round, and say how many processes failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--processes", type=int, default=PROCESSES)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        failed = [
            failures(Path(folder) / f"{number}.sqlite", asked.processes)
            for number in range(asked.rounds)
        ]
    rounds = sum(map(bool, failed))
    print(f"{asked.rounds} rounds of {asked.processes} processes: {rounds} rounds failed")
    return int(rounds > 0)


if __name__ == "__main__":
    raise SystemExit(main())
