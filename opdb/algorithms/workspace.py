"""Scratch memory that convolutions on one device share: one after the other they use it."""

from __future__ import annotations

import torch


class Workspace:
    """One device's scratch memory, as large as the largest convolution prepared so far needs.

    Convolutions on several streams are put in order. Those inside a CUDA graph are ordered by
    whoever replays the graph; what a graph has captured is kept until `clear`.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._memory = self._made(0)
        self._captured: list[torch.Tensor] = []
        self._last: torch.cuda.Stream | None = None

    def reserve(self, size_bytes: int) -> None:
        """Grow to `size_bytes` bytes.

        Raises:
            OutOfMemoryError: (torch's) the device has less memory left.
        """
        if size_bytes <= self._memory.nbytes:
            return
        torch.cuda.synchronize(self._device)  # nothing may still be using what is given back
        before = self._memory.nbytes
        self._memory = self._made(0)
        try:
            self._memory = self._made(size_bytes)
        except torch.OutOfMemoryError:
            self._memory = self._made(before)  # what was prepared earlier still needs it
            raise

    def _made(self, size_bytes: int) -> torch.Tensor:
        return torch.empty(size_bytes, dtype=torch.uint8, device=self._device)

    def pointer(self, stream: torch.cuda.Stream, *, capturing: bool) -> int:
        """Return where the memory is, for work that is issued on this stream next."""
        if capturing:
            if not any(kept is self._memory for kept in self._captured):
                self._captured.append(self._memory)
        elif self._last is None:
            self._last = stream
        elif self._last != stream:
            stream.wait_stream(self._last)
            self._last = stream
        return self._memory.data_ptr()

    def clear(self) -> None:
        """Give the memory back; no graph that captured it may be replayed after."""
        torch.cuda.synchronize(self._device)
        self._captured.clear()
        self._memory = self._made(0)
        self._last = None
