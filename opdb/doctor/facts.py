"""What was seen of a machine; None where it could not be told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from opdb.compile.toolchain import Toolchain
from opdb.meters.nvml import BoardState, MeterAnswers


@dataclass(frozen=True)
class BoardFacts:
    """One board. `processes` are those of others that hold a context on it."""

    state: BoardState
    meters: MeterAnswers | None = None
    processes: tuple[str, ...] | None = None


@dataclass(frozen=True)
class NvidiaFacts:
    """The driver and its boards. `error` is NVML's; `on_bus` counts the GPUs on the PCI bus."""

    error: str | None = None
    driver: str | None = None
    cuda: str | None = None
    boards: tuple[BoardFacts, ...] = ()
    on_bus: int = 0
    counters_restricted: bool | None = None
    privileged: bool = False


@dataclass(frozen=True)
class TorchFacts:
    """The installed torch. `cuda` is what it was built for, None for a CPU-only build.

    `why_none` says why it sees no GPU, in its own words; `visible` is CUDA_VISIBLE_DEVICES.
    """

    version: str | None = None
    error: str | None = None
    cuda: str | None = None
    cudnn: int | None = None
    gpus: int = 0
    why_none: str | None = None
    visible: str | None = None
    architectures: tuple[str, ...] = ()


@dataclass(frozen=True)
class ToolFacts:
    """Where the tools are; `ncu_elsewhere` is a Nsight Compute that is not on PATH.

    `switched_off` are variables of the environment that keep torch from compiling or tracing.
    """

    toolchain: Toolchain
    ncu: str | None = None
    ncu_elsewhere: str | None = None
    switched_off: tuple[str, ...] = ()


@dataclass(frozen=True)
class DatabaseFacts:
    """The database that commands would use. `integrity` is "ok", or what SQLite complained of.

    `problem` says why it cannot be read at all, and `foreign` that what is there is something else
    than a database of opdb; `revision` is None where there is no database yet. Commit `upgraded_by`
    of opdb upgrades what is older than the first of `revisions`.
    """

    location: str
    is_file: bool = True
    size_bytes: int | None = None
    revision: str | None = None
    revisions: tuple[str, ...] = ()
    upgraded_by: str = ""
    integrity: str | None = None
    problem: str | None = None
    foreign: bool = False
    writable: bool = True
    driver_missing: bool = False


@dataclass(frozen=True)
class DiskFacts:
    """The file system that holds a folder, and what opdb writes there."""

    folder: str
    holds: str
    free_bytes: int | None


@dataclass(frozen=True)
class Facts:
    """All that the checks judge. `extras` names what each optional part still lacks."""

    nvidia: NvidiaFacts
    torch: TorchFacts
    tools: ToolFacts
    database: DatabaseFacts
    disks: tuple[DiskFacts, ...]
    extras: Mapping[str, tuple[str, ...]] | None = field(default_factory=dict)
    rapl_reason: str | None = None
