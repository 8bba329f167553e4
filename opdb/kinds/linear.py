"""Matrix products."""

from __future__ import annotations

from opdb.kinds.registry import Kind, register
from opdb.kinds.view import CountRule, Shape, ShapesRule, View, broadcast, numel

SETTINGS = ("tf32_matmul",)


def linear_shape(view: View) -> list[Shape]:
    """Give the input's shape with the weight's rows as last dimension."""
    weight = view.shape("weight")
    return [[*view.shape()[:-1], *weight[:-1]]]


def linear_flops(view: View) -> int:
    """Count a multiply-add (2) for each output element and each input feature."""
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


def _flops(view: View) -> int:
    return 2 * view.output_elements * view.shape()[-1]


def _added_shape(first: str, second: str, reduce: bool = False) -> ShapesRule:
    def rule(view: View) -> list[Shape]:
        shape = product_shape(view.shape(first), view.shape(second))
        return [shape[1:] if reduce else shape]

    return rule


def _added_flops(first: str) -> CountRule:
    def rule(view: View) -> int:
        batch = view.shape(first)[0] if view.configuration.kind == "addbmm" else 1
        return 2 * batch * view.output_elements * view.shape(first)[-1]

    return rule


def einsum_shapes(view: View) -> list[Shape]:
    """Give the output's shape by the equation's letters; an ellipsis broadcasts."""
    sizes, dots = _einsum_sizes(view)
    terms, _, output = str(view["equation"]).replace(" ", "").partition("->")
    if not _:
        letters = terms.replace(",", "").replace("...", "")
        output = "..." + "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    before, dotted, after = output.partition("...")
    middle = dots if dotted else []
    return [[*(sizes[c] for c in before), *middle, *(sizes[c] for c in after)]]


def _einsum_sizes(view: View) -> tuple[dict[str, int], Shape]:
    sizes: dict[str, int] = {}
    dots: list[Shape] = []
    terms = str(view["equation"]).replace(" ", "").partition("->")[0].split(",")
    for term, spec in zip(terms, view.specs("operands"), strict=True):
        shape = list(spec["shape"])
        before, dotted, after = term.partition("...")
        end = len(shape) - len(after)
        if dotted:
            dots.append(shape[len(before) : end])
        pairs = [*zip(before, shape, strict=False), *zip(after, shape[end:], strict=False)]
        for letter, size in pairs:
            sizes[letter] = max(size, sizes.get(letter, 1))
    return sizes, broadcast(dots)


def einsum_flops(view: View) -> int:
    """Count a multiply-add (2) for each joint index, as one contraction; exact for two operands."""
    sizes, dots = _einsum_sizes(view)
    return 2 * numel([*sizes.values(), *dots])


def bilinear_flops(view: View) -> int:
    """Count both products of x1 W x2."""
    out, first, second = view.shape("weight")
    rows = numel(view.shape("input1")[:-1])
    return 2 * rows * out * first * second + 2 * rows * out * second


def _product(name: str, signature: str) -> Kind:
    return Kind(name, signature, flops_rule=_flops, shapes_rule=_shape, settings=SETTINGS)


def _added(name: str, first: str, second: str) -> Kind:
    return Kind(
        name,
        f"input, {first}, {second}, *, beta=1, alpha=1",
        flops_rule=_added_flops(first),
        shapes_rule=_added_shape(first, second, reduce=name == "addbmm"),
        mutates=("input",),
        settings=SETTINGS,
    )


def _outer_shape(view: View) -> list[Shape]:
    return [[*view.shape(), *view.shape("vec2")]]


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


register(
    # groups of one size each: how a model's router fills them is not kept
    Kind(
        "grouped_mm",
        "input, mat2, offs=None, bias=None, out_dtype=None",
        flops_rule=_grouped_flops,
        shapes_rule=_grouped_shape,
        settings=SETTINGS,
    ),
    Kind(
        "linear",
        "input, weight, bias=None",
        flops_rule=linear_flops,
        shapes_rule=linear_shape,
        settings=SETTINGS,
    ),
    Kind(
        "bilinear",
        "input1, input2, weight, bias=None",
        flops_rule=bilinear_flops,
        shapes_rule=lambda view: [[*view.shape("input1")[:-1], view.shape("weight")[0]]],
        settings=SETTINGS,
    ),
    _product("matmul", "input, other"),
    _product("mm", "input, mat2"),
    _product("bmm", "input, mat2"),
    _product("mv", "input, vec"),
    _product("dot", "input, other"),
    Kind("outer", "input, vec2", shapes_rule=_outer_shape),
    Kind(
        "einsum",
        "equation, *operands",
        flops_rule=einsum_flops,
        shapes_rule=einsum_shapes,
        settings=SETTINGS,
    ),
    _added("addmm", "mat1", "mat2"),
    _added("baddbmm", "batch1", "batch2"),
    _added("addbmm", "batch1", "batch2"),
    _added("addmv", "mat", "vec"),
)
