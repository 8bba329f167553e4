"""What needs a GPU is collected only where there is one: a skipped test would look covered."""

from __future__ import annotations

import gc
import itertools
import os
import signal
from collections.abc import Iterator
from pathlib import Path

# Workers of pytest share the cores: threads of several would wait for each other.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# Or each fresh cache of inductor's begins with 7 s of compiling, whether the compiler knows the
# processor's vectors.
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "1")

import pytest
import torch

from opdb.bench import calibrate, model, visit
from opdb.bench import harvests as answered
from tests import postgres, shared
from tests.cli.conftest import database, opdb

__all__ = ["database", "opdb"]

# A shell starts what stands before an `&` deaf to Ctrl-C, and so all that it starts in turn.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Python searches for garbage whenever this many objects more were made than freed: 700, as it is
# set, took up to a tenth of the time, of importing as of reading databases.
gc.set_threshold(20_000)

collect_ignore = [] if torch.cuda.is_available() else ["gpu"]


def pytest_configure() -> None:
    """Say where workers keep their files before there are any, and make the folder they share."""
    shared.temporary_in_memory()
    shared.folder()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test that starts a PostgreSQL server as slow."""
    for item in items:
        if "postgres_server" in getattr(item, "fixturenames", ()):
            item.add_marker("slow")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was left out: a run without it must not look as if it had covered it."""
    if terminalreporter.config.option.markexpr == "not slow":
        told = "slow tests were left out: make check-all runs them, too"
        terminalreporter.write_line(told, yellow=True)
    if collect_ignore:
        files = len(list(Path(__file__).with_name("gpu").glob("test_*.py")))
        told = f"tests/gpu was not collected: {files} files need an NVIDIA GPU"
        terminalreporter.write_line(told, yellow=True)


thaw = gc.unfreeze
THAWED_AFTER = 1000
"""Tests after which all is looked at again, so that nothing is kept for good."""

_tests = itertools.count(1)


@pytest.fixture(scope="session", autouse=True)
def frozen() -> Iterator[None]:
    """Keep frozen what a bench thaws at its end: the next collection would look at all of it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gc, "unfreeze", lambda: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def few_rounds() -> Iterator[None]:
    """Time Python around a model's calls in the fewest rounds: tests harvest hundreds of models."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(answered, "MOST_S", 0.0)
        yield


def pytest_runtest_setup() -> None:
    """Let collecting garbage look at what a test makes alone, not at all that torch's import made.

    A bench collects twice: a third of the time of its tests went into that. To look at everything
    takes 0.45 s once all tests are imported, and nothing measurable where it is frozen.
    """
    if next(_tests) % THAWED_AFTER == 0:
        thaw()
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Iterator[None]:
    """Refuse a test, or one beside it, that wrote to what all tests share."""
    yield
    names = shared.written()
    assert not names, f"a test wrote to {', '.join(names)}, which all share; write to copies of it"


def pytest_unconfigure() -> None:
    """Let parts of torch go as the process ends, or they complain."""
    thaw()


SHORT = (
    (visit, "SETTLE_S", 0.002),
    (visit, "WINDOW_S", 0.01),
    (calibrate, "BASE_WINDOW_S", 0.02),
    (calibrate, "CONTAINER_ROUNDS", 5),
    (model, "SETTLE_S", 0.002),
    (model, "WINDOW_S", 0.02),
    (model, "MAX_REDONE", 0),
    (model, "HOSTS_REDONE", 0),
)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make visits and runs as short as can be: what they find is looked at, not how exact it is."""
    for module, name, value in SHORT:
        monkeypatch.setattr(module, name, value)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[postgres.Server]:
    """A PostgreSQL server of this process's own; skipped where none can be started."""
    if (why := postgres.missing()) is not None:
        pytest.skip(why)
    with postgres.server() as started:
        yield started


@pytest.fixture
def postgres_url(postgres_server: postgres.Server) -> str:
    """The URL of an empty database on that server."""
    return postgres_server.new_database()
