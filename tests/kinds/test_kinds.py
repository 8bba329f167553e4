"""Kinds: names, rules, and the absence of torch."""

from __future__ import annotations

import json
from typing import Any

import pytest

from opdb.errors import UnknownNameError
from opdb.kinds import KINDS, get_kind
from opdb.kinds.products import active_groups
from opdb.records import Configuration
from tests.kinds.pinned import answers, recorded, traits


def spec(*shape: int, **more: Any) -> dict[str, Any]:
    return {"shape": list(shape), "dtype": "float32", **more}


def test_an_unknown_kind_offers_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="conv2d"):
        get_kind("conv2")


def test_groups_that_get_no_row_are_not_read() -> None:
    """Of 128 groups, 16 rows reach 15.1 on average: 128 · (1 - (127/128)^16)."""
    assert active_groups(128, 16) == pytest.approx(15.1, abs=0.05)
    assert active_groups(128, 16, imbalance=1.0) < 13
    assert active_groups(8, 100_000) == pytest.approx(8)


# The answers of every kind, held to those that were recorded in tests/data/kinds.json


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


# What a fused group computes and moves, counted from its description alone


FUSED = get_kind("fused")


def group(
    inputs: list[Any], nodes: list[tuple[str, list[Any], Any]], outputs: list[Any]
) -> Configuration:
    told = [{"op": op, "args": args, "shape": shape} for op, args, shape in nodes]
    return Configuration("fused", {"nodes": told, "outputs": outputs}, {"inputs": inputs})


def test_a_product_and_what_follows_it() -> None:
    configuration = group(
        [spec(8), spec(4, 16), spec(8, 16, role="weight")],
        [
            ("aten.permute.default", [{"input": 2}, [1, 0]], [16, 8]),
            ("aten.addmm.default", [{"input": 0}, {"input": 1}, {"node": 0}], [4, 8]),
            ("aten.relu.default", [{"node": 1}], [4, 8]),
            ("aten.sum.dim_IntList", [{"node": 2}, [1]], [4]),
        ],
        [{"node": 2, "dtype": "float32"}, {"node": 3, "dtype": "float32"}],
    )
    assert FUSED.flops(configuration) == 2 * 4 * 16 * 8 + 32 + 32
    assert FUSED.bytes_moved(configuration) == 4 * (8 + 64 + 128 + 32 + 4)
    assert FUSED.traffic(configuration)[1] == 4 * 128
    assert FUSED.shapes_rule(FUSED.view(configuration)) == [[4, 8], [4]]


def test_convolution_and_attention() -> None:
    convolution = group(
        [spec(2, 8, 6, 6), spec(16, 4, 3, 3, role="weight")],
        [("aten.convolution.default", [{"input": 0}, {"input": 1}], [2, 16, 6, 6])],
        [{"node": 0, "dtype": "float32"}],
    )
    assert FUSED.flops(convolution) == 2 * (2 * 16 * 36) * (4 * 9)
    heads = spec(2, 4, 10, 16)
    attention = group(
        [heads, spec(2, 4, 12, 16), spec(2, 4, 12, 8)],
        [
            (
                "aten._scaled_dot_product_flash_attention.default",
                [{"input": 0}, {"input": 1}, {"input": 2}],
                [[2, 4, 10, 8], [2, 4, 10], []],
            ),
            ("getitem", [{"node": 0}, 0], [2, 4, 10, 8]),
        ],
        [{"node": 1, "dtype": "float32"}],
    )
    assert FUSED.flops(attention) == 2 * (2 * 4 * 10) * 12 * (16 + 8)


def test_a_transposed_convolution_multiplies_each_element_of_its_input() -> None:
    given = [{"input": 0}, {"input": 1}, None, [2, 2], [0, 0], [1, 1], True, [0, 0], 2]
    spread = group(
        [spec(2, 8, 6, 6), spec(8, 3, 4, 4, role="weight")],
        [("aten.convolution.default", given, [2, 6, 14, 14])],
        [{"node": 0, "dtype": "float32"}],
    )
    assert FUSED.flops(spread) == 2 * (2 * 8 * 36) * (3 * 16)


def test_both_reductions_of_a_softmax() -> None:
    configuration = group(
        [spec(4, 16)],
        [
            ("prims.prepare_softmax_online.default", [{"input": 0}, -1], [[4, 1], [4, 1]]),
            ("getitem", [{"node": 0}, 0], [4, 1]),
            ("getitem", [{"node": 0}, 1], [4, 1]),
        ],
        [{"node": 1, "dtype": "float32"}, {"node": 2, "dtype": "float32"}],
    )
    assert FUSED.flops(configuration) == 4 * 64
    assert FUSED.bytes_moved(configuration) == 4 * (64 + 4 + 4)


def test_a_table_counts_as_far_as_it_is_read() -> None:
    looked_up = group(
        [spec(1000, 8, role="weight"), {"shape": [3], "dtype": "int64"}],
        [("aten.embedding.default", [{"input": 0}, {"input": 1}], [3, 8])],
        [{"node": 0, "dtype": "float32"}],
    )
    assert FUSED.bytes_moved(looked_up) == 4 * 24 + 8 * 3 + 4 * 24
    assert FUSED.traffic(looked_up)[1] == 4 * 24


def test_small_outputs_count_in_the_type_of_the_largest() -> None:
    mixed = group(
        [{"shape": [64, 32], "dtype": "bfloat16"}],
        [
            ("aten.relu.default", [{"input": 0}], [64, 32]),
            ("aten.amax.default", [{"node": 0}, [1]], [64]),
        ],
        [{"node": 1, "dtype": "float32"}, {"node": 0, "dtype": "bfloat16"}],
    )
    assert FUSED.bytes_moved(mixed) == 2 * (64 * 32 + 64 * 32 + 64)
