"""How workloads are told apart: in words, and in JSON and CSV."""

from __future__ import annotations

from collections.abc import Callable

from opdb.models import ModelRequest
from opdb.models.usual import FAMILY_SIZES, size_of, times
from opdb.records import Harvest, Json, Stored, Workload
from opdb.tables import Column, Row
from opdb.units import show

USUAL_SIZE = FAMILY_SIZES["classification"]
"""The input of most models of images, which goes without saying."""

_LENGTHS = ("max_new_tokens", "cache", "context", "cache_length")
_MADE_BY = ("experts", "imbalance", "quantize")
"""What is said of how a decoder multiplies, where anything is."""

IDENTITY = (
    *("model", "source", "batch_size", "dtype", "memory_format", "input_size", "phase"),
    *("autocast", "optimizer", "accumulation"),
    *_LENGTHS,
    *_MADE_BY,
)
"""The names under which every command's JSON and CSV tell workloads apart."""


def describe(what: Workload | ModelRequest, *, usual_size: bool = False) -> str:
    """Return what tells a model's workloads apart, in words; of an image's size what is unusual."""
    words = [f"batch {what.batch_size}", what.dtype]
    if what.memory_format != "contiguous":
        words.append(what.memory_format)
    if what.autocast is not None:
        words.append(f"autocast {what.autocast}")
    training = training_of(what)
    if training is not None:
        words += ["training", str(training["optimizer"])]
        if training["accumulation"] > 1:
            words.append(f"{training['accumulation']} batches a step")
    generation = generation_of(what)
    if generation is not None:
        words += [what.phase, generation["cache"] + " cache"]
        if (context := generation.get("context")) is not None:
            words.append(f"context {context}")
        if (tokens := generation.get("max_new_tokens")) is not None:
            words.append(f"{tokens} tokens")
        if (length := generation.get("cache_length")) is not None:
            words.append(f"length {length}")
        words += [f"{name} {generation[name]}" for name in _MADE_BY if name in generation]
    size = None if what.phase == "decode" else size_of(what)
    if size is not None and len(size) == 1:
        words.append(f"size {size[0]}")
    elif size and (usual_size or size != USUAL_SIZE):
        words.append(times(size))
    return " ".join(words)


def identity(workload: Workload) -> dict[str, Json]:
    """Return what tells workloads apart, under `IDENTITY`'s names."""
    training = training_of(workload) or {}
    generation = generation_of(workload) or {}
    return {
        "model": workload.name,
        "source": workload.source,
        "batch_size": workload.batch_size,
        "dtype": workload.dtype,
        "memory_format": workload.memory_format,
        "input_size": None if (size := size_of(workload)) is None else list(size),
        "phase": workload.phase,
        "autocast": workload.autocast,
        "optimizer": training.get("optimizer"),
        "accumulation": training.get("accumulation"),
        **{name: generation.get(name) for name in (*_LENGTHS, *_MADE_BY)},
    }


def workload_columns(of: Callable[[Row], Workload]) -> tuple[Column[Row], ...]:
    """Return the columns that tell workloads apart; people read the model's name and words."""

    def field(name: str) -> Column[Row]:
        title = "model" if name == "model" else None
        return Column(name, lambda row: identity(of(row))[name], title=title)

    words: Column[Row] = Column(title="workload", text=lambda row: describe(of(row)))
    return (*map(field, IDENTITY), words)


def training_of(what: Workload | ModelRequest) -> Json | None:
    """Return how a training step is made, as data; None of an inference."""
    return what.training if isinstance(what, ModelRequest) else what.inputs.get("training")


def generation_of(what: Workload | ModelRequest) -> Json | None:
    """Return which cache a prefill or a decoding step has, as data; None of other passes."""
    return what.generation if isinstance(what, ModelRequest) else what.inputs.get("generation")


def short_board(uuid: str) -> str:
    """Return the beginning of a board's UUID, which tells it from most others."""
    return uuid[:12]


def harvest_notes(found: Harvest, stale: int = 0) -> list[str]:
    """Return in words what is unusual about a workload just harvested.

    `stale` counts runs that were measured when it made other calls.
    """
    workload = found.workload
    name = f"{workload.name} {describe(workload)}"
    notes = [f"{name}: {note}" for note in found.notes]
    if found.failure is not None:
        notes.append(
            f"{name} asks whether it is being captured in a CUDA graph, and what it calls then is "
            "not known, so that mode graph is predicted from what it calls in eager: "
            f"{found.failure}"
        )
    if stale:
        notes.append(
            f"{name} calls something else in {workload.source} {workload.source_version} than when "
            f"runs of it were measured ({stale}): they are held against these calls now"
        )
    return notes


def note_harvest(note: Callable[[str], None], found: Harvest, stale: int = 0) -> None:
    """Note what is unusual about a workload just harvested: see `harvest_notes`."""
    for line in harvest_notes(found, stale):
        note(line)


def lookup_notes(found: Stored, location: str) -> list[str]:
    """Return in words what was harvested just now; `location` is the database's."""
    if found.harvest_s is None:
        return []
    kept = f"stored in {location}" if found.unsaved is None else f"not stored: {found.unsaved}"
    workload, took = found.workload, show(found.harvest_s, "s")
    return [
        f"{workload.name}, {describe(workload)}: not in the database, harvested now ({took}), "
        f"{kept}",
        *harvest_notes(found.found, found.stale),
    ]
