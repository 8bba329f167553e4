"""`opdb::conv2d_forward`: a torch operator that convolves by a named algorithm.

It runs on torch's current stream and can be captured in a CUDA graph once it ran outside one: the
first call prepares descriptors and workspace and probes the algorithm, and every call of the same
shapes uses them. It never takes another algorithm than the one named: what cannot run is
a RefusedError. The bias is added by a kernel of its own, as torch does beside cuDNN.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from opdb.algorithms.names import DEFAULT, DIRECT, algorithm_named
from opdb.algorithms.plans import planner_of
from opdb.algorithms.problem import Convolution
from opdb.errors import CannotMeasureError, RefusedError

NAME = "opdb::conv2d_forward"

torch.library.define(
    NAME,
    "(Tensor input, Tensor weight, Tensor? bias, SymInt[2] stride, SymInt[2] padding, "
    "SymInt[2] dilation, SymInt groups, str algorithm) -> Tensor",
)


class ForcedCall(NamedTuple):
    """The arguments of the operator: those of torch's conv2d, pairs as (height, width), and a name.

    Calling `run` with them in this order is the way to call the operator.
    """

    input: Tensor
    weight: Tensor
    bias: Tensor | None
    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    groups: int
    algorithm: str

    def problem(self) -> Convolution:
        """Describe the convolution, in the layout in which torch would run it.

        Raises:
            RefusedError: these are no images and weights of one type.
        """
        input, weight = self.input, self.weight
        if input.dim() != 4 or weight.dim() != 4:
            raise RefusedError(
                f"a convolution of an input of {input.dim()} axes with weights of "
                f"{weight.dim()}: both need four"
            )
        if input.dtype != weight.dtype:
            raise RefusedError(f"a convolution of {input.dtype} with weights of {weight.dtype}")
        return Convolution(
            tuple(input.shape),
            tuple(weight.shape),
            tuple(self.stride),
            tuple(self.padding),
            tuple(self.dilation),
            self.groups,
            str(input.dtype).removeprefix("torch."),
            _is_channels_last(input) or _is_channels_last(weight),
            tf32_allowed(),
        )

    def ran(self) -> str:
        """Return the algorithm by which this convolution, which ran before, is run.

        It is the one that is named, or the one that cuDNN guessed.

        Raises:
            RefusedError: it did not run.
        """
        if self.algorithm == DIRECT:
            return DIRECT
        return planner_of(self.input.device).plan(self.problem(), self.algorithm).ran


def run(*arguments: Any) -> Tensor:
    """Convolve: the arguments are those of a `ForcedCall`, in its order.

    Raises:
        RefusedError: the algorithm cannot run this convolution; the message says what cuDNN said.
        CudnnError: cuDNN failed at it.
        CannotMeasureError: the algorithm needs a GPU or a library that is not there.
    """
    made: Tensor = torch.ops.opdb.conv2d_forward.default(*arguments)
    return made


def tf32_allowed() -> bool:
    """Whether torch lets float32 convolutions be rounded to TF32 in this process."""
    conv = getattr(torch.backends.cudnn, "conv", None)  # torch 2.9 and later
    if conv is not None:
        return bool(conv.fp32_precision == "tf32")
    return bool(torch.backends.cudnn.allow_tf32)


def layout_of(problem: Convolution) -> torch.memory_format:
    """Return the memory format in which a convolution reads and writes its tensors."""
    return torch.channels_last if problem.channels_last else torch.contiguous_format


def _is_channels_last(tensor: Tensor) -> bool:
    """Whether a tensor's layout is that and no other: of one channel or pixel it is both."""
    last = tensor.is_contiguous(memory_format=torch.channels_last)
    return last and not tensor.is_contiguous()


def _on_cuda(*arguments: Any) -> Tensor:
    call = ForcedCall(*arguments)
    device = call.input.device
    if call.algorithm == DIRECT:
        with torch.cuda.device(device):
            return _direct(call)
    _check_forced(call.algorithm)
    problem = call.problem()
    layout = layout_of(problem)
    planner = planner_of(device)
    with torch.cuda.device(device):
        plan = planner.plan(problem, call.algorithm)
        input, weight = (t.contiguous(memory_format=layout) for t in (call.input, call.weight))
        output = torch.empty(
            plan.output_shape, dtype=input.dtype, device=device, memory_format=layout
        )
        try:
            plan.run(input.data_ptr(), weight.data_ptr(), output.data_ptr())
        except RefusedError as error:
            planner.refuse(problem, call.algorithm, error)
            raise
        if call.bias is not None:
            output.add_(call.bias.view(1, -1, 1, 1))
    return output


def _on_cpu(*arguments: Any) -> Tensor:
    call = ForcedCall(*arguments)
    if call.algorithm == DIRECT:
        return _direct(call)
    _check_forced(call.algorithm)
    raise CannotMeasureError(
        f"the algorithm {call.algorithm!r} is cuDNN's and needs an NVIDIA GPU; on a CPU there is "
        f"{DEFAULT!r} alone"
    )


def _direct(call: ForcedCall) -> Tensor:
    try:
        from opdb.algorithms.direct import direct, runs_on
    except ImportError as error:
        raise CannotMeasureError(
            f"opdb's direct convolution needs Triton, which is not here: {error}"
        ) from error
    if not runs_on(call.input.device):
        raise CannotMeasureError(
            f"the algorithm {call.algorithm!r} is a kernel of opdb's own and needs a GPU; on a "
            f"CPU there is {DEFAULT!r} alone"
        )
    problem = call.problem()
    problem.check()
    return direct(problem, call.input, call.weight, call.bias)


def _check_forced(algorithm: str) -> None:
    """Check that a name is that of an algorithm which can be forced.

    Raises:
        UnknownNameError: there is none of that name.
        RefusedError: it names what torch runs.
    """
    if not algorithm_named(algorithm).is_forced:
        raise RefusedError(f"the algorithm {algorithm!r} is torch's own: call torch's conv2d")


def _fake(*arguments: Any) -> Tensor:
    """Return an output of the right shape and layout, for meta tensors and compilers."""
    call = ForcedCall(*arguments)
    problem = call.problem()
    return call.input.new_empty(problem.output).to(memory_format=layout_of(problem))


torch.library.impl(NAME, "cuda", _on_cuda)
torch.library.impl(NAME, "cpu", _on_cpu)
torch.library.register_fake(NAME, _fake)
