"""Embeddings."""

from __future__ import annotations

from opdb.kinds.registry import Kind, register
from opdb.kinds.view import (
    Shape,
    View,
    index_dtype,
    item_bytes,
    no_flops,
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


def _bag_shape(view: View) -> list[Shape]:
    bags = view.shape("offsets") if view["offsets"] is not None else view.shape()[:1]
    return [[*bags, view.shape("weight")[-1]]]


register(
    Kind(
        "embedding",
        "input, weight, padding_idx=None, max_norm=None, norm_type=2.0, "
        "scale_grad_by_freq=False, sparse=False",
        flops_rule=no_flops,
        bytes_rule=_bytes,
        shapes_rule=_shape,
        dtype_rule=_dtype,
    ),
    Kind(
        "embedding_bag",
        "input, weight, offsets=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, "
        "mode='mean', sparse=False, per_sample_weights=None, include_last_offset=False, "
        "padding_idx=None",
        flops_rule=lambda view: numel(view.shape()) * view.shape("weight")[-1],
        shapes_rule=_bag_shape,
        dtype_rule=_dtype,
    ),
    Kind(
        "one_hot",
        "input, num_classes=-1",
        flops_rule=no_flops,
        shapes_rule=lambda view: [[*view.shape(), max(int(view["num_classes"]), 1)]],
        dtype_rule=index_dtype,
    ),
)
