"""Record what a real driver answers while a load comes and goes, in the driver's own units.

    python benchmarks/nvml_answers.py tests/data/h200_nvml_answers.json

Tests of the recorder play the answers back (tests/meters/driver.py). One process asks NVML for all
that the recorder asks, every 4 ms; another one runs the load on the first GPU and says when. Each
series is [seconds, answer], an answer kept where it changed; the rings of samples are
[microseconds, answer], as the driver stamps them. Both count from the same moment.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pynvml

from opdb.meters.nvml.binding import POWER_INSTANT_FIELD

POLL_S = 0.004
RINGS = {
    "power_samples_mw": pynvml.NVML_TOTAL_POWER_SAMPLES,
    "utilization_samples_percent": pynvml.NVML_GPU_UTILIZATION_SAMPLES,
}
LOAD = """
import time, torch

def run(name, size, dtype, seconds):
    a, b = (torch.randn(size, size, device="cuda", dtype=dtype) for _ in range(2))
    torch.cuda.synchronize()
    print(time.monotonic(), name, flush=True)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(4):
            a @ b
        torch.cuda.synchronize()
    print(time.monotonic(), "off", flush=True)

for size, dtype in ((4096, torch.float32), (8192, torch.bfloat16)):  # cuBLAS makes itself ready
    a = torch.randn(size, size, device="cuda", dtype=dtype)
    a @ a
torch.cuda.synchronize()
time.sleep(2.0)
print(time.monotonic(), "idle", flush=True)
time.sleep(1.0)
run("fp32 on", 4096, torch.float32, 1.5)
time.sleep(1.0)
run("bf16 on", 8192, torch.bfloat16, 1.5)
time.sleep(1.0)
print(time.monotonic(), "end", flush=True)
"""
LOAD_IN_WORDS = (
    "1 s idle; 1.5 s of fp32 4096^3 matrix products; 1 s idle; "
    "1.5 s of bf16 8192^3 products, at the power limit; 1 s idle"
)


def asked(handle: Any) -> dict[str, int]:
    """Return what the driver answers to each question that has one number for an answer."""
    [instant] = pynvml.nvmlDeviceGetFieldValues(handle, [POWER_INSTANT_FIELD])
    return {
        "energy_mj": pynvml.nvmlDeviceGetTotalEnergyConsumption(handle),
        "instant_power_mw": instant.value.uiVal,
        "clock_mhz": pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM),
        "clocks_event_reasons": pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle),
        "temperature_c": pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU),
    }


def newer(handle: Any, kind: int, seen_us: int) -> dict[int, int]:
    """Return a ring's samples (by microsecond) after those that were seen."""
    try:
        _, samples = pynvml.nvmlDeviceGetSamples(handle, kind, seen_us)
    except pynvml.NVMLError_NotFound:  # the driver's word for: none since
        return {}
    return {each.timeStamp: each.sampleValue.uiVal for each in samples if each.timeStamp}


def record(handle: Any) -> tuple[dict[str, list[tuple[float, int]]], list[tuple[float, str]]]:
    """Run the load and return every series with monotonic seconds, and the load's marks."""
    series: dict[str, list[tuple[float, int]]] = {}
    rings: dict[str, dict[int, int]] = {name: {} for name in RINGS}
    load = subprocess.Popen([sys.executable, "-c", LOAD], stdout=subprocess.PIPE, text=True)
    while load.poll() is None:
        for name, answer in asked(handle).items():
            history = series.setdefault(name, [])
            if not history or history[-1][1] != answer:
                history.append((time.monotonic(), answer))
        for name, kind in RINGS.items():
            rings[name] |= newer(handle, kind, max(rings[name], default=0))
        time.sleep(POLL_S)
    assert load.stdout is not None
    if load.returncode:
        raise SystemExit("the load failed; nothing is written")
    marks = [line.strip().split(" ", 1) for line in load.stdout]
    series |= {name: [(float(us), value) for us, value in r.items()] for name, r in rings.items()}
    return series, [(float(at), name) for at, name in marks]


def main() -> None:
    """Record and write the file that is named."""
    path = Path(sys.argv[1])
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    series, marks = record(handle)
    start_s, end_s = marks[0][0], marks[-1][0]
    wall_us = round((time.time() - time.monotonic() + start_s) * 1e6)
    document: dict[str, Any] = {
        "device": pynvml.nvmlDeviceGetName(handle),
        "driver": pynvml.nvmlSystemGetDriverVersion(),
        "recorded_at": datetime.now(UTC).date().isoformat(),
        "command": "python benchmarks/nvml_answers.py",
        "load": LOAD_IN_WORDS,
        "marks": [(round(at - start_s, 4), name) for at, name in marks],
    }
    for name, values in series.items():
        if name in RINGS:
            last_us = (end_s - start_s) * 1e6
            moved = [(int(us) - wall_us, value) for us, value in values]
            document[name] = [(us, value) for us, value in moved if 0 <= us <= last_us]
        else:
            moved_s = [(round(at - start_s, 4), value) for at, value in values if at <= end_s]
            before = [each for each in moved_s if each[0] < 0][-1:]
            document[name] = [*((0.0, v) for _, v in before), *(e for e in moved_s if e[0] >= 0)]
    lines = (f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in document.items())
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
