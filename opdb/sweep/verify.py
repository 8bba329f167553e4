"""What proves that an algorithm ran: layers replaced, outputs, kernels, the time beside torch's.

The kernels come from torch's profiler, after everything else: once it has run, each launch costs
the host more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from opdb.algorithms.names import GUESS, WINOGRAD
from opdb.algorithms.swap import Swap, swapped
from opdb.bench.forced import KIND
from opdb.bench.platform import Platform
from opdb.bench.replay import capture, mean_time_s, warm_up
from opdb.bench.session import Session, open_session, release
from opdb.bench.visit import refusal
from opdb.errors import CannotMeasureError, DatabaseError, OpdbError
from opdb.meters import NoMeter
from opdb.models import load
from opdb.models.construction import ANY_FAILURE, seeded
from opdb.models.norms import calibrate_batch_norms
from opdb.records import Workload
from opdb.sweep.specs import SweepSpec

LAYER_TOLERANCES = {"float64": 1e-6, "float32": 5e-3, "float16": 2e-2, "bfloat16": 6e-2}
"""The largest error of a layer's output, as a share of its largest value, against torch's own.

In float32, TF32 errs by 3e-4."""

WINOGRAD_FACTOR = 2.0
"""Winograd's transforms may err so many times as much: that of 5x5 errs by 5.4e-3 in float32 (seen
on an H200), with FMA alone. What cuDNN guesses may be one."""

OUTPUT_TOLERANCE = 5.0
"""The model's outputs may err so many times as much: errors add up over layers."""

PASSES = 10


@dataclass(frozen=True)
class Verification:
    """What was seen of one algorithm in a model at one size.

    `forced` of the `convolutions` calls ran by the algorithm, `refused` says why others did not.
    Errors are shares of the largest value; `time_s` and `default_s` are of one pass. `kernels`
    counts what the profiler saw of one pass on the device, None on a processor. `failure` says why
    it could not be looked at.
    """

    cell: SweepSpec
    convolutions: int
    forced: int = 0
    refused: Mapping[str, str] | None = None
    layer_error: float | None = None
    worst_layer: str | None = None
    output_error: float | None = None
    time_s: float | None = None
    default_s: float | None = None
    kernels: Mapping[str, int] | None = None
    same_kernels_as: str | None = None
    failure: str | None = None

    @property
    def tolerance(self) -> float:
        """The largest error of a layer that is allowed."""
        allowed = LAYER_TOLERANCES[self.cell.request.dtype]
        name = self.cell.algorithm.name
        return WINOGRAD_FACTOR * allowed if name in (*WINOGRAD, GUESS) else allowed

    @property
    def holds(self) -> bool:
        """Whether it was looked at, and every error is within the tolerance.

        What torch itself runs is what the others are held against.
        """
        if self.failure is not None or not self.cell.algorithm.is_forced:
            return self.failure is None
        layer, output = self.layer_error or 0.0, self.output_error or 0.0
        return layer <= self.tolerance and output <= OUTPUT_TOLERANCE * self.tolerance


def unmetered(platform: Platform) -> Session:
    """Return a session in which nothing is metered, and which is not stored."""
    return open_session(platform, NoMeter("verifying takes no power"))


def verify(session: Session, cells: Sequence[SweepSpec], workload: Workload) -> list[Verification]:
    """Verify the algorithms of the cells of one model at one size.

    Raises:
        CannotMeasureError: the device stopped answering.
    """
    convolutions = sum(call.configuration.kind == KIND for call in workload.calls)

    def step() -> Any:
        with torch.no_grad():
            return loaded.module(*loaded.args, **loaded.kwargs)

    try:
        loaded = load(cells[0].request, device=session.platform.torch_device)
        calibrate_batch_norms(loaded)
        own, default_s = _output(session, step), _pass_s(session, step, cells[0])
    except ANY_FAILURE as error:  # a model's code may raise anything
        failure = _failure(session, error)
        return [Verification(cell, convolutions, failure=failure) for cell in cells]
    found = []
    for cell in cells:
        plain = Verification(cell, convolutions, default_s=default_s)
        try:
            found.append(_looked_at(session, plain, loaded.module, step, own))
        except ANY_FAILURE as error:
            found.append(replace(plain, failure=_failure(session, error)))
        release(session)
    if session.on_gpu:
        found = [_with_kernels(each, loaded.module, step) for each in found]
    return _with_same_kernels(found)


def _output(session: Session, step: Callable[[], Any]) -> Any:
    """Return what a pass computes; one that draws random numbers draws the same ones every time."""
    with seeded(session.platform.torch_device):
        return step()


def _failure(session: Session, error: BaseException) -> str:
    """Say why something could not be looked at.

    Raises:
        CannotMeasureError: the device stopped answering.
        DatabaseError: it was the database.
    """
    if isinstance(error, (CannotMeasureError, DatabaseError)):
        raise error
    session.check_alive()
    return str(error) if isinstance(error, OpdbError) else ": ".join(refusal(error))


def _looked_at(
    session: Session, plain: Verification, module: nn.Module, step: Callable[[], Any], own: Any
) -> Verification:
    with swapped(module, plain.cell.algorithm) as swap:
        errors = _Errors(swap)
        with errors.watching():
            output = _output(session, step)
        time_s = _pass_s(session, step, plain.cell)
        worst = max(errors.found, key=lambda path: errors.found[path], default=None)
        return replace(
            plain,
            forced=sum(errors.calls[path] for path in swap.forced),
            refused=dict(swap.refused),
            layer_error=None if worst is None else errors.found[worst],
            worst_layer=worst,
            output_error=_largest_error(output, own),
            time_s=time_s,
        )


class _Errors:
    """The largest error of each forced layer's output against torch's on the same input."""

    def __init__(self, swap: Swap) -> None:
        self._swap = swap
        self.found: dict[str, float] = {}
        self.calls: Counter[str] = Counter()

    def watching(self) -> ExitStack:
        """Watch every layer that was swapped until the stack is closed."""
        stack = ExitStack()
        for path, layer in self._swap.layers.items():
            handle = layer.module.register_forward_hook(self._hook(path))
            stack.callback(handle.remove)
        return stack

    def _hook(self, path: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
            assert isinstance(module, nn.Conv2d)
            own = nn.Conv2d._conv_forward(module, args[0], module.weight, module.bias)
            error = _error(output, own)
            self.found[path] = max(self.found.get(path, 0.0), error)
            self.calls[path] += 1

        return hook


def _error(output: Tensor, own: Tensor) -> float:
    """Return the largest difference as a share of the largest value.

    Where torch's own is infinite or no number, so must the other be; else the error is infinite.
    """
    one, other = output.float(), own.float()
    same = (one == other) | (one.isnan() & other.isnan())
    difference = (one - other).abs().masked_fill(same, 0.0).max()
    finite = other.abs().masked_fill(~other.isfinite(), 0.0)
    share = float(difference / finite.max().clamp_min(torch.finfo(torch.float32).tiny))
    return share if share == share else float("inf")


def _largest_error(output: Any, own: Any) -> float:
    """Return the largest error of a model's outputs, however they are nested."""
    if isinstance(own, Tensor):
        return _error(output, own) if own.is_floating_point() and own.numel() else 0.0
    if isinstance(own, Mapping):
        return max((_largest_error(output[name], own[name]) for name in own), default=0.0)
    if isinstance(own, (list, tuple)):
        pairs = zip(output, own, strict=True)
        return max((_largest_error(one, other) for one, other in pairs), default=0.0)
    return 0.0


def _pass_s(session: Session, step: Callable[[], Any], cell: SweepSpec) -> float:
    """Return the mean time of a pass in the cell's mode, in seconds."""
    if cell.mode != "graph":
        step()
        return mean_time_s(step, session.clock, PASSES)
    warm_up(step)
    graph = capture(step, 1)
    graph.replay()
    return mean_time_s(graph.replay, session.clock, PASSES)


def _with_kernels(seen: Verification, module: nn.Module, step: Callable[[], Any]) -> Verification:
    if seen.failure is not None:
        return seen
    with swapped(module, seen.cell.algorithm):
        step()
        return replace(seen, kernels=profiled_kernels(step))


def profiled_kernels(step: Callable[[], Any]) -> dict[str, int]:
    """Count by name what torch's profiler sees one run of `step` do on the GPU."""
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        step()
        torch.cuda.synchronize()
    on_device = torch.autograd.DeviceType.CUDA  # type: ignore[attr-defined]
    return dict(Counter(e.name for e in profiler.events() if e.device_type == on_device))


def _with_same_kernels(found: Sequence[Verification]) -> list[Verification]:
    """Say of each algorithm whose kernels an earlier one ran, too."""
    first: dict[tuple[tuple[str, int], ...], str] = {}
    told = []
    for each in found:
        kernels = tuple(sorted((each.kernels or {}).items()))
        name = each.cell.algorithm.name
        same = first.setdefault(kernels, name) if kernels else name
        told.append(replace(each, same_kernels_as=None if same == name else same))
    return told
