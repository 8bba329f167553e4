"""Operators measured in every campaign, so that boards can be compared and drift be seen.

They are bound by arithmetic (TF32, bfloat16, float32), by memory, and by neither (short kernels):
what they cost here against what they cost on another board are that board's factors.
"""

from __future__ import annotations

from opdb.records import Configuration

ANCHORS: tuple[Configuration, ...] = (
    Configuration(
        "conv2d",
        {"padding": [1, 1]},
        {
            "input": {"shape": [32, 256, 14, 14], "dtype": "float32", "values": "rectified"},
            "weight": {"shape": [256, 256, 3, 3], "dtype": "float32", "role": "weight"},
        },
    ),
    Configuration(
        "linear",
        {},
        {
            "input": {"shape": [4096, 1024], "dtype": "bfloat16"},
            "weight": {"shape": [4096, 1024], "dtype": "bfloat16", "role": "weight"},
        },
    ),
    Configuration("relu", {}, {"input": {"shape": [64, 256, 56, 56], "dtype": "float32"}}),
    Configuration(
        "linear",
        {},
        {
            "input": {"shape": [2048, 1024], "dtype": "float32"},
            "weight": {"shape": [1024, 1024], "dtype": "float32", "role": "weight"},
        },
    ),
    Configuration(
        "conv2d",
        {"padding": [1, 1]},
        {
            "input": {"shape": [1, 128, 28, 28], "dtype": "float32", "values": "rectified"},
            "weight": {"shape": [128, 128, 3, 3], "dtype": "float32", "role": "weight"},
        },
    ),
    Configuration(
        "add",
        {},
        {
            "input": {"shape": [1, 256, 14, 14], "dtype": "float32"},
            "other": {"shape": [1, 256, 14, 14], "dtype": "float32"},
        },
    ),
)
