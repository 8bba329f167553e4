"""Capturing CUDA graphs, and whether one is being captured: the truth, and what a model is told.

`capturing_into` captures, and leaves torch as it was where that fails.

A model may call something else while it is captured, and asks torch whether it is. `answering`
gives an answer of its own to all callers of `torch.cuda.is_current_stream_capturing`, however they
imported it; `is_capturing` says the truth, for opdb itself. A stream object answers the truth.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import torch
from torch.cuda import graphs

# The binding behind torch's function, which may have been imported from torch under any name.
_BINDING = "_cuda_isCurrentStreamCapturing"

# The functions that answered before, while an answer is given.
_truths: list[Callable[[], bool]] = []

# The answers that are given, the latest last.
_answers: list[bool] = []


@contextmanager
def capturing_into(graph: torch.cuda.CUDAGraph) -> Iterator[None]:
    """Capture the block as a CUDA graph on a stream of its own.

    After a capture that fails, random numbers can be drawn as before. torch itself leaves the
    device's generator as one that is being captured, and refuses every number until a later
    capture succeeds ("Offset increment outside graph capture encountered unexpectedly"; seen with
    torch 2.11). A copy of the generator's state, at the same seed and place, is not.

    Raises:
        RuntimeError: something in the block cannot be captured (it synchronises, for instance).
    """
    try:
        with torch.cuda.graph(graph):
            yield
    except BaseException:  # an interruption breaks off a capture, too; it is raised again
        with suppress(RuntimeError):  # of a device that is lost; what lost it is raised below
            generator = torch.cuda.default_generators[torch.cuda.current_device()]
            generator.graphsafe_set_state(generator.clone_state())
        raise


@dataclass
class CaptureAnswer:
    """Whether anyone asked while an answer was given."""

    asked: bool = False


@contextmanager
def answering(capturing: bool) -> Iterator[CaptureAnswer]:
    """Answer this thread, if it asks, that its stream is being captured, or that it is not.

    Blocks of several threads must not overlap.
    """
    before, thread, seen = getattr(graphs, _BINDING), threading.get_ident(), CaptureAnswer()

    def answer() -> bool:
        if threading.get_ident() != thread:
            return bool(before())
        seen.asked = True
        return capturing

    _truths.append(before)
    _answers.append(capturing)
    setattr(graphs, _BINDING, answer)
    try:
        yield seen
    finally:
        setattr(graphs, _BINDING, before)
        _truths.pop()
        _answers.pop()


def is_hidden() -> bool:
    """Return whether the answer now is that nothing is being captured, true or not."""
    return bool(_answers) and not _answers[-1]


def is_capturing() -> bool:
    """Return whether this thread's current stream is being captured, whatever the answer given."""
    return _truths[0]() if _truths else torch.cuda.is_current_stream_capturing()
