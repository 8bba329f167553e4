"""What is fine on this machine for measuring and what is not: a function for each check.

Nothing is changed: a database is opened to be read, never created or upgraded, and no work is given
to the GPU. What cannot be looked at is a finding, not an error. A finding that blocks keeps a GPU
from being measured until it is put right; any other that is not fine is a note.
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
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import psutil

from opdb.compiled import INSTALL, INSTALL_TRITON, SWITCHES, look, switched_off, version
from opdb.distribution import DISTRIBUTION, install
from opdb.errors import CannotMeasureError, DatabaseError
from opdb.meters import ncu, nvml, rapl
from opdb.meters.nvml import BoardState
from opdb.tables import masked
from opdb.units import MEGA, plural, show

Result: TypeAlias = Literal["fine", "not", "unknown"]


@dataclass(frozen=True)
class Finding:
    """The result of one check: the finding, whether it is fine, and in one sentence what to do.

    `board` is the index of the GPU that it is about. `blocks`: a GPU cannot be measured so.
    """

    check: str
    result: Result
    found: str
    advice: str | None = None
    blocks: bool = False
    board: int | None = None


def fine(check: str, found: str) -> Finding:
    return Finding(check, "fine", found)


def note(check: str, found: str, advice: str) -> Finding:
    return Finding(check, "not", found, advice)


def blocks(check: str, found: str, advice: str) -> Finding:
    return Finding(check, "not", found, advice, blocks=True)


def unknown(check: str, found: str, advice: str) -> Finding:
    return Finding(check, "unknown", found, advice)


@dataclass
class Machine:
    """What several checks need: the driver with its boards, and torch.

    `nvml_error` says why NVML does not answer, `torch_error` why torch (the module) cannot be
    imported; `on_bus` counts the GPUs on the PCI bus.
    """

    on_bus: int
    driver: str | None = None
    cuda: str | None = None
    boards: Sequence[BoardState] = ()
    nvml_error: str | None = None
    torch: Any = None
    torch_error: str | None = None


PARAMS = Path("/proc/driver/nvidia/params")
STATUS = Path("/proc/self/status")
PCI = Path("/sys/bus/pci/devices")
NSIGHT = ncu.ELSEWHERE


def examine(url: str | None = None) -> tuple[Machine, list[Finding]]:
    """Make every check, in the order in which they are shown; `url` names a database, as `--db`."""
    machine = look_at_machine()
    findings = [gpu(machine), driver(machine), cuda(machine), torch_build(machine), cudnn(machine)]
    for index, board in enumerate(machine.boards):
        findings += [replace(finding, board=index) for finding in of_board(board)]
    findings += [*tools(), counters(), processor_energy()]
    found, folder = database_and_folder(url)
    return machine, [*findings, found, *disks(folder), *extras()]


def look_at_machine() -> Machine:
    found = Machine(on_bus=_gpus_on_bus())
    try:
        found.driver, found.cuda = nvml.driver_versions()
        found.boards = nvml.board_states()
    except CannotMeasureError as refused:
        found.nvml_error = str(refused.__cause__ or refused)
    try:
        import torch

        found.torch = torch
    except (ImportError, OSError) as error:
        found.torch_error = str(error)
    return found


def _gpus_on_bus() -> int:
    return sum(
        _read(device / "vendor").strip() == "0x10de"  # NVIDIA's
        and _read(device / "class").startswith("0x03")  # of displays
        for device in (PCI.glob("*") if PCI.is_dir() else ())
    )


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def works(machine: Machine, findings: Iterable[Finding]) -> tuple[bool, str]:
    """Return whether a GPU can be measured, and in one sentence what works on this machine."""
    names = list(dict.fromkeys(finding.check for finding in findings if finding.blocks))
    if not names:
        return True, "a GPU can be measured here"
    if {"database", "disk"} & set(names):
        rest = "nothing can be stored either"
    elif machine.torch is None:
        rest = "predict works"
    elif machine.boards:
        rest = "harvest and predict work"
    else:
        rest = "harvest and predict work, and bench --device cpu"
    if "GPU" in names and not machine.on_bus:
        others = [name for name in names if name != "GPU"]
        rest += f"; to be put right: {', '.join(others)}" if others else ""
        return False, f"no GPU can be measured here, for there is none; {rest}"
    return (
        False,
        f"no GPU can be measured here before this is put right: {', '.join(names)}; {rest}",
    )


# The driver and torch


def gpu(machine: Machine) -> Finding:
    if machine.boards:
        counts = Counter(board.name or "not reachable" for board in machine.boards)
        said = (f"{count} × {name}" if count > 1 else name for name, count in counts.items())
        return fine("GPU", ", ".join(said))
    if machine.on_bus:
        return blocks(
            "GPU",
            f"{plural(machine.on_bus, 'NVIDIA GPU')} on the PCI bus, none offered by a driver",
            "Install the NVIDIA driver, or load it (sudo modprobe nvidia); in a container, start "
            "it with --gpus all.",
        )
    return blocks(
        "GPU",
        "none",
        "Harvest and predict here and run opdb bench on a machine with an NVIDIA GPU, or measure "
        "this processor with opdb bench --device cpu.",
    )


def driver(machine: Machine) -> Finding:
    if machine.driver is not None and machine.nvml_error is None:
        return fine("driver", machine.driver)
    said = f"NVML: {machine.nvml_error}"
    if "version mismatch" in said:
        advice = (
            "The driver was updated while the old one is loaded: reboot, or unload and load the "
            "nvidia modules."
        )
    elif "ermission" in said:
        advice = "Give this user access to /dev/nvidia*, as its group or by udev."
    elif machine.on_bus or machine.driver:
        advice = (
            "Install the NVIDIA driver with libnvidia-ml.so.1 and see whether nvidia-smi answers."
        )
    else:
        return unknown("driver", said, "Without a GPU none is needed.")
    return blocks("driver", said, advice)


def cuda(machine: Machine) -> Finding:
    serves, built = machine.cuda, machine.torch and machine.torch.version.cuda
    if serves is None or built is None:
        known = f"driver {serves or 'none'}, torch {built or 'none'}"
        return unknown("CUDA", known, "It is told once there are a driver and a CUDA build.")
    said = f"driver up to {serves}, torch built for {built}"
    major = built.partition(".")[0]
    if int(serves.partition(".")[0]) >= int(major):
        return fine("CUDA", said)
    return blocks(
        "CUDA",
        said,
        f"Update the driver to one that serves CUDA {built}, or install a torch built for CUDA "
        f"{major} (https://pytorch.org/get-started/locally).",
    )


def torch_build(machine: Machine) -> Finding:
    found, boards = machine.torch, machine.boards
    if found is None:
        advice = "Install it anew: pip install --force-reinstall torch torchvision."
        return blocks("torch", str(machine.torch_error), advice)
    built = found.version.cuda
    said = f"{found.__version__}, " + (f"CUDA {built}" if built else "CPU-only build")
    if built is None:
        advice = (
            " a CUDA build: pip install --force-reinstall torch torchvision "
            "--index-url https://download.pytorch.org/whl/cu126, or as your driver asks."
        )
        if boards:
            return blocks("torch", f"{said} beside a GPU", f"Install{advice}")
        return note("torch", said, f"Enough without a GPU. To measure one: install{advice}")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        gpus = found.cuda.device_count() if found.cuda.is_available() else 0
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if boards and not gpus:
        said += ", sees no GPU"
        if visible is not None:
            advice = "Unset CUDA_VISIBLE_DEVICES, or name a GPU that is there."
            return blocks("torch", f"{said} (CUDA_VISIBLE_DEVICES={visible!r})", advice)
        return blocks(
            "torch",
            said + (f" ({told[-1].message})" if told else ""),
            "Hold nvidia-smi and python -c 'import torch; torch.cuda.init()' against each other; a "
            "driver too old for this build or a GPU in a bad state (reboot) is the usual cause.",
        )
    architectures = found.cuda.get_arch_list()
    missing = [each.name for each in boards if not _has_kernels(each.capability, architectures)]
    if missing:
        return blocks(
            "torch",
            f"{said}, without kernels for {missing[0]} ({', '.join(architectures)})",
            "Install a torch build for this GPU's architecture "
            "(https://pytorch.org/get-started/locally).",
        )
    if gpus < len(boards):
        return note(
            "torch",
            f"{said}, sees {gpus} of {len(boards)} GPUs"
            + (f" (CUDA_VISIBLE_DEVICES={visible})" if visible is not None else ""),
            "Only those can be measured; unset CUDA_VISIBLE_DEVICES to see them all.",
        )
    return fine("torch", said)


def _has_kernels(capability: tuple[int, int] | None, architectures: Sequence[str]) -> bool:
    """Return whether code for a board is in a build: of its major version, or to be compiled."""
    if capability is None or not architectures:
        return True
    for each in architectures:
        if found := re.match(r"(sm|compute)_(\d+)(\d)", each):
            listed = (int(found[2]), int(found[3]))
            if listed <= capability and (found[1] == "compute" or listed[0] == capability[0]):
                return True
    return False


def cudnn(machine: Machine) -> Finding:
    if machine.torch is None or machine.torch.version.cuda is None:
        return unknown("cuDNN", "none in a build without CUDA", "It comes with a CUDA build.")
    number = machine.torch.backends.cudnn.version()
    if number is None:
        advice = "Install torch anew with its own libraries: pip install --force-reinstall torch."
        return blocks("cuDNN", "torch finds none", advice)
    # 91900 is 9.19.0; before 9 it was 8907 for 8.9.7.
    scale = 10_000 if number >= 10_000 else 1_000
    return fine("cuDNN", f"{number // scale}.{number % scale // 100}.{number % 100}")


# Each board

BUSY_SHARE = 0.05
"""The utilization above which a board does somebody's work."""

METERS_WAIT_S = 0.5
"""How long a meter may take to move; the counter changes every 20 to 100 ms."""

HELD_BACK = (
    "hardware slowdown",
    "software thermal slowdown",
    "hardware thermal slowdown",
    "hardware power brake",
)
"""Why a clock may be held back that no measurement can be made beside."""


def of_board(board: BoardState) -> list[Finding]:
    if board.uuid is None:
        return [
            blocks(
                "GPU state",
                "the driver lists this GPU and cannot reach it",
                "See sudo dmesg for Xid messages, then reset the GPU or reboot.",
            )
        ]
    return [
        mig(board),
        processes(board, board.uuid),
        *meters(board.uuid),
        clocks(board),
        power_limit(board),
    ]


def mig(board: BoardState) -> Finding:
    if not board.mig:
        return fine("MIG", "not known to this GPU" if board.mig is None else "off")
    return blocks(
        "MIG",
        "on: the power of an instance cannot be read",
        f"Measure on a GPU without MIG, or switch it off: sudo nvidia-smi -i {board.uuid} -mig 0.",
    )


def processes(board: BoardState, uuid: str) -> Finding:
    try:
        others = nvml.foreign_processes(uuid)
    except (CannotMeasureError, psutil.Error):
        advice = "Look with nvidia-smi that the GPU is idle."
        return unknown("processes", "NVML does not tell", advice)
    if others:
        return blocks(
            "processes",
            ", ".join(others),
            "Stop them or wait for them: what they draw would be taken for the operators'; "
            "nvitop shows what they do.",
        )
    if (board.utilization or 0.0) > BUSY_SHARE:
        return note(
            "processes",
            f"none to be seen, but the GPU is {board.utilization:.0%} busy",
            "Look from the host, outside this container, for who uses the GPU, and wait.",
        )
    return fine("processes", "none")


def meters(uuid: str) -> Iterator[Finding]:
    """Judge whether the driver's power samples, the energy counter and the instant power move."""
    new_samples, ticks, watts, waited = None, None, None, "–"
    try:
        answers = nvml.try_meters(uuid, METERS_WAIT_S)
        new_samples, ticks, watts = answers.new_samples, answers.ticks, answers.instant_w
        waited = show(answers.waited_s, "s", digits=3)
    except CannotMeasureError:
        pass
    lacking = f"none new within {waited}" if new_samples == 0 else "the driver gives none"
    if new_samples:
        yield fine("power samples", f"{new_samples} new within {waited}")
    elif ticks:
        yield note(
            "power samples",
            lacking,
            "Run opdb doctor --calibrate, which tests whether the energy counter can stand in.",
        )
    else:
        yield blocks(
            "power samples",
            f"{lacking}, and no counter ticks",
            "No energy can be measured on this GPU, times can; update the driver or use another "
            "GPU.",
        )
    if ticks:
        yield fine("energy counter", f"ticked {ticks} × within {waited}")
    elif ticks is None:
        yield note(
            "energy counter",
            "the driver reports none",
            "None is needed where there are power samples; opdb doctor --calibrate then "
            "tests without it.",
        )
    else:
        yield note(
            "energy counter",
            f"does not tick: the same reading for {waited}",
            "Run opdb doctor --calibrate --again, which keeps it from being used; if it stays so, "
            "reboot or update the driver.",
        )
    if watts is not None:
        yield fine("instant power", show(watts, "W"))
    else:
        yield note(
            "instant power",
            "the driver reports none",
            "Nothing need be done: it only checks the other meters, and they are checked without "
            "it.",
        )


def clocks(board: BoardState) -> Finding:
    """Judge whether something holds the clock back; NVML does not report a lock (-lgc) as such."""
    said = f"{_mhz(board.clock_hz)} now, {_mhz(board.max_clock_hz)} at most"
    reasons = ", ".join(board.throttle_reasons)
    if set(board.throttle_reasons) & set(HELD_BACK):
        return blocks(
            "clocks",
            f"{said}, held back: {reasons}",
            "Look after cooling and power supply (nvidia-smi -q -d PERFORMANCE,TEMPERATURE), and "
            "wait until it is over.",
        )
    target, default = board.application_clock_hz, board.default_application_clock_hz
    changed = target is not None and default is not None and target != default
    if changed or "application clocks" in board.throttle_reasons:
        return note(
            "clocks",
            f"{said}, application clocks {_mhz(target)} (default {_mhz(default)})",
            "Give the clock back with sudo nvidia-smi -rac (and -rgc against a lock), unless "
            "costs at this clock are wanted.",
        )
    if reasons:
        advice = "Wait until the GPU is idle and look again."
        return note("clocks", f"{said}, held back: {reasons}", advice)
    if board.clock_hz is None:
        advice = "Look with nvidia-smi -q -d CLOCK whether they hold."
        return unknown("clocks", "the driver reports none", advice)
    return fine("clocks", f"{said}, held back by nothing that the driver reports")


def _mhz(hertz: float | None) -> str:
    return "–" if hertz is None else f"{hertz / MEGA:.0f} MHz"


def power_limit(board: BoardState) -> Finding:
    limit, default = board.power_limit_w, board.default_power_limit_w
    if limit is None or default is None:
        return unknown(
            "power limit",
            "the driver does not report it",
            "Look with nvidia-smi -q -d POWER; costs are stored without a limit.",
        )
    if limit == default:
        return fine("power limit", f"{limit:.0f} W, the default")
    return note(
        "power limit",
        f"{limit:.0f} W, default {default:.0f} W",
        "Costs go to a device of their own, named after the limit; for the default: "
        f"sudo nvidia-smi -i {board.uuid} -pl {default:.0f}.",
    )


# The tools around torch


def tools() -> Iterator[Finding]:
    """Judge what torch.compile needs, and Nsight Compute."""
    toolchain = look()
    if lacks := [*toolchain.no_cxx, *toolchain.no_cc, *toolchain.no_header]:
        advice = f"torch.compile needs it, eager and graph do not: {INSTALL}."
        yield note("compiler", ", ".join(lacks), advice)
    else:
        yield fine("compiler", str(toolchain.cxx))
    if off := [switch for part in SWITCHES for switch in switched_off(part)]:
        names = " ".join(switch.split("=")[0] for switch in off)
        yield note(
            "compiling",
            f"switched off by {', '.join(off)}",
            f"Modes that compile or trace need it, eager and graph do not: unset {names}.",
        )
    else:
        yield fine("compiling", "not switched off")
    if toolchain.triton is not None:
        yield fine("Triton", toolchain.triton)
    else:
        advice = f"torch.compile needs it on a GPU, eager and graph do not: {INSTALL_TRITON}."
        yield note("Triton", "none", advice)
    if path := shutil.which("ncu"):
        yield fine("Nsight Compute", path)
    elif path := ncu.elsewhere(NSIGHT):
        advice = f"Put it on PATH: export PATH=$PATH:{path.rpartition('/')[0]}."
        yield note("Nsight Compute", f"{path}, not on PATH", advice)
    else:
        advice = f"Only hardware counters need it: {ncu.INSTALL} and put ncu on PATH."
        yield note("Nsight Compute", "no ncu on PATH", advice)


CAP_SYS_ADMIN = 21


def counters() -> Finding:
    """Judge whether this user may read the GPU's performance counters."""
    restricted = re.search(
        r"^(?:RmProfilingAdminOnly|NVreg_RestrictProfilingToAdminUsers)\s*[:=]\s*(\d+)",
        _read(PARAMS),
        re.MULTILINE,
    )
    if restricted is None:
        return unknown(
            "counter permission",
            "/proc/driver/nvidia/params does not say",
            "On the machine with the GPU, opdb doctor tells.",
        )
    if restricted[1] == "0":
        return fine("counter permission", "every user")
    found = re.search(r"^CapEff:\s*([0-9a-f]+)", _read(STATUS), re.MULTILINE)
    if found is not None and int(found[1], 16) >> CAP_SYS_ADMIN & 1:
        return fine("counter permission", "administrators, and this process is one")
    return note(
        "counter permission",
        "administrators alone (RmProfilingAdminOnly: 1)",
        f"Only ncu needs it: {ncu.PERMISSION}.",
    )


def processor_energy() -> Finding:
    reason = rapl.unavailable_reason()
    if reason is None:
        return fine("processor energy", "RAPL")
    return note(
        "processor energy",
        reason,
        "Only bench --device cpu needs it, and measures times without it; where RAPL is there, "
        "run as root.",
    )


PURPOSES = {
    "estimates": "python -m opdb.estimates",
    "plots": "pictures",
    "postgres": "a PostgreSQL database",
    "slurm": "opdb submit",
    "transformers": "models of transformers",
}
"""What each extra is for."""


def extras() -> list[Finding]:
    missing = missing_extras()
    if missing is None:
        return [unknown("extras", "opdb runs without being installed", f"Install it: {install()}.")]
    return [
        note(
            f"extra {extra}",
            f"missing: {', '.join(packages)}",
            f"Only {PURPOSES.get(extra, f'what {extra} adds')} needs it: {install(extra)}.",
        )
        for extra, packages in missing.items()
    ] or [fine("extras", "none missing")]


def missing_extras() -> dict[str, list[str]] | None:
    """Return what each extra of opdb lacks here, `dev` left out; None if opdb was not installed."""
    try:
        required = importlib.metadata.requires(DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    lacks: dict[str, list[str]] = {}
    for each in required:
        extra = re.search(r"extra\s*==\s*['\"]([\w-]+)['\"]", each)
        name = re.match(r"[\w.-]+", each)
        if extra and name and extra[1] != "dev" and version(name[0]) is None:
            lacks.setdefault(extra[1], []).append(name[0])
    return lacks


# The database and the disks

CHECKED_FOR_S = 1.0
"""How long a database's integrity may take to check."""

CHECKED_UP_TO_BYTES = 300_000_000
"""The largest database that is checked: SQLite looks at the clock between tables alone."""

ANOTHER = "Name another with --db (or OPDB_DB)"


def database_and_folder(url: str | None) -> tuple[Finding, Path | None]:
    """Judge the database that a command would use; return also the folder of one that is a file."""
    from opdb.store import database

    try:
        location = database.as_url(url) if url else database.default_url()
        file, shown = database.file_of(location), database.shown(location)
    except DatabaseError as error:
        named = masked(url or os.environ["OPDB_DB"])
        return blocks("database", f"{named}: {error}", f"{ANOTHER}."), None
    if file is None:
        return _server(location, shown), None
    return _file(file, shown), file.parent


def _file(file: Path, shown: str) -> Finding:
    from opdb.store.schema import SCHEMA

    again = f"{ANOTHER}, or restore it, or delete it and import its sets again."
    try:
        if not file.is_file() and (file.exists() or any(map(Path.is_file, file.parents))):
            raise DatabaseError("it is not a file")
        size = file.stat().st_size if file.exists() else 0
        schema, integrity = _look_inside(file, size) if size else (None, None)
    except DatabaseError as error:
        return blocks("database", f"{shown}: {error}", f"{ANOTHER}.")
    except OSError as error:
        return blocks("database", f"{shown}: {error.strerror}", again)
    except sqlite3.DatabaseError as error:
        return blocks("database", f"{shown}: {error}", again)
    if not os.access(_nearest(file.parent), os.W_OK) or (size and not os.access(file, os.W_OK)):
        return blocks(
            "database",
            f"{shown}: cannot be written",
            "Give this user the file and its folder, or name another with --db.",
        )
    if not size:
        return fine("database", f"{shown}: none yet, the first command makes it")
    said = f"{shown}, {show(size, 'B', digits=3)}, schema {schema}"
    if integrity not in (None, "ok"):
        return blocks(
            "database",
            f"{said}: {integrity}",
            "It is damaged: restore it, or delete it and import its published sets again.",
        )
    if schema != SCHEMA:
        return blocks(
            "database",
            f"{said}; this opdb reads schema {SCHEMA}",
            "Move the file away and opdb makes a new one, or name another database with --db.",
        )
    if integrity is None:
        return unknown(
            "database",
            f"{said}, too large to check at once",
            f"Check it with sqlite3 '{shown}' 'PRAGMA integrity_check'.",
        )
    return fine("database", f"{said}, whole")


def _look_inside(file: Path, size: int) -> tuple[int, str | None]:
    """Return a database's schema and its integrity, None where it is too large to check.

    No trace is left beside the file.

    Raises:
        DatabaseError: it is something else than a database of opdb.
        sqlite3.DatabaseError: it cannot be read.
    """
    journaled = file.with_name(file.name + "-wal").exists()
    uri = file.resolve().as_uri() + "?mode=ro" + ("" if journaled else "&immutable=1")
    with closing(sqlite3.connect(uri, uri=True, timeout=1.0)) as connection:
        tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
        if not {"configuration", "workload"} <= tables:
            raise DatabaseError("it is not an opdb database")
        schema = 0
        if "opdb_schema" in tables:
            schema = connection.execute("SELECT max(number) FROM opdb_schema").fetchone()[0]
        if size > CHECKED_UP_TO_BYTES:
            return schema, None
        until_s = time.monotonic() + CHECKED_FOR_S
        connection.set_progress_handler(lambda: time.monotonic() > until_s, 10_000)
        try:
            return schema, _integrity(connection)
        except sqlite3.DatabaseError as error:
            if str(error) != "interrupted":
                raise
            return schema, None


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


def _server(url: str, shown: str) -> Finding:
    """Ask a server whether it answers, and what the database holds; nothing is created.

    A database in memory is nobody's.
    """
    from opdb.store import database
    from opdb.store.schema import SCHEMA

    elsewhere = "Name another with --db, or see to its server."
    if database.parse_url(url).get_backend_name() == "sqlite":
        return blocks("database", f"{shown}: it is in memory, and keeps nothing", elsewhere)
    if version("psycopg") is None:
        advice = f"Install it: {install('postgres')}."
        return blocks("database", f"{shown}: its driver is missing", advice)
    try:
        schema, writable = database.look(url)
    except DatabaseError as error:
        why = str(error).removeprefix(f"database {shown}: ")
        return blocks("database", f"{shown}: {why}", elsewhere)
    said = f"{shown}: it answers"
    if not writable:
        return blocks(
            "database",
            f"{said}, and this user may not write it",
            "Ask its owner for the rights to insert, update and delete, or name another with --db.",
        )
    if schema is None:
        return fine("database", f"{said}; empty, the first command fills it")
    if schema != SCHEMA:
        advice = "Name another with --db."
        return blocks(
            "database", f"{said}, schema {schema}; this opdb reads schema {SCHEMA}", advice
        )
    return fine("database", f"{said}, schema {schema}")


FULL_BYTES = 200e6
"""With less free than this a disk counts as full: a bench, or one compiled model, may fill it."""

LOW_BYTES = 2e9


def disks(folder: Path | None) -> Iterator[Finding]:
    """Judge the file systems that hold the database's folder and compiled kernels."""
    try:
        temporary = tempfile.gettempdir()
    except FileNotFoundError:  # no folder could be written to: full, or read-only
        temporary = "/tmp"
    cache = Path(os.environ.get("TORCHINDUCTOR_CACHE_DIR") or temporary)
    holding = {"compiled kernels": cache}
    if folder is not None:
        holding = {"the database": folder} | holding
    found: dict[object, tuple[Path, str, int | None]] = {}
    for holds, wanted in holding.items():
        there = _nearest(wanted)
        try:
            disk, free = there.stat().st_dev, shutil.disk_usage(there).free
        except OSError:
            found[there] = there, holds, None
            continue
        first, others, _ = found.get(disk, (there, None, None))
        found[disk] = first, f"{others} and {holds}" if others else holds, free
    for place, holds, free_bytes in found.values():
        if free_bytes is None:
            advice = f"See with df {place} whether it is there."
            yield unknown("disk", f"{place} ({holds})", advice)
            continue
        said = f"{show(free_bytes, 'B', digits=3)} free in {place} ({holds})"
        if free_bytes < FULL_BYTES:
            advice = f"Free some space in {place}, or move {holds} elsewhere"
            yield blocks("disk", said, f"{advice} (--db, TORCHINDUCTOR_CACHE_DIR, TMPDIR).")
        elif free_bytes < LOW_BYTES:
            yield note("disk", said, f"Free some space in {place} before a long bench.")
        else:
            yield fine("disk", said)


def _nearest(folder: Path) -> Path:
    folder = folder.expanduser().resolve()
    return next(each for each in (folder, *folder.parents) if each.is_dir())
