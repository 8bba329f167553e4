"""Mutation testing: make small faults in opdb's code, one at a time, and see which tests notice.

    python -m benchmarks.mutants opdb/derive --tests tests/derive
    python -m benchmarks.mutants opdb/store --tests tests/store --sample 100 --seed 1

Prints each fault that no test noticed (a survivor) and how many were noticed, and exits with 1
where one survived. It works in a copy of the tracked files, so the checkout stays as it is.

The tests are collected once. A run of them without a fault records which test runs which lines, and
then each fault is made in a process forked from there: the code of the changed function is replaced
in place, and the tests that run its lines are run, those of its own file first, until one fails.
A fault outside functions, or in one that is called at import alone, is imported anew instead, and
all tests may notice it, as any may use what was imported. The changed file is also on disk, for
tests that start processes. Options that are not named below are pytest's: `--noconftest` saves
importing PyTorch where the tests need none, `--deselect` leaves a slow test out.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import gc
import os
import pickle
import random
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import pytest

from benchmarks.mutations import Mutant, mutants

SLOWER, MORE_S = 5.0, 20.0
"""A fault that makes its tests take this many times as long, and so many seconds more, is found."""

USUAL = ["-o", "addopts=", "-p", "no:terminal", "-p", "no:cacheprovider", "-p", "no:xdist"]
"""What pytest is told each time."""

SURVIVED, KILLED, HUNG, NOT_RUN = "survived", "killed", "hung", "not run"


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("paths", nargs="+", type=Path, help="files or folders to make faults in")
    parser.add_argument("--tests", nargs="+", required=True, help="tests that may notice")
    parser.add_argument("--sample", type=int, help="only so many faults, drawn at random")
    parser.add_argument("--seed", type=int, default=1, help="what the sample is drawn with")
    parser.add_argument("--only", help="only faults of lines FILE:LINE,FILE:LINE, as printed")
    parser.add_argument("--times", action="store_true", help="print every fault, with its time")
    parser.add_argument(
        "--processes",
        action="store_true",
        help="the tests start processes: run all of them where none is seen to run a fault's lines",
    )
    asked, options = parser.parse_known_args(arguments)  # the others are pytest's
    with tempfile.TemporaryDirectory() as aside:
        root = Path(aside) / "tree"
        _copy(root)
        os.chdir(root)
        sys.path.insert(0, str(root))
        os.environ |= {
            "PYTHONPATH": str(root),
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_NUM_THREADS": "1",
        }
        sys.dont_write_bytecode = True
        _forget({Path(path.parts[0]).stem for path in asked.paths})
        made = _chosen(asked)
        start_s = time.monotonic()
        outcomes = _Runner(asked, options, made).run()
    counts = {word: outcomes.count(word) for word in (KILLED, HUNG, SURVIVED, NOT_RUN)}
    found = counts[KILLED] + counts[HUNG]
    print(
        f"{len(made)} faults in {time.monotonic() - start_s:.0f} s: "
        + ", ".join(f"{n} {word}" for word, n in counts.items())
        + f"; {100 * found / max(len(made), 1):.1f} % noticed"
    )
    return 0 if found == len(made) else 1


def _copy(root: Path) -> None:
    """Copy what git tracks, and what it would, as it is in the checkout now."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    root.mkdir()
    names = subprocess.run(listing, check=True, capture_output=True).stdout
    existing = b"\0".join(n for n in names.split(b"\0") if n and Path(os.fsdecode(n)).exists())
    packed = subprocess.run(
        ["tar", "c", "--null", "-T", "-"], input=existing, check=True, capture_output=True
    ).stdout
    subprocess.run(["tar", "x", "-C", str(root)], input=packed, check=True)


def _forget(packages: set[str]) -> None:
    """Have packages imported anew, from the copy: this tool's own imports are the checkout's."""
    for name in [each for each in sys.modules if each.partition(".")[0] in packages]:
        del sys.modules[name]


def _chosen(asked: argparse.Namespace) -> list[Mutant]:
    files = [
        file
        for path in asked.paths
        for file in (sorted(path.rglob("*.py")) if path.is_dir() else [path])
    ]
    made = [mutant for file in files for mutant in mutants(file)]
    if asked.only:
        wanted = set(asked.only.split(","))
        made = [each for each in made if f"{each.path}:{each.line}" in wanted]
    if asked.sample is not None:  # in random order, so that a run cut short is a sample too
        made = random.Random(asked.seed).sample(made, min(asked.sample, len(made)))
    return made


class _Runner:
    """Makes the faults: a pytest plugin for the tests' collection, in a process of its own."""

    def __init__(
        self, asked: argparse.Namespace, options: Sequence[str], made: Sequence[Mutant]
    ) -> None:
        self.tests, self.options = asked.tests, [*USUAL, *options]
        self.made, self.tells_all, self.starts = made, asked.times, asked.processes
        self.codes: dict[str, list[FunctionType]] = {}

    def run(self) -> list[str]:
        """Return what came of each fault."""
        if "--noconftest" not in self.options:
            import torch  # noqa: F401 - loaded once, for each process forked from here
        _, answer = _forked(self._collected, None)
        if answer is None or answer[0] != 0:
            sys.exit("the tests fail without a fault")
        outcomes: list[str] = answer[1]
        tests_of: dict[int, tuple[list[str], float]] = answer[2]
        for index, outcome in enumerate(outcomes):
            if outcome == NOT_RUN:
                start_s = time.monotonic()
                names, seconds = tests_of[index]
                outcomes[index] = self._imported_anew(self.made[index], names, seconds)
                self._tell(index, outcomes[index], start_s)
        return outcomes

    def _tell(self, index: int, outcome: str, start_s: float) -> None:
        if outcome == SURVIVED or self.tells_all:
            took = f" ({time.monotonic() - start_s:.1f} s)" if self.tells_all else ""
            print(f"{outcome}{took}: {self.made[index]}", flush=True)

    # In the process that collects the tests

    def _collected(self) -> tuple[int, list[str], dict[int, tuple[list[str], float]]]:
        self.outcomes = [NOT_RUN] * len(self.made)
        self.tests_of: dict[int, tuple[list[str], float]] = {}
        self.paths = {str(each.path.resolve()) for each in self.made}
        self.imported: list[dict[str, set[int]]] = [{}]
        sys.settrace(_tracer(self.imported, self.paths))
        status = pytest.main([*self.options, *self.tests], plugins=[self])
        return int(status), self.outcomes, self.tests_of

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run the tests once as they are, and then once for each fault that needs no import."""
        sys.settrace(None)
        for each in gc.get_objects():
            if isinstance(each, FunctionType) and each.__code__.co_filename in self.paths:
                self.codes.setdefault(each.__code__.co_filename, []).append(each)
        gc.collect()
        gc.freeze()  # or each process forked from here would look at all of it, and copy it
        _, seen = _forked(lambda: _looked_at(session.items, self.paths), None)
        if seen is None:
            session.testsfailed = 1
            return True
        lines, seconds = seen
        for index, mutant in enumerate(self.made):
            start_s = time.monotonic()
            order = _order(mutant, session.items, lines, seconds)
            ran_at_import = self.imported[0].get(_file(mutant), set())
            anew = mutant.function is None if order else not ran_at_import.isdisjoint(mutant.lines)
            if anew:
                order = _order(mutant, session.items, lines, seconds, imported=True)
            if not order and self.starts:
                order = sorted(range(len(session.items)), key=seconds.__getitem__)
            total_s = sum(seconds[i] for i in order)
            if not order:
                self.outcomes[index] = SURVIVED
                self._tell(index, SURVIVED, start_s)
            elif anew or (replaced := self._replaced(mutant)) is None:
                self.tests_of[index] = [session.items[i].nodeid for i in order], total_s
            else:
                items = [session.items[i] for i in order]
                self.outcomes[index] = self._of(mutant, _Replacing(replaced, items), total_s)
                self._tell(index, self.outcomes[index], start_s)
        return True

    def _of(self, mutant: Mutant, work: Callable[[], bool], usual_s: float) -> str:
        with _on_disk(mutant):
            hung, noticed = _forked(work, SLOWER * usual_s + MORE_S)
        return HUNG if hung else KILLED if noticed is None or noticed else SURVIVED

    def _imported_anew(self, mutant: Mutant, names: Sequence[str], usual_s: float) -> str:
        arguments = [*self.options, "-x", *names]
        return self._of(mutant, lambda: pytest.main(arguments) != 0, usual_s)

    def _replaced(self, mutant: Mutant) -> list[tuple[FunctionType, CodeType]] | None:
        """Return each function that the fault changes with its new code; None to import anew."""
        if mutant.function is None:
            return None
        path = _file(mutant)
        code = _named(compile(mutant.tree(), path, "exec"), *mutant.function)
        found = [
            each
            for each in self.codes.get(path, ())
            if (each.__code__.co_qualname, each.__code__.co_firstlineno) == mutant.function
        ]
        if code is None or not found:
            return None
        if any(each.__code__.co_freevars != code.co_freevars for each in found):
            return None
        return [(each, code) for each in found]


class _Replacing:
    """Replaces code, then runs tests until one fails; whether one did."""

    def __init__(
        self, replaced: Sequence[tuple[FunctionType, CodeType]], items: Sequence[pytest.Item]
    ) -> None:
        self.replaced, self.items = replaced, items

    def __call__(self) -> bool:
        for function, code in self.replaced:
            function.__code__ = code
        for item in self.items:
            following = None  # so that each test's fixtures are closed before the next
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if item.session.testsfailed:
                return True
        return False


def _named(code: CodeType, name: str, line: int) -> CodeType | None:
    """Return the code of a function by its qualified name and first line."""
    for each in code.co_consts:
        if isinstance(each, CodeType):
            if (each.co_qualname, each.co_firstlineno) == (name, line):
                return each
            if (found := _named(each, name, line)) is not None:
                return found
    return None


def _looked_at(
    items: Sequence[pytest.Item], paths: set[str]
) -> tuple[list[dict[str, set[int]]], list[float]] | None:
    """Run all tests; return which lines of which file each ran, and its seconds; None: one failed.

    What a fixture that tests share runs counts for the first of them alone.
    """
    lines: list[dict[str, set[int]]] = []
    seconds = []

    trace = _tracer(lines, paths)
    for index, item in enumerate(items):
        lines.append({})
        start_s = time.monotonic()
        threading.settrace(trace)
        sys.settrace(trace)
        after = items[index + 1] if index + 1 < len(items) else None
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
        sys.settrace(None)
        threading.settrace(None)
        seconds.append(time.monotonic() - start_s)
        if item.session.testsfailed:
            print(f"failed: {item.nodeid}", flush=True)
            return None
    return lines, seconds


def _tracer(lines: Sequence[dict[str, set[int]]], paths: set[str]) -> Callable[..., Any]:
    """Return a trace function that adds the lines that run, by file, to the last of `lines`."""

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename not in paths:
            return None
        ran = lines[-1].setdefault(frame.f_code.co_filename, set())

        def trace_line(inner: FrameType, *_: Any) -> Any:
            ran.add(inner.f_lineno)
            return trace_line

        ran.add(frame.f_lineno)
        return trace_line

    return trace


def _order(
    mutant: Mutant,
    items: Sequence[pytest.Item],
    lines: Sequence[dict[str, set[int]]],
    seconds: Sequence[float],
    *,
    imported: bool = False,
) -> list[int]:
    """Return the tests that run a fault's lines, its own file's first, the quick ones first.

    Of a fault that an import runs, all tests: any may use what was imported. First come those that
    run any line of its file.
    """
    path = _file(mutant)
    whole_file = imported or mutant.function is None
    ran = [path in seen and (whole_file or bool(seen[path] & set(mutant.lines))) for seen in lines]
    own = f"test_{mutant.path.stem}.py"
    found = [index for index in range(len(items)) if imported or ran[index]]
    return sorted(found, key=lambda i: (not ran[i], items[i].path.name != own, seconds[i]))


def _file(mutant: Mutant) -> str:
    return str(mutant.path.resolve())


@contextlib.contextmanager
def _on_disk(mutant: Mutant) -> Any:
    """Have the fault in the file as well, for processes that tests start."""
    before, stat = mutant.path.read_text(), mutant.path.stat()
    try:
        mutant.path.write_text(ast.unparse(mutant.tree()))
        yield
    finally:
        mutant.path.write_text(before)
        os.utime(mutant.path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def _forked(work: Callable[[], Any], limit_s: float | None) -> tuple[bool, Any]:
    """Do work in a fork, silently; return whether it took too long, and its answer or None."""
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder) / "answer"
        if (process := os.fork()) == 0:
            _answer(work, told, silent=limit_s is not None)
        ended = os.pidfd_open(process)
        in_time, _, _ = select.select([ended], [], [], limit_s)
        os.close(ended)
        if not in_time:
            os.killpg(process, signal.SIGKILL)
            os.waitpid(process, 0)
            return True, None
        os.waitpid(process, 0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process, signal.SIGKILL)  # what a test left behind
        return False, pickle.loads(told.read_bytes()) if told.exists() else None


def _answer(work: Callable[[], Any], told: Path, *, silent: bool) -> None:
    """In the fork: do the work, leave the answer in a file, and end."""
    try:
        os.setpgid(0, 0)
        if silent:
            nothing = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(nothing, stream)
        answer = work()
        aside = told.with_suffix(".part")
        aside.write_bytes(pickle.dumps(answer))
        aside.rename(told)
    finally:
        os._exit(0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
