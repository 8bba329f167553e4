"""Grids: one operator and ranges of all that it is called with, benched without any model.

A grid file names an operator and, for each argument and size, the values that it takes. Every
point of these axes is described as a harvest would describe the call, and then tried on the meta
device, where nothing is computed: what torch itself refuses is dropped, counted and explained."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
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
from opdb.operators import TensorNotes, build, describe_function, describe_module, dtype_of
from opdb.operators.describe import NamedOperator, find_operator
from opdb.records import Call, Json
from opdb.spec import DTYPES, MEMORY_FORMATS
from opdb.summary_files import parse_mapping, unknown_key

LONGEST = 10_000
"""Values of one range, at most."""

MOST_DRAWS = 100_000
"""Points drawn for one sample, at most; many fall on points that were drawn before."""


@dataclass(frozen=True)
class Reference:
    """The value of an axis above, times a number, divided by one and rounded down."""

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


def spread_points(sizes: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield distinct points, any first few of them spread evenly over each axis and all together.

    They are Halton's, each digit permuted at random, and equal on every machine. Ends when no new
    ones are met.
    """
    generator = random.Random(0)
    primes = (n for n in counting(2) if all(n % divisor for divisor in range(2, n)))
    digits = [
        [generator.sample(range(base), base) for _ in range(ceil(32 / log2(base)))]
        for base in islice(primes, len(sizes))
    ]
    seen: set[tuple[int, ...]] = set()
    for number in range(MOST_DRAWS):
        drawn = tuple(
            min(floor(_halton(number, permutations) * size), size - 1)
            for permutations, size in zip(digits, sizes, strict=True)
        )
        if drawn not in seen:
            seen.add(drawn)
            yield drawn
        if len(seen) == prod(sizes):
            return


def _halton(number: int, permutations: Sequence[Sequence[int]]) -> float:
    place, found = 1.0, 0.0
    for permutation in permutations:
        place /= len(permutation)
        number, digit = divmod(number, len(permutation))
        found += permutation[digit] * place
    return found


def resolved(axes: GridAxes, point: Sequence[int]) -> dict[str, Json]:
    """Return the value of each name at a point, references followed.

    Raises:
        ValueError: a reference is to something that is no whole number.
    """
    values: dict[str, Json] = {}
    for (name, levels), index in zip(axes.items(), point, strict=True):
        level = levels[index]
        values[name] = level.of(values[level.name]) if isinstance(level, Reference) else level
    return values


VALUES = ("normal", "rectified")
_RANGE = "a value, a list, {from, to, step}, {from, to, factor} or {of, times, divided_by}"
_WHAT = "a grid file"


def _is_number(value: object) -> TypeGuard[int | float]:
    # the bounds also refuse what YAML spells .inf and .nan
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e30


def _is_whole(value: object, least: int) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _is_mapping(value: object) -> bool:
    return isinstance(value, dict)


_OPERATOR = "a torch.nn class or a torch function, such as nn.Conv2d or F.conv2d"
_NAMED = "a mapping of names to values, lists or ranges"
_KEYS: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "operator": (_OPERATOR, lambda value: isinstance(value, str) and value != ""),
    "arguments": (_NAMED, _is_mapping),
    "sizes": (_NAMED, _is_mapping),
    "inputs": ("a mapping of the call's tensors to their shapes", _is_mapping),
    "dtype": ("one or a list of " + ", ".join(DTYPES), DTYPES.__contains__),
    "memory_format": ("one or a list of " + ", ".join(MEMORY_FORMATS), MEMORY_FORMATS.__contains__),
    "values": ("one or a list of " + ", ".join(VALUES), VALUES.__contains__),
    "zeros": (
        "one or a list of shares from 0 to 1, such as [0, 0.5, 0.9]",
        lambda value: _is_number(value) and 0 <= value <= 1,
    ),
    "at_most": ("a mapping of bytes or flops to a number above 0", _is_mapping),
    "sample": ("a whole number of 1 or more, or null", lambda value: _is_whole(value, 1)),
}
"""The keys of a grid file: the values in words, and the test of one."""

_COMMON = ("dtype", "memory_format", "values")
"""The axes that every grid has."""

_VARIANTS = "a list of mappings that say what differs"


@dataclass(frozen=True)
class Grid:
    """One operator and its axes: arguments, sizes, and `dtype`, `memory_format`, `values`.

    `arguments` are the names of axes that the operator takes. `inputs` are what the call takes, as
    the file spells it: tensors (a shape of numbers and names), lists of them, or plain values.
    `at_most` bounds a call's bytes and FLOPs. `sample` is how many valid points are wanted, None
    for all.
    """

    path: Path
    operator: str
    axes: GridAxes
    arguments: tuple[str, ...]
    inputs: Mapping[str, Any]
    at_most: Mapping[str, float]
    sample: int | None

    @property
    def combinations(self) -> int:
        return prod(map(len, self.axes.values()))


def load_grids(path: Path) -> list[Grid]:
    """Read a grid file: the grid that it says itself, then one for each variant."""
    document = parse_mapping(path, read_text(path, _WHAT), _WHAT, "operator: NAME")
    variants = document.pop("variants", [])
    at = ""
    try:
        if not isinstance(variants, list) or not all(isinstance(v, dict) for v in variants):
            raise _wrong("variants", variants, _VARIANTS)
        _check_names(document, [*_KEYS, "variants"])
        grids = [_grid(path, document)]
        for number, variant in enumerate(variants):
            at = f"variants[{number}]: "
            _check_names(variant, _KEYS)
            grids.append(_grid(path, _merged(document, variant)))
    except ValueError as error:
        raise InputError(f"{path}: {at}{error}") from error
    return grids


def _wrong(key: str, value: object, allowed: str) -> ValueError:
    return ValueError(f"{key}: found {shown(value)}; allowed: {allowed}")


def _check_names(mapping: Mapping[str, Any], valid: Iterable[str], at: str = "") -> None:
    for key in mapping:
        if key not in valid:
            raise ValueError(unknown_key(key, valid, at))


def _merged(file: Mapping[str, Any], variant: Mapping[str, Any]) -> dict[str, Any]:
    """Mappings are joined name by name; those for another operator are replaced."""
    merged = {**file, **variant}
    if merged.get("operator") != file.get("operator"):
        return merged
    for name in _KEYS:
        if isinstance(file.get(name), dict) and isinstance(variant.get(name), dict):
            merged[name] = {**file[name], **variant[name]}
    return merged


def _given(document: Mapping[str, Any], key: str) -> list[Any]:
    """Return the values under a key, none where there are none; one alone where no list may be."""
    value, (allowed, allows) = document.get(key), _KEYS[key]
    if value is None:
        return []
    is_list = key in (*_COMMON, "zeros") and isinstance(value, list) and value
    given = value if is_list else [value]
    for each in given:
        if not allows(each):
            raise _wrong(key, each, allowed)
    return list(given)


def _grid(path: Path, document: Mapping[str, Any]) -> Grid:
    if document.get("operator") is None:
        raise ValueError(f"key operator is missing; give {_OPERATOR}")
    said = {key: _given(document, key) for key in _KEYS}
    maps = {key: (said[key] or [{}])[0] for key in _KEYS}
    axes: dict[str, Sequence[Json | Reference]] = {}
    for key in ("sizes", "arguments"):
        for name, value in maps[key].items():
            if name in _COMMON:
                raise ValueError(f"{key}.{name}: {name} is a key of the file itself")
            if name in axes:
                raise ValueError(f"sizes.{name}: an argument has that name already")
            axes[name] = _levels(f"{key}.{name}", value, axes)
    for name, value in maps["inputs"].items():
        _check_tensor(f"inputs.{name}", value, axes)
    classes = [None if v == "normal" else v for v in said["values"]]
    classes += [{"zeros": float(share)} if share else None for share in said["zeros"]]
    axes["dtype"] = said["dtype"] or ["float32"]
    axes["memory_format"] = said["memory_format"] or ["contiguous"]
    axes["values"] = [v for n, v in enumerate(classes) if v not in classes[:n]] or [None]
    _check_names(maps["at_most"], ("bytes", "flops"), "at_most.")
    for name, value in maps["at_most"].items():
        if not _is_number(value) or value <= 0:
            raise _wrong(f"at_most.{name}", value, "a number above 0, such as 1.0e+9")
    return Grid(
        path,
        str(document["operator"]),
        axes,
        tuple(maps["arguments"]),
        maps["inputs"],
        maps["at_most"],
        sample=next(iter(said["sample"]), None),
    )


def _levels(key: str, value: Any, above: Iterable[str]) -> list[Json | Reference]:
    levels: list[Json | Reference] = []
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, dict):
            try:
                levels += [_reference(item, above)] if "of" in item else _range(item)
            except ValueError as error:
                raise _wrong(key, item, f"{_RANGE} ({error})") from error
        elif isinstance(item, list) and any(isinstance(entry, list | dict) for entry in item):
            raise _wrong(key, item, "a value or a list of plain values")
        else:
            levels.append(item)
    if not levels:
        raise _wrong(key, value, _RANGE)
    return levels


def _check_tensor(key: str, value: Any, names: Iterable[str]) -> None:
    if isinstance(value, dict):
        raise _wrong(key, value, "a shape such as [batch, 64], or a list of shapes")
    for size in value if isinstance(value, list) else ():
        if isinstance(size, list | dict):
            _check_tensor(key, size, names)
        elif size not in names if isinstance(size, str) else not _is_whole(size, 0):
            allowed = "a number, or the name of an argument or size: " + ", ".join(names)
            raise _wrong(key, size, allowed)


def _reference(value: Mapping[str, Any], above: Iterable[str]) -> Reference:
    """Return the reference that {of, times, divided_by} spells."""
    numbers = [value.get(name, 1) for name in ("times", "divided_by")]
    is_one = isinstance(value["of"], str) and not set(value) - {"of", "times", "divided_by"}
    if not is_one or not all(_is_whole(number, 1) for number in numbers):
        raise ValueError("times and divided_by are whole numbers of 1 or more")
    if value["of"] not in above:
        raise ValueError(f"of {value['of']!r}: there is no such name above it")
    return Reference(value["of"], *numbers)


def _range(value: Mapping[str, Any]) -> list[Json]:
    """Return the numbers that {from, to, step} or {from, to, factor} spells."""
    names = {"from", "to"}, {"from", "to", "step"}, {"from", "to", "factor"}
    if set(value) not in names or not all(map(_is_number, value.values())):
        raise ValueError("from, to, and a step or factor are numbers")
    step = value.get("step", None if "factor" in value else 1)
    return spread_range(value["from"], value["to"], step=step, factor=value.get("factor"))


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
    """The calls of a file's grids by configuration (key), and what became of the other points.

    `combinations` is how many points the grids have, `tried` how many of them were looked at,
    `repeated` how many came to a call that another point had come to. `asked` is the sample
    that was wanted, None for all.
    """

    found: dict[str, Call] = field(default_factory=dict)
    combinations: int = 0
    tried: int = 0
    repeated: int = 0
    asked: int | None = None
    dropped: list[Dropped] = field(default_factory=list)

    @property
    def calls(self) -> list[Call]:
        return list(self.found.values())

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
    return sum(min(grid.sample or grid.combinations, grid.combinations) for grid in grids)


def expand(grids: Iterable[Grid], step: Callable[[], object] = lambda: None) -> Expansion:
    """Return the distinct calls of a file's grids; `step` hears of every step."""
    expansion = Expansion()
    for grid in grids:
        operator, sizes = _operator(grid), [len(levels) for levels in grid.axes.values()]
        expansion.combinations += grid.combinations
        every: Iterable[tuple[int, ...]] = product(*map(range, sizes))
        if grid.sample is not None:
            expansion.asked = (expansion.asked or 0) + grid.sample
            every = spread_points(sizes)
        before = len(expansion.found)
        for point in every:
            new = len(expansion.found) - before
            if new == grid.sample:
                break
            expansion.tried += 1
            _try(grid, operator, point, expansion)
            if grid.sample is None or len(expansion.found) - before > new:
                step()
    expansion.dropped.sort(key=lambda each: -each.count)
    return expansion


def _try(grid: Grid, operator: NamedOperator, point: tuple[int, ...], expansion: Expansion) -> None:
    values: dict[str, Json] = {}
    try:
        values = resolved(grid.axes, point)
        call = _call(grid, operator, values)
    except REFUSED as error:
        moving = {name: v for name, v in values.items() if len(grid.axes[name]) > 1}
        expansion.drop(said_by(error) or type(error).__name__, moving)
        return
    if call.configuration.key in expansion.found:
        expansion.repeated += 1
    expansion.found.setdefault(call.configuration.key, call)


def _operator(grid: Grid) -> NamedOperator:
    try:
        operator = find_operator(grid.operator)
    except UnknownNameError as error:
        raise InputError(f"{grid.path}: operator: {error}") from error
    arguments = operator.constructed if operator.form == "module" else operator.taken
    for key, given, valid in (
        ("arguments", grid.arguments, arguments),
        ("inputs", grid.inputs, operator.taken),
    ):
        for name in given:
            if name not in valid:
                unknown = UnknownNameError(f"name in {key}", name, valid, hint=f"({operator.name})")
                raise InputError(f"{grid.path}: {unknown}")
    given_anywhere = {*grid.inputs, *grid.arguments}
    for key, names in (("arguments", operator.constructed), ("inputs", operator.taken)):
        for name, must in names.items():
            if must and name not in given_anywhere:
                raise InputError(
                    f"{grid.path}: key {key}.{name} is missing; {operator.name} takes "
                    + ", ".join(names)
                )
    return operator


class _Notes(TensorNotes):
    """The call's inputs have the value class of the point."""

    def __init__(self, inputs: Iterable[Tensor], values: Json) -> None:
        self._inputs, self._values = set(map(id, inputs)), values

    def values(self, tensor: Tensor) -> Json | None:
        return self._values if id(tensor) in self._inputs else None


def _call(grid: Grid, operator: NamedOperator, values: Mapping[str, Json]) -> Call:
    arguments = {
        name: tuple(values[name]) if isinstance(values[name], list) else values[name]
        for name in grid.arguments
    }
    made = {name: _made(given, values) for name, given in grid.inputs.items()}
    notes = _Notes(tensors(made), values["values"])
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


def _made(given: Any, values: Mapping[str, Json]) -> Any:
    """Return what an input is: a tensor on meta, several in a tuple, or the plain value given."""
    if not isinstance(given, list):
        return given
    if any(isinstance(item, list) for item in given):
        return tuple(_made(item, values) for item in given)
    shape = [values[size] if isinstance(size, str) else size for size in given]
    for name, size in zip(given, shape, strict=True):
        if isinstance(size, bool) or not isinstance(size, int):
            raise ValueError(f"{name} is {size!r}, not a size")
    tensor = torch.empty(shape, dtype=dtype_of(values["dtype"]), device="meta")
    return in_layout(tensor, values["memory_format"])
