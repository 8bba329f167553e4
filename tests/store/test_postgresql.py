"""What PostgreSQL alone can do wrong: a server far away, many writers, text in people's order."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from opdb.errors import DatabaseError
from opdb.predict.predictor import predictor_for
from opdb.store import open_store
from opdb.store.sets import merge, opened
from tests import postgres, warm
from tests.store import samples
from tests.store.conftest import fill

ROOT = Path(__file__).parents[2]
PUBLISHED = ROOT / "db" / "nvidia-h200"


def name_of(url: str) -> str:
    """Return the name of a URL's database."""
    return url.partition("?")[0].rpartition("/")[2]


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("postgresql+psycopg://me:secret@localhost:1/opdb", "port 1 failed: Connection refused"),
        ("postgres://me@/opdb?host=/nowhere", "cannot be reached"),
        ("postgresql://me@no-such-host.invalid/opdb", "check the host's name"),
    ],
)
def test_a_server_that_is_not_there(url: str, said: str) -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(DatabaseError, match=said) as caught:
        open_store(url)
    assert "secret" not in str(caught.value) and "\n" not in str(caught.value)


def test_what_a_server_refuses_is_said_in_a_line(postgres_server: postgres.Server) -> None:
    with pytest.raises(DatabaseError, match='database "nowhere" does not exist'):
        open_store(postgres_server.url("nowhere"))
    url = postgres_server.new_database()
    with pytest.raises(DatabaseError, match='role "stranger" does not exist'):
        open_store(url.replace("opdb@", "stranger@"))
    postgres_server.sql("CREATE ROLE reader LOGIN")
    with open_store(url) as store:
        fill(store)
    postgres_server.sql("GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader", name_of(url))
    with open_store(url.replace("opdb@", "reader@")) as store:
        assert store.workloads() == [samples.workload()]
        with pytest.raises(DatabaseError, match="permission denied for table"):
            store.save_visit(samples.visit("new"))


def test_somebody_elses_database_is_left_alone(postgres_server: postgres.Server) -> None:
    url = postgres_server.new_database()
    postgres_server.sql("CREATE TABLE songs (title text)", name_of(url))
    with pytest.raises(DatabaseError, match="it holds the tables songs"):
        open_store(url)


def test_a_server_that_comes_back_is_used_again(postgres_server: postgres.Server) -> None:
    url = postgres_server.new_database()
    with open_store(url) as store:
        fill(store)
        postgres_server.stop()
        with pytest.raises(DatabaseError, match=r"cannot be reached|ended the connection"):
            store.save_visit(samples.visit("while it was away"))
        postgres_server.start()
        store.save_visit(samples.visit("after"))
        assert "after" in {visit.id for visit in store.visits("GPU-1")}


MANY = """
import random, sys
from opdb.records import Call, Configuration
from opdb.store import open_store
from tests.store import samples
from dataclasses import replace
number = int(sys.argv[2])
configurations = [Configuration(kind="relu", parameters={"n": n}) for n in range(300)]
random.Random(number).shuffle(configurations)
store = open_store(sys.argv[1])
for turn in range(4):
    calls = tuple(Call(c, "module") for c in configurations)
    store.save_workload(replace(samples.workload(f"model-{turn}"), calls=calls))
    store.replace_costs(
        "GPU-1", [samples.cost(c, visits=number) for c in configurations]
    )
    store.save_visit(samples.visit(f"{number}-{turn}"))
"""


def test_eight_writers_of_the_same_rows_never_wait_in_a_circle(postgres_url: str) -> None:
    with open_store(postgres_url) as store:
        fill(store)
        writers = [
            subprocess.Popen(warm.command("-c", MANY, postgres_url, str(n)), cwd=ROOT)
            for n in range(8)
        ]
        assert [writer.wait(timeout=120) for writer in writers] == [0] * 8
        assert len(store.configurations(["relu"])) == 301
        assert [len(w.calls) for w in store.workloads() if w.name != "tiny"] == [300] * 4
        kept = {visit.id for visit in store.visits("GPU-1")} - {"visit-1", "visit-2", "visit-3"}
        assert kept == {f"{number}-{turn}" for number in range(8) for turn in range(4)}


def test_the_published_set_says_the_same_as_in_a_file(postgres_url: str, tmp_path: Path) -> None:
    with open_store(postgres_url) as one, open_store(str(tmp_path / "other.sqlite")) as other:
        with opened(PUBLISHED, trusted=True) as found:
            added = [merge(each, found, PUBLISHED) for each in (one, other)]
        assert added[0] == added[1]
        for device in other.devices():
            assert one.standing(device.slug) == other.standing(device.slug)
            workloads = random.Random(1).sample(other.workloads(), 3)
            answers = [
                [predictor_for(store, device, {}).answer(w, "eager") for w in workloads]
                for store in (one, other)
            ]
            assert answers[0] == answers[1]
            for board in other.boards(device.slug):
                assert one.costs(board.uuid) == other.costs(board.uuid)
