from __future__ import annotations

import io

import pytest

from opdb.cli import console
from opdb.tables import Column, Table

TABLE: Table[tuple[str, int, str]] = Table(
    Column("kind", lambda row: row[0], title="kind"),
    Column("calls", lambda row: row[1], title="calls"),
    Column("why", lambda row: row[2], title="why"),
)


def test_a_table_aligns_words_left_and_numbers_right(capsys: pytest.CaptureFixture[str]) -> None:
    console.say(*TABLE.lines([("add", 7, "x"), ("conv2d", 10, "longer")]))
    assert capsys.readouterr().out.splitlines() == [
        "kind    calls  why",
        "add         7  x",
        "conv2d     10  longer",
    ]


def test_an_empty_table_is_its_header(capsys: pytest.CaptureFixture[str]) -> None:
    console.say(*TABLE.lines([]))
    assert capsys.readouterr().out == "kind  calls  why\n"


def test_lines_where_there_is_no_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = iter([0.0, 1.0, 6.0, 7.0, 8.0])
    monkeypatch.setattr("opdb.cli.console.time.monotonic", lambda: next(seconds))
    with console.progress(4, "bench", quiet=False) as shown:
        for name in "abcd":
            shown.doing(name)
            shown.done()
        shown.note("said")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "bench 2/4 b, 6 s left\nbench 4/4 d\nsaid\n"


def test_nothing_when_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    with console.progress(1, "bench", quiet=True) as shown:
        shown.doing("a")
        shown.done()
        shown.note("said")
    console.note("said", quiet=True)
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")  # on a dumb terminal there is no bar
    with console.progress(2, "bench", quiet=False) as shown:
        shown.doing("conv2d [3, 3]")
        shown.done()
        shown.note("said [bold]")
    assert "said [bold]" in terminal.getvalue()
    assert "conv2d [3, 3]" in terminal.getvalue()


def test_json_never_holds_what_json_has_no_word_for() -> None:
    with pytest.raises(ValueError, match="JSON"):
        console.print_json({"time_s": float("nan")})
