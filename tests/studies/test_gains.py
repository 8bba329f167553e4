"""Traits, correlations and sentences: on the published set, and on numbers worked out by hand."""

from __future__ import annotations

import dataclasses
import math
import random
from pathlib import Path

import pytest
from scipy.stats import spearmanr

from opdb.kinds import KINDS
from opdb.predict import choose_device
from opdb.records import Device, Mode
from opdb.store import open_store
from opdb.studies.gains import (
    FEWEST,
    LEFT_TO_LIBRARIES,
    TRAITS,
    Gains,
    below,
    correlations,
    gains,
    is_fusible,
    rank_correlation,
    sentence,
)
from opdb.studies.modes import Saving
from tests import published


@pytest.fixture(scope="module")
def found() -> list[Gains]:
    with open_store(str(published.database()), create=False) as store:
        return gains(store, choose_device(store, published.DEVICE))


def test_traits_are_shown_as_every_table_shows_them() -> None:
    shown = {trait.name: trait.show for trait in TRAITS}
    assert shown["launches_per_s"](1_234_567.0) == "1230"
    assert shown["intensity"](12.345) == "12.3 FLOP/byte"
    assert shown["fusible_share"](0.98765) == "98.8 %"
    assert shown["convolution_share"](1.0) == "100.0 %"
    assert shown["graph_breaks"](None) == "–"


def test_every_workload_that_ran_in_two_modes_once(found: list[Gains]) -> None:
    assert len(found) == len({each.workload.key for each in found}) == published.EAGER_AND_GRAPH
    assert all(each.saves.keys() == {"graph"} and not each.refused for each in found)


def test_traits_are_those_of_the_calls_and_of_the_eager_run(found: list[Gains]) -> None:
    with open_store(str(published.database()), create=False) as store:
        for each in found:
            assert set(each.traits) == {trait.name for trait in TRAITS}
            counts = each.workload.occurrences()
            moved = sum(n * KINDS[c.kind].bytes_moved(c) for c, n in counts.items())
            flops = sum(n * KINDS[c.kind].flops(c) for c, n in counts.items())
            assert each.traits["intensity"] == pytest.approx(flops / moved)
            runs = store.model_runs(each.workload.key, board=each.board, mode="eager")
            kernels = sum((runs[-1].kernels or {}).values())
            launches = each.traits["launches_per_s"]
            assert launches == pytest.approx(kernels / each.eager.time_s.mean)
            shares = [each.traits[f"{n}_share"] for n in ("fusible", "convolution", "product")]
            assert all(share is not None and 0 <= share <= 1 for share in shares)
            assert each.traits["graph_breaks"] is None


def test_kinds_that_inductor_leaves_to_libraries_are_known_and_in_one_group() -> None:
    names = [name for kinds in LEFT_TO_LIBRARIES.values() for name in kinds]
    assert set(names) <= set(KINDS) and len(names) == len(set(names))
    assert is_fusible("relu") and is_fusible("batch_norm") and not is_fusible("conv2d")


def test_launches_go_with_what_a_graph_saves(found: list[Gains]) -> None:
    known = {c.trait: c for c in correlations(found, "time")}
    launches = known["launches_per_s"]
    assert launches.is_told and launches.rho is not None and launches.rho > 0.8
    assert launches.workloads == published.EAGER_AND_GRAPH
    assert launches.models == len({each.workload.name for each in found})
    assert known["graph_breaks"].rho is None and not known["graph_breaks"].is_told


def test_rank_correlation_is_spearmans() -> None:
    drawn = random.Random(3)
    for size in (2, 5, 40):
        a = [drawn.randint(0, 6) for _ in range(size)]
        b = [x + drawn.gauss(0, 2) for x in a]
        if len(set(a)) > 1:
            assert rank_correlation(a, b) == pytest.approx(spearmanr(a, b).statistic)
    assert rank_correlation([1, 2, 3], [10, 20, 15]) == pytest.approx(0.5)
    assert rank_correlation([1, 1], [1, 2]) is None
    assert rank_correlation([1], [1]) is None and rank_correlation([], []) is None


def test_below_counts_ties_half() -> None:
    assert below([1, 2, 2, 3, None], 2) == 0.5
    assert below([1.0, 2.0], 5) == 1


def with_saves(gained: Gains, mode: Mode, saves: Saving) -> Gains:
    return dataclasses.replace(gained, saves={**gained.saves, mode: saves})


def test_sentences_are_plain_and_right(found: list[Gains]) -> None:
    known = correlations(found, "time")
    [one] = [e for e in found if e.workload.name == "resnet50" and e.workload.batch_size == 1]
    saved = one.saves["graph"].time
    launches = one.traits["launches_per_s"]
    assert saved is not None and launches is not None
    told = sentence(found, one, "graph", known)
    [known_rho] = [each.rho for each in known if each.trait == "launches_per_s"]
    energy = one.saves["graph"].energy or 0
    said = f"graph saves {100 * saved:.1f} % of the time and {100 * energy:.1f} % of the energy, "
    assert told.startswith(said)
    assert f"launches a millisecond in eager, {launches / 1000:.3g} here" in told
    assert f"the more, the larger the saving (rank correlation {known_rho:+.2f}" in told

    worse = with_saves(one, "compile", Saving(-0.25, None))
    few = [worse, *(e for e in found if e is not one)]
    said = sentence(few, worse, "compile", correlations(few, "time"))
    assert said == (
        "compile takes 25.0 % more time. "
        "Over 1 workload of 1 model nothing goes clearly with what it saves."
    )
    refused = dataclasses.replace(one, refused={"dynamo": "not compiled: no graph"})
    assert sentence(found, refused, "dynamo", known) == (
        "dynamo gave no figures: not compiled: no graph."
    )


def test_a_saving_is_held_against_all_of_its_mode(found: list[Gains]) -> None:
    """Workloads whose launches are not known are among them."""
    unknown = {**found[0].traits, "launches_per_s": None}
    some = [dataclasses.replace(found[0], traits=unknown), *found[1:]]
    known = correlations(some, "time")
    of_launches = next(c for c in known if (c.mode, c.trait) == ("graph", "launches_per_s"))
    assert of_launches.workloads == len(some) - 1
    assert f" of {len(some)} workloads. " in sentence(some, some[1], "graph", known)


def test_nothing_is_told_of_a_few_workloads_or_of_two_models(found: list[Gains]) -> None:
    few = correlations(found[: FEWEST - 1], "time")
    assert not any(c.is_told for c in few)
    two = [e for e in found if e.workload.name in ("gpt2", "resnet50")]
    of_two = [c for c in correlations(two, "time") if c.rho is not None and abs(c.rho) > 0.8]
    assert of_two and all(c.workloads >= FEWEST and c.models == 2 for c in of_two)
    assert not any(c.is_told for c in of_two)
    same = [with_saves(each, "compile", Saving(0.5, 0.5)) for each in found]
    assert all(c.rho is None for c in correlations(same, "energy") if c.mode == "compile")
    assert all(not math.isnan(c.rho) for c in correlations(found, "energy") if c.rho is not None)


def test_a_device_without_two_modes_has_no_gains(tmp_path: Path) -> None:
    cpu = Device("cpu", "a CPU", "cpu", None, None, None, None)
    with open_store(str(tmp_path / "x.sqlite")) as store:
        assert gains(store, cpu) == []
