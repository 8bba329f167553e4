"""NVIDIA boards through NVML: identity, power samples, energy counter, clocks.

The only importer of pynvml: `boards` lists them with their state, `meter` is what a bench
reads power from, `recorder` the process behind it.
"""

from opdb.meters.nvml.boards import (
    BoardInfo,
    BoardState,
    MeterAnswers,
    board_info,
    board_states,
    driver_versions,
    foreign_processes,
    gpu_names,
    try_meters,
)
from opdb.meters.nvml.meter import NvmlMeter, Polling

__all__ = [
    "BoardInfo",
    "BoardState",
    "MeterAnswers",
    "NvmlMeter",
    "Polling",
    "board_info",
    "board_states",
    "driver_versions",
    "foreign_processes",
    "gpu_names",
    "try_meters",
]
