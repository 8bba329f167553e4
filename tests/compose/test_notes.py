"""Notes of predictions: when each is given, and its figures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opdb.compose import PredictionInputs, compose
from opdb.compose.notes import PRIOR_OF_HOSTS, UNEVEN, notes_of_host
from opdb.records import Configuration, Workload
from opdb.records.cost import BETWEEN, OTHER_KINDS, ROOFLINE_ALONE
from tests.compose.test_composer import (
    ADD,
    CONV,
    CPU,
    FULL,
    RELU,
    Estimated,
    cost,
    estimate,
    inputs,
    workload,
)


def notes(of: Workload, rests_on: PredictionInputs, mode: str = "graph") -> tuple[str, ...]:
    return compose(of, mode, rests_on).notes  # type: ignore[arg-type]


def test_an_uneven_host_is_told_from_a_twentieth_on() -> None:
    assert notes_of_host(0.049, inputs(host_ratios=(1.2,))) == ()
    assert notes_of_host(UNEVEN, inputs()) == (PRIOR_OF_HOSTS,)
    [one] = notes_of_host(0.05, inputs(host_ratios=(1.2,)))
    assert one.startswith("1 pass of other models that wait for the host took 20 % more or less")
    [thrice] = notes_of_host(0.05, inputs(host_ratios=(3.0,)))
    assert "took 200 % more or less" in thrice
    [two] = notes_of_host(0.05, inputs(host_ratios=(1.21, 1 / 1.1)))
    assert two.startswith("2 passes of other models that wait for the host took 16 % more or less")


def test_calls_count_as_often_as_they_are_made() -> None:
    known = inputs(FULL[0], cost(RELU, 1e-6, 0.0), cost(ADD, 1e-6, 0.0))
    lent = replace(known, host_s={("relu", "module"): 1e-5})
    said = notes(workload(CONV, RELU, RELU, ADD, ADD, ADD), lent, "eager")
    assert "host time not measured, the usual of its kind taken: 2 calls" in said
    unknown = "host time unknown, so a pass that waits for the host may take longer: 3 calls"
    assert unknown in said
    for silent in ((lent, "graph"), (replace(lent, device=CPU), "eager")):
        assert not any("host time" in note for note in notes(workload(RELU, ADD), *silent))


def test_sizes_that_depend_on_values_are_told() -> None:
    found = Configuration("nonzero", {}, {"input": {"shape": [8], "dtype": "float32"}})
    item = Configuration("item", {}, {"input": {"shape": [], "dtype": "float32"}})
    asked = workload(CONV, found, item, found)
    [note] = [n for n in notes(asked, inputs()) if "large" in n]
    uncaught = "no CUDA graph captures such calls: the model as it stands cannot run in this mode"
    assert uncaught in notes(asked, inputs(), "graph")
    assert uncaught not in notes(asked, inputs(), "eager")
    assert note.startswith("calls whose results are as large as values say: nonzero ×2;")
    assert not any("large" in n for n in notes(workload(CONV, item), inputs()))


def test_what_lacks_an_energy_is_told_by_kind() -> None:
    dark = (cost(RELU, 1e-3), cost(ADD, 1e-3))
    [note] = [n for n in notes(workload(CONV, RELU, ADD), inputs(FULL[0], *dark)) if "energy" in n]
    assert note == "time measured, but not the energy: 2 configurations (relu, add)"


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        (ROOFLINE_ALONE, "on a roofline alone, for nothing like it was measured"),
        (OTHER_KINDS, "on measured operators of other kinds"),
    ],
)
def test_a_doubtful_estimate_says_what_it_rests_on(flag: str, words: str) -> None:
    doubtful = replace(estimate(RELU, 1e-3, 1e-1), flags=(flag,))
    sound = estimate(ADD, 2e-3, 2e-1)
    helped = inputs(cost(CONV, 1e-3, 0.1), estimates=Estimated(doubtful, sound))
    said = notes(workload(CONV, RELU, ADD), helped)
    assert "never measured, costs estimated: 2 configurations (75.0 % of the time)" in said
    assert not any("interpolated" in note for note in said)
    lying = replace(sound, flags=(BETWEEN,))
    helped = inputs(cost(CONV, 1e-3, 0.1), estimates=Estimated(doubtful, lying))
    mixed = notes(workload(CONV, RELU, ADD), helped)
    assert "never measured, costs estimated: 1 configuration (25.0 % of the time)" in mixed
    interpolated = "costs interpolated between measured sizes of the same calls: 1 configuration"
    assert f"{interpolated} (50.0 % of the time)" in mixed
    assert [n for n in said if "rests on" in n and "prior" not in n] == [
        f"25.0 % of the time rests {words}: relu"
    ]


def test_each_reason_of_a_refusal_is_told_once() -> None:
    refusing = Estimated(refused={RELU.key: "too large", ADD.key: "too large"})
    said = notes(workload(CONV, RELU, ADD), inputs(FULL[0], estimates=refusing))
    assert [n for n in said if n.startswith("not estimated")] == ["not estimated: too large"]
