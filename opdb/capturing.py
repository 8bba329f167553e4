"""Whether a CUDA graph is being captured: what is so, and what a model that asks is told.

A model may call something else while it is captured, and asks torch whether it is. What is told
for a while reaches everyone who asks `torch.cuda.is_current_stream_capturing`, however imported;
what opdb itself must know, `is_capturing` says. Who asks a stream object is told what is so.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.cuda import graphs

_PLACES: tuple[tuple[Any, str], ...] = (
    (graphs, "_cuda_isCurrentStreamCapturing"),
    (torch.cuda, "is_current_stream_capturing"),
)
"""What answers: the binding behind torch's function, and the function where that has no such name.

The function itself may have been imported from torch under any name.
"""

_truths: list[Callable[[], bool]] = []
"""What answered before anything was told, where anything is."""

_answers: list[bool] = []
"""What is told, the latest last."""


@dataclass
class Told:
    """Whether anyone asked while an answer was given."""

    asked: bool = False


@contextmanager
def told(capturing: bool) -> Iterator[Told]:
    """Tell this thread, if it asks, that its stream is being captured, or that it is not.

    Blocks of several threads must not overlap.
    """
    place, name = next((place, name) for place, name in _PLACES if hasattr(place, name))
    before, thread, seen = getattr(place, name), threading.get_ident(), Told()

    def answer() -> bool:
        if threading.get_ident() != thread:
            return bool(before())
        seen.asked = True
        return capturing

    _truths.append(before)
    _answers.append(capturing)
    setattr(place, name, answer)
    try:
        yield seen
    finally:
        setattr(place, name, before)
        _truths.pop()
        _answers.pop()


def is_hidden() -> bool:
    """Return whether who asks is told now that nothing is being captured, so or not."""
    return bool(_answers) and not _answers[-1]


def is_capturing() -> bool:
    """Return whether this thread's current stream is being captured, whatever anyone is told."""
    return _truths[0]() if _truths else torch.cuda.is_current_stream_capturing()
