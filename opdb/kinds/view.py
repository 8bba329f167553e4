"""Read a configuration's arguments, and the rules that most kinds share."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any, TypeAlias, TypeGuard

from opdb.records import Configuration, Json

Shape: TypeAlias = list[int]

_NARROW = {"bool": 1, "uint8": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8}
_WIDE = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "complex64": 8, "complex128": 16}
_OTHER = {"complex32": 4, "uint16": 2, "uint32": 4, "uint64": 8}
_ORDER = [*_NARROW, *_WIDE]
_BYTES = _NARROW | _WIDE | _OTHER


def item_bytes(dtype: str) -> int:
    """Return the bytes of one element of a dtype; float8 formats are the unnamed ones."""
    return _BYTES.get(dtype, 1)


def numel(shape: Sequence[int]) -> int:
    """Return the number of elements of a shape."""
    return prod(shape)


def is_spec(value: Json) -> TypeGuard[dict[str, Json]]:
    """Return whether a JSON value describes a tensor."""
    return isinstance(value, dict) and "shape" in value and "dtype" in value


def walk(value: Json) -> Iterator[dict[str, Json]]:
    """Yield the tensors of an argument in order: specs and {"same": i}."""
    if isinstance(value, dict):
        if is_spec(value) or "same" in value:
            yield value
    elif isinstance(value, list):
        for item in value:
            yield from walk(item)


class View:
    """A configuration's arguments, with defaults and repeated tensors filled in."""

    def __init__(self, configuration: Configuration, signature: inspect.Signature) -> None:
        self.configuration = configuration
        self.signature = signature
        order = [n for n in signature.parameters if n in configuration.inputs]
        order += sorted(n for n in configuration.inputs if n not in signature.parameters)
        met = [t for n in order for t in walk(configuration.inputs[n])]
        self.unique = [t for t in met if "same" not in t]
        self.occurrences = [met[t["same"]] if "same" in t else t for t in met]
        self.outputs: list[Shape] = []
        self.output_dtype = "float32"

    def with_outputs(self, shapes: list[Shape], dtype: str = "float32") -> View:
        """Keep the outputs' shapes and dtype for the rules that follow; returns itself."""
        self.outputs, self.output_dtype = shapes, dtype
        return self

    def _resolve(self, value: Json) -> Json:
        if isinstance(value, list):
            return [self._resolve(item) for item in value]
        if isinstance(value, dict) and "same" in value:
            return self.occurrences[value["same"]]
        return value

    def __getitem__(self, name: str) -> Any:
        """Return an argument: a parameter, a tensor's spec, a list of them, or the default."""
        c = self.configuration
        if name in c.inputs:
            return self._resolve(c.inputs[name])
        if name in c.parameters:
            return c.parameters[name]
        parameter = self.signature.parameters.get(name)
        if parameter is None or parameter.default is inspect.Parameter.empty:
            return None
        default = parameter.default
        return list(default) if isinstance(default, tuple) else default

    def shape(self, name: str = "input") -> Shape:
        """Return a tensor argument's shape; a number's is []."""
        value = self[name]
        return list(value["shape"]) if is_spec(value) else []

    def dtype(self, name: str = "input") -> str:
        """Return a tensor argument's dtype, "float32" for a number."""
        value = self[name]
        return str(value["dtype"]) if is_spec(value) else "float32"

    def specs(self, name: str) -> list[dict[str, Json]]:
        """Return the specs of the tensors in an argument."""
        value = self[name]
        return [t for t in walk(value) if is_spec(t)]

    def values(self, name: str = "input") -> Json | None:
        """Return a tensor argument's value class."""
        value = self[name]
        return value.get("values") if is_spec(value) else None

    @property
    def inplace(self) -> bool:
        """Whether the call changes its argument."""
        return bool(self.configuration.parameters.get("inplace"))

    @property
    def output_elements(self) -> int:
        """The elements of all outputs together."""
        return sum(numel(s) for s in self.outputs)


CountRule: TypeAlias = "Callable[[View], int]"
ShapesRule: TypeAlias = "Callable[[View], list[Shape]]"


def spec_bytes(spec: Json) -> int:
    """Return the bytes of a tensor that differ in memory: an expanded dimension counts once."""
    shape = list(spec["shape"])
    layout = spec.get("layout")
    if isinstance(layout, list):
        shape = [n for n, stride in zip(shape, layout, strict=True) if stride != 0]
    return numel(shape) * item_bytes(spec["dtype"])


def broadcast(shapes: Sequence[Shape]) -> Shape:
    """Return the shape that shapes broadcast to; sizes that disagree give the larger."""
    rank = max((len(s) for s in shapes), default=0)
    padded = [[1] * (rank - len(s)) + list(s) for s in shapes]
    return [0 if 0 in sizes else max(sizes) for sizes in zip(*padded, strict=True)]


# rules: flops


def one_flop_an_output(view: View) -> int:
    """Count one operation for each output element."""
    return view.output_elements


def one_flop_an_input(view: View) -> int:
    """Count one operation for each input element: reductions."""
    return sum(numel(t["shape"]) for t in view.unique)


def no_flops(view: View) -> int:
    """Count nothing: data only moves."""
    return 0


# rules: bytes


def inputs_and_outputs(view: View) -> int:
    """Count each distinct input read once and each output written once."""
    read = sum(spec_bytes(t) for t in view.unique)
    return read + view.output_elements * item_bytes(view.output_dtype)


def outputs_twice(view: View) -> int:
    """Count each output element read and written once: gathers that read only what they keep."""
    small = sum(spec_bytes(t) for t in view.unique[1:])
    return small + 2 * view.output_elements * item_bytes(view.output_dtype)


def no_bytes(view: View) -> int:
    """Count nothing: a view."""
    return 0


# rules: shapes


def broadcast_output(view: View) -> list[Shape]:
    """Give one output, all inputs broadcast together."""
    return [broadcast([list(t["shape"]) for t in view.occurrences])]


def input_shape(view: View) -> list[Shape]:
    """Give one output of the first tensor's shape."""
    return [list(view.occurrences[0]["shape"])] if view.occurrences else [[]]


# rules: dtype


def promoted_dtype(view: View) -> str:
    """Return the dtype that tensors promote to; one without dimensions counts where alone."""
    of_rank = [t["dtype"] for t in view.unique if t["shape"]] or [t["dtype"] for t in view.unique]
    known = [d for d in of_rank if d in _ORDER]
    if not known:
        return str(of_rank[0]) if of_rank else "float32"
    return str(max(known, key=_ORDER.index))


def input_dtype(view: View) -> str:
    """Return the first tensor's dtype."""
    return str(view.occurrences[0]["dtype"]) if view.occurrences else "float32"


def bool_dtype(view: View) -> str:
    """Return "bool": comparisons."""
    return "bool"


def index_dtype(view: View) -> str:
    """Return "int64": indices."""
    return "int64"


def named_dtype(view: View) -> str:
    """Return the `dtype` parameter, else the first tensor's dtype."""
    given = view["dtype"]
    return str(given["dtype"]) if isinstance(given, dict) else input_dtype(view)


# rules: launches


def always(view: View) -> bool:
    """Say that the call gives the device work."""
    return True


def never(view: View) -> bool:
    """Say that the call gives the device no work."""
    return False


def when_training(view: View) -> bool:
    """Say that only training gives the device work: dropout."""
    return bool(view["training"])


# rules: values


def no_values(view: View) -> None:
    """Give normal values."""
    return


def rectified(view: View) -> Json:
    """Give a ReLU's values."""
    return "rectified"


def same_values(view: View) -> Json | None:
    """Give the input's value class: views, dropout, pools."""
    return view.occurrences[0].get("values") if view.occurrences else None


def kept_rectified(view: View) -> Json | None:
    """Give "rectified" where all tensors are: pools and concatenation."""
    classes = [t.get("values") for t in view.occurrences]
    return "rectified" if classes and all(c == "rectified" for c in classes) else None
