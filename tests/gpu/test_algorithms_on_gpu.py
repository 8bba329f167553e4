"""Forced convolutions on a GPU: right, in CUDA graphs, on any stream, or refused with a status."""

from __future__ import annotations

import pytest
import torch
import torchvision
from torch import Tensor

from opdb.algorithms.convolution import run, swapped
from opdb.algorithms.cudnn import forget_plans, planner_of
from opdb.algorithms.names import ALGORITHMS, GUESS, WINOGRAD, Algorithm
from opdb.bench.replay import launched_kernels
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
        output = run(*call)
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


@pytest.mark.parametrize("name", ["implicit gemm", "implicit precomp gemm", "gemm", "direct"])
def test_the_plain_algorithms_run_a_plain_convolution(name: str) -> None:
    assert result(Case("plain"), ALGORITHMS[name]) is not None


@pytest.mark.parametrize("algorithm", FORCED, ids=lambda a: a.slug)
def test_a_graph_of_it_replays_to_the_same_output(algorithm: Algorithm) -> None:
    case = Case("", input=(2, 64, 56, 56), channels_out=64)
    if result(case, algorithm) is None:
        pytest.skip("refused on this GPU, as the tests above saw")
    call = case.call(algorithm.name, "cuda")
    wanted = run(*call)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = run(*call)
    call.input.mul_(2)
    call = call._replace(bias=None)
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    doubled = run(*call)
    assert not torch.equal(output, wanted)
    bias = case.call(algorithm.name, "cuda").bias
    assert bias is not None
    torch.testing.assert_close(output, doubled + bias.view(1, -1, 1, 1), rtol=1e-3, atol=1e-3)
    del graph
    forget_plans()


def test_several_streams_share_the_workspace_in_order() -> None:
    call = Case("", input=(8, 64, 56, 56), channels_out=64).call("fft tiling", "cuda")
    wanted = run(*call)
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in range(3)]
    outputs = []
    for number in range(12):
        with torch.cuda.stream(streams[number % 3]):
            outputs.append(run(*call))
    torch.cuda.synchronize()
    assert all(torch.equal(output, wanted) for output in outputs)


def test_plans_give_their_memory_back() -> None:
    forget_plans()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    call = Case("", input=(4, 64, 112, 112), channels_out=64).call("fft tiling", "cuda")
    output = run(*call)
    assert planner_of(output.device).workspace.pointer(torch.cuda.current_stream(), capturing=False)
    del call, output
    forget_plans()
    assert torch.cuda.memory_allocated() == before


@pytest.mark.parametrize("algorithm", FORCED, ids=lambda a: a.slug)
def test_a_model_computes_the_same_under_each(algorithm: Algorithm) -> None:
    model = torchvision.models.resnet18(weights=None).eval().cuda()
    image = torch.randn(2, 3, 224, 224, device="cuda")
    with torch.no_grad():
        wanted = model(image)
        with swapped(model, algorithm) as done:
            output = model(image)
            assert len(done.forced) + len(done.refused) == 20
            again = model(image)
    scale = float(wanted.abs().max())
    assert float((output - wanted).abs().max()) < 2e-2 * scale
    assert float((again - wanted).abs().max()) < 2e-2 * scale


def test_other_algorithms_run_other_kernels() -> None:
    case = Case("", input=(2, 64, 56, 56), channels_out=64, bias=False)
    seen = {}
    for name in ("implicit gemm", "implicit precomp gemm", "fft tiling", "direct"):
        call = case.call(name, "cuda")
        run(*call)
        seen[name] = launched_kernels(lambda call=call: run(*call))  # type: ignore[misc]
    assert all(seen.values())
    assert seen["fft tiling"] != seen["implicit gemm"]
    assert any("opdb_direct_convolution" in kernel for kernel in seen["direct"] or ())
