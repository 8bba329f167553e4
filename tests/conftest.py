"""What needs a GPU is collected only where there is one: a skipped test would look covered."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator

# Workers of pytest share the cores: threads of several would wait for each other.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch

from opdb.bench import calibrate, model, visit
from tests import postgres

# A shell starts what stands before an `&` deaf to Ctrl-C, and so all that it starts in turn.
signal.signal(signal.SIGINT, signal.default_int_handler)

collect_ignore = [] if torch.cuda.is_available() else ["gpu"]


def pytest_runtest_setup() -> None:
    """Let collecting garbage look at what a test makes alone, not at all that torch's import made.

    A bench collects twice, and thaws at its end: a third of the time of its tests went into that.
    To ask whether anything is frozen goes through it all, which takes longer than this.
    """
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Let parts of torch go as the process ends, or they complain."""
    gc.unfreeze()


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
