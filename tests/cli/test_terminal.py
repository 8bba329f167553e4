"""Nothing raw reaches a terminal: control characters of names, notes and reasons are escaped."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from opdb.cli import console
from opdb.tables import Column, Table, csv_text, escaped
from tests import published
from tests.cli.conftest import Opdb, Ran

EVIL = "\x1b[2J\x1b]0;mine\x07\x9b1m\u202etxt\r"
IN_JSON = "\\u001b[2J\\u009b1m\\u202etxt"


def assert_printable(ran: Ran) -> None:
    for said in (ran.out, ran.err):
        raw = {sign for sign in said if not sign.isprintable()} - {"\n", "\t"}
        assert not raw, f"{raw} reached the terminal: {said[:300]!r}"


@pytest.fixture(scope="module")
def altered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The published database, every text that is shown altered by somebody else's SQLite."""
    path = published.copy_to(tmp_path_factory.mktemp("altered") / "altered.sqlite")
    published.keep_kinds(path, "batch_norm", "relu", "linear")
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE device SET name = name || ?", (EVIL,))
        connection.execute("UPDATE workload SET name = name || ?, source_version = ?", (EVIL, EVIL))
        connection.execute("UPDATE host SET cpu = cpu || ?, system = ?", (EVIL, EVIL))
        connection.execute("UPDATE visit SET reason = ?, outcome = 'error' WHERE id < '4'", (EVIL,))
        connection.execute("UPDATE model_run SET reason = ?, flags = ?", (EVIL, f'["{IN_JSON}"]'))
        connection.execute("UPDATE cost SET flags = ?", (f'["{IN_JSON}"]',))
        connection.execute(
            "UPDATE workload SET unsupported = ?, foreign_leaves = ?",
            (f'{{"odd{IN_JSON}":2}}', f'{{"leaf{IN_JSON}":2}}'),
        )
        connection.execute(
            "UPDATE campaign SET calibration = replace(calibration, '\"notes\":[', ?)",
            (f'"notes":["{IN_JSON}"',),
        )
    return path


@pytest.mark.parametrize(
    "arguments",
    [
        ("show",),
        ("predict", f"resnet50{EVIL}", "-b", "32"),
        ("predict", "resnet50", "--csv", "/dev/stdout"),
        ("validate",),
        ("roofline", f"resnet50{EVIL}", "-b", "32"),
        ("export", "set"),
        ("import", f"nowhere{EVIL}"),
    ],
    ids=lambda arguments: escaped(" ".join(arguments)),
)
def test_an_altered_database_is_shown_escaped(
    arguments: tuple[str, ...], altered: Path, tmp_path: Path, opdb: Opdb
) -> None:
    path = tmp_path / "copy.sqlite"
    shutil.copy(altered, path)
    ran = opdb(*arguments, "--db", path)
    assert_printable(ran)
    assert "unforeseen" not in ran.err, ran.err
    assert ran.out or ran.err


def test_a_summary_file_with_escape_sequences(tmp_path: Path, opdb: Opdb) -> None:
    path = tmp_path / "evil.yml"
    for line in ('model: "resnet\\e[2J50"', '"\\e]0;x\\a": 1\nmodel: resnet50', 'dtype: "\\u202e"'):
        path.write_text(f"{line}\nweights: null\nprocessed: false\n")
        ran = opdb("harvest", path)
        assert ran.status == 2
        assert_printable(ran)


def test_tables_and_csv_keep_a_name_in_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    table: Table[str] = Table(Column("name", str, title="name"), Column("n", len, title="n"))
    console.say(*table.lines(["a\nb\x1b[1m", "longer than ten"]))
    assert capsys.readouterr().out.splitlines() == [
        "name              n",
        "a\\nb\\x1b[1m       7",
        "longer than ten  15",
    ]
    assert csv_text(["name"], [{"name": "a\x1b"}]) == "name\na\\x1b\n"
