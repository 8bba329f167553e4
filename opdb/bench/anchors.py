"""Operators measured in every campaign, so that boards can be told apart.

One is bound by arithmetic, one by memory, one by both: what they cost here against what they cost
on another board is that board's factor.
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
)
