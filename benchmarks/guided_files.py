"""Read files that atheris makes up, guided by what of opdb each reaches: none may crash a reader.

    pip install atheris
    python -m benchmarks.guided_files SECONDS [SEED [READER …]]

Each reader of `tests/hostile/readers.py` gets a share of the seconds in a process of its own. A
file that reaches a branch of opdb or of its YAML parser that none has reached is kept and changed
again: half of the changes are those of `tests/hostile/mutation.py`, half are libFuzzer's. Printed
is what `benchmarks/hostile_files.py` prints; the exit status is 1 where a reader failed. A file
that kills the process, or that is not read within `HANG_S`, is left in the working folder.
"""

from __future__ import annotations

import os
import random
import sys
import time
from pathlib import Path

import atheris

PACKAGES = ["opdb", "yaml"]

with atheris.instrument_imports(include=PACKAGES):
    from benchmarks.hostile_files import Tally, each_reader, read_seeds
    from tests.hostile.mutation import drawn, edited
    from tests.hostile.readers import Reader

HANG_S = 60
LONGEST = 20_000
"""Bytes of the longest file; the longest seed is of this size."""


def forked(name: str, reader: Reader, folder: Path, seconds: float, seed: int) -> int:
    """Guide a reader in a process of its own; return how that ended, 0 where nothing failed."""
    if child := os.fork():
        return os.waitpid(child, 0)[1]
    try:
        guide(Tally(name, reader, folder, seed), seconds)
    finally:
        os._exit(2)  # atheris ends the process itself


def guide(tally: Tally, seconds: float) -> None:
    """Read files for some seconds, say what came of them, and end the process."""
    reader, until_s = tally.reader, time.monotonic() + seconds
    with atheris.instrument_imports(include=PACKAGES):
        read_seeds(reader, tally.folder)
    corpus = tally.folder / "corpus" / tally.name
    corpus.mkdir(parents=True)
    for number, text in enumerate(reader.seeds()):
        (corpus / str(number)).write_text(text)

    def read(content: bytes) -> None:
        tally.read(content)
        if time.monotonic() >= until_s:
            os._exit(min(tally.report(), 1))

    def changed(content: bytes, most: int, seed: int) -> bytes:
        chance = random.Random(seed)
        if chance.random() < 0.5:
            return bytes(atheris.Mutate(content, most))
        text = content.decode("utf-8", "surrogateescape")
        return edited(text, drawn(chance), reader.words)[:most]

    options = {"seed": tally.seed, "max_len": LONGEST, "timeout": HANG_S, "rss_limit_mb": 0}
    atheris.Setup(
        [sys.argv[0], *(f"-{name}={value}" for name, value in options.items()), str(corpus)],
        read,
        custom_mutator=changed,
    )
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(each_reader(sys.argv[1:], forked))
