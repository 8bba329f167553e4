"""The sizes of a sweep's stages, and what its cells are likely to take."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from opdb.algorithms.names import ALGORITHMS
from opdb.errors import InputError, UnknownNameError
from opdb.records import ALGORITHM_SETTING
from opdb.spec import ModelSpec
from opdb.store import open_store
from opdb.studies.sweep.measuring import NOMINAL_S, planned_seconds
from opdb.studies.sweep.request import STAGES, SweepSpec, parse_sizes, sizes_of, spread_sizes
from tests.store import samples


def test_the_sizes_of_the_full_stage_are_those_of_the_scripts_it_replaces() -> None:
    assert sizes_of("full", None, None) == [224 + int(i * 288 / 99) for i in range(100)]
    assert sizes_of("quick", None, None) == list(range(224, 513, 32))
    assert sizes_of("sanity", None, None) == [224]


def test_each_stage_reuses_the_one_before() -> None:
    stages = [set(sizes_of(stage, None, None)) for stage in STAGES]
    assert stages[0] < stages[1] < stages[2]
    assert [len(sizes) for sizes in stages] == [1, 10, 100]


@pytest.mark.parametrize("count", [1, 2, 5, 289])
def test_so_many_sizes_are_so_many(count: int) -> None:
    sizes = spread_sizes(count)
    assert len(set(sizes)) == count and sizes == sorted(sizes)
    assert sizes[0] == 224 and (count == 1 or sizes[-1] == 512)


@pytest.mark.parametrize("count", [0, -1, 290])
def test_there_are_no_more_sizes_than_pixels(count: int) -> None:
    with pytest.raises(InputError, match="1 to 289 sizes"):
        sizes_of("quick", count, None)


def test_sizes_are_read_once_each() -> None:
    assert parse_sizes("64, 32,64") == [64, 32]
    assert sizes_of("full", None, [64, 32]) == [64, 32]


@pytest.mark.parametrize("text", ["", "64,", "-5", "0", "big", "22.4", "99999999999"])
def test_what_is_no_size_is_said(text: str) -> None:
    with pytest.raises(InputError, match="is no size"):
        parse_sizes(text)


def test_sizes_are_given_in_one_way_and_a_stage_must_be_one() -> None:
    with pytest.raises(InputError, match="one of them"):
        sizes_of("quick", 5, [64])
    with pytest.raises(UnknownNameError, match="did you mean 'quick'"):
        sizes_of("quik", None, None)


SLUG = samples.DEVICE.slug


def cell(model: str, algorithm: str, size: int = 224) -> SweepSpec:
    return SweepSpec(ModelSpec(model), "unused", size, ALGORITHMS[algorithm], "graph")


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
