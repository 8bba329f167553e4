"""Looks at the machine, once; the only part of the doctor that does.

Nothing is changed: a database is opened to be read, never created or upgraded, and no work is
given to the GPU. What cannot be looked at is a fact, not an error."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import sqlite3
import tempfile
import time
import warnings
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from opdb.compiled import SWITCHES, Toolchain, look, switched_off, version
from opdb.distribution import DISTRIBUTION
from opdb.errors import CannotMeasureError, DatabaseError
from opdb.layout import masked
from opdb.meters import ncu, nvml, rapl
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
    than a database of opdb. `schema` is the number of its schema, None where there is no database
    yet; this version of opdb reads `readable`.
    """

    location: str
    is_file: bool = True
    size_bytes: int | None = None
    schema: int | None = None
    readable: int = 0
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


PARAMS = Path("/proc/driver/nvidia/params")
STATUS = Path("/proc/self/status")
PCI = Path("/sys/bus/pci/devices")
NSIGHT = ncu.ELSEWHERE

METERS_WAIT_S = 0.5
"""How long a meter may take to move; the counter changes every 20 to 100 ms."""

CHECKED_FOR_S = 1.0
"""How long a database's integrity may take to check."""

CHECKED_UP_TO_BYTES = 300_000_000
"""The largest database that is checked: SQLite looks at the clock between tables alone."""

CAP_SYS_ADMIN = 21
NVIDIA = "0x10de"
DISPLAY_CLASS = "0x03"


def gather(url: str | None = None) -> Facts:
    """Look at everything; `url` names a database as `--db` does."""
    database = database_facts(url)
    return Facts(
        nvidia=nvidia_facts(),
        torch=torch_facts(),
        tools=tool_facts(),
        database=database,
        disks=disk_facts(database),
        extras=missing_extras(),
        rapl_reason=rapl.unavailable_reason(),
    )


# The driver and its boards


def nvidia_facts() -> NvidiaFacts:
    error, driver, cuda, boards = None, None, None, []
    try:
        driver, cuda = nvml.driver_versions()
        boards = [_board(state) for state in nvml.board_states()]
    except CannotMeasureError as refused:
        error = str(refused.__cause__ or refused)
    return NvidiaFacts(
        error=error,
        driver=driver,
        cuda=cuda,
        boards=tuple(boards),
        on_bus=_gpus_on_bus(),
        counters_restricted=_counters_restricted(),
        privileged=_is_privileged(),
    )


def _board(state: nvml.BoardState) -> BoardFacts:
    if state.uuid is None:
        return BoardFacts(state)
    try:
        meters = nvml.try_meters(state.uuid, METERS_WAIT_S)
    except CannotMeasureError:
        meters = None
    return BoardFacts(state, meters, _processes(state.uuid))


def _processes(uuid: str) -> tuple[str, ...] | None:
    try:
        return tuple(nvml.foreign_processes(uuid))
    except Exception:  # noqa: BLE001 - whatever NVML, nvitop and psutil raise: it cannot be told
        return None


def _gpus_on_bus() -> int:
    count = 0
    for device in PCI.glob("*") if PCI.is_dir() else ():
        vendor, kind = _read(device / "vendor"), _read(device / "class")
        count += vendor.strip() == NVIDIA and kind.startswith(DISPLAY_CLASS)
    return count


def _counters_restricted() -> bool | None:
    """Return whether the driver keeps performance counters from users; None if it does not say."""
    found = re.search(
        r"^(?:RmProfilingAdminOnly|NVreg_RestrictProfilingToAdminUsers)\s*[:=]\s*(\d+)",
        _read(PARAMS),
        re.MULTILINE,
    )
    return None if found is None else found[1] != "0"


def _is_privileged() -> bool:
    found = re.search(r"^CapEff:\s*([0-9a-f]+)", _read(STATUS), re.MULTILINE)
    return found is not None and bool(int(found[1], 16) >> CAP_SYS_ADMIN & 1)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


# torch and the tools around it


def torch_facts() -> TorchFacts:
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    try:
        import torch
    except (ImportError, OSError) as error:
        return TorchFacts(error=str(error), visible=visible)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return TorchFacts(
        version=torch.__version__,
        cuda=torch.version.cuda,
        cudnn=torch.backends.cudnn.version() if torch.version.cuda else None,
        gpus=gpus,
        why_none=str(told[-1].message) if told and not gpus else None,
        visible=visible,
        architectures=tuple(torch.cuda.get_arch_list()),
    )


def tool_facts() -> ToolFacts:
    return ToolFacts(
        toolchain=look(),
        ncu=shutil.which("ncu"),
        ncu_elsewhere=ncu.elsewhere(NSIGHT),
        switched_off=tuple(switch for part in SWITCHES for switch in switched_off(part)),
    )


def missing_extras() -> dict[str, tuple[str, ...]] | None:
    """Return what each extra of opdb lacks here, `dev` left out; None if opdb was not installed."""
    try:
        required = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    lacks: dict[str, tuple[str, ...]] = {}
    for each in required:
        extra = re.search(r"extra\s*==\s*['\"]([\w-]+)['\"]", each)
        name = re.match(r"[\w.-]+", each)
        if extra and name and extra[1] != "dev" and version(name[0]) is None:
            lacks[extra[1]] = (*lacks.get(extra[1], ()), name[0])
    return lacks


# The database and the disks


def database_facts(url: str | None) -> DatabaseFacts:
    """Look at the database that a command would use, without creating or upgrading it."""
    from opdb.store import database
    from opdb.store.schema import SCHEMA

    try:
        location = database.as_url(url) if url else database.default_url()
        file, shown = database.file_of(location), database.shown(location)
    except DatabaseError as error:
        named = masked(url or os.environ["OPDB_DB"])
        return DatabaseFacts(location=named, problem=str(error), foreign=True)
    if file is None:
        return _server_facts(location, shown)
    try:
        obstacle = database.obstacle(file)
        size = file.stat().st_size if file.exists() else None
    except OSError as error:
        return DatabaseFacts(location=shown, problem=error.strerror)
    if obstacle is not None:
        return DatabaseFacts(location=shown, problem=obstacle, foreign=True)
    folder = _nearest(file.parent)
    found = DatabaseFacts(
        location=shown,
        size_bytes=size,
        readable=SCHEMA,
        writable=os.access(folder, os.W_OK) and (size is None or os.access(file, os.W_OK)),
    )
    return replace(found, **_look_inside(file, size)) if size else found


def _server_facts(url: str, shown: str) -> DatabaseFacts:
    """Ask a server whether it answers, and what the database holds; nothing is created.

    A database in memory is nobody's.
    """
    from opdb.store import database
    from opdb.store.schema import SCHEMA

    if database.parse_url(url).get_backend_name() == "sqlite":
        problem = "it is in memory, and keeps nothing"
        return DatabaseFacts(location=shown, is_file=False, problem=problem)
    if version("psycopg") is None:
        return DatabaseFacts(location=shown, is_file=False, driver_missing=True)
    found = DatabaseFacts(location=shown, is_file=False, readable=SCHEMA)
    try:
        schema, writable = database.look(url)
    except DatabaseError as error:
        why = str(error).removeprefix(f"database {shown}: ")
        return replace(found, problem=why)
    return replace(found, schema=schema, writable=writable)


def _look_inside(file: Path, size: int) -> dict[str, Any]:
    """Read a database's schema and check it, without a trace beside the file."""
    journaled = file.with_name(file.name + "-wal").exists()
    uri = file.resolve().as_uri() + "?mode=ro" + ("" if journaled else "&immutable=1")
    found: dict[str, Any] = {}
    try:
        with closing(sqlite3.connect(uri, uri=True, timeout=1.0)) as connection:
            tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
            if not {"configuration", "workload"} <= tables:
                return {"problem": "it is not an opdb database", "foreign": True}
            found["schema"] = 0
            if "opdb_schema" in tables:
                found["schema"] = connection.execute(
                    "SELECT max(number) FROM opdb_schema"
                ).fetchone()[0]
            if size <= CHECKED_UP_TO_BYTES:
                until_s = time.monotonic() + CHECKED_FOR_S
                connection.set_progress_handler(lambda: time.monotonic() > until_s, 10_000)
                found["integrity"] = _integrity(connection)
    except sqlite3.DatabaseError as error:
        if str(error) != "interrupted":
            found["problem"] = str(error)
    return found


def _integrity(connection: sqlite3.Connection) -> str:
    """Return "ok", or the first damage found in pages, indexes or references.

    `quick_check` would not compare indexes with their tables, and queries read the indexes.
    """
    found = str(connection.execute("PRAGMA integrity_check(1)").fetchone()[0])
    if found != "ok":
        return found
    broken = connection.execute("PRAGMA foreign_key_check").fetchone()
    if broken is None:
        return "ok"
    table, row, parent, _ = broken
    return f"row {row} of {table} refers to a missing row of {parent}"


def disk_facts(database: DatabaseFacts) -> tuple[DiskFacts, ...]:
    try:
        temporary = tempfile.gettempdir()
    except FileNotFoundError:  # no folder could be written to: full, or read-only
        temporary = "/tmp"
    cache = os.environ.get("TORCHINDUCTOR_CACHE_DIR") or temporary
    folders = {"compiled kernels": _nearest(Path(cache))}
    if database.is_file:
        folders = {"the database": _nearest(Path(database.location).parent)} | folders
    disks: dict[object, DiskFacts] = {}
    for holds, folder in folders.items():
        try:
            disk, free = folder.stat().st_dev, shutil.disk_usage(folder).free
        except OSError:
            disks[folder] = DiskFacts(str(folder), holds, None)
            continue
        known = disks.get(disk)
        said = f"{known.holds} and {holds}" if known else holds
        disks[disk] = DiskFacts(known.folder if known else str(folder), said, free)
    return tuple(disks.values())


def _nearest(folder: Path) -> Path:
    folder = folder.expanduser().resolve()
    return next(each for each in (folder, *folder.parents) if each.is_dir())
