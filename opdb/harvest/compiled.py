"""A model as torch.compile makes it: its fused groups in the order in which they run."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import torch

from opdb.errors import InputError, NotCompiledError, OpdbError
from opdb.harvest.groups import fused_calls
from opdb.inductor import Lowered, Outside, lowered_graphs
from opdb.kinds.fused import ENTRY, words
from opdb.kinds.view import walk
from opdb.models import LoadedModel, ModelRequest, load
from opdb.models.construction import ANY_FAILURE, ModelFailureError, one_line
from opdb.records import Call, Configuration, Workload

NOT_FUSED = " (compiled)"
BETWEEN = " (between compiled graphs)"

_FREE = words(
    "view detach alias as_strided t transpose permute select slice reshape unsqueeze squeeze "
    "expand empty empty_strided empty_like lift_fresh result_type contiguous to unbind split"
)
"""Operators between graphs that most often give the device nothing to do."""


def harvest_compiled(request: ModelRequest, workload: Workload, device: str, slug: str) -> Workload:
    """Return a harvested workload as inductor compiles it for a device, in its default mode.

    The model is run once on the device ("cuda", "cpu"), whose `slug` the workload then bears;
    nothing is generated and nothing is measured.

    Raises:
        InputError: the model cannot be compiled, or is no inference without autocast.
        NotCompiledError: dynamo captures no graph of it.
        CannotMeasureError: this version of torch does not show what inductor makes.
    """
    if request.training is not None or request.autocast is not None:
        raise InputError(
            f"{request.name!r}: what is compiled is known of inference without autocast alone"
        )
    loaded = load(request, device=device)
    lowered, outside = _lowered(loaded)
    if not lowered:
        raise NotCompiledError(f"{request.name!r} is not compiled: dynamo captures no graph of it")
    calls: list[Call] = []
    unsupported: Counter[str] = Counter()
    for graph in lowered:
        found, unplaced = fused_calls(graph)
        calls += [Call(each, "function") for each in (_entry(len(graph.weights)), *found)]
        unsupported.update({f"{name}{NOT_FUSED}": count for name, count in unplaced.items()})
    for each in outside:
        if (call := _as_it_stands(each, workload)) is not None:
            calls.append(call)
        elif each.name.removeprefix("aten::") not in _FREE:
            unsupported[each.name + BETWEEN] += 1
    return replace(
        workload,
        source_version=f"{workload.source_version}, torch {torch.__version__}",
        calls=tuple(_shared(calls)),
        containers=0,
        foreign_leaves={},
        unsupported=dict(unsupported),
        compiled_for=slug,
    )


def _entry(weights: int) -> Configuration:
    """Return what entering a compiled graph of so many weights is described as."""
    given = {"shape": [2, 2], "dtype": "float32"}
    return Configuration(ENTRY, {"weights": weights}, {"input": given})


def _lowered(loaded: LoadedModel) -> tuple[list[Lowered], list[Outside]]:
    try:
        return lowered_graphs(loaded.module, loaded.args, loaded.kwargs)
    except OpdbError:
        raise
    except ANY_FAILURE as error:  # a compiler's inside may raise anything
        cause = getattr(error, "inner_exception", None) or error
        raise ModelFailureError(f"{loaded.name!r} is not compiled: {one_line(cause)}") from error


def _as_it_stands(outside: Outside, workload: Workload) -> Call | None:
    """Return the model's own call that ran between graphs: of that name, on an equal input."""
    for call in workload.calls:
        configuration = call.configuration
        specs = [spec for value in configuration.inputs.values() for spec in walk(value)]
        shape = tuple(specs[0]["shape"]) if specs else ()
        if outside.name == f"aten::{configuration.kind}" and shape in outside.shapes[:1]:
            return call
    return None


def _shared(calls: list[Call]) -> list[Call]:
    """Return calls with one object for equal ones."""
    known: dict[tuple[str, str], Call] = {}
    return [known.setdefault((each.configuration.key, each.form), each) for each in calls]
