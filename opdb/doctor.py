"""What is fine on this machine for measuring and what is not: a function for each check.

Nothing is changed: a database is opened to be read, never created, and no work is given to the GPU.
What torch or a database says itself when it cannot be used is passed on as it is.
"""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import psutil

from opdb import meters
from opdb.compiled import lacking
from opdb.errors import CannotMeasureError, DatabaseError, NoDatabaseError
from opdb.meters import nvml
from opdb.meters.nvml import BoardState
from opdb.tables import masked
from opdb.units import show


@dataclass(frozen=True)
class Finding:
    """The result of one check, and in one sentence what to do; None where all is fine.

    `blocks`: a GPU cannot be measured so.
    """

    check: str
    found: str
    advice: str | None = None
    blocks: bool = False

    @property
    def result(self) -> str:
        return "NOT FINE" if self.blocks else "fine" if self.advice is None else "note"


def examine(url: str | None = None) -> list[Finding]:
    """Make every check, in the order in which they are shown; `url` names a database, as `--db`."""
    boards, of_driver = driver()
    findings = [of_driver, torch_build(len(boards))]
    for index, board in enumerate(boards):
        of_gpu = f"GPU {index}: " if len(boards) > 1 else ""
        findings += [replace(each, check=f"{of_gpu}{each.check}") for each in of_board(board)]
    findings += [compiling("cuda" if boards else "cpu"), profiler(), processor_energy()]
    return [*findings, *database_and_disk(url)]


def works(findings: Iterable[Finding]) -> tuple[bool, str]:
    names = list(dict.fromkeys(finding.check for finding in findings if finding.blocks))
    if not names:
        return True, "a GPU can be measured here"
    return False, f"no GPU can be measured here before this is put right: {', '.join(names)}"


def driver() -> tuple[Sequence[BoardState], Finding]:
    try:
        boards, found = nvml.board_states(), nvml.driver_version()
    except CannotMeasureError as refused:
        boards, found = [], f"NVML: {refused.__cause__ or refused}"
    if boards:
        names = ", ".join(board.name or "not reachable" for board in boards)
        return boards, Finding("GPU", f"{names}, driver {found}")
    return boards, Finding(
        "GPU",
        f"none ({found})",
        "With a GPU: install or load its driver (a container: --gpus all), and see nvidia-smi. "
        "Without: harvest and predict here, or measure this processor with bench --device cpu.",
        blocks=True,
    )


def torch_build(boards: int) -> Finding:
    try:
        import torch
    except (ImportError, OSError) as error:
        advice = "Install it anew: pip install --force-reinstall torch torchvision."
        return Finding("torch", str(error), advice, blocks=True)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    built = f"{torch.__version__}, CUDA {torch.version.cuda or 'none'}"
    if gpus >= boards:
        return Finding("torch", built)
    why = "".join(f"; {warning.message}" for warning in told[-1:])
    return Finding(
        "torch",
        f"{built}, sees {gpus} of {boards} GPUs{why}",
        "Install a CUDA build that the driver serves (https://pytorch.org/get-started/locally), "
        "and unset CUDA_VISIBLE_DEVICES.",
        blocks=not gpus,
    )


METERS_WAIT_S = 0.5
"""How long the meters are looked at; the counter changes every 20 to 100 ms."""

HELD_BACK = {
    "hardware slowdown",
    "software thermal slowdown",
    "hardware thermal slowdown",
    "hardware power brake",
}
"""Why a clock may be held back that no measurement can be made beside."""


def of_board(board: BoardState) -> list[Finding]:
    if board.uuid is None:
        advice = "See sudo dmesg for Xid messages, then reset the GPU or reboot."
        return [Finding("GPU state", "the driver cannot reach it", advice, blocks=True)]
    return [
        mig(board),
        processes(board.uuid),
        power(board.uuid),
        clocks(board),
        power_limit(board),
    ]


def mig(board: BoardState) -> Finding:
    if not board.mig:
        return Finding("MIG", "off")
    advice = f"Switch it off (sudo nvidia-smi -i {board.uuid} -mig 0) or take another GPU."
    return Finding("MIG", "on: the power of an instance cannot be read", advice, blocks=True)


def processes(uuid: str) -> Finding:
    try:
        others = nvml.foreign_processes(uuid)
    except (CannotMeasureError, psutil.Error):
        return Finding("processes", "not known", "See with nvidia-smi that the GPU is idle.")
    if not others:
        return Finding("processes", "none")
    advice = "Stop them or wait: what they draw would be taken for the operators'."
    return Finding("processes", ", ".join(others), advice, blocks=True)


def power(uuid: str) -> Finding:
    try:
        samples, ticks = nvml.try_meters(uuid, METERS_WAIT_S)
    except CannotMeasureError as refused:
        return Finding("power", str(refused), "See nvidia-smi -q -d POWER.", blocks=True)
    said = f"{samples} new samples, {ticks} ticks of the energy counter"
    if samples and ticks:
        return Finding("power", said)
    if samples or ticks:
        return Finding("power", said, "Run opdb doctor --calibrate: it tests what is there.")
    advice = "Times can be measured, energies cannot: update the driver or take another GPU."
    return Finding("power", said, advice, blocks=True)


def clocks(board: BoardState) -> Finding:
    if held := sorted(HELD_BACK & set(board.throttle_reasons)):
        advice = "Look after cooling and power supply, and wait until it is over."
        return Finding("clocks", f"held back: {', '.join(held)}", advice, blocks=True)
    return Finding("clocks", "not held back")


def power_limit(board: BoardState) -> Finding:
    limit, default = board.power_limit_w, board.default_power_limit_w
    said = "not reported" if limit is None else f"{limit:.0f} W"
    if default is None or limit in (None, default):
        return Finding("power limit", said)
    return Finding(
        "power limit",
        f"{said}, default {default:.0f} W",
        "Costs go to a device of their own, named after the limit; for the default: "
        f"sudo nvidia-smi -i {board.uuid} -pl {default:.0f}.",
    )


def compiling(device: str) -> Finding:
    lacks, advice = lacking(device)
    if not lacks:
        return Finding("torch.compile", "has what it needs")
    return Finding(
        "torch.compile",
        ", ".join(lacks),
        f"Modes that compile need it, eager and graph do not: {'; '.join(advice)}.",
    )


def profiler() -> Finding:
    path = shutil.which("ncu")
    if path is None:
        lacks = "no ncu on PATH: install Nsight Compute"
        return Finding("Nsight Compute", lacks, "Only hardware counters need it.")
    return Finding("Nsight Compute", path)


def processor_energy() -> Finding:
    if reason := meters.unavailable_reason():
        return Finding("processor energy", reason, "Only bench --device cpu needs it.")
    return Finding("processor energy", "RAPL")


FULL_BYTES = 200e6
"""With less free than this a disk counts as full: a bench may fill it."""


def database_and_disk(url: str | None) -> Iterator[Finding]:
    from opdb.store import database

    named, file = masked(url or os.environ.get("OPDB_DB", "")), None
    try:
        location = database.as_url(url) if url else database.default_url()
        named, file = database.shown(location), database.file_of(location)
        database.connect(location, create=False, prepare=False).dispose()
        if file is None or not database.read_only(file):
            yield Finding("database", named)
        else:
            advice = "Get the right to write it, or name another with --db."
            yield Finding("database", f"{named}: cannot be written", advice, blocks=True)
    except NoDatabaseError:
        yield Finding("database", f"{named}: none yet, the first command makes it")
    except DatabaseError as error:
        advice = "Name another with --db (or OPDB_DB)."
        yield Finding("database", str(error), advice, blocks=True)
    if file is not None:
        folder = next(each for each in file.resolve().parents if each.is_dir())
        yield disk(folder)


def disk(folder: Path) -> Finding:
    free_bytes = shutil.disk_usage(folder).free
    said = f"{show(free_bytes, 'B', digits=3)} free in {folder}"
    if free_bytes >= FULL_BYTES:
        return Finding("disk", said)
    return Finding("disk", said, "Free some space there, or name another place.", blocks=True)
