"""Power of one board over a window of time, asked of a recorder in a process of its own."""

from __future__ import annotations

import json
import select
import subprocess
import sys
from contextlib import suppress
from typing import Any, Literal, TypeAlias

from opdb.errors import CannotMeasureError
from opdb.meters import Reading
from opdb.records import Trace

Polling: TypeAlias = Literal["usual", "fast", "none"]
"""How often the counter is read: every few milliseconds, back to back, not at all."""

ANSWERED_WITHIN_S = 60.0
"""A recorder that says nothing for so long hangs in the driver, as it may where a GPU is lost."""

CLOSED_WITHIN_S = 10.0

_SERIES = ("samples", "counter", "instant", "clock")


class NvmlMeter:
    """Power of one NVIDIA board, recorded by a process of its own."""

    name = "nvml"

    def __init__(self, uuid: str) -> None:
        self.uuid = uuid
        self._process = subprocess.Popen(
            [sys.executable, "-m", "opdb.meters.nvml.recorder", uuid],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        # It answers each question with one line, so none is left in the buffer.
        if not select.select([self._process.stdout], [], [], ANSWERED_WITHIN_S)[0]:
            self._process.kill()
            raise CannotMeasureError(
                f"the NVML recorder of {self.uuid} gave no answer for {ANSWERED_WITHIN_S:.0f} s; "
                "has the GPU gone away? See nvidia-smi"
            )
        line = self._process.stdout.readline()
        if not line:
            raise CannotMeasureError(
                f"the NVML recorder of {self.uuid} ended (status {self._process.wait()}); "
                "has the GPU gone away? See nvidia-smi"
            )
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise CannotMeasureError(f"NVML on {self.uuid}: {answer['error']}")
        return answer

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # the recorder's last line says why it ended
            self._process.stdin.write(json.dumps(request) + "\n")
        return self._answer()

    def window(self, start_s: float, end_s: float, *, lag_s: float = 0.0) -> Reading:
        """Return what the board drew from `start_s` to `end_s` (monotonic seconds).

        Raises:
            CannotMeasureError: the recorder has ended or the driver refused.
        """
        answer = self._ask({"window": [start_s, end_s, lag_s]})
        edges = answer["counter"]
        return Reading(
            power_samples=tuple((t, w) for t, w in answer["power"]),
            counter_edges=tuple((t, j - edges[0][1]) for t, j in edges),
            clock_samples_hz=tuple(answer["clock"]),
            temperature_c=answer["temperature"],
            throttle_reasons=tuple(answer["reasons"]),
            utilization=answer["utilization"],
            reason=None if answer["power"] else "the driver gave no power sample in the window",
        )

    def watch(self, polling: Polling = "usual", *, instant: bool = False) -> None:
        """Read the counter this often from now on and, where asked, the instant power as well.

        Raises:
            CannotMeasureError: the recorder has ended.
        """
        self._ask({"watch": [polling, instant]})

    def trace(self, start_s: float, end_s: float) -> Trace:
        """Return all that was recorded from `start_s` to `end_s` (monotonic seconds).

        Raises:
            CannotMeasureError: the recorder has ended or the driver refused.
        """
        answer = self._ask({"trace": [start_s, end_s]})
        series = {name: tuple((t, v) for t, v in answer[name]) for name in _SERIES}
        edges = series["counter"]
        return Trace(
            duration_s=end_s - start_s,
            power_samples=series["samples"],
            counter_edges=tuple((t, j - edges[0][1]) for t, j in edges),
            instant_samples=series["instant"],
            clock_samples=series["clock"],
            answering=tuple(answer["answering"]),
        )

    def close(self) -> None:
        """End the recorder."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it may have ended by itself
            self._process.stdin.close()
        try:
            self._process.wait(timeout=CLOSED_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
