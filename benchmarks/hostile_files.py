"""Read mutated files for a time: every reader of a stranger's file, message or answer, no crash.

    python -m benchmarks.hostile_files SECONDS [SEED [READER …]]

Prints, for each reader, how many files it read, how many it accepted, the slowest read, and each
distinct internal error with the file that shows it (kept in the working folder). Exits with 1 where
there was one. Several processes with different seeds read different files.
`benchmarks/guided_files.py` makes files up by what they reach.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from opdb.errors import OpdbError
from tests.hostile.mutation import drawn, edited
from tests.hostile.readers import READERS, Reader, set_readers
from tests.store.small_set import write_small_set

MOST_S = 10.0
"""A read that takes longer, in seconds of the processor, counts as a hang."""


Fuzz = Callable[[str, Reader, Path, float, int], int]
"""Reads for a reader of a name, in a folder, for seconds, from a seed; 0 where nothing failed."""


def main(arguments: list[str]) -> int:
    return each_reader(arguments, fuzz)


def each_reader(arguments: list[str], read: Fuzz) -> int:
    """Give each reader of the command line its share of the seconds; return the exit status."""
    seconds, seed = float(arguments[0]), int(arguments[1]) if len(arguments) > 1 else 1
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as aside:
        folder = Path(aside)
        readers = dict(READERS)
        if not arguments[2:] or any(name.startswith("set/") for name in arguments[2:]):
            write_small_set(folder / "set")
            readers |= set_readers(folder / "set")
        names = [n for n in readers if not arguments[2:] or n in arguments[2:]]
        failed = [read(name, readers[name], folder, seconds / len(names), seed) for name in names]
    return 1 if any(failed) else 0


def fuzz(name: str, reader: Reader, folder: Path, seconds: float, seed: int) -> int:
    """Read mutated files for some seconds, say what came of them; return the distinct errors."""
    chance, seeds = random.Random(f"{seed} {name}"), reader.seeds()
    tally = Tally(name, reader, folder, seed)
    read_seeds(reader, folder)
    until_s = time.monotonic() + seconds
    while time.monotonic() < until_s:
        tally.read(edited(chance.choice(seeds), drawn(chance), reader.words))
    return tally.report()


def read_seeds(reader: Reader, folder: Path) -> None:
    """Let a reader import all that it needs, which counts for none of the files."""
    for number, text in enumerate(reader.seeds()):
        path = folder / f"seed-{number}{reader.ending}"
        path.write_text(text)
        reader.read(path)


@dataclass
class Tally:
    """What came of the files that a reader was given, each in turn in a file of a folder.

    `errors` has the shortest file of each distinct internal error.
    """

    name: str
    reader: Reader
    folder: Path
    seed: int
    came: Counter[str] = field(default_factory=Counter)
    errors: dict[str, bytes] = field(default_factory=dict)
    slowest_s: float = 0.0

    def read(self, content: bytes) -> None:
        """Let the reader read a file, and note how that ended."""
        path = self.folder / f"given{self.reader.ending}"
        path.write_bytes(content)
        start_s = time.process_time()
        try:
            self.reader.read(path)
            self.came["accepted"] += 1
        except OpdbError:
            self.came["refused"] += 1
        except Exception as error:  # noqa: BLE001 - what none may raise is what is looked for
            self.came["failed"] += 1
            last = traceback.extract_tb(error.__traceback__)
            ours = next((f for f in reversed(last) if "/opdb/" in f.filename), last[-1])
            self._keep(
                f"{type(error).__name__} at {Path(ours.filename).name}:{ours.lineno}", content
            )
        took_s = time.process_time() - start_s
        self.slowest_s = max(self.slowest_s, took_s)
        if took_s > MOST_S:
            self._keep(f"slower than {MOST_S:g} s", content)

    def _keep(self, where: str, content: bytes) -> None:
        if where not in self.errors or len(content) < len(self.errors[where]):
            self.errors[where] = content

    def report(self) -> int:
        """Print what came of all files, write those that failed; return the distinct errors."""
        came = self.came
        print(
            f"{self.name}: {came.total()} read, {came['accepted']} accepted, "
            f"{came['refused']} refused, {came['failed']} failed, slowest {self.slowest_s:.2f} s",
            flush=True,
        )
        for number, (where, content) in enumerate(self.errors.items()):
            place = f"hostile-{self.name.replace('/', '-')}-{self.seed}-{number}"
            kept = Path(place + self.reader.ending)
            kept.write_bytes(content)
            print(f"  {where}: {kept}", flush=True)
        return len(self.errors)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
