"""The place of a measurement: device, board, host, and how far its meters can be trusted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from opdb.records.words import Json


@dataclass(frozen=True)
class Device:
    """A class of device: what a cost is about. `name` is the vendor's, `slug` the folder's."""

    slug: str
    name: str
    type: Literal["cuda", "cpu"]
    power_limit_w: float | None
    memory_bytes: int | None
    l2_bytes: int | None
    max_clock_hz: float | None


@dataclass(frozen=True)
class Board:
    """One physical device, by the UUID its driver reports."""

    uuid: str
    device: str


@dataclass(frozen=True)
class Host:
    """The machine that issues the work: CPU model, core count, operating system."""

    id: str
    cpu: str
    cores: int
    system: str


@dataclass(frozen=True)
class Calibration:
    """One campaign's findings about its board and meters before measuring.

    `transition_s` is the extra time of a kernel that follows a different operator, `tiny_kernel_s`
    the time of a kernel of 32 numbers in a CUDA graph of 200 of them, which tells in what state the
    device started kernels (None in campaigns from before 2026-11-27). A missing quantity is None
    and `notes` says why.
    """

    base_power_w: float | None
    base_power_interval_w: tuple[float, float] | None
    container_time_s: float | None
    sample_period_s: float | None
    sample_lag_s: float | None
    counter_period_s: float | None
    notes: tuple[str, ...] = ()
    transition_s: float | None = None
    tiny_kernel_s: float | None = None


Series: TypeAlias = tuple[tuple[float, float], ...]
"""(seconds, value), in order."""


@dataclass(frozen=True)
class Trace:
    """Everything that a board's meters showed over some time, each value with its moment.

    Times count from the beginning of the trace, in seconds. `power_samples` (W) are the driver's
    ring, at the times that it stamps; `counter_edges` (J since the first) are the energy counter's
    updates, `instant_samples` (W) those of the instant power; `clock_samples` are in Hz.
    `answering` names what has ever answered: "samples", "counter", "instant", "clock".
    """

    duration_s: float
    power_samples: Series = ()
    counter_edges: Series = ()
    instant_samples: Series = ()
    clock_samples: Series = ()
    answering: tuple[str, ...] = ()


@dataclass(frozen=True)
class MeterTest:
    """One test of a board's meters: what was found, what was allowed, and in words what it means.

    `passed` is None where the test could not be made; `words` then says why.
    """

    name: str
    passed: bool | None
    value: float | None
    bound: float | None
    words: str


@dataclass(frozen=True)
class BoardCalibration:
    """The findings of the tests of one board's meters, under one driver and power limit.

    `facts` are measured quantities by name, base SI with the unit in the name; a missing one is
    None and a note says why.
    """

    id: str
    board: Board
    driver: str | None
    power_limit_w: float | None
    measured_at: str
    environment: Mapping[str, str | None]
    cost_s: float
    facts: Mapping[str, float | None]
    tests: tuple[MeterTest, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Campaign:
    """One stretch of measuring on one board, with the environment and calibration it ran under.

    `environment` holds driver, cuda, cudnn, torch, python, opdb (version strings, None where
    absent). `settings` holds what the backend was told.
    """

    id: str
    board: Board
    device: Device
    host: Host
    started_at: str
    environment: Mapping[str, str | None]
    settings: Mapping[str, Json]
    calibration: Calibration
