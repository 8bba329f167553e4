"""The study of intervals: its arithmetic, and one model left out of the published runs."""

from __future__ import annotations

import json

import pytest

from benchmarks.intervals import (
    SHIPPED,
    Case,
    cases_of,
    constant,
    fitted,
    main,
)
from opdb.store import open_store
from tests import published


def case(model: str, error: float, *, kernel_s: float = 50e-6, half_width: float = 0.05) -> Case:
    return Case(model, "graph, 1", False, error, 0.0, 1.0, kernel_s, half_width)


def test_a_fit_finds_what_short_kernels_add() -> None:
    errors = [0.02 * step / 20 for step in range(-20, 21)]
    cases = [case(f"m{i}", 3 * e, kernel_s=3e-6) for i, e in enumerate(errors)]
    cases += [case(f"m{i}", e) for i, e in enumerate(errors)]
    found = fitted(cases)
    assert found.half_width(50e-6) == pytest.approx(0.02, rel=0.25)
    assert found.half_width(3e-6) == pytest.approx(0.06, rel=0.25)
    assert constant(cases, [1.0] * len(cases)) > 0.05


@pytest.mark.slow
def test_what_is_shipped_is_what_the_published_runs_give(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """And CUDA graphs hold in each range of batch sizes, with their model left out."""
    database = str(published.default_database())
    assert main(["--db", database, "--json"]) == 0
    rows = {(r["measure"], r["regime"]): r for r in json.loads(capsys.readouterr().out)}
    for measure in ("time", "energy"):
        found = rows[measure, "all that wait for no host"]
        assert found["inside"] >= 0.95 and found["binomial"][0] < 0.95 < found["binomial"][1]
        assert found["score"] < found["constant_score"]
        for batch in ("1", "2–16", "over 16"):
            graph = rows[measure, f"graph, {batch}"]
            assert graph["inside"] >= 0.9 and graph["binomial"][1] > 0.95
    with open_store(database) as store:
        cases = cases_of(store, None)
    for measure, kernel_s in ((m, k) for m in cases for k in (3e-6, 50e-6)):
        found = fitted(cases[measure]).half_width(kernel_s)
        shipped = SHIPPED[measure].half_width(kernel_s)
        assert shipped == pytest.approx(found, rel=0.35), "run python -m benchmarks.intervals"
