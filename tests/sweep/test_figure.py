from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from opdb.algorithms.names import algorithm_named
from opdb.studies.sweep.files import _handle, draw_curves, figures
from opdb.studies.sweep.rows import Row
from tests.sweep.test_rows import FFT, PARTIAL, RUN, row

PNG = b"\x89PNG"


@pytest.fixture(autouse=True)
def drawn() -> Iterator[None]:
    pytest.importorskip("matplotlib")
    yield


def at(size: int, algorithm: str = "fft", **changes: object) -> Row:
    cell = replace(FFT, size=size, algorithm=algorithm_named(algorithm))
    return row(replace(RUN, **changes), cell)  # type: ignore[arg-type]


def test_curves_are_drawn_of_full_partial_and_missing_cells() -> None:
    bare = tuple(replace(each, power_samples=()) for each in RUN.repeats)
    full = draw_curves([at(224), at(256, "gemm")], "made")
    assert full.startswith(PNG)
    assert draw_curves([at(224), at(256, facts=PARTIAL)], "made") != full
    assert draw_curves([at(224, repeats=bare)], "made").startswith(PNG)
    none = at(224, outcome="unsupported", repeats=(), layers=None)
    assert draw_curves([none], "made").startswith(PNG)


def test_what_ran_nowhere_and_what_ran_the_same_kernels_is_named() -> None:
    good, same = at(224), replace(at(256), same_as="gemm")
    none = at(224, outcome="unsupported", repeats=(), layers=None)
    for rows, words in (
        ([good, good], "fft"),
        ([good, same], "fft"),
        ([same, none], "fft:\nkernels of gemm"),
        ([none], "fft:\nunsupported"),
        ([at(224, outcome="out_of_memory", repeats=())], "fft:\nout of memory"),
    ):
        assert _handle("fft", rows).get_label() == words


def test_layers_are_drawn_at_the_largest_size_of_each_algorithm() -> None:
    rows = [at(512), at(224), at(224, "gemm"), at(256, "direct", layers=None)]
    names = [name for name, _ in figures(rows, "gpu")]
    assert names == [
        "made_gpu_b2.png",
        "made_gpu_b2_fft_layers.png",
        "made_gpu_b2_gemm_layers.png",
    ]
