"""Plans of convolutions by cuDNN: descriptors, algorithm and workspace, made once for each."""

from __future__ import annotations

import ctypes
from functools import cache

import torch

from opdb.algorithms import cudnn
from opdb.algorithms.cudnn import Cudnn, Descriptors
from opdb.algorithms.names import algorithm_named, numbered
from opdb.algorithms.problem import Convolution
from opdb.algorithms.workspace import Workspace
from opdb.capturing import is_capturing
from opdb.errors import CannotMeasureError, RefusedError


class Plan:
    """One convolution by one algorithm, ready to run: all that a call needs but the pointers.

    `ran` is the name of the algorithm that runs: the one asked for, or the one that was guessed.
    """

    def __init__(self, planner: Planner, problem: Convolution, algorithm: str) -> None:
        """Prepare a convolution.

        Raises:
            RefusedError: cuDNN does not run it by this algorithm.
            OutOfMemoryError: (torch's) its workspace does not fit.
        """
        problem.check()
        self._planner = planner
        self._descriptors = Descriptors(planner.library, problem)
        try:
            self._number = self._chosen(problem, algorithm)
            self.workspace_bytes = cudnn.workspace_bytes(
                planner.library, planner.handle, self._descriptors, self._number
            )
            planner.workspace.reserve(self.workspace_bytes)
        except (RefusedError, RuntimeError):
            self._descriptors.close()
            raise
        self.ran = numbered(self._number)
        self.output_shape = problem.output
        self._one = cudnn.scalar(problem.dtype, 1.0)
        self._zero = cudnn.scalar(problem.dtype, 0.0)
        self._factors = ctypes.byref(self._one), ctypes.byref(self._zero)
        self._forward = planner.library.forward()

    def _chosen(self, problem: Convolution, algorithm: str) -> int:
        number = algorithm_named(algorithm).number
        if number is not None:
            return number
        found = cudnn.proposed(self._planner.library, self._planner.handle, self._descriptors)
        if cudnn.math_of(problem) != cudnn.FMA_MATH:
            self._descriptors.set_math(found.math)
        return int(found.algorithm)

    def run(self, input_pointer: int, weight_pointer: int, output_pointer: int) -> None:
        """Issue the convolution on torch's current stream.

        Raises:
            RefusedError: cuDNN will not run it after all.
            CudnnError: it failed.
        """
        planner, descriptors = self._planner, self._descriptors
        one, zero = self._factors
        status = self._forward(
            planner.handle,
            one,
            descriptors.input,
            input_pointer,
            descriptors.weight,
            weight_pointer,
            descriptors.convolution,
            self._number,
            planner.workspace_on_current_stream(),
            self.workspace_bytes,
            zero,
            descriptors.output,
            output_pointer,
        )
        planner.library.check("cudnnConvolutionForward", status)

    def close(self) -> None:
        """Give the descriptors back."""
        self._descriptors.close()


class Planner:
    """One device's plans, its cuDNN handle, and the workspace that the plans share.

    What was refused is remembered too, so that no configuration is probed twice.
    """

    def __init__(self, device: torch.device) -> None:
        """Open cuDNN on a device.

        Raises:
            CannotMeasureError: there is no cuDNN 9.
        """
        self.library: Cudnn = cudnn.cudnn()
        self.handle = ctypes.c_void_p()
        with torch.cuda.device(device):
            self.library.call("cudnnCreate", ctypes.byref(self.handle))
        self._device = device
        self.workspace = Workspace(device)
        self._stream: int | None = None
        self._plans: dict[tuple[Convolution, str], Plan | RefusedError] = {}

    def plan(self, problem: Convolution, algorithm: str) -> Plan:
        """Return the plan of a convolution, made and kept where there is none yet.

        Raises:
            RefusedError: cuDNN does not run it by this algorithm.
            CannotMeasureError: a graph is being captured, in which nothing can be prepared.
        """
        key = problem, algorithm
        found = self._plans.get(key)
        if found is None:
            found = self._plans[key] = self._made(problem, algorithm)
        if isinstance(found, RefusedError):
            raise found
        return found

    def refuse(self, problem: Convolution, algorithm: str, error: RefusedError) -> None:
        """Remember that a plan was refused when it ran."""
        found = self._plans.get((problem, algorithm))
        if isinstance(found, Plan):
            found.close()
        self._plans[problem, algorithm] = error

    def _made(self, problem: Convolution, algorithm: str) -> Plan | RefusedError:
        if is_capturing():
            raise CannotMeasureError(
                "a convolution is captured in a CUDA graph before it ever ran by "
                f"{algorithm!r}: run it once first, so that its workspace is ready"
            )
        try:
            return Plan(self, problem, algorithm)
        except RefusedError as error:
            return error

    def workspace_on_current_stream(self) -> int:
        """Point cuDNN at torch's current stream and return where the workspace is for it."""
        stream = torch.cuda.current_stream(self._device)
        if stream.cuda_stream != self._stream:
            self._stream = stream.cuda_stream
            self.library.call("cudnnSetStream", self.handle, self._stream)
        return self.workspace.pointer(stream, capturing=is_capturing())

    def clear(self) -> None:
        """Give descriptors and workspace back; no graph that used them may be replayed after."""
        for plan in self._plans.values():
            if isinstance(plan, Plan):
                plan.close()
        self._plans.clear()
        self.workspace.clear()


@cache
def _planners() -> dict[int, Planner]:
    return {}


def planner_of(device: torch.device) -> Planner:
    """Return the planner of a CUDA device.

    Raises:
        CannotMeasureError: there is no cuDNN 9.
    """
    index = torch.cuda.current_device() if device.index is None else device.index
    planners = _planners()
    if index not in planners:
        planners[index] = Planner(torch.device("cuda", index))
    return planners[index]


def forget_plans() -> None:
    """Give every plan's memory back; no graph that used one may be replayed after."""
    for planner in _planners().values():
        planner.clear()
