"""From a grid's points to operator calls, as a harvest would describe them.

Every point is described through the registry and then tried on the meta device, where nothing is
computed: what torch itself refuses is dropped, counted and said why.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from opdb.errors import InputError, OpdbError, UnknownNameError
from opdb.grid.axes import count, points, reference_order, resolved, spread_points
from opdb.grid.file import Grid, SameAs, TensorRequest
from opdb.kinds import get_kind
from opdb.models.inputs import in_layout, tensors
from opdb.operators import build, describe_function, describe_module, dtype_of
from opdb.operators.names import NamedOperator, find_operator
from opdb.records import Call, Configuration, Json

MOST = 10_000
"""Steps of a file's grids that are taken by default."""

REFUSED = (
    *(OpdbError, RuntimeError, ValueError, TypeError, IndexError, AttributeError),
    *(AssertionError, ArithmeticError, KeyError),
)
"""Errors of constructing or running an operator whose arguments do not fit together."""

_NUMBER = re.compile(r"-?\d+")


@dataclass
class Dropped:
    """Why some points of a grid are no calls: how many, and what the first of them is."""

    reason: str
    count: int
    example: Mapping[str, Json]


@dataclass
class Expansion:
    """The calls of a grid, and what became of the other points.

    `combinations` is how many points the grid has, `tried` how many of them were looked at,
    `repeated` how many came to a call that another point had come to. `asked` is the sample
    that was wanted, None for all; `keys` are the calls' configurations'.
    """

    calls: list[Call] = field(default_factory=list)
    combinations: int = 0
    tried: int = 0
    repeated: int = 0
    asked: int | None = None
    dropped: list[Dropped] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)


def steps(grids: Iterable[Grid]) -> int:
    """Return how many steps `expand` takes: points, or calls where a sample is asked for."""
    return sum(
        count(grid.axes) if grid.sample is None else min(grid.sample, count(grid.axes))
        for grid in grids
    )


def expand(grids: Iterable[Grid], step: Callable[[], object] = lambda: None) -> Expansion:
    """Return the distinct calls of a file's grids; `step` hears of every step.

    They are in each grid's order, the grids mixed evenly: who measures the first half of them has
    half of every grid.

    Raises:
        InputError: an operator is unknown or does not take what a grid gives it.
    """
    expansion = Expansion()
    places: list[float] = []
    for grid in grids:
        before = len(expansion.calls)
        source = _Source(grid, _operator(grid), reference_order(grid.axes))
        expansion.combinations += count(grid.axes)
        wanted = None if grid.sample is None else len(expansion.calls) + grid.sample
        if grid.sample is not None:
            expansion.asked = (expansion.asked or 0) + grid.sample
        for point in _points(grid):
            if len(expansion.calls) == wanted:
                break
            if _try(source, point, expansion) or wanted is None:
                step()
        found = len(expansion.calls) - before
        places += ((number + 0.5) / found for number in range(found))
    mixed = sorted(range(len(places)), key=places.__getitem__)
    expansion.calls = [expansion.calls[number] for number in mixed]
    expansion.dropped.sort(key=lambda each: -each.count)
    return expansion


@dataclass(frozen=True)
class _Source:
    """A grid with its operator, and its axes in the order in which references are followed."""

    grid: Grid
    operator: NamedOperator
    order: list[str]


def _points(grid: Grid) -> Iterator[tuple[int, ...]]:
    return points(grid.axes) if grid.sample is None else spread_points(grid.axes, grid.seed)


def _try(source: _Source, point: tuple[int, ...], expansion: Expansion) -> bool:
    """Add a point's call to the expansion, or the reason why it has none; return which."""
    grid = source.grid
    values: Mapping[str, Json] = {}
    expansion.tried += 1
    try:
        values = resolved(grid.axes, source.order, point)
        call = _call(grid, source.operator, values)
        reason = _beyond(grid, call.configuration)
    except REFUSED as error:
        reason = one_line(error)
    if reason is not None:
        moving = {name: value for name, value in values.items() if len(grid.axes[name]) > 1}
        _drop(expansion, reason, moving)
    elif call.configuration.key in expansion.keys:
        expansion.repeated += 1
    else:
        expansion.keys.add(call.configuration.key)
        expansion.calls.append(call)
        return True
    return False


def _drop(expansion: Expansion, reason: str, example: Mapping[str, Json]) -> None:
    """Count a dropped point with those whose reason differs in its numbers alone."""
    alike = _NUMBER.sub("N", reason)
    for each in expansion.dropped:
        if _NUMBER.sub("N", each.reason) == alike:
            each.count += 1
            return
    expansion.dropped.append(Dropped(reason, 1, example))


def one_line(error: BaseException) -> str:
    """Return what an error says, in its first line."""
    lines = str(error).strip().splitlines()
    return lines[0].strip() if lines else type(error).__name__


def _beyond(grid: Grid, configuration: Configuration) -> str | None:
    """Say which of the grid's bounds a call exceeds, None where it exceeds none."""
    kind = get_kind(configuration.kind)
    for name, measure in (("bytes", kind.bytes_moved), ("flops", kind.flops)):
        if name in grid.at_most and measure(configuration) > grid.at_most[name]:
            return f"at_most: it has more than {grid.at_most[name]:g} {name}"
    return None


# what an operator takes


def _operator(grid: Grid) -> NamedOperator:
    """Return the operator of a grid, checked against the names that the grid gives.

    Raises:
        InputError: it is unknown, or takes other names.
    """
    try:
        operator = find_operator(grid.operator)
    except UnknownNameError as error:
        raise InputError(f"{grid.path}: operator: {error}") from error
    module = operator.form == "module"
    if module and grid.weights:
        raise InputError(f"{grid.path}: weights: {operator.name} has its own; leave them out")
    arguments = operator.constructed if module else operator.taken
    for key, given, valid in (
        ("arguments", grid.arguments, arguments),
        ("inputs", grid.inputs, operator.taken),
        ("weights", grid.weights, operator.taken),
    ):
        for name in given:
            if name not in valid:
                unknown = UnknownNameError(f"name in {key}", name, valid, hint=f"({operator.name})")
                raise InputError(f"{grid.path}: {unknown}")
    given_anywhere = {*grid.inputs, *grid.weights, *grid.arguments}
    for key, names in (("arguments", operator.constructed), ("inputs", operator.taken)):
        for name, must in names.items():
            if must and name not in given_anywhere:
                raise InputError(
                    f"{grid.path}: key {key}.{name} is missing; {operator.name} takes "
                    + ", ".join(names)
                )
    return operator


# calls


class _Notes:
    """The value classes of the tensors that were made, and which of them are weights."""

    def __init__(self) -> None:
        self.classes: dict[int, Json] = {}
        self.weights: set[int] = set()

    def values(self, tensor: Tensor) -> Json | None:
        return self.classes.get(id(tensor))

    def is_weight(self, tensor: Tensor) -> bool:
        return id(tensor) in self.weights

    def needs_gradient(self, tensor: Tensor) -> bool | None:
        return None


def _call(grid: Grid, operator: NamedOperator, values: Mapping[str, Json]) -> Call:
    """Return the call at a point of a grid.

    Raises:
        Exception: one of `REFUSED`: the operator cannot be called so.
    """
    notes = _Notes()
    arguments = {name: _argument(values[name]) for name in grid.arguments}
    made: dict[str, Any] = {}
    for name, request in grid.inputs.items():
        made[name] = _made(request, values, made, notes)
    for name, request in grid.weights.items():
        made[name] = _made(request, values, made, notes)
        notes.weights |= {id(tensor) for tensor in tensors(made[name])}
    if operator.form == "module":
        module = _module(operator.called, arguments, values)
        configuration = describe_module(module, (), made, notes)
    else:
        configuration = describe_function(operator.called, (), {**arguments, **made}, notes)
    build(configuration, form=operator.form, device="meta")()
    return Call(configuration, operator.form)


def _argument(value: Json) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _module(
    cls: Callable[..., nn.Module], arguments: Mapping[str, Any], values: Mapping[str, Json]
) -> nn.Module:
    with torch.device("meta"):
        module = cls(**arguments)
    module.eval().to(dtype_of(values["dtype"]))
    for parameter in module.parameters():
        parameter.data = in_layout(parameter.data, values["memory_format"])
    return module


def _made(
    request: Any, values: Mapping[str, Json], earlier: Mapping[str, Any], notes: _Notes
) -> Any:
    """Return what an input is: a tensor on meta, several in a tuple, or the plain value given."""
    if isinstance(request, list):
        return tuple(_made(item, values, earlier, notes) for item in request)
    if isinstance(request, SameAs):
        return earlier[request.name]
    if not isinstance(request, TensorRequest):
        return request
    shape = [values[size] if isinstance(size, str) else size for size in request.shape]
    for name, size in zip(request.shape, shape, strict=True):
        if not isinstance(size, int) or isinstance(size, bool):
            raise ValueError(f"{name} is {size!r}, not a size")
    dtype = dtype_of(request.dtype or values["dtype"])
    tensor = in_layout(torch.empty(shape, dtype=dtype, device="meta"), values["memory_format"])
    given = request.values
    if given is not None:
        classes = _own_class(given, values)
    else:  # the value class of the point, for tensors that can have it
        classes = values["values"] if tensor.is_floating_point() else None
    if classes is not None:
        notes.classes[id(tensor)] = classes
    return tensor


def _own_class(given: Json, values: Mapping[str, Json]) -> Json | None:
    """Return an input's own value class, names in its range replaced: [0, num_embeddings]."""
    if given == "normal" or given == {"zeros": 0}:
        return None
    if isinstance(given, dict) and "range" in given:
        return {"range": [values[end] if isinstance(end, str) else end for end in given["range"]]}
    return {"zeros": float(given["zeros"])} if "zeros" in given else given
