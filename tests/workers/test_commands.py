"""`--devices` on the command line: what is printed, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Opdb, opdb  # noqa: F401

pytestmark = pytest.mark.usefixtures("short_workers")
TWO = ("--devices", "cpu,cpu")


def test_bench_measure_and_build_by_two_workers(opdb: Opdb) -> None:  # noqa: F811
    assert opdb("harvest", "lstm").status == 0
    ran = opdb("bench", *TWO, "--json")
    assert ran.status == 0, ran.err
    document = json.loads(ran.out)
    assert document["failures"] == [] and len(document["boards"]) == 2
    assert {board["board"] for board in document["boards"]} == {document["boards"][0]["board"]}
    ran = opdb("bench", *TWO)
    assert ran.status == 0 and ran.out.count("nothing is pending") == 2
    ran = opdb("measure", "mlp", "lstm", *TWO, "--repeats", "1", "--json")
    assert ran.status == 0, ran.err
    runs = json.loads(ran.out)
    assert sorted(run["model"] for run in runs) == ["lstm", "mlp"]
    assert all("2 workers measured on this host at once" in run["flags"] for run in runs)
    ran = opdb("build", "mlp", *TWO, "--target", "0.01", "--json")
    document = json.loads(ran.out)
    assert len(document["boards"]) == 1 and document["workloads"][0]["run"] == "ok"
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (("bench", "--device", "cpu", *TWO), 2, "give one of them"),
        (("bench", "--devices", "nine"), 2, "'nine' is no device"),
        (("measure", "mlp", "--devices", "cpu,,cpu"), 2, "'' is no device"),
        (("build", "mlp", "--plan", *TWO), 2, "a plan measures nothing"),
        (("bench", "--devices", "77"), 3, "no device cuda:77"),
        (("measure", "mlp", "--mode", "graph", *TWO), 3, "needs a CUDA device"),
    ],
)
def test_what_cannot_be_is_told_before_anything_is_made(
    opdb: Opdb,  # noqa: F811
    tmp_path: Path,
    arguments: tuple[str, ...],
    status: int,
    said: str,
) -> None:
    ran = opdb(*arguments)
    assert (ran.status, len(ran.err.splitlines())) == (status, 1), ran.err
    assert said in ran.err and not (tmp_path / "opdb.sqlite").exists()
