"""Matrix products."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from opdb.kinds.backward import CONSTANT, ONCE, product_of, steps_of, twice
from opdb.kinds.families import PLAIN, broadcasting
from opdb.kinds.gradients import dense
from opdb.kinds.registry import Kind, register
from opdb.kinds.view import (
    CountRule,
    Shape,
    ShapesRule,
    View,
    broadcast,
    inputs_and_outputs,
    numel,
    promoted_dtype,
    spec_bytes,
)


def linear_shape(view: View) -> list[Shape]:
    """Give the input's shape with the weight's rows as last dimension."""
    weight = view.shape("weight")
    return [[*view.shape()[:-1], *weight[:-1]]]


def linear_flops(view: View) -> int:
    """Count a multiply-add (2) for each output element and each feature of the input."""
    return 2 * view.output_elements * view.shape()[-1]


def product_shape(first: Shape, second: Shape) -> Shape:
    """Return the shape of torch.matmul of two shapes."""
    rows = first[-2:-1] if len(first) > 1 else []
    columns = second[-1:] if len(second) > 1 else []
    return [*broadcast([first[:-2], second[:-2]]), *rows, *columns]


def _second(view: View) -> str:
    for name in ("other", "mat2", "vec", "vec2"):
        if name in view.signature.parameters:
            return name
    return "batch2"


def _shape(view: View) -> list[Shape]:
    return [product_shape(view.shape(), view.shape(_second(view)))]


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


def einsum_steps(view: View) -> list[int]:
    """Return the FLOPs of each step: operands join from the left, two at a time, as in torch.

    A step that contracts something is a product, of a multiply-add (2) for each joint index; what
    one side alone has and nothing needs later is summed before. Else it multiplies (1).
    """
    terms, output = _einsum_terms(view)
    sizes = _joint_sizes(terms)
    steps = []
    left = _wide(terms[0])
    for place, term in enumerate(terms[1:], 1):
        right = _wide(term)
        later = {*output}.union(*terms[place + 1 :])
        kept, contracted = (left | right) & later, (left & right) - later
        joint = numel([sizes[label] for label in kept | contracted])
        steps.append(2 * joint if contracted else joint)
        left = kept
    return steps


def _wide(term: Mapping[str | int, int]) -> set[str | int]:
    return {label for label, size in term.items() if size != 1}


def einsum_flops(view: View) -> int:
    """Count each step; of one operand alone, an operation an element where some are summed."""
    terms, output = _einsum_terms(view)
    if len(terms) > 1:
        return sum(einsum_steps(view))
    return 0 if terms[0].keys() <= {*output} else numel(view.specs("operands")[0]["shape"])


def bilinear_flops(view: View) -> int:
    """Count both products of x1 W x2."""
    out, first, second = view.shape("weight")
    rows = numel(view.shape("input1")[:-1])
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
        return inputs_and_outputs(view)
    idle = second[0] - active_groups(second[0], first[0], imbalance_of(view))
    return inputs_and_outputs(view) - round(idle * spec_bytes(view["mat2"]) / second[0])


def _scaled_dtype(view: View) -> str:
    given = view["out_dtype"]
    return str(given["dtype"]) if isinstance(given, dict) else str(view["input"]["dtype"])


product = partial(
    Kind,
    flops_rule=linear_flops,
    bytes_rule=inputs_and_outputs,
    shapes_rule=_shape,
    dtype_rule=promoted_dtype,
    nonzero_rule=dense,
    kernels="product",
    functions=PLAIN,
    settings=("tf32_matmul",),
)
"""A matrix product; each member says what its factors are."""


def added(name: str, first: str, second: str, reduce: bool = False) -> Kind:
    """Return the kind of a product that is added to an input; `reduce` sums it over a batch."""
    return product(
        name,
        f"input, {first}, {second}, *, beta=1, alpha=1",
        flops_rule=_added_flops(first, reduce),
        shapes_rule=_added_shape(first, second, reduce),
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
        kernels="generated",
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
        backward=steps_of("operands", einsum_steps),
        functions="torch.einsum",
    ),
    broadcasting(
        "outer",
        "input, vec2",
        shapes_rule=lambda view: [[*view.shape(), *view.shape("vec2")]],
        backward=product_of("input", "vec2"),
        functions="torch.outer Tensor.outer torch.ger Tensor.ger",
    ),
)
