"""The words that records are written in, and the one text and key of a JSON value."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any, Literal, TypeAlias

CONFIGURATION_FORMAT = 1
WORKLOAD_FORMAT = 1
SLUG_ALLOWED = "lower-case letters, digits, '-', '.' and '_', 100 at most, a letter or digit first"
"""The rule for a device's slug, in words."""

GRADIENTS = "gradients"
"""The input of a backward pass that lists the gradients of the call's outputs."""

Json: TypeAlias = Any
"""A JSON value: None, bool, int, float, str, list or dict of the same."""

Form: TypeAlias = Literal["module", "function"]
Mode: TypeAlias = Literal[
    "eager",
    "graph",
    "compile",
    "compile:reduce-overhead",
    "compile:max-autotune",
    "dynamo",
    "trace",
]
"""How work is issued: unchanged, as one CUDA graph, by torch.compile (after the colon the mode that
it is told), as dynamo's graphs without a compiler, as a graph that torch.jit traced."""

COMPILED_MODES: tuple[Mode, ...] = ("compile", "compile:reduce-overhead")
"""Modes that run the kernels which inductor makes by default."""

CAPTURED_MODE: Mode = "graph"
"""The mode that runs what a model calls while a CUDA graph captures it."""

Phase: TypeAlias = Literal["inference", "training", "prefill", "decode", "generate"]

DECODING: tuple[Phase, ...] = ("decode", "generate")  # which give new tokens one by one

Role: TypeAlias = Literal["measurement", "limited", "anchor", "duplicate"]
"""`limited`: the power limit pulled the clock down, so the visit counts for that clock alone.
`duplicate`: a measurement made once more, blind, to see whether stated intervals hold."""

Weights: TypeAlias = Literal["cold", "hot"]
Outputs: TypeAlias = Literal["fresh", "reused"]
"""Where calls write: to memory that the L2 has evicted, or to that of the output before last."""

Access: TypeAlias = Literal["model", "reused", "streamed", "chain"]
"""What calls find in the caches: `model`: what they find inside a model; `reused`: one input, one
set of weights; `streamed`: inputs that step through a large array; `chain`: the output before."""

Before: TypeAlias = Literal["itself", "code", "stream"]
"""What ran before a call, but for the kernels that write its inputs: the same call; a kernel with
more code than an instruction cache holds; a stream through more memory than the L2 holds."""

ALGORITHM_SETTING = "convolution_algorithm"
"""The setting that names the algorithm which a convolution was forced to take.

Where it is absent, torch chose. Measurements under it never stand in for usual ones."""

ELSEWHERE = "elsewhere"
"""The fact of a run under an algorithm that names its convolutions which ran otherwise, and how;
absent: none did."""

Outcome: TypeAlias = Literal["ok", "unsupported", "out_of_memory", "error"]


_SLUG = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")

_CANONICAL = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
)


def canonical_json(value: Json) -> str:
    """Return the one JSON text of a value: sorted keys, no blanks, no NaN.

    Raises:
        ValueError: a float is NaN or infinite (the describer must spell those as objects).
    """
    return _CANONICAL.encode(value)


def is_slug(text: str) -> bool:
    """Return whether a text may name a device: it also stands in the names of files."""
    return _SLUG.fullmatch(text) is not None


def is_forced(setting: str) -> bool:
    """Return whether a visit's setting (JSON text) forced a convolution to take an algorithm."""
    return f'"{ALGORITHM_SETTING}":' in setting


def content_key(value: Json) -> str:
    """Return the SHA-256 (hex) of a value's canonical JSON."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()
