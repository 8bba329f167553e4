"""The comparison of two checkouts' answers: what counts as a difference."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from benchmarks.same_answers import Answer, compare, compare_values, differences, report


def _answer(document: object, status: int = 0, files: Mapping[str, str] | None = None) -> Answer:
    return Answer(status, json.dumps(document), "", files or {})


def test_numbers_are_compared_by_their_digits() -> None:
    assert list(differences({"a": [0.1, 1]}, {"a": [0.1, 1]})) == []
    (line,) = differences({"a": [0.1]}, {"a": [0.1 + 1e-17 + 1e-16]})
    assert line == ".a[0]: 0.1, now 0.10000000000000012"
    assert list(differences({"a": 1}, {"a": 1.0})) == [".a: 1, now 1.0"]
    only = [".a: only in the old answer", ".b: only in the new answer"]
    assert list(differences({"a": 1}, {"b": 1})) == only
    assert list(differences([1, 2], [1])) == [": 2 elements, now 1"]
    assert compare(_answer({"wall_s": 1.5}), _answer({"wall_s": 2.5})) == [], "how long it took"


def test_of_sentences_only_that_there_is_one() -> None:
    old, new = {"notes": ["so it is"], "mode": "eager"}, {"notes": ["it is so"], "mode": "eager"}
    assert compare(_answer(old), _answer(new)) == []
    assert compare(_answer(old), _answer(new), wording=True) == [
        "stdout.notes[0]: 'so it is', now 'it is so'"
    ]
    assert compare(_answer(old), _answer({**new, "notes": []})) == [
        "stdout.notes: 1 elements, now 0"
    ]
    assert compare(_answer(old), _answer({**old, "mode": "graph"})) == [
        "stdout.mode: 'eager', now 'graph'"
    ]


def test_progress_is_no_message_and_a_message_that_comes_or_goes_is_one() -> None:
    silent, working = Answer(0, "", ""), Answer(0, "", "harvest 20/20 vgg16 (3, 512, 512)\n")
    assert compare(silent, working) == []
    assert len(compare(silent, Answer(0, "", "left out: 3 runs\n"))) == 1


def test_csv_files_are_compared_by_column() -> None:
    old = _answer({}, files={"rows.csv": "model,time_s,note\na,0.25,hm\n"})
    same = _answer({}, files={"rows.csv": "model,time_s,note\na,0.25,oh\n"})
    other = _answer({}, files={"rows.csv": "model,time_s,note\na,0.5,hm\n"})
    renamed = _answer({}, files={"rows.csv": "model,time_ms,note\na,0.25,hm\n"})
    assert compare(old, same) == []
    assert compare(old, other) == ["rows.csv[0].time_s: '0.25', now '0.5'"]
    assert len(compare(old, renamed)) == 1
    assert compare(old, _answer({})) == ["rows.csv: only the old one writes it"]


def test_exit_statuses_are_compared_and_every_command_gets_a_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    old = {"list": _answer([]), "nothing": _answer(None, 2)}
    new = {"list": _answer([]), "nothing": _answer(None, 1)}
    assert report(old, new, wording=False) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "same     0  opdb list"
    assert lines[1].startswith("differs  1  opdb nothing")
    assert lines[-1] == "2 commands, 1 differ"


def test_numbers_are_compared_wherever_they_stand() -> None:
    old = _answer({"time_s": 0.25, "low_s": 0.2}, files={"rows.csv": "model,time_s\na,0.5\n"})
    moved = _answer({"time": {"value": 0.25, "low": 0.2}, "rows": [0.5]})
    assert compare_values(old, moved) == []
    lost = _answer({"time": {"value": 0.25, "low": 0.3}, "rows": [0.5]})
    assert compare_values(old, lost) == ["1 of 3 numbers gone: 0.2", "1 of 3 numbers new: 0.3"]
