"""What is predicted from the published set stays what it was, to 1e-9.

After a change of the set, or one that is meant to change predictions, look at the differences and
write the file anew:

    python -m tests.test_published_predictions
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from opdb.predict.predictor import PLAIN_MODES, Answer, predictor_for
from opdb.records import Json
from opdb.store import open_store
from tests import published

FILE = Path(__file__).parent / "data" / "published_predictions.json"


def documents() -> Iterator[tuple[str, Json]]:
    """Yield the prediction of every workload in every mode, under a name of its own."""
    with open_store(str(published.database())) as store:
        predictor = predictor_for(store, published.DEVICE)
        for workload in store.workloads():
            for mode in PLAIN_MODES:
                name = f"{workload.name} {workload.key[:12]} {mode}"
                yield name, document(predictor.answer(workload, mode))


def document(answer: Answer) -> Json:
    """Return what of an answer must not change unnoticed."""
    found = answer.prediction
    return {
        "board": found.board,
        "time_s": found.time_s,
        "time_interval_s": list(found.time_interval_s or ()),
        "energy_j": found.energy_j,
        "energy_interval_j": list(found.energy_interval_j or ()),
        "coverage": [found.coverage_calls, found.coverage_time, found.coverage_energy],
        "missing": len(found.missing),
        "host_bound": found.host_bound,
        "attribution": [answer.attribution_time, answer.attribution_energy],
    }


def test_predictions_from_the_published_set_stay() -> None:
    expected, found = json.loads(FILE.read_text()), dict(documents())
    assert found.keys() == expected.keys()
    for name, was in expected.items():
        for key, value in was.items():
            now = found[name][key]
            pairs = zip(value, now, strict=True) if isinstance(value, list) else [(value, now)]
            for before, after in pairs:
                if isinstance(before, float):
                    assert after == pytest.approx(before, rel=1e-9), (name, key)
                else:
                    assert after == before, (name, key)


def write() -> None:
    """Write the file anew."""
    FILE.write_text(json.dumps(dict(documents()), indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    write()
