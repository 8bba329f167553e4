"""`opdb trace`: the file, the summary, and what is refused."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import pytest

import opdb as api
from tests import published
from tests.cli.conftest import Opdb


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A copy: a model is harvested into it."""
    path = tmp_path_factory.mktemp("trace") / "opdb.sqlite"
    return str(shutil.copy(published.default_database(), path))


def test_it_writes_the_trace_and_says_what_is_in_it(opdb: Opdb, db: str, tmp_path: Path) -> None:
    ran = opdb(
        "trace", "resnet50", "-b", 32, "--mode", "graph", "-o", tmp_path / "t.json", "--db", db
    )
    assert ran.status == 0 and f"written: {tmp_path}/t.json" in ran.err
    assert [line.split()[:2] for line in ran.out.splitlines()[2:]] == [
        ["device", "works"],
        ["device", "waits"],
        ["whole", "pass"],
    ]
    found = api.trace("resnet50", batch_size=32, mode="graph", db=db)
    assert (tmp_path / "t.json").read_bytes() == found.to_bytes()
    again = opdb("trace", "resnet50", "-b", 32, "--mode", "graph", "--json", "--db", db)
    assert json.loads(again.out) == json.loads(json.dumps(found.to_dict()))
    assert Path("trace.json").read_bytes() == found.to_bytes()


def test_a_name_in_gz_compresses(opdb: Opdb, db: str) -> None:
    assert opdb("trace", "resnet50", "-b", 32, "-o", "t.json.gz", "-q", "--db", db).status == 0
    assert json.loads(gzip.decompress(Path("t.json.gz").read_bytes()))["opdb"]["mode"] == "eager"


def test_what_cannot_be_traced_is_one_message(opdb: Opdb, db: str) -> None:
    for arguments, message in (
        (("resnt50",), "unknown model 'resnt50'"),
        (("resnet50", "-o", "no/where.json"), "there is no folder no"),
        (("resnet50", "--mode", "fast"), "unknown --mode 'fast'"),
        (("resnet50", "--board", "ffff"), "unknown board 'ffff'"),
        (("mlp", "-b", 9, "--no-estimates"), "there is nothing to trace"),
    ):
        ran = opdb("trace", *arguments, "--db", db)
        assert ran.status == 2 and message in ran.err and "Traceback" not in ran.err, ran.err
        assert ran.out == "" and not Path("trace.json").exists()
