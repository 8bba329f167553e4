"""A model as torch.compile makes it: its fused groups in the order in which they run."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import torch

from opdb.errors import InputError, NotCompiledError, OpdbError
from opdb.harvest.groups import fused_calls
from opdb.inductor import Lowered, lowered_graphs
from opdb.models import LoadedModel, ModelRequest, load
from opdb.models.construction import ANY_FAILURE, ModelFailureError, one_line
from opdb.records import Call, Configuration, Workload

NOT_FUSED = " (compiled)"


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
    lowered = _lowered(loaded)
    if not lowered:
        raise NotCompiledError(f"{request.name!r} is not compiled: dynamo captures no graph of it")
    calls: list[Configuration] = []
    unsupported: Counter[str] = Counter()
    for graph in lowered:
        found, unplaced = fused_calls(graph)
        calls += found
        unsupported.update({f"{name}{NOT_FUSED}": count for name, count in unplaced.items()})
    return replace(
        workload,
        source_version=f"{workload.source_version}, torch {torch.__version__}",
        calls=tuple(Call(configuration, "function") for configuration in _shared(calls)),
        containers=0,
        foreign_leaves={},
        unsupported=dict(unsupported),
        compiled_for=slug,
    )


def _lowered(loaded: LoadedModel) -> list[Lowered]:
    try:
        return lowered_graphs(loaded.module, loaded.args, loaded.kwargs)[0]
    except OpdbError:
        raise
    except ANY_FAILURE as error:  # a compiler's inside may raise anything
        cause = getattr(error, "inner_exception", None) or error
        raise ModelFailureError(f"{loaded.name!r} is not compiled: {one_line(cause)}") from error


def _shared(calls: list[Configuration]) -> list[Configuration]:
    """Return calls with one object for equal configurations."""
    known: dict[str, Configuration] = {}
    return [known.setdefault(each.key, each) for each in calls]
