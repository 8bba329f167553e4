"""Grid files: one operator and the ranges of all that it is called with.

    operator: nn.Conv2d                  # a torch.nn class, or a function: F.conv2d, torch.cat
    arguments:                           # what a class is constructed with, a function called with
      in_channels: {from: 16, to: 512, factor: 2}
      out_channels: [64, 256]
      kernel_size: [1, 3]
      padding: {of: kernel_size, divided_by: 2}
      bias: false
    sizes:                               # further names for the shapes
      batch: [1, 32]
      side: {from: 7, to: 56, step: 7}
    inputs:
      input: [batch, in_channels, side, side]
    dtype: [float32, bfloat16]
    memory_format: contiguous
    values: [normal, rectified]
    zeros: [0.5, 0.9]                    # value classes: this share of normal values is zero
    at_most: {bytes: 1.0e+9, flops: 1.0e+12}
    sample: 400                          # so many valid points, spread evenly; else all
    seed: 0
    variants:                            # further grids; each says only what differs
      - {dtype: float16, sample: 50}
      - {operator: nn.ReLU, inputs: {input: [32, 64, 56, 56]}}

A variant's mappings are joined to the file's; those of a variant of another operator replace them.
Every axis is a value, a list, a range, or {of: another, times: n, divided_by: n}. A text among the
arguments is itself; in a shape it names an argument or a size.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard

from opdb.errors import InputError
from opdb.grid.axes import Axes, Reference, reference_order, spread_range
from opdb.grid.document import read_mapping, shown
from opdb.models import DTYPES, MEMORY_FORMATS
from opdb.records import Json
from opdb.summary import nearest, unknown_key

VALUES = ("normal", "rectified", "mask")

_ALLOWED = {
    "operator": "a torch.nn class or a torch function, such as nn.Conv2d or F.conv2d",
    "arguments": "a mapping of names to values, lists or ranges",
    "sizes": "a mapping of names to values, lists or ranges",
    "inputs": "a mapping of the call's tensors to their shapes",
    "weights": "a mapping of a function's parameters to their shapes",
    "dtype": "one or a list of " + ", ".join(DTYPES),
    "memory_format": "one or a list of " + ", ".join(MEMORY_FORMATS),
    "values": "one or a list of " + ", ".join(VALUES),
    "zeros": "one or a list of shares from 0 to 1, such as [0, 0.5, 0.9]",
    "at_most": "a mapping of bytes or flops to a number above 0",
    "sample": "a whole number of 1 or more, or null",
    "seed": "a whole number of 0 or more",
    "variants": "a list of mappings that say what differs",
}
_WORDS = {"dtype": DTYPES, "memory_format": MEMORY_FORMATS, "values": VALUES}
_MAPPINGS = ("arguments", "sizes", "inputs", "weights", "at_most")
_RANGE = "a value, a list, {from, to, step}, {from, to, factor} or {of, times, divided_by}"
_TENSOR = "a shape such as [batch, 64], {shape, dtype, values}, {same: another input} or a list"
_TENSOR_DTYPES = (*DTYPES, "bool", "uint8", "int8", "int16", "int32", "int64")
_CLASSES = ", ".join(VALUES) + ", {range: [low, high]}, {density: share} or {zeros: share}"
_WHAT = "a grid file"
_LEAST = "operator: NAME"


@dataclass(frozen=True)
class TensorRequest:
    """A tensor to make: a shape of numbers and names, and what differs from the grid's axes."""

    shape: tuple[int | str, ...]
    dtype: str | None = None
    values: Json | None = None


@dataclass(frozen=True)
class SameAs:
    """The tensor that an earlier input was given."""

    name: str


@dataclass(frozen=True)
class Grid:
    """One operator and its axes: arguments, sizes, and `dtype`, `memory_format`, `values`.

    `inputs` and `weights` are what the call takes: tensors, lists of them, or plain values.
    `at_most` bounds a call's bytes and FLOPs. `sample` is how many valid points are wanted, None
    for all.
    """

    path: Path
    operator: str
    axes: Axes
    arguments: tuple[str, ...] = ()
    inputs: Mapping[str, Any] = field(default_factory=dict)
    weights: Mapping[str, Any] = field(default_factory=dict)
    at_most: Mapping[str, float] = field(default_factory=dict)
    sample: int | None = None
    seed: int = 0


def load_grids(path: Path) -> list[Grid]:
    """Read a grid file: the grid that it says itself, then one for each variant.

    Raises:
        InputError: it cannot be read or does not hold a grid; all of its mistakes at once.
    """
    document = read_mapping(path, what=_WHAT, least=_LEAST)
    problems = _unknown(document, _ALLOWED, "")
    variants = document.get("variants", [])
    if not isinstance(variants, list) or not all(isinstance(v, dict) for v in variants):
        problems.append(_found("variants", variants, _ALLOWED["variants"]))
        variants = []
    grids = []
    said = [("", document), *((f"variants[{n}].", v) for n, v in enumerate(variants))]
    allowed = [name for name in _ALLOWED if name != "variants"]
    for at, mapping in said:
        if at:
            problems += _unknown(mapping, allowed, at)
            if problems:
                continue  # a variant would only repeat what is wrong with the file
        reader = _Reader(path, _merged(document, mapping) if at else document, at)
        grids.append(reader.grid())
        problems += reader.problems
    if problems:
        raise InputError(f"{path}: " + "; ".join(dict.fromkeys(problems)))
    return [grid for grid in grids if grid is not None]


def _merged(file: Mapping[str, Any], variant: Mapping[str, Any]) -> dict[str, Any]:
    """Return the file with what a variant says otherwise; mappings are joined name by name.

    What another operator is called with has other names: there they are replaced.
    """
    merged = {**file, **variant}
    if merged.get("operator") != file.get("operator"):
        return merged
    for name in _MAPPINGS:
        if isinstance(file.get(name), dict) and isinstance(variant.get(name), dict):
            merged[name] = {**file[name], **variant[name]}
    return merged


class _Reader:
    """Reads one grid out of a mapping and keeps every mistake."""

    def __init__(self, path: Path, document: Mapping[str, Any], at: str) -> None:
        self.path, self.document, self.at = path, document, at
        self.problems: list[str] = []

    def grid(self) -> Grid | None:
        """Return the grid; None where something of it is wrong."""
        operator = self.document.get("operator")
        if operator is None:
            self.problems.append(f"key operator is missing; give {_ALLOWED['operator']}")
        elif not isinstance(operator, str) or not operator:
            self._wrong("operator", operator)
        arguments, sizes = self._axes("arguments"), self._axes("sizes")
        for name in arguments.keys() & sizes.keys():
            self.problems.append(f"{self.at}sizes.{name}: an argument has that name already")
        axes = {**sizes, **arguments, **self._common_axes()}
        self._check_references(axes)
        inputs, weights = self._tensors("inputs", axes), self._tensors("weights", axes)
        at_most, sample, seed = self._limits(), self._whole("sample", 1), self._whole("seed", 0)
        if self.problems:
            return None
        return Grid(
            self.path,
            str(operator),
            axes,
            tuple(arguments),
            inputs,
            weights,
            at_most,
            sample,
            seed or 0,
        )

    def _wrong(self, key: str, value: object, allowed: str | None = None) -> None:
        self.problems.append(_found(self.at + key, value, allowed or _ALLOWED[key]))

    def _mapping(self, key: str) -> Mapping[str, Any]:
        value = self.document.get(key)
        if value is None:
            return {}
        if not isinstance(value, dict):
            self._wrong(key, value)
            return {}
        return value

    # axes

    def _axes(self, key: str) -> dict[str, tuple[Json | Reference, ...]]:
        found = {}
        for name, value in self._mapping(key).items():
            if name in _WORDS:
                self.problems.append(f"{self.at}{key}.{name}: {name} is a key of the file itself")
                continue
            found[name] = self._levels(f"{key}.{name}", value)
        return found

    def _levels(self, key: str, value: Any) -> tuple[Json | Reference, ...]:
        if not isinstance(value, list):
            return self._some(key, value)
        if not value:
            self._wrong(key, value, _RANGE)
        levels: list[Json | Reference] = []
        for number, item in enumerate(value):
            if isinstance(item, list):
                plain = all(not isinstance(entry, list | dict) for entry in item)
                if not plain:
                    self._wrong(f"{key}[{number}]", item, "a value or a list of plain values")
                levels.append(item)
            else:
                levels += self._some(f"{key}[{number}]", item)
        return tuple(levels)

    def _some(self, key: str, value: Any) -> tuple[Json | Reference, ...]:
        """Return the levels that one value, range or reference stands for."""
        if not isinstance(value, dict):
            return (value,)
        try:
            return _reference(value) if "of" in value else tuple(_range(value))
        except ValueError as error:
            self._wrong(key, value, f"{_RANGE} ({error})" if str(error) else _RANGE)
            return (None,)

    def _common_axes(self) -> dict[str, tuple[Json | Reference, ...]]:
        values = [None if v == "normal" else v for v in self._words("values", ())]
        classes = [*values, *self._zeros()]
        distinct = [v for number, v in enumerate(classes) if v not in classes[:number]]
        return {
            "dtype": self._words("dtype", ("float32",)),
            "memory_format": self._words("memory_format", ("contiguous",)),
            "values": tuple(distinct) or (None,),
        }

    def _words(self, key: str, default: tuple[str, ...]) -> tuple[str, ...]:
        value = self.document.get(key)
        if value is None:
            return default
        words = value if isinstance(value, list) and value else [value]
        for word in words:
            if word not in _WORDS[key]:
                near = nearest(str(word), _WORDS[key])
                self._wrong(key, word, _ALLOWED[key] + (near and f"; {near}"))
        return tuple(words)

    def _zeros(self) -> list[Json | None]:
        value: Json = self.document.get("zeros")
        shares: list[Json] = (
            value if isinstance(value, list) and value else [] if value is None else [value]
        )
        for share in shares:
            if not _is_number(share) or not 0 <= share <= 1:
                self._wrong("zeros", share)
                return []
        return [{"zeros": float(share)} if share else None for share in shares]

    def _check_references(self, axes: Axes) -> None:
        try:
            reference_order(axes)
        except ValueError as error:
            self.problems.append(f"{self.at}{error}")

    # tensors

    def _tensors(self, key: str, axes: Axes) -> dict[str, Any]:
        given = self._mapping(key)
        return {
            name: self._tensor(f"{key}.{name}", value, axes, list(given)[:number])
            for number, (name, value) in enumerate(given.items())
        }

    def _tensor(self, key: str, value: Any, axes: Axes, earlier: list[str]) -> Any:
        if isinstance(value, list) and any(isinstance(item, list | dict) for item in value):
            return [
                self._tensor(f"{key}[{number}]", item, axes, earlier)
                for number, item in enumerate(value)
            ]
        if isinstance(value, list):
            return TensorRequest(self._shape(key, value, axes))
        if not isinstance(value, dict):
            return value
        if set(value) == {"same"}:
            if value["same"] not in earlier:
                self._wrong(f"{key}.same", value["same"], "an input above: " + ", ".join(earlier))
            return SameAs(str(value["same"]))
        if "shape" not in value or not isinstance(value["shape"], list):
            self._wrong(key, value, _TENSOR)
            return None
        self.problems += _unknown(value, ("shape", "dtype", "values"), f"{self.at}{key}.")
        dtype, values = value.get("dtype"), value.get("values")
        if dtype is not None and dtype not in _TENSOR_DTYPES:
            self._wrong(f"{key}.dtype", dtype, "one of " + ", ".join(_TENSOR_DTYPES))
        if values is not None and not _is_class(values, axes):
            self._wrong(f"{key}.values", values, _CLASSES)
        return TensorRequest(self._shape(f"{key}.shape", value["shape"], axes), dtype, values)

    def _shape(self, key: str, value: list[Any], axes: Axes) -> tuple[int | str, ...]:
        names = [name for name in axes if name not in _WORDS]
        for size in value:
            if isinstance(size, str) and size not in names:
                near = nearest(size, names) or "names here: " + ", ".join(names)
                self._wrong(key, size, f"a number, or the name of an argument or size; {near}")
            elif not isinstance(size, str) and not _is_whole(size, 0):
                self._wrong(key, size, "a number, or the name of an argument or size")
        return tuple(value)

    # numbers

    def _limits(self) -> dict[str, float]:
        given = self._mapping("at_most")
        self.problems += _unknown(given, ("bytes", "flops"), f"{self.at}at_most.")
        for name, value in given.items():
            if not _is_number(value) or value <= 0:
                self._wrong(f"at_most.{name}", value, "a number above 0, such as 1.0e+9")
        return dict(given)

    def _whole(self, key: str, least: int) -> int | None:
        value = self.document.get(key)
        if value is not None and not _is_whole(value, least):
            self._wrong(key, value)
        return value if isinstance(value, int) else None


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


def _is_class(values: Json, axes: Axes) -> bool:
    """Return whether something is a value class, names in a range included."""
    if not isinstance(values, dict):
        return values in VALUES
    if set(values) == {"range"}:
        ends = values["range"]
        known = isinstance(ends, list) and len(ends) == 2
        return known and all(_is_number(end) or end in axes for end in ends)
    share: Json = values.get("density", values.get("zeros"))
    return len(values) == 1 and _is_number(share) and 0 <= share <= 1


def _is_number(value: object) -> TypeGuard[int | float]:
    # the bounds also refuse what YAML spells .inf and .nan
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e30


def _is_whole(value: object, least: int) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _found(key: str, value: object, allowed: str) -> str:
    return f"{key}: found {shown(value)}; allowed: {allowed}"


def _unknown(mapping: Mapping[str, Any], valid: Iterable[str], at: str) -> list[str]:
    """Return what is wrong with a mapping's keys, the nearest valid ones offered."""
    names = list(valid)
    return [unknown_key(key, names, at) for key in mapping if key not in names]
