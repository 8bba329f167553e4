"""The comparison of two checkouts' answers: what counts as a difference."""

from __future__ import annotations

import json
from collections.abc import Mapping

from benchmarks.same_answers import Answer, compare, compare_values, differences


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


def test_csv_files_are_compared_by_column() -> None:
    old = _answer({}, files={"rows.csv": "model,time_s,note\na,0.25,hm\n"})
    same = _answer({}, files={"rows.csv": "model,time_s,note\na,0.25,oh\n"})
    other = _answer({}, files={"rows.csv": "model,time_s,note\na,0.5,hm\n"})
    renamed = _answer({}, files={"rows.csv": "model,time_ms,note\na,0.25,hm\n"})
    assert compare(old, same) == []
    assert compare(old, other) == ["rows.csv[0].time_s: '0.25', now '0.5'"]
    assert len(compare(old, renamed)) == 1
    assert compare(old, _answer({})) == ["rows.csv: only the old one writes it"]


def test_numbers_are_compared_wherever_they_stand() -> None:
    old = _answer({"time_s": 0.25, "low_s": 0.2}, files={"rows.csv": "model,time_s\na,0.5\n"})
    moved = _answer({"time": {"value": 0.25, "low": 0.2}, "rows": [0.5]})
    assert compare_values(old, moved) == []
    lost = _answer({"time": {"value": 0.25, "low": 0.3}, "rows": [0.5]})
    assert compare_values(old, lost) == ["1 of 3 numbers gone: 0.2", "1 of 3 numbers new: 0.3"]
