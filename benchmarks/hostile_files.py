"""Read mutated files for a time: every reader of a stranger's file, message or answer, no crash.

    python -m benchmarks.hostile_files SECONDS [SEED [READER …]]

Prints, for each reader, how many files it read, how many it accepted, the slowest read, and each
distinct internal error with the file that shows it (kept in the working folder). Exits with 1 where
there was one. Several processes with different seeds read different files.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path

from opdb.errors import OpdbError
from tests.hostile.mutation import drawn, edited
from tests.hostile.readers import READERS, Reader, set_readers
from tests.store.small_set import write_small_set

MOST_S = 10.0
"""A read that takes longer counts as a hang."""


def main(arguments: list[str]) -> int:
    seconds, seed = float(arguments[0]), int(arguments[1]) if len(arguments) > 1 else 1
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as aside:
        folder = Path(aside)
        readers = dict(READERS)
        if not arguments[2:] or any(name.startswith("set/") for name in arguments[2:]):
            write_small_set(folder / "set")
            readers |= set_readers(folder / "set")
        names = [n for n in readers if not arguments[2:] or n in arguments[2:]]
        failures = sum(
            fuzz(name, readers[name], folder, seconds / len(names), seed) for name in names
        )
    return 1 if failures else 0


def fuzz(name: str, reader: Reader, folder: Path, seconds: float, seed: int) -> int:
    """Read mutated files for some seconds, say what came of them; return the distinct errors."""
    chance, seeds = random.Random(f"{seed} {name}"), reader.seeds()
    path = folder / f"given{reader.ending}"
    came, slowest_s, errors = Counter[str](), 0.0, dict[str, bytes]()
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        content = edited(chance.choice(seeds), drawn(chance), reader.words)
        path.write_bytes(content)
        start_s = time.monotonic()
        try:
            reader.read(path)
            came["accepted"] += 1
        except OpdbError:
            came["refused"] += 1
        except Exception as error:  # noqa: BLE001 - what none may raise is what is looked for
            came["failed"] += 1
            last = traceback.extract_tb(error.__traceback__)
            ours = next((f for f in reversed(last) if "/opdb/" in f.filename), last[-1])
            where = f"{type(error).__name__} at {Path(ours.filename).name}:{ours.lineno}"
            if where not in errors or len(content) < len(errors[where]):
                errors[where] = content
        took_s = time.monotonic() - start_s
        slowest_s = max(slowest_s, took_s)
        if took_s > MOST_S:
            errors[f"slower than {MOST_S:g} s"] = content
    print(
        f"{name}: {came.total()} read, {came['accepted']} accepted, {came['refused']} refused, "
        f"{came['failed']} failed, slowest {slowest_s:.2f} s",
        flush=True,
    )
    for number, (where, content) in enumerate(errors.items()):
        kept = Path(f"hostile-{name.replace('/', '-')}-{seed}-{number}{reader.ending}")
        kept.write_bytes(content)
        print(f"  {where}: {kept}", flush=True)
    return len(errors)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
