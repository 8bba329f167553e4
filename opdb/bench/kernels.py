"""Which kernels a call launches, by name, read off a CUDA graph of one call.

The profiler would do it too, but once it has run, every later launch costs the host 6 to 58 %
more (seen on an H200 with torch 2.11), and host times are measured here as well.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch

from opdb.capturing import answering, capturing_into

_UNNAMED_NODES = ("EMPTY", "EVENT_RECORD", "WAIT_EVENT", "EXT_SEMAS_SIGNAL", "EXT_SEMAS_WAIT")
"""Graph nodes that give the device nothing to do."""


def launched_kernels(step: Callable[[], Any], *, hidden: bool = True) -> dict[str, int] | None:
    """Capture one run of `step` and count its device work by name: kernels, copies and fills.

    The capture is hidden from `step`, which may do something else where it knows of it, unless a
    CUDA graph is what it is measured as. None where it is not known: the step cannot be captured
    (it synchronises), or this torch or its CUDA bindings cannot show a graph's nodes.
    """
    try:
        graph = torch.cuda.CUDAGraph(keep_graph=True)  # torch 2.8 and later
        from cuda.bindings import driver
    except (TypeError, ImportError):
        return None
    try:
        with warnings.catch_warnings(), capturing_into(graph):
            warnings.filterwarnings("ignore", "The CUDA Graph is empty")  # that is an answer too
            with answering(False) if hidden else nullcontext():
                step()
    except RuntimeError:
        torch.cuda.synchronize()
        return None
    nodes = _nodes(driver, driver.CUgraph(graph.raw_cuda_graph()))
    return dict(Counter(name for name in nodes if name))


def cuda_call(result: tuple[Any, ...]) -> Any:
    """Unpack what a CUDA binding returns.

    Raises:
        RuntimeError: the driver refused.
    """
    status, *values = result
    if int(status) != 0:
        raise RuntimeError(f"CUDA driver: {status}")
    return values[0] if len(values) == 1 else tuple(values)


def _nodes(driver: Any, graph: Any) -> list[str | None]:
    _, count = cuda_call(driver.cuGraphGetNodes(graph))
    nodes, _ = cuda_call(driver.cuGraphGetNodes(graph, count)) if count else ([], 0)
    return [_name(driver, node) for node in nodes]


def _name(driver: Any, node: Any) -> str | None:
    kind = cuda_call(driver.cuGraphNodeGetType(node)).name.removeprefix("CU_GRAPH_NODE_TYPE_")
    if kind in _UNNAMED_NODES:
        return None
    if kind != "KERNEL":
        return str(kind.lower())
    parameters = cuda_call(driver.cuGraphKernelNodeGetParams(node))
    if int(parameters.func):
        name = cuda_call(driver.cuFuncGetName(parameters.func))
    else:
        name = cuda_call(driver.cuKernelGetName(parameters.kern))
    return str(torch._C._demangle(name.decode()))
