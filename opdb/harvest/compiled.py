"""A model as torch.compile makes it: its fused groups in the order in which they run."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

from opdb.compile.inductor import Lowered, Outside, Step, steps_of_pass
from opdb.errors import InputError, NotCompiledError, OpdbError
from opdb.harvest.groups import fused_calls
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

_CallSite = tuple[str, tuple[tuple[int, ...], ...]]
"""An operator's name and the shape of its first input."""


def harvest_compiled(request: ModelRequest, workload: Workload, device: str, slug: str) -> Workload:
    """Return a harvested workload as inductor compiles it for a device, in its default mode.

    The model is run once on the device ("cuda", "cpu"), whose `slug` the workload then bears;
    nothing is generated and nothing is measured.

    Raises:
        InputError: the model cannot be compiled, or is not inference without autocast.
        NotCompiledError: dynamo captures no graph of it.
        CannotMeasureError: this version of torch does not show what inductor makes.
    """
    if request.training is not None or request.autocast is not None:
        raise InputError(
            f"{request.name!r}: what is compiled is known of inference without autocast alone"
        )
    loaded = load(request, device=device)
    steps = _steps(loaded)
    graphs = {id(step): fused_calls(step) for step in steps if isinstance(step, Lowered)}
    if not graphs:
        raise NotCompiledError(f"{request.name!r} is not compiled: dynamo captures no graph of it")
    own = _own_calls([step for step in steps if isinstance(step, Outside)], workload)
    calls: list[Call] = []
    unsupported: Counter[str] = Counter()
    for step in steps:
        if isinstance(step, Lowered):
            found, unplaced = graphs[id(step)]
            calls += [Call(each, "function") for each in (_entry(len(step.weights)), *found)]
            unsupported.update({f"{name}{NOT_FUSED}": count for name, count in unplaced.items()})
        elif (call := next(own)) is not None:
            calls.append(call)
        elif step.name.removeprefix("aten::") not in _FREE:
            unsupported[step.name + BETWEEN] += 1
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
    """Return the configuration of entering a compiled graph with a number of weights."""
    given = {"shape": [2, 2], "dtype": "float32"}
    return Configuration(ENTRY, {"weights": weights}, {"input": given})


def _steps(loaded: LoadedModel) -> Sequence[Step]:
    try:
        return steps_of_pass(loaded.module, loaded.args, loaded.kwargs)
    except NotCompiledError as error:
        raise NotCompiledError(f"{loaded.name!r} is not compiled: {error}") from error
    except OpdbError:
        raise
    except ANY_FAILURE as error:  # a compiler's inside may raise anything
        cause = getattr(error, "inner_exception", None) or error
        raise ModelFailureError(f"{loaded.name!r} is not compiled: {one_line(cause)}") from error


def _own_calls(outside: Sequence[Outside], workload: Workload) -> Iterator[Call | None]:
    """Yield for each operator between graphs the model's own call: of that name, on an equal input.

    Where the model has different ones, as many as ran between graphs, they are taken in order; None
    where it is ambiguous which one it is.
    """
    of_model: dict[_CallSite, list[Call]] = defaultdict(list)
    for call in workload.calls:
        specs = [spec for value in call.configuration.inputs.values() for spec in walk(value)]
        shapes = (tuple(specs[0]["shape"]),) if specs else ()
        of_model[f"aten::{call.configuration.kind}", shapes].append(call)
    places = [(each.name, each.shapes[:1]) for each in outside]
    counts, reached = Counter(places), Counter[_CallSite]()
    for place in places:
        found = of_model.get(place, [])
        if len({call.configuration.key for call in found}) == 1:
            yield found[0]
        elif len(found) == counts[place]:
            yield found[reached[place]]
        else:
            yield None
        reached[place] += 1


def _shared(calls: list[Call]) -> list[Call]:
    """Return calls with one object for equal ones."""
    known: dict[tuple[str, str], Call] = {}
    return [known.setdefault((each.configuration.key, each.form), each) for each in calls]
