"""An estimator as a JSON value: what is read is what was written, or one message."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict

import numpy as np
import pytest

from opdb.errors import InputError
from opdb.estimates.estimator import Estimator, from_document, to_document
from opdb.records import Json
from tests.estimates.made import call, example, learned


@pytest.fixture(scope="module")
def estimator() -> Estimator:
    """Learned from 86 calls, half of them without power."""
    drawn = np.random.default_rng(5)
    return learned(
        [
            example(
                call(2**10 + 300 * n**2, "softmax" if n % 3 else "relu"),
                float(2e-6 + 1e-9 * n**2 * np.exp(drawn.normal(scale=0.2))),
                dynamic_w=100.0 + n if n % 2 else None,
                models=(("alexnet", "bert", "resnet", "vgg")[n // 2 % 4],),
                eager_s=1e-3,
                host_s={"module": 5e-6},
            )
            for n in range(86)
        ]
    )


def written(estimator: Estimator) -> Json:
    return json.loads(json.dumps(to_document(estimator)))


def test_all_of_it_comes_back(estimator: Estimator) -> None:
    back = from_document(written(estimator))
    for name in ("device", "board", "trained_at", "configurations", "roofline", "usual", "sums"):
        assert getattr(back, name) == getattr(estimator, name)
    assert back.families.keys() == estimator.families.keys() == {"memory"}
    found, before = back.families["memory"], estimator.families["memory"]
    for name in (
        "columns",
        "centre",
        "scale",
        "levels",
        "slower",
        "watts",
        "dtypes",
        "metered",
        "reach",
    ):
        assert getattr(found, name) == getattr(before, name)
    assert found.power is not None
    assert 12 <= len(before.power.points) < len(before.time.points)
    assert len({*asdict(before.reach).values()}) == 2, "no two of them are the same number"
    assert back.sums.energy is not None and back.sums.energy != back.sums.time
    for one, other in ((found.time, before.time), (found.power, before.power)):
        assert (one.kernel, one.mean) == (other.kernel, other.mean)
        assert (one.points == other.points).all() and (one.weights == other.weights).all()
    assert written(back) == written(estimator)


@pytest.mark.parametrize(
    ("found", "told"),
    [({"format": 99}, "99"), ({}, "None"), ([1], r"\[1\]"), ("x" * 99, "'" + "x" * 39 + ";")],
)
def test_another_format_is_told(found: Json, told: str) -> None:
    with pytest.raises(InputError, match=f"estimates of format {told}.*this version reads 8"):
        from_document(found)


MEMORY = ("families", "memory")
DAMAGES: dict[str, tuple[tuple[str, ...], Callable[[Json], Json]]] = {
    # where the document is damaged, and what then stands there
    "a column is missing": ((*MEMORY, "columns"), lambda found: found[:-1]),
    "no noise": ((*MEMORY, "time", "kernel"), lambda found: {**found, "noise": None}),
    "weights in words": ((*MEMORY, "time", "weights"), lambda found: "many"),
    "no energy of sums": (("sums",), lambda found: {"time": found["time"]}),
    "infinitely many": (("configurations",), lambda found: 1e999),
    "no base64": ((*MEMORY, "points"), lambda found: found + "*"),
    "too few points": ((*MEMORY, "points"), lambda found: found[:-1]),
    "no zlib": ((*MEMORY, "points"), lambda found: "QUJD"),
    "a list": (("usual",), lambda found: [1]),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_one_message(estimator: Estimator, damage: str) -> None:
    document = place = written(estimator)
    (*path, last), change = DAMAGES[damage]
    for name in path:
        place = place[name]
    place[last] = change(place[last])
    with pytest.raises(
        InputError, match=r"damaged estimates: .*; python -m opdb.estimates makes them anew"
    ):
        from_document(document)
