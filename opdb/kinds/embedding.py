"""Embeddings."""

from __future__ import annotations

from opdb.kinds.backward import CONSTANT
from opdb.kinds.families import moved
from opdb.kinds.registry import register
from opdb.kinds.view import (
    Shape,
    View,
    index_dtype,
    inputs_and_outputs,
    item_bytes,
    numel,
    spec_bytes,
)


def _shape(view: View) -> list[Shape]:
    return [[*view.shape(), view.shape("weight")[-1]]]


def _dtype(view: View) -> str:
    return view.dtype("weight")


def _bytes(view: View) -> int:
    # a row is read for each index, never more than the table
    rows = view.output_elements * item_bytes(view.output_dtype)
    return spec_bytes(view["input"]) + min(rows, spec_bytes(view["weight"])) + rows


def _rows(view: View, name: str) -> int | None:
    """Bound indices by the table's rows; every bag of a measured call begins at the first index."""
    return {"input": int(view.shape("weight")[0]), "offsets": 1}.get(name)


def _classes(view: View, name: str) -> int | None:
    count = int(view["num_classes"])
    return count if count > 0 else None


def _bag_shape(view: View) -> list[Shape]:
    bags = view.shape()[0] if view["offsets"] is None else view.shape("offsets")[0]
    last = view["offsets"] is not None and view["include_last_offset"]
    return [[bags - bool(last), view.shape("weight")[-1]]]


def _bag_flops(view: View) -> int:
    """Count an addition for each element of each row, and a product where rows are weighted."""
    elements = numel(view.shape()) * view.shape("weight")[-1]
    return elements if view["per_sample_weights"] is None else 2 * elements


def _bag_bytes(view: View) -> int:
    # as an embedding's, and a row is written for each bag
    rows = numel(view.shape()) * view.shape("weight")[-1] * item_bytes(view.dtype("weight"))
    table = spec_bytes(view["weight"])
    return inputs_and_outputs(view) - table + min(rows, table)


register(
    moved(
        "embedding",
        "input, weight, padding_idx=None, max_norm=None, norm_type=2.0, "
        "scale_grad_by_freq=False, sparse=False",
        bytes_rule=_bytes,
        shapes_rule=_shape,
        dtype_rule=_dtype,
        bound_rule=_rows,
        functions="F.embedding torch.embedding(weight, input, padding_idx=None, "
        "scale_grad_by_freq=False, sparse=False)",
    ),
    moved(
        "embedding_bag",
        "input, weight, offsets=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, "
        "mode='mean', sparse=False, per_sample_weights=None, include_last_offset=False, "
        "padding_idx=None",
        flops_rule=_bag_flops,
        bytes_rule=_bag_bytes,
        shapes_rule=_bag_shape,
        dtype_rule=_dtype,
        bound_rule=_rows,
        kernels="other",
        functions="F.embedding_bag",
    ),
    moved(
        "one_hot",
        "input, num_classes=-1",
        shapes_rule=lambda view: [[*view.shape(), max(int(view["num_classes"]), 1)]],
        dtype_rule=index_dtype,
        backward=CONSTANT,
        bound_rule=_classes,
        functions="F.one_hot",
    ),
)
