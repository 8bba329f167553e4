from __future__ import annotations

import pytest

from opdb.errors import InputError, UnknownNameError
from opdb.sweep.stages import STAGES, parse_sizes, sizes_of, spread_sizes


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
