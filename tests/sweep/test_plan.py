"""What cells are likely to take, by what others took."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from opdb.algorithms.names import ALGORITHMS
from opdb.models import ModelRequest
from opdb.records import ALGORITHM_SETTING
from opdb.store import open_store
from opdb.sweep.measuring import NOMINAL_S, planned_seconds
from opdb.sweep.specs import SweepSpec
from tests.store import samples

SLUG = samples.DEVICE.slug


def cell(model: str, algorithm: str, size: int = 224) -> SweepSpec:
    return SweepSpec(ModelRequest(model), "unused", size, ALGORITHMS[algorithm], "graph")


def test_a_cell_is_planned_as_the_likest_ones_took(tmp_path: Path) -> None:
    with open_store(str(tmp_path / "opdb.sqlite")) as store:
        assert planned_seconds(store, [cell("tiny", "fft")] * 2, SLUG) == (2 * NOMINAL_S, 0)
        store.save_campaign(samples.campaign())
        took = [("tiny", "fft", 9.0), ("tiny", "fft", 3.0), ("tiny", "gemm", 1.0)]
        took += [("large", "fft", 33.0), ("large", "guess", 4.0)]
        for number, (name, algorithm, cost_s) in enumerate(took):
            workload = samples.workload(name, batch_size=number + 1)
            store.save_workload(workload, swept=True)
            run = replace(samples.model_run(workload, f"run-{number}"), cost_s=cost_s)
            store.save_model_run(replace(run, setting={ALGORITHM_SETTING: algorithm}))

        def seconds(model: str, algorithm: str) -> float:
            planned_s, runs = planned_seconds(store, [cell(model, algorithm, 512)], SLUG)
            assert runs == 5
            return planned_s

        assert seconds("tiny", "fft") == 6.0, "its own cells under the algorithm, at other sizes"
        assert seconds("unseen", "fft") == 15.0, "all cells under the algorithm"
        assert seconds("large", "winograd") == 18.5, "the model's other cells"
        assert seconds("unseen", "winograd") == 10.0, "all cells"
        both = planned_seconds(store, [cell("tiny", "fft"), cell("unseen", "fft")], SLUG)
        assert both == (21.0, 5)
        assert planned_seconds(store, [cell("tiny", "fft")], "another") == (NOMINAL_S, 0)
