"""Forced convolutions on a GPU: right, in CUDA graphs, on any stream, or refused with a status."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from opdb.algorithms.convolution import run
from opdb.algorithms.names import ALGORITHMS, GUESS, WINOGRAD, Algorithm
from opdb.errors import RefusedError
from opdb.studies.sweep.measuring import WINOGRAD_FACTOR
from tests.algorithms.cases import CASES, Case, error

FORCED = [algorithm for algorithm in ALGORITHMS.values() if algorithm.is_forced]
LARGE = (
    *CASES,
    Case("ResNet's first", input=(2, 3, 224, 224), channels_out=64, kernel=(7, 7), stride=(2, 2)),
    Case("ResNet's 3x3", input=(2, 64, 56, 56), channels_out=64),
    Case("ResNet's 1x1", input=(2, 64, 56, 56), channels_out=256, kernel=(1, 1), padding=(0, 0)),
    Case("AlexNet's second", input=(2, 64, 27, 27), channels_out=192, kernel=(5, 5)),
)
TOLERANCES = {torch.float32: 5e-3, torch.float16: 1e-2, torch.bfloat16: 3e-2}
"""Winograd's transforms may err twice as much, as `opdb sweep --verify` has it."""

REFUSING = ("NOT_SUPPORTED", "BAD_PARAM", "opdb's direct convolution takes", "names no algorithm")


def result(case: Case, algorithm: Algorithm) -> tuple[Tensor, float] | None:
    """Return a case's output and its error, None where it was refused in cuDNN's own words."""
    call = case.call(algorithm.name, "cuda")
    try:
        output = run(call)
    except RefusedError as refused:
        assert any(word in str(refused) for word in REFUSING)
        return None
    return output, error(output, call)


@pytest.mark.parametrize("tf32", [False, True])
@pytest.mark.parametrize("algorithm", FORCED, ids=lambda a: a.slug)
@pytest.mark.parametrize("case", LARGE, ids=lambda case: case.name)
def test_what_runs_computes_what_torch_computes(
    case: Case, algorithm: Algorithm, tf32: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", tf32)
    found = result(case, algorithm)
    if found is not None:
        factor = WINOGRAD_FACTOR if algorithm.name in (*WINOGRAD, GUESS) else 1.0
        assert found[1] < factor * TOLERANCES[case.dtype]


@pytest.mark.parametrize("algorithm", FORCED, ids=lambda a: a.slug)
def test_a_graph_of_it_replays_to_the_same_output(algorithm: Algorithm) -> None:
    case = Case("", input=(2, 64, 56, 56), channels_out=64)
    if result(case, algorithm) is None:
        pytest.skip("refused on this GPU, as the tests above saw")
    call = case.call(algorithm.name, "cuda")
    wanted = run(call)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = run(call)
    call.input.mul_(2)
    call = call._replace(bias=None)
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    doubled = run(call)
    assert not torch.equal(output, wanted)
    bias = case.call(algorithm.name, "cuda").bias
    assert bias is not None
    torch.testing.assert_close(output, doubled + bias.view(1, -1, 1, 1), rtol=1e-3, atol=1e-3)
