"""The cache of a decoding step: what of it is kept, and which steps cost the same."""

from __future__ import annotations

from collections.abc import Iterator

from opdb.growth.passes import Sizes, sizes_of
from opdb.records import Json, Workload


def cached(step: Workload) -> Iterator[dict[str, Json]]:
    """Yield the specs of the keys and values that the calls of a step find in its cache."""
    for call in step.calls:
        inputs = call.configuration.inputs
        if call.configuration.kind in ("index_copy", "roll"):
            spec = inputs["input"]
        elif call.configuration.kind == "cat":
            spec = inputs["tensors"][0]
        else:
            continue
        if spec.get("role") == "weight" and len(spec["shape"]) == 4:
            yield spec


def window_of(step: Workload) -> int | None:
    """Return the window of a decoding step whose cache keeps fewer positions than it could.

    A static cache keeps as many as the window, a dynamic one, once it is full, one fewer. None
    where there is none, or where a dynamic cache does not show it yet.
    """
    kept = min((int(spec["shape"][2]) for spec in cached(step)), default=None)
    generation = step.inputs["generation"]
    if kept is None:
        return None
    if generation["cache"] == "static":
        return kept if kept < generation["cache_length"] else None
    return kept + 1 if kept < generation["context"] else None


def stands_for(step: Workload, sizes: Sizes) -> bool:
    """Return whether a decoding step with a static cache costs what one of other sizes does.

    It does where batch and cache length are the same, because all positions are read, filled or
    not. Where a sliding window keeps fewer, both must find it full, or neither.
    """
    own = sizes_of(step)
    if own.keys() != {"batch", "context", "length"} or own.keys() != sizes.keys():
        return False
    if any(own[name] != sizes[name] for name in ("batch", "length")):
        return False
    window = window_of(step)
    return window is None or (own["context"] >= window) == (sizes["context"] >= window)
