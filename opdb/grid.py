"""Grids: one operator and ranges of all that it is called with, benched without any model.

A grid file names an operator and, for each argument and size, the values that it takes. Every
point of these axes is described as a harvest would describe the call, and then tried on the meta
device, where nothing is computed: what torch itself refuses is dropped, counted and explained."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from itertools import count as counting
from itertools import islice, product
from math import ceil, floor, log2, prod
from pathlib import Path
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn

from opdb.errors import InputError, OpdbError, UnknownNameError, said_by, shown
from opdb.files import read_text
from opdb.kinds import get_kind
from opdb.models.inputs import in_layout, tensors
from opdb.operators import NoNotes, build, describe_function, describe_module, dtype_of
from opdb.operators.describe import NamedOperator, find_operator
from opdb.records import Call, Json
from opdb.spec import DTYPES, MEMORY_FORMATS, nearest
from opdb.summary import parse_mapping, unknown_key

LONGEST = 10_000
"""Values of one range, at most."""

MOST_DRAWS = 100_000
"""Points drawn for one sample, at most; many fall on points that were drawn before."""


@dataclass(frozen=True)
class Reference:
    """The value of another axis, times a number, divided by one and rounded down."""

    name: str
    times: int = 1
    divided_by: int = 1

    def of(self, value: Json) -> Json:
        if isinstance(value, list):
            return [self.of(entry) for entry in value]
        if self.times == self.divided_by == 1:
            return value
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(f"{self.name} is {value!r}, not a whole number")
        return value * self.times // self.divided_by


GridAxes = Mapping[str, Sequence[Json | Reference]]


def spread_range(
    low: float, high: float, *, step: float | None, factor: float | None
) -> list[Json]:
    """Return the numbers from `low` to `high`, both included where a step or factor meets them.

    They are whole where `low` and `high` (and the step) are.

    Raises:
        ValueError: the range is empty, does not move, or has too many values.
    """
    if low > high:
        raise ValueError("from lies above to")
    if factor is not None and (factor <= 1 or low <= 0):
        raise ValueError("a factor is above 1, and from above 0")
    if step is not None and step <= 0:
        raise ValueError("a step is above 0")
    whole = isinstance(low, int) and isinstance(high, int) and not isinstance(step, float)
    found: list[Json] = []
    for number in range(LONGEST + 1):
        value = low + number * step if step is not None else low * (factor or 1) ** number
        value = round(value) if whole else value
        if value > high:
            return found
        if value not in found[-1:]:
            found.append(value)
    raise ValueError(f"more than {LONGEST} values")


def reference_order(axes: GridAxes) -> list[str]:
    """Return the axes' names, each after those that its levels refer to.

    Raises:
        ValueError: a reference names no axis, or references lead in a circle.
    """
    graph: dict[str, set[str]] = {}
    for name, levels in axes.items():
        graph[name] = {level.name for level in levels if isinstance(level, Reference)}
        for other in graph[name]:
            if other not in axes:
                raise ValueError(f"{name}: of {other!r}: there is no such name")
    try:
        return list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        raise ValueError("references in a circle: " + " of ".join(error.args[1])) from error


def count(axes: GridAxes) -> int:
    return prod(len(levels) for levels in axes.values())


def points(axes: GridAxes) -> Iterator[tuple[int, ...]]:
    """Yield every point: the index of each axis's level, the last axis moving first."""
    return product(*(range(len(levels)) for levels in axes.values()))


def spread_points(axes: GridAxes, seed: int) -> Iterator[tuple[int, ...]]:
    """Yield distinct points, any first few of them spread evenly over each axis and all together.

    They are Halton's, each digit permuted at random, and equal on every machine. Ends when no new
    ones are met.
    """
    sizes = [len(levels) for levels in axes.values()]
    generator = random.Random(seed)
    digits = [_Digits(prime, generator) for prime in _primes(len(sizes))]
    seen: set[tuple[int, ...]] = set()
    for number in range(MOST_DRAWS):
        drawn = tuple(
            min(floor(place.of(number) * size), size - 1)
            for place, size in zip(digits, sizes, strict=True)
        )
        if drawn not in seen:
            seen.add(drawn)
            yield drawn
        if len(seen) == prod(sizes):
            return


class _Digits:
    """One dimension of Halton's sequence: a number's digits behind the point, in reverse."""

    def __init__(self, base: int, generator: random.Random) -> None:
        self._base = base
        length = ceil(32 / log2(base))
        self._permutations = [generator.sample(range(base), base) for _ in range(length)]

    def of(self, number: int) -> float:
        place, found = 1.0, 0.0
        for permutation in self._permutations:
            place /= self._base
            number, digit = divmod(number, self._base)
            found += permutation[digit] * place
        return found


def _primes(number: int) -> list[int]:
    primes = (n for n in counting(2) if all(n % divisor for divisor in range(2, n)))
    return list(islice(primes, number))


def resolved(axes: GridAxes, order: Sequence[str], point: Sequence[int]) -> dict[str, Json]:
    """Return the value of each name at a point, references followed, in the axes' order.

    Raises:
        ValueError: a reference is to something that is no whole number.
    """
    levels = {name: axes[name][index] for name, index in zip(axes, point, strict=True)}
    values: dict[str, Json] = {}
    for name in order:
        level = levels[name]
        values[name] = level.of(values[level.name]) if isinstance(level, Reference) else level
    return {name: values[name] for name in axes}


VALUES = ("normal", "rectified", "mask")
_RANGE = "a value, a list, {from, to, step}, {from, to, factor} or {of, times, divided_by}"
_TENSOR = "a shape such as [batch, 64], {shape, dtype, values}, {same: another input} or a list"
_TENSOR_DTYPES = (*DTYPES, "bool", "uint8", "int8", "int16", "int32", "int64")
_CLASSES = ", ".join(VALUES) + ", {range: [low, high]}, {density: share} or {zeros: share}"
_WHAT = "a grid file"
_LEAST = "operator: NAME"


def _is_number(value: object) -> TypeGuard[int | float]:
    # the bounds also refuse what YAML spells .inf and .nan
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e30


def _is_whole(value: object, least: int) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _is_share(value: object) -> bool:
    return _is_number(value) and 0 <= value <= 1


@dataclass(frozen=True)
class _Key:
    """A key of a grid file: its values in words, and the test of one; `listed`: of each of a list.

    `words` are the values, where they are names.
    """

    allowed: str
    allows: Callable[[object], bool]
    listed: bool = False
    words: tuple[str, ...] = ()

    def given(self, value: Any) -> list[Any]:
        if self.listed and isinstance(value, list) and value:
            return value
        return [] if value is None else [value]


def _mapping(allowed: str) -> _Key:
    return _Key(allowed, lambda value: isinstance(value, dict))


def _words(words: tuple[str, ...]) -> _Key:
    allowed = "one or a list of " + ", ".join(words)
    return _Key(allowed, words.__contains__, listed=True, words=words)


_OPERATOR = "a torch.nn class or a torch function, such as nn.Conv2d or F.conv2d"
_KEYS = {
    "operator": _Key(_OPERATOR, lambda value: isinstance(value, str) and value != ""),
    "arguments": _mapping("a mapping of names to values, lists or ranges"),
    "sizes": _mapping("a mapping of names to values, lists or ranges"),
    "inputs": _mapping("a mapping of the call's tensors to their shapes"),
    "weights": _mapping("a mapping of a function's parameters to their shapes"),
    "dtype": _words(DTYPES),
    "memory_format": _words(MEMORY_FORMATS),
    "values": _words(VALUES),
    "zeros": _Key("one or a list of shares from 0 to 1, such as [0, 0.5, 0.9]", _is_share, True),
    "at_most": _mapping("a mapping of bytes or flops to a number above 0"),
    "sample": _Key("a whole number of 1 or more, or null", lambda value: _is_whole(value, 1)),
    "seed": _Key("a whole number of 0 or more", lambda value: _is_whole(value, 0)),
}
_VARIANTS = "a list of mappings that say what differs"
_COMMON = ("dtype", "memory_format", "values")
"""The axes that every grid has."""


@dataclass(frozen=True)
class Grid:
    """One operator and its axes: arguments, sizes, and `dtype`, `memory_format`, `values`.

    `inputs` and `weights` are what the call takes, as the file spells it: tensors (a shape of
    numbers and names; {shape, dtype, values}, which say what differs from the axes; or {same: an
    input above}), lists of them, or plain values. `at_most` bounds a call's bytes and FLOPs.
    `sample` is how many valid points are wanted, None for all.
    """

    path: Path
    operator: str
    axes: GridAxes
    arguments: tuple[str, ...] = ()
    inputs: Mapping[str, Any] = field(default_factory=dict)
    weights: Mapping[str, Any] = field(default_factory=dict)
    at_most: Mapping[str, float] = field(default_factory=dict)
    sample: int | None = None
    seed: int = 0


def load_grids(path: Path) -> list[Grid]:
    """Read a grid file: the grid that it says itself, then one for each variant."""
    document = parse_mapping(path, read_text(path, _WHAT), _WHAT, _LEAST)
    file = _GridReader(path, document)
    file.unknown(document, [*_KEYS, "variants"])
    variants = document.get("variants", [])
    if not isinstance(variants, list) or not all(isinstance(v, dict) for v in variants):
        file.wrong("variants", variants, _VARIANTS)
        variants = []
    grids, problems = [file.grid()], file.problems
    for number, variant in enumerate(variants):
        reader = _GridReader(path, _merged(document, variant), f"variants[{number}].")
        reader.unknown(variant, _KEYS)
        if not (problems or reader.problems):  # it would only repeat what is wrong with the file
            grids.append(reader.grid())
        problems += reader.problems
    if problems:
        raise InputError(f"{path}: " + "; ".join(dict.fromkeys(problems)))
    return grids


def _merged(file: Mapping[str, Any], variant: Mapping[str, Any]) -> dict[str, Any]:
    """Return the file with what a variant says otherwise; mappings are joined name by name.

    What another operator is called with has other names: there they are replaced.
    """
    merged = {**file, **variant}
    if merged.get("operator") != file.get("operator"):
        return merged
    for name in _KEYS:
        if isinstance(file.get(name), dict) and isinstance(variant.get(name), dict):
            merged[name] = {**file[name], **variant[name]}
    return merged


class _GridReader:
    """Reads one grid out of a mapping and keeps every mistake."""

    def __init__(self, path: Path, document: Mapping[str, Any], at: str = "") -> None:
        self.path, self.document, self.at = path, document, at
        self.problems: list[str] = []

    def wrong(self, key: str, value: object, allowed: str) -> None:
        self.problems.append(f"{self.at}{key}: found {shown(value)}; allowed: {allowed}")

    def unknown(self, mapping: Mapping[str, Any], valid: Iterable[str], at: str = "") -> None:
        names = list(valid)
        self.problems += [
            unknown_key(key, names, self.at + at) for key in mapping if key not in names
        ]

    def grid(self) -> Grid:
        """Return the grid, which is one where nothing is wrong."""
        if self.document.get("operator") is None:
            self.problems.append(f"key operator is missing; give {_OPERATOR}")
        said: dict[str, list[Any]] = {}
        for name, entry in _KEYS.items():
            said[name] = []
            for value in entry.given(self.document.get(name)):
                if entry.allows(value):
                    said[name].append(value)
                else:
                    near = nearest(str(value), entry.words)
                    self.wrong(name, value, entry.allowed + (near and f"; {near}"))
        maps = {name: (said[name] or [{}])[0] for name in _KEYS}
        arguments, sizes = (self._axes(name, maps[name]) for name in ("arguments", "sizes"))
        for name in arguments.keys() & sizes.keys():
            self.problems.append(f"{self.at}sizes.{name}: an argument has that name already")
        classes = [None if v == "normal" else v for v in said["values"]]
        classes += [{"zeros": float(share)} if share else None for share in said["zeros"]]
        axes = {
            **sizes,
            **arguments,
            "dtype": tuple(said["dtype"]) or ("float32",),
            "memory_format": tuple(said["memory_format"]) or ("contiguous",),
            "values": tuple(v for n, v in enumerate(classes) if v not in classes[:n]) or (None,),
        }
        try:
            reference_order(axes)
        except ValueError as error:
            self.problems.append(f"{self.at}{error}")
        for key in ("inputs", "weights"):
            names = list(maps[key])
            for number, name in enumerate(names):
                self._check_tensor(f"{key}.{name}", maps[key][name], axes, names[:number])
        self.unknown(maps["at_most"], ("bytes", "flops"), "at_most.")
        for name, value in maps["at_most"].items():
            if not _is_number(value) or value <= 0:
                self.wrong(f"at_most.{name}", value, "a number above 0, such as 1.0e+9")
        return Grid(
            self.path,
            str(self.document.get("operator")),
            axes,
            tuple(arguments),
            maps["inputs"],
            maps["weights"],
            maps["at_most"],
            sample=next(iter(said["sample"]), None),
            seed=next(iter(said["seed"]), 0),
        )

    def _axes(self, key: str, given: Mapping[str, Any]) -> dict[str, tuple[Json | Reference, ...]]:
        found = {}
        for name, value in given.items():
            if name in _COMMON:
                self.problems.append(f"{self.at}{key}.{name}: {name} is a key of the file itself")
                continue
            found[name] = self._levels(f"{key}.{name}", value)
        return found

    def _levels(self, key: str, value: Any) -> tuple[Json | Reference, ...]:
        if not isinstance(value, list):
            return self._some(key, value)
        if not value:
            self.wrong(key, value, _RANGE)
        levels: list[Json | Reference] = []
        for number, item in enumerate(value):
            if not isinstance(item, list):
                levels += self._some(f"{key}[{number}]", item)
                continue
            if any(isinstance(entry, list | dict) for entry in item):
                self.wrong(f"{key}[{number}]", item, "a value or a list of plain values")
            levels.append(item)
        return tuple(levels)

    def _some(self, key: str, value: Any) -> tuple[Json | Reference, ...]:
        """Return the levels that one value, range or reference stands for."""
        if not isinstance(value, dict):
            return (value,)
        try:
            return _reference(value) if "of" in value else tuple(_range(value))
        except ValueError as error:
            self.wrong(key, value, f"{_RANGE} ({error})" if str(error) else _RANGE)
            return (None,)

    def _check_tensor(self, key: str, value: Any, axes: GridAxes, earlier: list[str]) -> None:
        if isinstance(value, list) and any(isinstance(item, list | dict) for item in value):
            for number, item in enumerate(value):
                self._check_tensor(f"{key}[{number}]", item, axes, earlier)
        elif isinstance(value, list):
            self._check_shape(key, value, axes)
        elif isinstance(value, dict) and set(value) == {"same"}:
            if value["same"] not in earlier:
                self.wrong(f"{key}.same", value["same"], "an input above: " + ", ".join(earlier))
        elif isinstance(value, dict) and isinstance(value.get("shape"), list):
            self.unknown(value, ("shape", "dtype", "values"), f"{key}.")
            dtype, values = value.get("dtype"), value.get("values")
            if dtype is not None and dtype not in _TENSOR_DTYPES:
                self.wrong(f"{key}.dtype", dtype, "one of " + ", ".join(_TENSOR_DTYPES))
            if values is not None and not _is_class(values, axes):
                self.wrong(f"{key}.values", values, _CLASSES)
            self._check_shape(f"{key}.shape", value["shape"], axes)
        elif isinstance(value, dict):
            self.wrong(key, value, _TENSOR)

    def _check_shape(self, key: str, value: list[Any], axes: GridAxes) -> None:
        names = [name for name in axes if name not in _COMMON]
        for size in value:
            allowed = "a number, or the name of an argument or size"
            if isinstance(size, str) and size not in names:
                near = nearest(size, names) or "names here: " + ", ".join(names)
                self.wrong(key, size, f"{allowed}; {near}")
            elif not isinstance(size, str) and not _is_whole(size, 0):
                self.wrong(key, size, allowed)


def _reference(value: Mapping[str, Any]) -> tuple[Reference]:
    """Return the reference that {of, times, divided_by} spells.

    Raises:
        ValueError: it spells none.
    """
    if set(value) - {"of", "times", "divided_by"} or not isinstance(value["of"], str):
        raise ValueError
    numbers = [value.get(name, 1) for name in ("times", "divided_by")]
    if not all(_is_whole(number, 1) for number in numbers):
        raise ValueError("times and divided_by are whole numbers of 1 or more")
    return (Reference(value["of"], *numbers),)


def _range(value: Mapping[str, Any]) -> list[Json]:
    """Return the numbers that {from, to, step} or {from, to, factor} spells.

    Raises:
        ValueError: it spells none.
    """
    if not {"from", "to"} <= set(value) or not all(map(_is_number, value.values())):
        raise ValueError
    if set(value) - {"from", "to", "step", "factor"} or len(value) > 3:
        raise ValueError
    step = value.get("step", None if "factor" in value else 1)
    return spread_range(value["from"], value["to"], step=step, factor=value.get("factor"))


def _is_class(values: Json, axes: GridAxes) -> bool:
    """Return whether something is a value class, names in a range included."""
    if not isinstance(values, dict):
        return values in VALUES
    if set(values) == {"range"}:
        ends = values["range"]
        known = isinstance(ends, list) and len(ends) == 2
        return known and all(_is_number(end) or end in axes for end in ends)
    return len(values) == 1 and _is_share(values.get("density", values.get("zeros")))


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

    def add(self, call: Call) -> bool:
        if call.configuration.key in self.keys:
            self.repeated += 1
            return False
        self.keys.add(call.configuration.key)
        self.calls.append(call)
        return True

    def drop(self, reason: str, example: Mapping[str, Json]) -> None:
        """Count a dropped point with those whose reason differs in its numbers alone."""
        alike = _NUMBER.sub("N", reason)
        for each in self.dropped:
            if _NUMBER.sub("N", each.reason) == alike:
                each.count += 1
                return
        self.dropped.append(Dropped(reason, 1, example))


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
    """
    expansion = Expansion()
    places: list[float] = []
    for grid in grids:
        before = len(expansion.calls)
        operator, order = _operator(grid), reference_order(grid.axes)
        expansion.combinations += count(grid.axes)
        wanted, every = None, points(grid.axes)
        if grid.sample is not None:
            expansion.asked = (expansion.asked or 0) + grid.sample
            wanted, every = before + grid.sample, spread_points(grid.axes, grid.seed)
        for point in every:
            if len(expansion.calls) == wanted:
                break
            expansion.tried += 1
            found, values = None, dict[str, Json]()
            try:
                values = resolved(grid.axes, order, point)
                found = _call(grid, operator, values)
            except REFUSED as error:
                moving = {name: v for name, v in values.items() if len(grid.axes[name]) > 1}
                expansion.drop(said_by(error) or type(error).__name__, moving)
            if (found is not None and expansion.add(found)) or wanted is None:
                step()
        new = len(expansion.calls) - before
        places += ((number + 0.5) / new for number in range(new))
    mixed = sorted(range(len(places)), key=places.__getitem__)
    expansion.calls = [expansion.calls[number] for number in mixed]
    expansion.dropped.sort(key=lambda each: -each.count)
    return expansion


def _operator(grid: Grid) -> NamedOperator:
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


class _Notes(NoNotes):
    """The value classes of the tensors that were made, and which of them are weights."""

    def __init__(self) -> None:
        self.classes: dict[int, Json] = {}
        self.weights: set[int] = set()

    def values(self, tensor: Tensor) -> Json | None:
        return self.classes.get(id(tensor))

    def is_weight(self, tensor: Tensor) -> bool:
        return id(tensor) in self.weights


def _call(grid: Grid, operator: NamedOperator, values: Mapping[str, Json]) -> Call:
    notes = _Notes()
    arguments = {
        name: tuple(values[name]) if isinstance(values[name], list) else values[name]
        for name in grid.arguments
    }
    made: dict[str, Any] = {}
    for name, given in grid.inputs.items():
        made[name] = _made(given, values, made, notes)
    for name, given in grid.weights.items():
        made[name] = _made(given, values, made, notes)
        notes.weights |= {id(tensor) for tensor in tensors(made[name])}
    if operator.form == "module":
        with torch.device("meta"):
            module: nn.Module = operator.called(**arguments)
        module.eval().to(dtype_of(values["dtype"]))
        for parameter in module.parameters():
            parameter.data = in_layout(parameter.data, values["memory_format"])
        configuration = describe_module(module, (), made, notes)
    else:
        configuration = describe_function(operator.called, (), {**arguments, **made}, notes)
    build(configuration, form=operator.form, device="meta")()
    kind = get_kind(configuration.kind)
    for name, measure in (("bytes", kind.bytes_moved), ("flops", kind.flops)):
        if name in grid.at_most and measure(configuration) > grid.at_most[name]:
            raise ValueError(f"at_most: it has more than {grid.at_most[name]:g} {name}")
    return Call(configuration, operator.form)


def _made(given: Any, values: Mapping[str, Json], earlier: Mapping[str, Any], notes: _Notes) -> Any:
    """Return what an input is: a tensor on meta, several in a tuple, or the plain value given."""
    if isinstance(given, list):
        if any(isinstance(item, list | dict) for item in given):
            return tuple(_made(item, values, earlier, notes) for item in given)
        given = {"shape": given}
    if not isinstance(given, dict):
        return given
    if "same" in given:
        return earlier[given["same"]]
    shape = [values[size] if isinstance(size, str) else size for size in given["shape"]]
    for name, size in zip(given["shape"], shape, strict=True):
        if isinstance(size, bool) or not isinstance(size, int):
            raise ValueError(f"{name} is {size!r}, not a size")
    dtype = dtype_of(given.get("dtype") or values["dtype"])
    tensor = in_layout(torch.empty(shape, dtype=dtype, device="meta"), values["memory_format"])
    if given.get("values") is not None:
        classes = _own_class(given["values"], values)
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
