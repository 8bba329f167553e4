"""Whether a process that works for hours grows: memory, open files and threads over time.

    python -m benchmarks.soak --seconds 3600
    python -m benchmarks.soak --seconds 3600 --postgres postgresql+psycopg://me@/postgres?host=/run

One process harvests, benches (on the processor, with the windows of a visit shortened) and predicts
in turn, `LAP` batch sizes on one database. Then it goes on with a fresh one that holds the
published set again, for a database that grows may take more memory. Printed is a line a minute, and
at the end the memory of the last minutes over that of the minutes after `SETTLED_S`. Exit status 1
where it is over `GROWTH`, or where more files or threads are open than there were.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import opdb
from benchmarks import new_file
from benchmarks.at_scale import DEVICE, ROOT
from opdb.bench import calibrate, visit
from opdb.store import open_store
from opdb.store.exchange import import_set

LAP = 16
SETTLED_S = 300.0
COMPARED_S = 120.0
"""How long the two stretches are whose memory is compared; a tenth of a shorter soak."""

GROWTH = 1.05
MODELS = ("mlp", "lstm")
SHORT = ((visit, "SETTLE_S", 0.005), (visit, "WINDOW_S", 0.03), (calibrate, "BASE_WINDOW_S", 0.02))


@dataclass(frozen=True)
class Sample:
    """What the process held at a moment, in seconds since it began to loop.

    Its memory without mapped files: pages of libraries come and go as the machine needs room.
    """

    at_s: float
    laps: int
    memory_bytes: int
    files: int
    threads: int

    @classmethod
    def now(cls, since_s: float, laps: int) -> Sample:
        lines = Path("/proc/self/status").read_text().splitlines()
        said = dict(line.split(":", 1) for line in lines)
        memory = 1024 * int(said["RssAnon"].split()[0])
        files = len(list(Path("/proc/self/fd").iterdir()))
        threads = len(list(Path("/proc/self/task").iterdir()))
        return cls(time.monotonic() - since_s, laps, memory, files, threads)

    def __str__(self) -> str:
        megabytes = self.memory_bytes / 1e6
        return (
            f"{self.at_s:6.0f} s  lap {self.laps:4}  {megabytes:8.1f} MB  "
            f"{self.files} files  {self.threads} threads"
        )


def work(db: str, batch_size: int) -> None:
    """Harvest, measure and predict one size of each model, and predict a published one."""
    for model in MODELS:
        opdb.harvest(model, batch_size=batch_size, db=db)
        options = opdb.BenchOptions(device="cpu", rounds=1)
        opdb.bench(model=model, batch_size=batch_size, options=options, db=db)
        found = opdb.predict(model, batch_size=batch_size, conditions=on(db, "cpu"), db=db)
        assert found.prediction.coverage_calls == 1
    conditions = on(db, "cuda")
    assert opdb.predict("resnet152", batch_size=32, conditions=conditions, db=db).time_s
    opdb.status(db=db)


def on(db: str, kind: str) -> opdb.Conditions:
    """Return that predictions are for the one device of a kind in a database."""
    with open_store(db) as store:
        [slug] = [device.slug for device in store.devices() if device.type == kind]
    return opdb.Conditions(device=slug)


@contextmanager
def sqlite_databases(fill: Callable[[str], None]) -> Iterator[Callable[[int], str]]:
    """Yield what makes the database of a lap, filled as the first is, and drops the last."""
    with tempfile.TemporaryDirectory(prefix="opdb-soak-") as folder:
        template = Path(folder) / "template.sqlite"
        fill(str(template))

        def fresh(lap: int) -> str:
            for old in Path(folder).glob("lap-*"):
                old.unlink()
            return str(shutil.copy(template, Path(folder) / f"lap-{lap}.sqlite"))

        yield fresh


@contextmanager
def postgres_databases(url: str, fill: Callable[[str], None]) -> Iterator[Callable[[int], str]]:
    """As `sqlite_databases`, on the server of a URL: databases that begin with `opdb_soak_`."""
    import psycopg

    ours = f"opdb_soak_{os.getpid()}"

    place, _, query = url.partition("?")
    server = place.rpartition("/")[0]

    def run(statement: str) -> None:
        with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
            connection.execute(statement)

    def named(name: str) -> str:
        return f"{server}/{name}?{query}"

    run(f"CREATE DATABASE {ours}_template")
    lap_made = None
    try:
        fill(named(f"{ours}_template"))

        def fresh(lap: int) -> str:
            nonlocal lap_made
            if lap_made is not None:
                run(f"DROP DATABASE {ours}_{lap_made}")
            run(f"CREATE DATABASE {ours}_{lap} TEMPLATE {ours}_template")
            lap_made = lap
            return named(f"{ours}_{lap}")

        yield fresh
    finally:
        for name in ("template",) if lap_made is None else ("template", lap_made):
            run(f"DROP DATABASE {ours}_{name}")


def publish(db: str) -> None:
    with open_store(db) as store:
        import_set(store, ROOT / "db" / DEVICE)


def soak(fresh: Callable[[int], str], seconds: float, every_s: float) -> list[Sample]:
    """Work until the time is up; return what was held, a sample every so many seconds."""
    samples: list[Sample] = []
    began_s, done = time.monotonic(), 0
    while not samples or samples[-1].at_s < seconds:
        if done % LAP == 0:
            db = fresh(done // LAP)
        work(db, done % LAP + 1)
        done += 1
        if not samples or time.monotonic() - began_s - samples[-1].at_s >= every_s:
            samples.append(Sample.now(began_s, done // LAP))
            print(samples[-1], file=sys.stderr, flush=True)
    return samples


def judged(samples: list[Sample]) -> dict[str, float]:
    """Return the median memory of the two stretches, their ratio, and what more is open."""
    end_s = samples[-1].at_s
    begin_s, long_s = min(SETTLED_S, end_s / 2), min(COMPARED_S, end_s / 10)
    early = [each for each in samples if begin_s <= each.at_s <= begin_s + long_s]
    early = early or [each for each in samples if each.at_s >= begin_s][:1]
    late = [each for each in samples if each.at_s >= end_s - long_s]
    first, last = (statistics.median(e.memory_bytes for e in part) for part in (early, late))
    return {
        "early_bytes": first,
        "late_bytes": last,
        "growth": last / first,
        "more_files": late[-1].files - early[0].files,
        "more_threads": late[-1].threads - early[0].threads,
    }


def main() -> int:
    """Soak, and say whether what is held grew."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--every", type=float, default=10.0, metavar="SECONDS")
    parser.add_argument("--postgres", metavar="URL", help="a database of a server, to connect to")
    parser.add_argument("--json", type=new_file, metavar="FILE", help="write all samples there")
    asked = parser.parse_args()
    for module, name, value in SHORT:
        setattr(module, name, value)
    url = asked.postgres
    with postgres_databases(url, publish) if url else sqlite_databases(publish) as fresh:
        samples = soak(fresh, asked.seconds, asked.every)
    found = judged(samples)
    if asked.json:
        asked.json.write_text(json.dumps({**found, "samples": [asdict(s) for s in samples]}))
    print(
        f"{found['early_bytes'] / 1e6:.1f} MB, {found['late_bytes'] / 1e6:.1f} MB at the end: "
        f"{found['growth']:.3f} times; {found['more_files']} files, {found['more_threads']} "
        "threads more"
    )
    grown = found["growth"] > GROWTH or found["more_files"] > 0 or found["more_threads"] > 0
    return int(grown)


if __name__ == "__main__":
    raise SystemExit(main())
