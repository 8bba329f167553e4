"""Overwrite bytes of a copy of the working database, and see what commands make of it.

    python -m benchmarks.damaged_bytes --damages 2000

Each damage is one byte, or one page of 4 KiB (of random bytes, of zeros, or of another place of
the file), at a random place. Then each of `COMMANDS` runs in this process: it must say what it says
of the undamaged database, or end in a message. The damage is taken back before the next. Printed
are how many answers were the same, how many ended in a message, and every other; the exit status
is 1 where there was one. `--seed N` draws other damages, `--no-seals` ignores the checksum of the
file (`opdb.store.seal`), to see what would come of it.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import random
import shlex
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from opdb.cli import main as opdb
from opdb.store import open_store, seal

COMMANDS = (
    "status --json",
    "predict resnet50 -b 32 --json",
    "show conv2d --json",
    "validate --json",
    "derive --check --json",
)
PAGE_BYTES = 4096
KINDS = ("byte", "byte", "byte", "random page", "zeros", "other page")

Answer = tuple[int, str]
"""Exit status and standard output."""


@dataclass(frozen=True)
class Damage:
    """Bytes put in place of those at an offset of a file."""

    kind: str
    offset: int
    before: bytes
    after: bytes


def drawn(chance: random.Random, content: bytes) -> Damage:
    """Return a damage that changes at least one byte."""
    while True:
        kind = chance.choice(KINDS)
        size = 1 if kind == "byte" else PAGE_BYTES
        offset = chance.randrange(len(content) - size + 1)
        other = chance.randrange(len(content) - size + 1)
        before = content[offset : offset + size]
        after = {
            "zeros": bytes(size),
            "other page": content[other : other + size],
        }.get(kind) or chance.randbytes(size)
        if after != before:
            return Damage(kind, offset, before, after)


def answer(command: str, database: Path) -> tuple[Answer, str]:
    """Run a command on a database in this process; returns its answer and its messages."""
    said, messages = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(messages):
        status = opdb([*shlex.split(command), "--quiet", "--db", str(database)])
    return (status, said.getvalue()), messages.getvalue()


@contextlib.contextmanager
def damaged(database: Path, content: bytes, damage: Damage) -> Iterator[None]:
    """Damage a file in such a block, and make it what it was afterwards."""
    write(database, damage.offset, damage.after)
    try:
        yield
    finally:
        write(database, damage.offset, damage.before)
        if database.stat().st_size != len(content) or database.read_bytes() != content:
            database.write_bytes(content)
        database.with_name(database.name + "-wal").unlink(missing_ok=True)
        database.with_name(database.name + "-shm").unlink(missing_ok=True)


def write(database: Path, offset: int, content: bytes) -> None:
    """Write bytes into the middle of a file."""
    with database.open("r+b") as stream:
        stream.seek(offset)
        stream.write(content)


def judged(right: Answer, found: Answer, message: str) -> str:
    """Say what came of a command: "same", "error", or "other"."""
    if found == right:
        return "same"
    told = found[0] == 2 and message.startswith("opdb: ") and "Traceback" not in message
    return "error" if told and not found[1] else "other"


def measure(
    database: Path, commands: Sequence[str], damages: int, seed: int
) -> tuple[Counter[tuple[str, str]], list[str]]:
    """Damage a database many times; returns outcomes by kind of damage, and every other answer."""
    content, chance = database.read_bytes(), random.Random(seed)
    right = {command: answer(command, database)[0] for command in commands}
    came, others = Counter[tuple[str, str]](), list[str]()
    for number in range(damages):
        damage = drawn(chance, content)
        with damaged(database, content, damage):
            for command in commands:
                found, message = answer(command, database)
                outcome = judged(right[command], found, message)
                came[damage.kind, outcome] += 1
                if outcome == "other":
                    last = message.strip().splitlines()[-1:] or [f"status {found[0]}"]
                    others.append(f"{damage.kind} at {damage.offset}: {command}: {last[0][:200]}")
                    print(f"  {number}: {others[-1]}", file=sys.stderr, flush=True)
    return came, others


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the experiment; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--damages", type=int, default=2000, metavar="N")
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    parser.add_argument("--database", type=Path, help="default: the working database")
    parser.add_argument("--command", action="append", help="instead of all; may be repeated")
    parser.add_argument("--no-seals", action="store_true")
    options = parser.parse_args(arguments)
    if options.no_seals:
        seal.LARGEST_BYTES = -1
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, "opdb.sqlite")
        with open_store(options.database and str(options.database), create=False) as store:
            assert store.path is not None, "give an SQLite file"
            path = store.path
        shutil.copyfile(path, copy)
        commands = options.command or COMMANDS
        came, others = measure(copy, commands, options.damages, options.seed)
    for kind in dict.fromkeys(KINDS):
        found = {outcome: came[kind, outcome] for outcome in ("same", "error", "other")}
        print(f"{kind}: " + ", ".join(f"{count} {outcome}" for outcome, count in found.items()))
    print(f"{options.damages} damages, {came.total()} commands, {len(others)} other answers")
    return 1 if others else 0


if __name__ == "__main__":
    sys.exit(main())
