"""Plans and the shared workspace, the GPU itself played: real descriptors, a played handle."""

from __future__ import annotations

import ctypes
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch

from opdb.algorithms import cudnn
from opdb.algorithms.cudnn import (
    ConvolutionShapes,
    Cudnn,
    CudnnError,
    Descriptors,
    Planner,
    Workspace,
    math_of,
)
from opdb.errors import CannotMeasureError, RefusedError
from tests.algorithms.cases import CASES, Case

CPU = torch.device("cpu")
NUMBERS = {"implicit gemm": 0, "gemm": 2, "fft": 4}


class Stream:
    """A stream that notes for which it waits."""

    def __init__(self, number: int) -> None:
        self.cuda_stream = number
        self.waited: list[Stream] = []

    def wait_stream(self, other: Stream) -> None:
        self.waited.append(other)


class Played(Cudnn):
    """cuDNN as torch brings it, but for what needs a GPU: needs of 100 bytes times the number."""

    def __init__(self) -> None:
        super().__init__()
        self.issued: list[tuple[int, int, int]] = []
        self.status = 0
        self._functions |= {
            "cudnnCreate": lambda *_: 0,
            "cudnnSetStream": lambda *_: 0,
            "cudnnGetConvolutionForwardWorkspaceSize": self._size,
            "cudnnGetConvolutionForwardAlgorithm_v7": self._propose,
            "cudnnConvolutionForward": self._run,
        }

    def _size(self, *arguments: Any) -> int:
        number, size = arguments[5:]
        if number == NUMBERS["fft"]:
            return 3000
        ctypes.cast(size, ctypes.POINTER(ctypes.c_size_t))[0] = 100 * number
        return 0

    def _propose(self, *arguments: Any) -> int:
        found, proposals = arguments[6:]
        ctypes.cast(found, ctypes.POINTER(ctypes.c_int))[0] = 2
        proposals[0].algorithm, proposals[0].status = NUMBERS["fft"], 3000
        proposals[1].algorithm, proposals[1].math = NUMBERS["gemm"], cudnn.TENSOR_OP_MATH
        return 0

    def _run(self, *arguments: Any) -> int:
        number, pointer, size = arguments[7:10]
        self.issued.append((number, pointer, size))
        return self.status


@pytest.fixture
def capturing(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Play a GPU; the list's last entry says whether a graph is being captured."""
    state = [False]
    for name, played in (
        ("synchronize", lambda *_: None),
        ("device", lambda *_: nullcontext()),
        ("current_stream", lambda *_: Stream(7)),
        ("is_current_stream_capturing", lambda: state[-1]),
    ):
        monkeypatch.setattr(torch.cuda, name, played)
    return state


@pytest.fixture
def played(capturing: list[bool], monkeypatch: pytest.MonkeyPatch) -> tuple[Planner, Played]:
    try:
        library = Played()
    except CannotMeasureError as error:
        pytest.skip(f"this torch is built without cuDNN 9: {error}")
    monkeypatch.setattr(cudnn, "cudnn", lambda: library)
    return Planner(CPU), library


def problem(**changes: Any) -> ConvolutionShapes:
    return Case("", **changes).call("gemm").problem()


def test_a_plan_is_made_once_and_runs_what_it_was_told(played: tuple[Planner, Played]) -> None:
    planner, library = played
    plan = planner.plan(problem(), "gemm")
    assert planner.plan(problem(), "gemm") is plan
    assert planner.plan(problem(stride=(2, 2)), "gemm") is not plan
    plan.run(1, 2, 3)
    pointer = planner.workspace.pointer(Stream(7), capturing=True)  # type: ignore[arg-type]
    assert library.issued == [(NUMBERS["gemm"], pointer, 200)]
    assert plan.ran == "gemm" and plan.output_shape == (2, 8, 9, 8)


def test_a_refusal_is_probed_once(played: tuple[Planner, Played]) -> None:
    planner, library = played
    found = []
    for _ in range(2):
        with pytest.raises(RefusedError, match=r"NOT_SUPPORTED \(3000\)") as caught:
            planner.plan(problem(), "fft")
        found.append(caught.value)
    assert found[0] is found[1] and found[0].status == 3000
    assert not library.issued


def test_what_is_refused_when_it_runs_is_remembered(played: tuple[Planner, Played]) -> None:
    planner, library = played
    library.status = 3007
    plan = planner.plan(problem(), "gemm")
    with pytest.raises(RefusedError, match="ARCH_MISMATCH") as caught:
        plan.run(1, 2, 3)
    planner.refuse(problem(), "gemm", caught.value)
    with pytest.raises(RefusedError, match="ARCH_MISMATCH"):
        planner.plan(problem(), "gemm")
    library.status = 5000
    with pytest.raises(CudnnError, match="EXECUTION_FAILED"):
        planner.plan(problem(), "implicit gemm").run(1, 2, 3)


def test_a_guess_is_the_first_that_can_run(played: tuple[Planner, Played]) -> None:
    planner, library = played
    plan = planner.plan(problem(), "guess")
    plan.run(1, 2, 3)
    assert plan.ran == "gemm" and library.issued[0][0] == NUMBERS["gemm"]


def test_nothing_is_prepared_inside_a_graph(
    played: tuple[Planner, Played], capturing: list[bool]
) -> None:
    planner, _ = played
    known = planner.plan(problem(), "gemm")
    capturing.append(True)
    assert planner.plan(problem(), "gemm") is known
    with pytest.raises(CannotMeasureError, match="run it once first"):
        planner.plan(problem(stride=(2, 2)), "gemm")
    capturing.append(False)
    assert planner.plan(problem(stride=(2, 2)), "gemm").ran == "gemm"


def test_the_workspace_grows_and_keeps_what_a_graph_has(capturing: list[bool]) -> None:
    workspace = Workspace(CPU)
    one: Any = Stream(1)
    workspace.reserve(100)
    small = workspace.pointer(one, capturing=True)
    workspace.reserve(50)
    assert workspace.pointer(one, capturing=True) == small
    workspace.reserve(10_000)
    assert [memory.nbytes for memory in workspace._captured] == [100]
    assert workspace._captured[0].data_ptr() == small
    workspace.clear()
    assert not workspace._captured and not workspace._memory.nbytes


def test_streams_take_turns_with_the_workspace(capturing: list[bool]) -> None:
    workspace = Workspace(CPU)
    one, two, graph = Stream(1), Stream(2), Stream(3)
    for stream, inside in ((one, False), (one, False), (two, False), (graph, True), (one, False)):
        workspace.pointer(stream, capturing=inside)  # type: ignore[arg-type]
    assert two.waited == [one] and one.waited == [two] and graph.waited == []


@pytest.fixture
def library() -> Cudnn:
    """cuDNN, whose descriptors need no GPU."""
    try:
        return cudnn.cudnn()
    except CannotMeasureError as error:
        pytest.skip(f"this torch is built without cuDNN 9: {error}")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_cudnn_and_torch_agree_about_the_output(case: Case, library: Cudnn) -> None:
    """Every descriptor is taken, so no argument stands in another's place."""
    call = case.call("fft")
    problem = call.problem()
    descriptors = Descriptors(library, problem)
    wanted = tuple(torch.nn.functional.conv2d(*call[:-1]).shape)
    assert descriptors.output_shape() == problem.output == wanted
    descriptors.close()
    descriptors.close()  # once more does nothing


def test_no_library_is_said_plainly() -> None:
    with pytest.raises(CannotMeasureError, match=r"libnothing\.so\.9.*install a torch built"):
        Cudnn("libnothing.so.9")


@pytest.mark.parametrize(
    ("dtype", "tf32", "math"),
    [
        ("float32", True, cudnn.DEFAULT_MATH),
        ("float32", False, cudnn.FMA_MATH),
        ("float16", False, cudnn.TENSOR_OP_MATH),
        ("bfloat16", False, cudnn.DEFAULT_MATH),
    ],
)
def test_the_arithmetic_is_what_torch_allows(dtype: str, tf32: bool, math: int) -> None:
    problem = replace(Case("").call("fft").problem(), dtype=dtype, tf32=tf32)
    assert math_of(problem) == math
