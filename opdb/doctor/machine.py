"""Look at the machine, once; the only part of the doctor that does.

Nothing is changed: a database is opened to be read, never created or upgraded, and no work is
given to the GPU. What cannot be looked at is a fact, not an error.
"""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import sqlite3
import tempfile
import time
import warnings
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from opdb.compile import toolchain
from opdb.compile.switches import SWITCHES, switched_off
from opdb.counters import ncu
from opdb.distribution import DISTRIBUTION
from opdb.doctor.facts import (
    BoardFacts,
    DatabaseFacts,
    DiskFacts,
    Facts,
    NvidiaFacts,
    ToolFacts,
    TorchFacts,
)
from opdb.errors import CannotMeasureError, DatabaseError
from opdb.meters import nvml, rapl
from opdb.secrets import masked

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
    """Ask NVML for the driver and each board, and /proc for who may read counters."""
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
    """Return a small file's text; empty where it cannot be read."""
    try:
        return path.read_text()
    except OSError:
        return ""


# torch and the tools around it


def torch_facts() -> TorchFacts:
    """Import torch and ask it what it was built for and what it sees."""
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
    """Find what torch.compile compiles with, and Nsight Compute."""
    return ToolFacts(
        toolchain=toolchain.look(),
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
        if extra and name and extra[1] != "dev" and toolchain.version(name[0]) is None:
            lacks[extra[1]] = (*lacks.get(extra[1], ()), name[0])
    return lacks


# The database and the disks


def database_facts(url: str | None) -> DatabaseFacts:
    """Look at the database that a command would use, without creating or upgrading it."""
    from opdb.store import database
    from opdb.store.schema import LAST_TO_READ_EARLIER, REVISIONS

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
        revisions=REVISIONS,
        upgraded_by=LAST_TO_READ_EARLIER,
        writable=os.access(folder, os.W_OK) and (size is None or os.access(file, os.W_OK)),
    )
    return replace(found, **_look_inside(file, size)) if size else found


def _server_facts(url: str, shown: str) -> DatabaseFacts:
    """Ask a server whether it answers, and what the database holds; nothing is created.

    A database in memory is nobody's.
    """
    from opdb.store import database
    from opdb.store.schema import REVISIONS

    if database.parse_url(url).get_backend_name() == "sqlite":
        problem = "it is in memory, and keeps nothing"
        return DatabaseFacts(location=shown, is_file=False, problem=problem)
    if toolchain.version("psycopg") is None:
        return DatabaseFacts(location=shown, is_file=False, driver_missing=True)
    found = DatabaseFacts(location=shown, is_file=False, revisions=REVISIONS)
    try:
        revision, writable = database.look(url)
    except DatabaseError as error:
        why = str(error).removeprefix(f"database {shown}: ")
        return replace(found, problem=why)
    return replace(found, revision=revision, writable=writable)


def _look_inside(file: Path, size: int) -> dict[str, Any]:
    """Read a database's revision and check it, without a trace beside the file."""
    from opdb.store import seal

    with suppress(OSError):  # SQLite says which
        if seal.broken(file):
            return {"problem": "it is damaged: its bytes are not those that were written last"}
    journaled = file.with_name(file.name + "-wal").exists()
    uri = file.resolve().as_uri() + "?mode=ro" + ("" if journaled else "&immutable=1")
    found: dict[str, Any] = {}
    try:
        with closing(sqlite3.connect(uri, uri=True, timeout=1.0)) as connection:
            tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
            if not {"alembic_version", "configuration", "workload"} <= tables:
                return {"problem": "it is not an opdb database", "foreign": True}
            row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
            found["revision"] = str(row[0]) if row else None
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
    """Return the free space where the database is, and where inductor and Triton compile."""
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
    """Return the folder, or the nearest one above it that exists."""
    folder = folder.expanduser().resolve()
    return next(each for each in (folder, *folder.parents) if each.is_dir())
