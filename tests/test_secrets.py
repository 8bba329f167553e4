"""A password shows nowhere: not of a right URL, not of a wrong one, not in what jobs leave."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from opdb.tables import masked
from tests.cli.conftest import Opdb

SECRET = "hu/nt@er2"
URLS = [
    f"postgresql://opdb:{SECRET}@nowhere.invalid:54x32/db",
    f"postgresql://opdb:{SECRET}@[::1/db",
    f"postgresql://opdb:{SECRET}@nowhere.invalid/db",
    f"mysql://opdb:{SECRET}@nowhere.invalid/db",
    f"postgresql:///db?host=nowhere.invalid&password={SECRET}",
    f"postgresql:///db?host=nowhere.invalid&p%61ssword={SECRET}&user=me",
    f"postgresql://nowhere.invalid/db?sslmode=require&sslpassword={SECRET}",
    "postgresql://opdb:hunter2/db",
]
COMMANDS = ["show", "predict mlp", "doctor database"]


@pytest.mark.parametrize("url", URLS)
def test_a_password_is_masked_and_the_rest_is_shown(url: str) -> None:
    for text in (url, f"database {url!r}: no", f'{{"location": "{url}"}}', f"({url}),"):
        found = masked(text)
        for part in ("hunt", "hu/", "er2", SECRET):
            assert part not in found, found
        assert "***" in found
    assert masked(masked(url)) == masked(url)


SHOWN = [(COMMANDS[0], URLS[0]), (COMMANDS[0], URLS[4]), *((each, URLS[2]) for each in COMMANDS)]


@pytest.mark.parametrize(("command", "url"), SHOWN)
@pytest.mark.parametrize("how", ["option", "environment"])
def test_no_command_shows_a_password(
    opdb: Opdb, monkeypatch: pytest.MonkeyPatch, command: str, url: str, how: str
) -> None:
    named: tuple[str, ...] = ("--db", url)
    if how == "environment":
        monkeypatch.setenv("OPDB_DB", url)
        named = ()
    for more in ((), ("--json",), ("--debug",)):
        name, *rest = command.split()
        ran = opdb(name, *([] if name == "doctor" else rest), *named, *more)
        assert ran.status != 0 or name == "doctor"
        for part in (SECRET, "er2", "hu/nt", "hunter"):
            assert part not in ran.out + ran.err, (more, ran)


def test_a_url_of_the_environment_is_in_no_job(
    opdb: Opdb, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from opdb.workers import jobs_of

    monkeypatch.setenv("OPDB_DB", "postgresql://opdb:hunter2@host/db")
    jobs = jobs_of([("show",)], tmp_path, None, make=False)
    assert b"hunter2" not in pickle.dumps(jobs)
    assert jobs[0].database is None
    monkeypatch.delenv("OPDB_DB")
    with pytest.raises(Exception, match="OPDB_DB is not set"):
        jobs[0]()
