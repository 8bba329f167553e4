"""Matrix products and convolutions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from opdb.kinds import view as v
from opdb.kinds.families import (
    CONSTANT,
    ONCE,
    PLAIN,
    broadcasting,
    chain,
    dense,
    drop,
    product_of,
    spread,
    steps_of,
    twice,
)
from opdb.kinds.registry import Canonical, Kind, register
from opdb.kinds.view import CountRule, Shape, ShapesRule, View
from opdb.records import ALGORITHM_SETTING


def linear_shape(view: View) -> list[Shape]:
    """Give the input's shape with the weight's rows as last dimension."""
    weight = view.shape("weight")
    return [[*view.shape()[:-1], *weight[:-1]]]


def product_shape(first: Shape, second: Shape) -> Shape:
    rows = first[-2:-1] if len(first) > 1 else []
    columns = second[-1:] if len(second) > 1 else []
    return [*v.broadcast([first[:-2], second[:-2]]), *rows, *columns]


def _second(view: View) -> str:
    for name in ("other", "mat2", "vec", "vec2"):
        if name in view.signature.parameters:
            return name
    return "batch2"


def _added_shape(first: str, second: str, reduce: bool = False) -> ShapesRule:
    def rule(view: View) -> list[Shape]:
        shape = product_shape(view.shape(first), view.shape(second))
        return [shape[1:] if reduce else shape]

    return rule


def _added_flops(first: str, reduce: bool = False) -> CountRule:
    def rule(view: View) -> int:
        batch = view.shape(first)[0] if reduce else 1
        return 2 * batch * view.output_elements * view.shape(first)[-1]

    return rule


def einsum_shapes(view: View) -> list[Shape]:
    """Give the output's shape by the equation's letters; an ellipsis broadcasts."""
    terms, output = _einsum_terms(view)
    sizes = _joint_sizes(terms)
    return [[sizes[label] for label in output]]


def _einsum_terms(view: View) -> tuple[list[dict[str | int, int]], list[str | int]]:
    """Return the sizes of each operand by label, and the output's labels.

    A label is a letter; the dimensions of an ellipsis are numbered -1, -2 … from its end.
    """
    spelled, arrow, output = str(view["equation"]).replace(" ", "").partition("->")
    operands: list[dict[str | int, int]] = []
    for term, spec in zip(spelled.split(","), view.specs("operands"), strict=True):
        before, dotted, after = term.partition("...")
        dots = len(spec["shape"]) - len(before) - len(after) if dotted else 0
        labels = [*before, *range(-dots, 0), *after]
        operands.append(dict(zip(labels, spec["shape"], strict=True)))
    if not arrow:
        letters = spelled.replace(",", "").replace("...", "")
        output = "..." + "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    before, dotted, after = output.partition("...")
    dots = -min((n for term in operands for n in term if isinstance(n, int)), default=0)
    return operands, [*before, *range(-dots if dotted else 0, 0), *after]


def _joint_sizes(terms: Sequence[Mapping[str | int, int]]) -> dict[str | int, int]:
    sizes: dict[str | int, int] = {}
    for label, size in (item for term in terms for item in term.items()):
        sizes[label] = sizes.get(label, 1) if size == 1 else size
    return sizes


def _einsum_steps(view: View) -> Iterator[tuple[int, int]]:
    """Yield the FLOPs of each step's sums and of its product.

    Operands join from the left, two at a time, as in torch. What one side alone has and nothing
    needs later is summed before, an operation an element of that side. Then a step that contracts
    something is a product, of a multiply-add (2) for each joint index; else it multiplies (1).
    """
    terms, output = _einsum_terms(view)
    sizes = _joint_sizes(terms)
    left = _wide(terms[0])
    for place, term in enumerate(terms[1:], 1):
        right = _wide(term)
        later = {*output}.union(*map(_wide, terms[place + 1 :]))
        kept, contracted = (left | right) & later, (left & right) - later
        joint = v.numel([sizes[label] for label in kept | contracted])
        wider = (side for side in (left, right) if side - kept - contracted)
        summed = sum(v.numel([sizes[label] for label in side]) for side in wider)
        yield summed, 2 * joint if contracted else joint
        left = kept


def _wide(term: Mapping[str | int, int]) -> set[str | int]:
    return {label for label, size in term.items() if size != 1}


def einsum_flops(view: View) -> int:
    """Count each step; of one operand alone, an operation an element where some are summed.

    An operand with a letter twice is its diagonal.
    """
    terms, output = _einsum_terms(view)
    if len(terms) > 1:
        return sum(sums + product for sums, product in _einsum_steps(view))
    return 0 if terms[0].keys() <= {*output} else v.numel([*terms[0].values()])


def bilinear_flops(view: View) -> int:
    """Count both products of x1 W x2."""
    out, first, second = view.shape("weight")
    rows = v.numel(view.shape("input1")[:-1])
    return 2 * rows * out * first * second + 2 * rows * out * second


def _grouped_shape(view: View) -> list[Shape]:
    """Give each group's product in its place: groups are slices of rows, columns or both."""
    first, second = view.shape(), view.shape("mat2")
    rows, columns = first[-2], second[-1]
    if len(first) == len(second):
        groups = view.shape("offs")[0] if len(first) == 2 else first[0]
        return [[groups, rows, columns]]
    return [[rows, columns]]


def _grouped_flops(view: View) -> int:
    """Count a multiply-add (2) for each output element of its group and each of its features."""
    first, second = view.shape(), view.shape("mat2")
    groups = first[0] if len(first) == len(second) == 3 else 1
    return 2 * groups * first[-2] * first[-1] * second[-1]


def active_groups(groups: int, rows: int, imbalance: float = 0.0) -> float:
    """Return how many of the groups get a row, on average, where a router draws each row's group.

    All groups are as likely at an imbalance of 0; else the i-th busiest as i to the minus that.
    """
    weights = [rank**-imbalance for rank in range(1, groups + 1)]
    whole = sum(weights)
    return float(sum(1 - (1 - weight / whole) ** rows for weight in weights))


def imbalance_of(view: View) -> float:
    """Return the imbalance with which the groups of a grouped product are filled."""
    values = (view["offs"] or {}).get("values")
    return float(values["imbalance"]) if isinstance(values, dict) and "imbalance" in values else 0.0


def _grouped_bytes(view: View) -> int:
    """Count inputs and outputs; of groups of rows, the factors of those that get one."""
    first, second = view.shape(), view.shape("mat2")
    if not (len(first) == 2 and len(second) == 3 and view["offs"]):
        return v.inputs_and_outputs(view)
    idle = second[0] - active_groups(second[0], first[0], imbalance_of(view))
    return v.inputs_and_outputs(view) - round(idle * v.spec_bytes(view["mat2"]) / second[0])


def _scaled_dtype(view: View) -> str:
    given = view["out_dtype"]
    return str(given["dtype"]) if isinstance(given, dict) else str(view["input"]["dtype"])


# A matrix product; each member says what its factors are.
product = partial(
    Kind,
    # a multiply-add (2) for each output element and each feature of the input
    flops_rule=lambda view: 2 * view.output_elements * view.shape()[-1],
    bytes_rule=v.inputs_and_outputs,
    shapes_rule=lambda view: [product_shape(view.shape(), view.shape(_second(view)))],
    dtype_rule=v.promoted_dtype,
    nonzero_rule=dense,
    functions=PLAIN,
    settings=("tf32_matmul",),
)


def added(name: str, first: str, second: str, reduce: bool = False) -> Kind:
    """Return the kind of a product that is added to an input; `reduce` sums it over a batch."""
    return product(
        name,
        f"input, {first}, {second}, *, beta=1, alpha=1",
        flops_rule=_added_flops(first, reduce),
        shapes_rule=_added_shape(first, second, reduce),
        arithmetic_rule=lambda view: view.dtype(first),
        backward=product_of(first, second),
        mutates=("input",),
    )


register(
    product(
        "matmul",
        "input, other",
        backward=product_of("input", "other"),
        functions="torch.matmul Tensor.matmul Tensor.__matmul__ Tensor.__rmatmul__~ linalg.matmul",
    ),
    product("mm", "input, mat2", backward=product_of("input", "mat2")),
    product("bmm", "input, mat2", backward=product_of("input", "mat2")),
    product("mv", "input, vec", backward=product_of("input", "vec")),
    product("dot", "input, other", backward=ONCE),
    added("addmm", "mat1", "mat2"),
    added("baddbmm", "batch1", "batch2"),
    added("addbmm", "batch1", "batch2", reduce=True),
    added("addmv", "mat", "vec"),
    product(
        "linear",
        "input, weight, bias=None",
        shapes_rule=linear_shape,
        backward=product_of("input", "weight"),
        functions="F.linear",
    ),
    # groups are filled as by a router that draws each row's (`active_groups`)
    product(
        "grouped_mm",
        "input, mat2, offs=None, bias=None, out_dtype=None",
        flops_rule=_grouped_flops,
        bytes_rule=_grouped_bytes,
        shapes_rule=_grouped_shape,
        backward=product_of("input", "mat2"),
        functions="torch._grouped_mm",
    ),
    # float8 factors, each with a scale for the whole or for each row (column) of it
    product(
        "scaled_mm",
        "input, mat2, scale_a, scale_b, bias=None, scale_result=None, out_dtype=None, "
        "use_fast_accum=False",
        flops_rule=lambda view: 2 * view.output_elements * view.shape()[-1],
        shapes_rule=lambda view: [product_shape(view.shape(), view.shape("mat2"))],
        dtype_rule=_scaled_dtype,
        arithmetic_rule=View.dtype,
        backward=CONSTANT,
        functions="torch._scaled_mm",
        positive=("scale_a", "scale_b"),
    ),
    product(
        "bilinear",
        "input1, input2, weight, bias=None",
        flops_rule=bilinear_flops,
        shapes_rule=lambda view: [[*view.shape("input1")[:-1], view.shape("weight")[0]]],
        backward=twice(),
        functions=f"{PLAIN} F.bilinear",
    ),
    product(
        "einsum",
        "equation, *operands",
        flops_rule=einsum_flops,
        shapes_rule=einsum_shapes,
        backward=steps_of("operands", lambda view: [product for _, product in _einsum_steps(view)]),
    ),
    broadcasting(
        "outer",
        "input, vec2",
        shapes_rule=lambda view: [[*view.shape(), *view.shape("vec2")]],
        backward=product_of("input", "vec2"),
        functions="torch.outer Tensor.outer torch.ger Tensor.ger",
    ),
)


# convolutions


SETTINGS = ("tf32_convolution", "cudnn_benchmark")


def convolution_shape(view: View) -> list[Shape]:
    """Give floor((n + 2 padding - dilation (kernel - 1) - 1) / stride) + 1 for each axis."""
    image, weight = view.shape(), view.shape("weight")
    rank = len(weight) - 2
    axes = []
    for axis in range(rank):
        size, kernel = image[axis - rank], weight[axis + 2]
        stride, dilation = v.entry(view["stride"], axis), v.entry(view["dilation"], axis)
        padding = view["padding"]
        if padding == "same":
            axes.append(size)
            continue
        around = 0 if padding == "valid" else 2 * v.entry(padding, axis)
        axes.append((size + around - dilation * (kernel - 1) - 1) // stride + 1)
    return [[*image[: -rank - 1], weight[0], *axes]]


def transposed_shape(view: View) -> list[Shape]:
    """Give (n - 1) stride - 2 padding + dilation (kernel - 1) + output_padding + 1 an axis."""
    image, weight = view.shape(), view.shape("weight")
    rank = len(weight) - 2
    axes = []
    for axis in range(rank):
        stride, padding, added, dilation = (
            v.entry(view[n], axis) for n in ("stride", "padding", "output_padding", "dilation")
        )
        kernel = weight[axis + 2]
        axes.append(
            (image[axis - rank] - 1) * stride - 2 * padding + dilation * (kernel - 1) + added + 1
        )
    return [[*image[: -rank - 1], weight[1] * int(view["groups"]), *axes]]


def _canonical(rank: int, **more: int) -> Canonical:
    return chain(spread(rank, stride=1, padding=0, dilation=1, **more), drop("padding", "valid"))


convolution = partial(
    Kind,
    spelled="input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1, *, "
    "padding_mode='zeros'",
    # a multiply-add (2) for each output element and each weight that makes it
    flops_rule=lambda view: 2 * view.output_elements * v.numel(view.shape("weight")[1:]),
    bytes_rule=v.inputs_and_outputs,
    shapes_rule=convolution_shape,
    dtype_rule=v.promoted_dtype,
    backward=product_of("input", "weight"),
    nonzero_rule=dense,
    functions="F.{0} torch.{0}",
    settings=SETTINGS,
)
transposed = partial(
    convolution,
    spelled="input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1",
    # a multiply-add (2) for each input element and each weight that spreads it
    flops_rule=lambda view: 2 * v.numel(view.shape()) * v.numel(view.shape("weight")[1:]),
    shapes_rule=transposed_shape,
)
register(
    convolution("conv1d", canonical=_canonical(1)),
    convolution("conv2d", canonical=_canonical(2), settings=(*SETTINGS, ALGORITHM_SETTING)),
    convolution("conv3d", canonical=_canonical(3)),
    *(
        transposed(f"conv_transpose{rank}d", canonical=_canonical(rank, output_padding=0))
        for rank in (1, 2, 3)
    ),
)
