"""The answers of every kind, held to those that were recorded in tests/data/kinds.json."""

from __future__ import annotations

import json

from opdb.kinds import KINDS
from opdb.records import Configuration
from tests.kinds.pinned import answers, recorded, traits


def test_every_kind_says_of_itself_what_was_recorded() -> None:
    wanted = recorded()["kinds"]
    assert {name: json.loads(json.dumps(traits(name))) for name in KINDS} == wanted


def test_every_kind_answers_as_recorded() -> None:
    calls = recorded()["calls"]
    wrong = [
        (text, wanted, found)
        for text, wanted in calls
        if (found := json.loads(json.dumps(answers(Configuration.from_json(text))))) != wanted
    ]
    assert wrong == []
    assert {Configuration.from_json(text).kind for text, _ in calls} == set(KINDS)


def test_the_text_of_a_recorded_call_is_canonical() -> None:
    assert [t for t, _ in recorded()["calls"] if Configuration.from_json(t).json != t] == []
