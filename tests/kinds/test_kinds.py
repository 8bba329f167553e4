"""Kinds: names, rules, and the absence of torch."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from opdb.errors import UnknownNameError
from opdb.kinds import KINDS, get_kind, register
from opdb.kinds.linear import active_groups
from opdb.kinds.registry import parse_signature
from opdb.records import Configuration


def spec(*shape: int, **more: Any) -> dict[str, Any]:
    return {"shape": list(shape), "dtype": "float32", **more}


def test_kinds_import_no_torch() -> None:
    code = "import sys, opdb.kinds; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_unknown_kind_offers_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="conv2d"):
        get_kind("conv2")


def test_a_duplicate_is_refused() -> None:
    with pytest.raises(ValueError, match="twice"):
        register(get_kind("conv2d"))


def test_a_signature_is_read_without_running_it() -> None:
    signature = parse_signature("input, *shape, alpha=1")
    assert list(signature.parameters) == ["input", "shape", "alpha"]
    with pytest.raises(ValueError, match="malformed"):
        parse_signature("input=print('no')")


def test_a_configuration_of_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="asked about"):
        get_kind("relu").flops(Configuration("add"))


def test_bytes_count_each_distinct_tensor_once() -> None:
    add = get_kind("add")
    twice = Configuration("add", {}, {"input": spec(4, 8), "other": {"same": 0}})
    apart = Configuration("add", {}, {"input": spec(4, 8), "other": spec(4, 8)})
    row = Configuration("add", {}, {"input": spec(4, 8), "other": spec(4, 8, layout=[0, 1])})
    assert add.bytes_moved(twice) == 4 * 32 * 2
    assert add.bytes_moved(apart) == 4 * 32 * 3
    assert add.bytes_moved(row) == 4 * (32 * 2 + 8)
    assert add.flops(apart) == 32


def test_comparisons_write_one_byte() -> None:
    configuration = Configuration("eq", {"other": 0}, {"input": spec(10)})
    assert get_kind("eq").bytes_moved(configuration) == 10 * 4 + 10


def test_convolution_settings_touch_convolutions_alone() -> None:
    assert "cudnn_benchmark" in get_kind("conv2d").settings
    assert get_kind("relu").settings == ()
    assert "mha_fastpath" in get_kind("multi_head_attention").settings


def launches(kind: str, parameters: dict[str, Any], **inputs: Any) -> bool:
    return get_kind(kind).launches(Configuration(kind, parameters, inputs))


def test_what_launches_nothing() -> None:
    channels_last = spec(2, 3, 4, 4, layout="channels_last")
    swapped = spec(2, 4, 3, layout=[12, 1, 4])
    assert not launches("view", {"shape": [2, 48]}, input=spec(2, 3, 16))
    assert not launches("reshape", {"shape": [2, 48]}, input=spec(2, 3, 16))
    assert launches("reshape", {"shape": [24]}, input=swapped)
    assert not launches("reshape", {"shape": [2, 2, 2, 3]}, input=swapped)
    assert not launches("contiguous", {}, input=spec(2, 3))
    assert launches("contiguous", {}, input=channels_last)
    assert launches("flatten", {"start_dim": 1}, input=channels_last)
    assert not launches("to", {}, input=spec(2, 3))
    assert launches("to", {"dtype": {"dtype": "float16"}}, input=spec(2, 3))
    assert not launches("getitem", {"index": [0]}, input=spec(2, 3))
    assert launches("getitem", {"index": [[0, 1]]}, input=spec(2, 3))
    assert not launches("dropout", {}, input=spec(2, 3))
    assert launches("dropout", {"training": True}, input=spec(2, 3))
    assert launches("relu", {}, input=spec(2, 3))


def test_rectified_values_pass_through() -> None:
    rectified, normal = spec(2, 3, 4, 4, values="rectified"), spec(2, 3, 4, 4)

    def values(kind: str, parameters: dict[str, Any], **inputs: Any) -> Any:
        return get_kind(kind).output_values(Configuration(kind, parameters, inputs))

    assert values("relu", {}, input=normal) == "rectified"
    assert values("dropout", {}, input=rectified) == "rectified"
    assert values("flatten", {"start_dim": 1}, input=rectified) == "rectified"
    assert values("cat", {"dim": 1}, tensors=[rectified, {"same": 0}]) == "rectified"
    assert values("cat", {"dim": 1}, tensors=[rectified, normal]) is None
    assert values("conv2d", {}, input=rectified, weight=spec(4, 3, 3, 3)) is None


def waits(kind: str, parameters: dict[str, Any] | None = None, **inputs: Any) -> bool:
    return get_kind(kind).waits(Configuration(kind, parameters or {}, inputs))


def test_the_host_waits_to_count_what_a_mask_keeps() -> None:
    values, mask = spec(8), {"shape": [8], "dtype": "bool"}
    places = {"shape": [3], "dtype": "int64"}
    assert waits("getitem", input=values, index=[mask])
    assert not waits("getitem", input=mask, index=[places]), "a mask that is read is no index"
    assert waits("setitem", input=values, index=[mask], value=spec(3))
    assert not waits("setitem", {"value": 0.5}, input=values, index=[mask])
    assert waits("index_put", input=values, indices=[mask], values=spec(3))


def test_what_synchronises_and_what_is_changed() -> None:
    assert waits("item", input=spec())
    assert waits("nonzero", input=spec(8))
    assert not waits("add", input=spec(8), other=spec(8))
    assert get_kind("add").mutates == ("input",)
    assert all(m in kind.signature.parameters for kind in KINDS.values() for m in kind.mutates)


@pytest.mark.parametrize(
    ("kind", "inputs", "weights"),
    [
        ("linear", {"input": ([4, 8], None), "weight": ([16, 8], "weight")}, 16 * 8 * 4),
        ("relu", {"input": ([4, 8], None)}, 0),
        ("flatten", {"input": ([4, 8], None)}, 0),
        ("embedding", {"input": ([2], None), "weight": ([1000, 8], "weight")}, 2 * 8 * 4),
    ],
)
def test_weight_bytes(kind: str, inputs: dict[str, Any], weights: int) -> None:
    """An embedding reads the rows that it is asked for, not its whole table."""
    specs = {
        name: {"shape": shape, "dtype": "int64" if kind == "embedding" and not role else "float32"}
        | ({"role": role} if role else {})
        for name, (shape, role) in inputs.items()
    }
    assert get_kind(kind).weight_bytes(Configuration(kind, {}, specs)) == weights


def test_a_window_that_reaches_beyond_its_input_counts_what_it_finds_there() -> None:
    """torch lets it, rounding up: EfficientNet of transformers pools 18 × 18 by 2560 × 2560."""

    def flops(kind: str, shape: tuple[int, ...], **parameters: Any) -> int:
        return get_kind(kind).flops(Configuration(kind, parameters, {"input": spec(*shape)}))

    beyond = {"kernel_size": [2560, 2560], "ceil_mode": True}
    assert flops("avg_pool2d", (2, 640, 18, 18), **beyond) == 2 * 640 * 18 * 18
    assert flops("max_pool2d", (2, 6, 8, 8), kernel_size=[3, 3], padding=1) == 2 * 6 * 3**2 * 9
    assert flops("lp_pool1d", (2, 6, 8), norm_type=2.0, kernel_size=20, ceil_mode=True) == 2 * 6 * 8


def test_a_bag_reads_the_rows_that_it_is_asked_for() -> None:
    bag = get_kind("embedding_bag")
    inputs = {
        "input": spec(12, dtype="int64"),
        "weight": spec(1000, 4, role="weight"),
        "offsets": spec(4, dtype="int64"),
    }
    plain = Configuration("embedding_bag", {}, inputs)
    assert bag.shapes_rule(bag.view(plain)) == [[4, 4]]
    assert bag.bytes_moved(plain) == 8 * 12 + 8 * 4 + 4 * 12 * 4 + 4 * 4 * 4
    assert bag.weight_bytes(plain) == 4 * 12 * 4
    assert bag.flops(plain) == 12 * 4
    ended = Configuration("embedding_bag", {"include_last_offset": True}, inputs)
    assert bag.shapes_rule(bag.view(ended)) == [[3, 4]]
    weighted = Configuration("embedding_bag", {}, {**inputs, "per_sample_weights": spec(12)})
    assert bag.flops(weighted) == 2 * 12 * 4
    small = Configuration("embedding_bag", {}, {**inputs, "weight": spec(3, 4, role="weight")})
    assert bag.weight_bytes(small) == 4 * 3 * 4


@pytest.mark.parametrize(
    ("kind", "parameters", "given", "flops"),
    [
        ("fft", {}, [4, 64], 5 * 4 * 64 * 6),
        ("fft", {"n": 64}, [4, 8], 5 * 4 * 64 * 6),
        ("fft", {"dim": 0}, [4, 64], 5 * 64 * 4 * 2),
        ("fft2", {}, [3, 4, 64], 5 * 3 * 256 * 8),
        ("fftn", {}, [4, 8, 16], 5 * 512 * 9),
        ("fftn", {"s": [4, 32]}, [4, 8, 16], 5 * 4 * 128 * 7),
        ("fftn", {"dim": [0, 1]}, [4, 8, 16], 5 * 512 * 5),
        ("rfft", {}, [4, 64], 2.5 * 4 * 64 * 6),
        ("irfft", {}, [4, 33], 2.5 * 4 * 64 * 6),
        ("irfft", {"n": 64}, [4, 33], 2.5 * 4 * 64 * 6),
        ("irfft2", {}, [4, 16, 33], 2.5 * 4 * 1024 * 10),
    ],
)
def test_a_fourier_transform_counts_the_points_that_it_transforms(
    kind: str, parameters: dict[str, Any], given: list[int], flops: float
) -> None:
    """All axes where none are named, as many points as asked for, of real ones half of it all."""
    assert get_kind(kind).flops(Configuration(kind, parameters, {"input": spec(*given)})) == flops


@pytest.mark.parametrize(
    ("kind", "parameters", "inputs", "moved"),
    [
        ("zero", {}, {}, 8000),
        ("fill", {"value": 1.0}, {}, 8000),
        ("normal", {}, {}, 8000),
        ("bernoulli", {"p": 0.5}, {}, 8000),
        ("copy", {}, {"src": spec(1000, 2)}, 16000),
        ("copy", {}, {"src": spec(2)}, 8008),
        ("copy", {}, {"src": spec(1000, 2, dtype="int64")}, 24000),
    ],
)
def test_what_is_written_over_is_not_read(
    kind: str, parameters: dict[str, Any], inputs: dict[str, Any], moved: int
) -> None:
    given = {"input": spec(1000, 2, dtype="float32"), **inputs}
    configuration = Configuration(kind, {"inplace": True, **parameters}, given)
    assert get_kind(kind).bytes_moved(configuration) == moved


_ROW = {"dim": 0, "index": spec(1, dtype="int64")}


@pytest.mark.parametrize(
    ("kind", "parameters", "inputs", "adds"),
    [
        ("index_copy", {"dim": 0}, {"index": _ROW["index"], "source": spec(1, 2)}, False),
        ("index_add", {"dim": 0}, {"index": _ROW["index"], "source": spec(1, 2)}, True),
        ("index_put", {}, {"indices": [_ROW["index"]], "values": spec(1, 2)}, False),
        (
            "index_put",
            {"accumulate": True},
            {"indices": [_ROW["index"]], "values": spec(1, 2)},
            True,
        ),
    ],
)
def test_what_is_put_in_places_touches_these_alone(
    kind: str, parameters: dict[str, Any], inputs: dict[str, Any], adds: bool
) -> None:
    """Out of place the whole input is copied beside it."""
    given = {"input": spec(1000, 2), **inputs}
    known = get_kind(kind)
    inplace = Configuration(kind, {"inplace": True, **parameters}, given)
    assert known.bytes_moved(inplace) == 8 + 8 + 8 * (1 + adds)
    assert known.flops(inplace) == 2 * adds
    assert known.bytes_moved(Configuration(kind, parameters, given)) == 8 + 8 + 8000 + 8000


def test_what_is_scattered_goes_to_as_many_places_as_there_are_indices() -> None:
    index, source = spec(3, 1, dtype="int64"), spec(3, 1)
    given = {"input": spec(1000, 2), "index": index, "src": source}
    for kind, more, adds in (
        ("scatter", {}, False),
        ("scatter", {"reduce": "add"}, True),
        ("scatter_add", {}, True),
        ("scatter_reduce", {"reduce": "amax"}, True),
    ):
        configuration = Configuration(kind, {"dim": 0, "inplace": True, **more}, given)
        assert get_kind(kind).bytes_moved(configuration) == 3 * (8 + 4 + 4 * (1 + adds)), kind
        assert get_kind(kind).flops(configuration) == 3 * adds, kind


def test_autocast_writes_halves_of_products_and_float32_of_all_else_that_it_casts() -> None:
    def written(kind: str, autocast: str | None, dtype: str, **inputs: Any) -> int:
        given = {"input": {"shape": [4, 8], "dtype": dtype}, **inputs}
        return get_kind(kind).output_bytes(Configuration(kind, {}, given, autocast=autocast))

    weight = spec(16, 8, role="weight")
    assert written("linear", None, "float32", weight=weight) == 4 * 16 * 4
    assert written("linear", "bfloat16", "float32", weight=weight) == 4 * 16 * 2
    assert written("linear", "bfloat16", "bfloat16", weight=weight) == 4 * 16 * 2
    assert written("softmax", "bfloat16", "bfloat16") == 4 * 8 * 4
    assert written("linear", "bfloat16", "float64", weight=weight) == 4 * 16 * 8
    assert written("cdist", "bfloat16", "float32", x1=spec(4, 8), x2=spec(4, 8)) == 4 * 4 * 4


def test_groups_that_get_no_row_are_not_read() -> None:
    """Of 128 groups, 16 rows reach 15.1 on average: 128 · (1 - (127/128)^16)."""
    assert active_groups(128, 16) == pytest.approx(15.1, abs=0.05)
    assert active_groups(128, 16, imbalance=1.0) < 13
    assert active_groups(8, 100_000) == pytest.approx(8)
    weight = {"dtype": "bfloat16", "role": "weight", "shape": [128, 64, 32]}
    rows = {"dtype": "bfloat16", "shape": [16, 64]}
    inputs = {"input": rows, "mat2": weight, "offs": {"dtype": "int32", "shape": [128]}}
    moved, weights = get_kind("grouped_mm").traffic(Configuration("grouped_mm", {}, inputs))
    assert weights == pytest.approx(15.1 * 64 * 32 * 2, rel=0.01)
    assert moved - weights == 16 * 64 * 2 + 16 * 32 * 2 + 128 * 4
