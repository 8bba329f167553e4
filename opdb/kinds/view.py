"""Read a configuration's arguments, layouts as strides, and the rules that most kinds share."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

from opdb.records import Configuration, Json

if TYPE_CHECKING:
    from opdb.kinds.registry import Kind

Shape: TypeAlias = list[int]

_NARROW = {"bool": 1, "uint8": 1, "int8": 1, "int16": 2, "int32": 4, "int64": 8}
_WIDE = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8, "complex64": 8, "complex128": 16}
_OTHER = {"complex32": 4, "uint16": 2, "uint32": 4, "uint64": 8}
_ORDER = [*_NARROW, *_WIDE]
_BYTES = _NARROW | _WIDE | _OTHER
# The dtypes that autocast casts.
_CAST = frozenset({"float16", "bfloat16", "float32"})
# The settings of kinds that come down to products.
_OF_PRODUCTS = frozenset({"tf32_convolution", "tf32_matmul"})
_STATISTICS = ("running_mean", "running_var")


def item_bytes(dtype: str) -> int:
    """Return the bytes of one element of a dtype; float8 formats are the unnamed ones."""
    return _BYTES.get(dtype, 1)


def numel(shape: Sequence[int]) -> int:
    return prod(shape)


def is_spec(value: Json) -> TypeGuard[dict[str, Json]]:
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
    """A configuration's arguments, defaults and repeated tensors filled in, and its outputs.

    It is the forward pass of a call of `kind`, and asks the rules of that.
    """

    def __init__(self, configuration: Configuration, kind: Kind) -> None:
        self.configuration = configuration
        self.kind = kind
        self.signature = kind.signature
        order = [n for n in self.signature.parameters if n in configuration.inputs]
        order += sorted(n for n in configuration.inputs if n not in self.signature.parameters)
        met = [t for n in order for t in walk(configuration.inputs[n])]
        self.unique = [t for t in met if "same" not in t]
        self.occurrences = [met[t["same"]] if "same" in t else t for t in met]

    @cached_property
    def outputs(self) -> list[Shape]:
        return self.kind.shapes_rule(self)

    @cached_property
    def output_dtype(self) -> str:
        """The outputs' dtype: autocast lowers those of products, and raises all others."""
        dtype, lowered = self.kind.dtype_rule(self), self.configuration.autocast
        if lowered is None or dtype not in _CAST:
            return dtype
        is_product = not _OF_PRODUCTS.isdisjoint(self.kind.settings)
        return lowered if is_product and not self.kind.raised else "float32"

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
        value = self[name]
        return list(value["shape"]) if is_spec(value) else []

    def resized(self, name: str, *sizes: int) -> Shape:
        """Return the input's shape, other sizes in the place of a dimension that `name` says."""
        shape = self.shape()
        dim = int(self[name] or 0) % max(len(shape), 1)
        return [*shape[:dim], *sizes, *shape[dim + 1 :]]

    def dtype(self, name: str = "input") -> str:
        value = self[name]
        return str(value["dtype"]) if is_spec(value) else "float32"

    def specs(self, name: str) -> list[dict[str, Json]]:
        value = self[name]
        return [t for t in walk(value) if is_spec(t)]

    @property
    def inplace(self) -> bool:
        return bool(self.configuration.parameters.get("inplace"))

    @property
    def needing_gradient(self) -> list[dict[str, Json]]:
        """The distinct tensors that get a gradient; running statistics do not."""
        statistics = {id(t) for n in _STATISTICS for t in self.specs(n)}  # equal to a weight's
        return [t for t in self.unique if needs_gradient(t) and id(t) not in statistics]

    @property
    def output_elements(self) -> int:
        return sum(numel(s) for s in self.outputs)

    @property
    def output_bytes(self) -> int:
        indices = sum(numel(s) for s in self.outputs[1:]) if self.kind.then_indices else 0
        of_values = (self.output_elements - indices) * item_bytes(self.output_dtype)
        return of_values + indices * item_bytes("int64")

    def flops(self) -> int:
        return self.kind.flops_rule(self)

    def traffic(self) -> tuple[int, int]:
        if not self.kind.launches_rule(self):
            return 0, 0
        moved = self.kind.bytes_rule(self)
        return moved, max(0, moved - (inputs_and_outputs(self) - self._named_weight_bytes))

    @property
    def _named_weight_bytes(self) -> int:
        return sum(spec_bytes(t) for t in self.unique if t.get("role") == "weight")

    @property
    def gradient_bytes(self) -> int:
        """The bytes of all gradients: those of weights that are not named, too."""
        implied = 0
        if "weight_dtype" in self.signature.parameters:  # recurrent, attention
            implied = self.traffic()[1] - self._named_weight_bytes
        return sum(spec_bytes(t) for t in self.needing_gradient) + implied

    @property
    def is_differentiable(self) -> bool:
        if not self.kind.backward.has_gradient or not is_floating(self.kind.dtype_rule(self)):
            return False
        return bool(self.needing_gradient) or self.gradient_bytes > 0


CountRule: TypeAlias = "Callable[[View], int]"
ShapesRule: TypeAlias = "Callable[[View], list[Shape]]"


def spec_bytes(spec: Json) -> int:
    """Return the bytes of a tensor that differ in memory: an expanded dimension counts once."""
    shape = list(spec["shape"])
    layout = spec.get("layout")
    if isinstance(layout, list):
        shape = [n for n, stride in zip(shape, layout, strict=True) if stride != 0]
    return numel(shape) * item_bytes(spec["dtype"])


def needs_gradient(spec: Json) -> bool:
    return bool(spec.get("gradient", True)) and is_floating(spec["dtype"])


def is_floating(dtype: str) -> bool:
    return category(dtype) > 1


def entries(value: Any, rank: int) -> list[int]:
    """Return a window's number for each axis: those of a list, or one number for all axes."""
    return [int(n) for n in (value if isinstance(value, list) else [value] * rank)]


def slid(sizes: Shape, kernel: Shape, stride: Shape, padding: Shape, dilation: Shape) -> Shape:
    """Give floor((n + 2 padding - dilation (kernel - 1) - 1) / stride) + 1 for each axis."""
    each = zip(sizes, kernel, stride, padding, dilation, strict=True)
    return [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in each]


def broadcast(shapes: Sequence[Shape]) -> Shape:
    """Return the shape that shapes broadcast to; sizes that disagree give the larger."""
    rank = max((len(s) for s in shapes), default=0)
    padded = [[1] * (rank - len(s)) + list(s) for s in shapes]
    return [0 if 0 in sizes else max(sizes) for sizes in zip(*padded, strict=True)]


# rules that look at nothing


def giving(value: Any) -> Callable[..., Any]:
    return lambda *_: value


always, never = giving(True), giving(False)
no_flops, one = giving(0), giving(1)
bool_dtype, index_dtype = giving("bool"), giving("int64")
no_values, rectified = giving(None), giving("rectified")
no_bound = giving(None)
no_output = giving([])

# rules: flops


def one_flop_an_output(view: View) -> int:
    return view.output_elements


def one_flop_an_input(view: View) -> int:
    return sum(numel(t["shape"]) for t in view.unique)


def flops_an_element(count: int, name: str = "input") -> CountRule:
    return lambda view: count * numel(view.shape(name))


# rules: bytes


def inputs_and_outputs(view: View) -> int:
    read = sum(spec_bytes(t) for t in view.unique)
    return read + view.output_bytes


def outputs_twice(view: View) -> int:
    """Count each output element read and written once: gathers that read only what they keep."""
    small = sum(spec_bytes(t) for t in view.unique[1:])
    return small + 2 * view.output_bytes


def written_over(view: View) -> int:
    """Count each distinct input read once and each output written once, but the first input.

    It is written over, whatever it held.
    """
    return inputs_and_outputs(view) - spec_bytes(view["input"])


# rules: shapes


def input_shape(view: View) -> list[Shape]:
    return [list(view.occurrences[0]["shape"])] if view.occurrences else [[]]


# rules: dtype


def promoted_dtype(view: View) -> str:
    """Return the dtype that tensors promote to.

    One without dimensions counts where it is of a higher category (a float beside integers) or
    alone, and so does a number; a condition does not.
    """
    tensors = [t for t in view.unique if t is not view["condition"]]
    shaped = [str(t["dtype"]) for t in tensors if t["shape"]]
    single = [str(t["dtype"]) for t in tensors if not t["shape"]]
    numbers = [_number_dtype(view.configuration.parameters.get(name)) for name in _OPERANDS]
    found = ""
    for dtypes in (shaped, single, [dtype for dtype in numbers if dtype]):
        highest = max(dtypes, key=_rank, default="")
        if highest and (not found or category(highest) > category(found)):
            found = highest
    return found or "float32"


def _rank(dtype: str) -> int:
    return _ORDER.index(dtype) if dtype in _ORDER else -1


_OPERANDS = ("input", "other", "exponent")


def _number_dtype(value: Json) -> str:
    if isinstance(value, dict):
        return "complex64" if "complex" in value else "float32" if "float" in value else ""
    return {bool: "bool", int: "int64", float: "float32"}.get(type(value), "")


def category(dtype: str) -> int:
    """Return 0 for bool, 1 for whole numbers, 2 for floats, 3 for complex numbers."""
    if dtype.startswith(("float", "bfloat")):
        return 2
    return 0 if dtype == "bool" else 3 if dtype.startswith("complex") else 1


def quotient_dtype(view: View) -> str:
    """Return the promoted dtype; whole numbers give a float unless they are rounded."""
    dtype = promoted_dtype(view)
    return dtype if category(dtype) > 1 or view["rounding_mode"] is not None else "float32"


def summed_dtype(view: View) -> str:
    """Return the `dtype` parameter, else the input's; whole numbers and truths are summed wide."""
    dtype = named_dtype(view)
    return dtype if category(dtype) > 1 or view["dtype"] is not None else "int64"


def complex_dtype(view: View) -> str:
    return "complex128" if promoted_dtype(view) in ("float64", "complex128") else "complex64"


def real_dtype(view: View) -> str:
    """Return the first tensor's dtype, of a complex one that of its parts."""
    dtype = input_dtype(view)
    return {"complex32": "float16", "complex64": "float32", "complex128": "float64"}.get(
        dtype, dtype
    )


def input_dtype(view: View) -> str:
    return str(view.occurrences[0]["dtype"]) if view.occurrences else "float32"


def named_dtype(view: View) -> str:
    given = view["dtype"]
    return str(given["dtype"]) if isinstance(given, dict) else input_dtype(view)


# rules: values


def same_values(view: View) -> Json | None:
    return view.occurrences[0].get("values") if view.occurrences else None


def kept_rectified(view: View) -> Json | None:
    classes = [t.get("values") for t in view.occurrences]
    return "rectified" if classes and all(c == "rectified" for c in classes) else None


# layouts of tensors as strides, in elements


def packed_strides(shape: Sequence[int], order: Iterable[int]) -> list[int]:
    """Return the strides of a tensor without gaps; `order` has its axes, the densest first."""
    strides, step = [0] * len(shape), 1
    for axis in order:
        strides[axis] = step
        step *= max(shape[axis], 1)
    return strides


def contiguous_strides(shape: Shape) -> list[int]:
    return packed_strides(shape, reversed(range(len(shape))))


def channels_last_strides(shape: Shape) -> list[int]:
    return packed_strides(shape, [1, *range(len(shape) - 1, 1, -1), 0])


def same_strides(shape: Sequence[int], one: Sequence[int], other: Sequence[int]) -> bool:
    """Return whether strides are the same for a shape, axes of one element left out."""
    pairs = zip(shape, one, other, strict=True)
    return all(size == 1 or a == b for size, a, b in pairs)


def strides_of(spec: Json) -> list[int]:
    shape, layout = list(spec["shape"]), spec.get("layout")
    if isinstance(layout, list):
        return layout
    if layout == "channels_last":
        return channels_last_strides(shape)
    return contiguous_strides(shape)


def is_viewable(spec: Json, shape: Shape) -> bool:
    """Return whether a tensor can be viewed as another shape without a copy.

    As in ATen's computeStride: each run of dimensions that lie together in memory must be cut
    into whole dimensions of the new shape.
    """
    old = [(n, s) for n, s in zip(spec["shape"], strides_of(spec), strict=True) if n != 1]
    runs: list[int] = []
    for index, (size, stride) in enumerate(old):
        if index and old[index - 1][1] == size * stride:
            runs[-1] *= size
        else:
            runs.append(size)
    new = [n for n in shape if n != 1]
    for run in runs:
        product = 1
        while product < run and new:
            product *= new.pop(0)
        if product != run:
            return False
    return not new
