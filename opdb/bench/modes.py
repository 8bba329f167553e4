"""How each mode issues a pass: as it is, as one CUDA graph, compiled, or traced."""

from __future__ import annotations

import math
import os
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.jit import TracerWarning  # type: ignore[attr-defined]
from torch.utils import _pytree as pytree

from opdb.bench.replay import Clock, capture, warm_up
from opdb.bench.visit import REFUSALS
from opdb.compiled import check_works
from opdb.compiled.inductor import (
    PASSES,
    capture_graphs,
    cause_of,
    check_compiles,
    compiling,
    counted,
    silent_tuning,
)
from opdb.errors import InputError, NotCompiledError, OpdbError
from opdb.models import LoadedModel
from opdb.models.construction import ModelFailureError, one_line
from opdb.models.inputs import numbers, tensors
from opdb.records import Json, Mode
from opdb.units import plural

CUDA_ONLY: tuple[Mode, ...] = ("graph", "compile:reduce-overhead")
"""Modes that replay CUDA graphs, and are another mode without them."""

REPLAYING: tuple[Mode, ...] = ("graph", "compile:reduce-overhead", "compile:max-autotune")
"""Modes that replay CUDA graphs of their own, which no other graph can capture."""

FIRST_PASSES = 3
"""Passes after which a mode has compiled, recorded and captured what a first pass asks for."""

DIFFERENT = 0.05
"""A largest difference from eager outputs above this share of the largest output is reported."""

_COMPILED: Mapping[Mode, Mapping[str, Any]] = {
    "compile": {},
    "compile:reduce-overhead": {"mode": "reduce-overhead"},
    "compile:max-autotune": {"mode": "max-autotune"},
    "dynamo": {"backend": "eager"},
}
"""The arguments of torch.compile in each of its modes."""

Facts: TypeAlias = dict[str, Json]
PassStep: TypeAlias = Callable[[], Any]


@dataclass(frozen=True)
class Passing:
    loaded: LoadedModel
    step: PassStep
    clock: Clock


def check_switches(mode: Mode) -> None:
    if mode in _COMPILED:
        check_works("torch.compile")
    if mode == "trace":
        check_works("torch.jit")


@contextmanager
def issuing(mode: Mode, passing: Passing, facts: Facts) -> Iterator[PassStep]:
    """Yield what issues one pass in a mode, ready to be measured; `facts` learn how it came to be.

    They keep what is known where a mode fails half way. Compilers begin in a fresh state, with an
    empty cache on disk, and leave none behind.
    """
    check_switches(mode)
    if mode == "eager":
        yield passing.step
    elif mode == "graph":
        yield _first_passes(lambda: _as_cuda_graph(passing.step), passing.clock, facts)
    elif mode == "trace":
        with _failing_as(mode):
            issue = _trace(passing, facts)
        yield issue
    else:
        with ExitStack() as stack:
            stack.enter_context(compiling())
            with _failing_as(mode, None if mode == "dynamo" else _device_of(passing.loaded)):
                passes = _tell_graphs(passing, facts) - 1 + FIRST_PASSES
                stack.enter_context(_fresh_compiler())
                counts = stack.enter_context(_inductor(passing.loaded, mode))
                clock = passing.clock
                issue = _first_passes(lambda: _compiled(mode, passing.loaded), clock, facts, passes)
                facts["compiled"] = True
                if mode in REPLAYING and any(t.is_cuda for t in _held(passing.loaded)):
                    facts["cuda_graphs_left_out"] = counts["cudagraph_skips"]
            yield issue


@contextmanager
def _failing_as(mode: Mode, compiles_for: str | None = None) -> Iterator[None]:
    """Raise what a compiler raises by its cause, with the mode where torch does not name it."""
    try:
        yield
    except OpdbError:
        raise
    except Exception as error:  # a compiler's inside may raise anything
        if compiles_for is not None:
            check_compiles(compiles_for)
        cause = cause_of(error)
        if isinstance(cause, REFUSALS):
            raise cause from error
        raise ModelFailureError(f"mode {mode!r}: {one_line(cause)}") from error


def flags_of(facts: Mapping[str, Json]) -> list[str]:
    flags = []
    if places := facts.get("trace_warnings"):
        flags.append(
            f"tracing fixed {plural(places, 'place')} that may depend on the inputs' values"
        )
    if graphs := facts.get("cuda_graphs_left_out"):
        flags.append(f"inductor left out {plural(graphs, 'CUDA graph')}")
    difference = facts.get("output_difference")
    if difference is not None and difference > DIFFERENT:
        flags.append(f"outputs differ from eager's by {100 * difference:.1f} % of the largest")
    return flags


def output_difference(outputs: Sequence[Tensor], others: Sequence[Tensor]) -> float | None:
    """Return the largest difference of two passes' outputs as a share of the largest output.

    None where they cannot be compared: other shapes, or nothing finite that is not zero.
    """
    found, wanted = numbers(outputs), numbers(others)
    if [t.shape for t in found] != [t.shape for t in wanted]:
        return None
    pairs = [(_widest(a), _widest(b)) for a, b in zip(found, wanted, strict=True) if a.numel()]
    largest = max((float(a.abs().max()) for a, _ in pairs), default=0.0)
    apart = max((float((a - b).abs().max()) for a, b in pairs), default=0.0)
    share = apart / largest if largest else math.nan
    return share if math.isfinite(share) else None


def _widest(tensor: Tensor) -> Tensor:
    return tensor.to(torch.complex128) if tensor.is_complex() else tensor.double()


def _first_passes(
    prepare: Callable[[], PassStep], clock: Clock, facts: Facts, passes: int = FIRST_PASSES
) -> PassStep:
    """Prepare a mode and run it until its passes take their usual time.

    `compile_time_s` is what all that took, on the wall clock, beyond as many usual passes.
    """
    began_s = time.perf_counter()
    issue = prepare()
    _run(issue, clock, passes)
    first_s = time.perf_counter() - began_s
    began_s = time.perf_counter()
    _run(issue, clock, passes)
    facts["compile_time_s"] = max(first_s - (time.perf_counter() - began_s), 0.0)
    return issue


def _run(issue: PassStep, clock: Clock, passes: int) -> None:
    for _ in range(passes):
        issue()
    clock.wait(clock.mark())


def _as_cuda_graph(step: PassStep) -> PassStep:
    warm_up(step)
    return capture(step, 1).replay


def _compiled(mode: Mode, loaded: LoadedModel) -> PassStep:
    compiled = torch.compile(loaded.module, **_COMPILED[mode])

    def issue() -> Any:
        with torch.no_grad():
            return compiled(*loaded.args, **loaded.kwargs)

    return issue


def _tell_graphs(passing: Passing, facts: Facts) -> int:
    """Count the graphs that dynamo captures, and say why they are not one.

    Returns after how many passes it captures nothing more.
    """
    loaded = passing.loaded
    found = capture_graphs(loaded.module, loaded.args, loaded.kwargs)
    facts |= {"graphs": len(found.graphs), "graph_breaks": found.graph_breaks}
    if found.reasons:
        facts["graph_break_reasons"] = list(found.reasons)
    why = None
    if not found.graphs:
        why = f"dynamo captures no graph ({found.why})"
    elif found.given_up:
        why = f"in the end dynamo runs it as it stands ({found.why})"
    elif found.passes > PASSES:
        why = f"dynamo captures other graphs in each of {PASSES} passes"
    if why is not None:
        facts["compiled"] = False
        raise NotCompiledError(f"not compiled: {why}")
    return found.passes


class _Traceable(nn.Module):
    """A model whose inputs and outputs are tensors alone, as tracing asks for."""

    def __init__(self, loaded: LoadedModel) -> None:
        super().__init__()
        self.module = loaded.module
        values, self._structure = pytree.tree_flatten((loaded.args, loaded.kwargs))
        self._values = [None if isinstance(v, Tensor) else v for v in values]
        self.inputs = tuple(v for v in values if isinstance(v, Tensor))
        self._places = [i for i, v in enumerate(values) if isinstance(v, Tensor)]

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        values = list(self._values)
        for place, tensor in zip(self._places, inputs, strict=True):
            values[place] = tensor
        args, kwargs = pytree.tree_unflatten(values, self._structure)
        found = tensors(self.module(*args, **kwargs))
        if not found:
            raise InputError("mode 'trace': it keeps what outputs hold, and no tensor is in them")
        return tuple(found)


def _trace(passing: Passing, facts: Facts) -> PassStep:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        issue = _first_passes(lambda: _traced(passing.loaded), passing.clock, facts)
    fixed = [w for w in seen if issubclass(w.category, TracerWarning)]
    facts |= {"compiled": True, "graphs": 1, "graph_breaks": 0, "trace_warnings": len(fixed)}
    return issue


def _traced(loaded: LoadedModel) -> PassStep:
    traceable = _Traceable(loaded).train(loaded.module.training)
    with torch.no_grad():
        traced = torch.jit.trace(traceable, traceable.inputs, check_trace=False, strict=False)

    def issue() -> Any:
        with torch.no_grad():
            return traced(*traceable.inputs)

    return issue


@contextmanager
def _fresh_compiler() -> Iterator[None]:
    """Give compilers a fresh state and an empty cache on disk.

    The folder stays as long as what was compiled may load from it.
    """
    told = {name: os.environ.get(name) for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")}
    with TemporaryDirectory(prefix="opdb-", ignore_cleanup_errors=True) as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        os.environ["TRITON_CACHE_DIR"] = f"{folder}/triton"
        try:
            _forget()
            yield
        finally:
            for name, value in told.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value
            _forget()


def _forget() -> None:
    from torch._inductor import utils

    torch.compiler.reset()
    utils.clear_inductor_caches()


@contextmanager
def _inductor(loaded: LoadedModel, mode: Mode) -> Iterator[Mapping[str, int]]:
    """Have inductor ready where a mode needs it, silent when it tunes; yield what it counts."""
    if mode == "dynamo":
        yield Counter()
        return
    _start_inductor(_device_of(loaded))
    with silent_tuning():
        counts = counted("inductor")
        counts.clear()
        yield counts


@cache
def _start_inductor(device: str) -> None:
    """Compile something small, once in a process: importing inductor and its workers take long."""
    with torch.no_grad():
        torch.compile(lambda x: x.sin() + 1)(torch.ones(8, device=device))


def _device_of(loaded: LoadedModel) -> str:
    return next((t.device.type for t in _held(loaded)), "cpu")


def _held(loaded: LoadedModel) -> list[Tensor]:
    return [*tensors(loaded.args), *loaded.module.parameters()]
