from __future__ import annotations

import pytest

from opdb.algorithms.names import ALGORITHMS, algorithm_named, algorithms_named, numbered
from opdb.errors import UnknownNameError


def test_the_names_are_those_that_people_use() -> None:
    assert list(ALGORITHMS) == [
        "direct",
        "gemm",
        "implicit gemm",
        "implicit precomp gemm",
        "fft",
        "fft tiling",
        "winograd",
        "winograd nonfused",
        "guess",
        "default",
    ]


def test_the_numbers_are_those_of_cudnn() -> None:
    """cudnnConvolutionFwdAlgo_t; 3 is its direct algorithm, which nobody ever implemented."""
    numbers = {a.name: a.number for a in ALGORITHMS.values() if a.number is not None}
    assert numbers == {
        "implicit gemm": 0,
        "implicit precomp gemm": 1,
        "gemm": 2,
        "fft": 4,
        "fft tiling": 5,
        "winograd": 6,
        "winograd nonfused": 7,
    }
    assert all(numbered(number) == name for name, number in numbers.items())
    assert numbered(3) == "cuDNN's algorithm 3"


@pytest.mark.parametrize("name", ["fft tiling", "FFT_TILING", "fft-tiling", " fft  tiling"])
def test_blanks_may_be_spelled_otherwise(name: str) -> None:
    assert algorithm_named(name).slug == "fft_tiling"


def test_an_unknown_name_is_answered_with_all_of_them() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'winograd'") as caught:
        algorithm_named("winogard")
    assert all(name in str(caught.value) for name in ALGORITHMS)


def test_all_names_every_one_and_each_counts_once() -> None:
    assert algorithms_named(["fft", "all", "fft"])[0].name == "fft"
    assert {a.name for a in algorithms_named(["fft", "all", "fft"])} == ALGORITHMS.keys()
    assert len(algorithms_named(["gemm", "gemm"])) == 1


def test_torchs_own_way_is_no_setting() -> None:
    assert not algorithm_named("default").setting
    assert algorithm_named("fft").setting == {"convolution_algorithm": "fft"}
