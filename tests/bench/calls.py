"""Configurations that a processor measures in milliseconds."""

from __future__ import annotations

from dataclasses import replace

from opdb.records import Call, Configuration, Workload

IMAGE = {"shape": [1, 4, 8, 8], "dtype": "float32"}
RELU = Configuration("relu", {}, {"input": IMAGE})
TANH = Configuration("tanh", {}, {"input": IMAGE})
RELU_IN_PLACE = Configuration("relu", {"inplace": True}, {"input": IMAGE})
ADD_IN_PLACE = Configuration("add", {"inplace": True}, {"input": IMAGE, "other": IMAGE})
SQUARE = Configuration(
    "matmul", {}, {"input": {"shape": [8, 8], "dtype": "float32"}, "other": {"same": 0}}
)
CONV = Configuration(
    "conv2d",
    {"padding": [1, 1]},
    {
        "input": IMAGE,
        "weight": {"shape": [8, 4, 3, 3], "dtype": "float32", "role": "weight"},
    },
)
IMPOSSIBLE = Configuration(
    "conv2d",
    {},
    {
        "input": {"shape": [1, 5, 8, 8], "dtype": "float32"},
        "weight": {"shape": [8, 4, 3, 3], "dtype": "float32", "role": "weight"},
    },
)
HUGE = Configuration("relu", {}, {"input": {"shape": [2**44], "dtype": "float32"}})
UNKNOWN = Configuration("convolute", {}, {"input": IMAGE})
NO_GROUP = Configuration(
    "fused",
    {"nodes": [{"op": "aten.add_.Tensor", "args": [], "shape": []}], "outputs": [{"node": 0}]},
    {"inputs": []},
)
OTHER_PASS = Configuration("relu", {}, {"input": IMAGE}, pass_name="backward")


def workload(*configurations: Configuration, name: str = "made") -> Workload:
    return Workload(
        name=name,
        source="builtin",
        source_version="0",
        inputs={"args": [IMAGE], "kwargs": {}},
        batch_size=1,
        dtype="float32",
        memory_format="contiguous",
        calls=tuple(Call(c, "function") for c in configurations),
    )


def without_restoring(workload: Workload) -> Workload:
    """Return a workload without its in-place calls: no visit is rejected for what restoring takes.

    Short visits on a busy machine may take less than their restoring, and are then made again.
    """
    calls = (c for c in workload.calls if not c.configuration.parameters.get("inplace"))
    return replace(workload, calls=tuple(calls))
