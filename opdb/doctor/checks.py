"""Judges what was seen of a machine: one small pure function a check, and what works in all.

A finding that blocks makes the platform unhealthy: a GPU cannot be measured until it is put right.
Any other that is not fine is a note."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from opdb.compiled import INSTALL, INSTALL_TRITON
from opdb.distribution import install
from opdb.doctor.machine import BoardFacts, DatabaseFacts, Facts
from opdb.meters import ncu
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
    """Say what is not fine and keeps no GPU from being measured."""
    return Finding(check, "not", found, advice)


def blocks(check: str, found: str, advice: str) -> Finding:
    """Say what keeps a GPU from being measured."""
    return Finding(check, "not", found, advice, blocks=True)


def unknown(check: str, found: str, advice: str | None = None) -> Finding:
    """Say what cannot be told."""
    return Finding(check, "unknown", found, advice)


def gpu(facts: Facts) -> Finding:
    boards, on_bus = facts.nvidia.boards, facts.nvidia.on_bus
    if boards:
        counts = Counter(board.state.name or "not reachable" for board in boards)
        said = (f"{count} × {name}" if count > 1 else name for name, count in counts.items())
        return fine("GPU", ", ".join(said))
    if on_bus:
        return blocks(
            "GPU",
            f"{plural(on_bus, 'NVIDIA GPU')} on the PCI bus, none offered by a driver",
            "Install the NVIDIA driver, or load it (sudo modprobe nvidia); in a container, start "
            "it with --gpus all.",
        )
    return blocks(
        "GPU",
        "none",
        "Harvest and predict here and run opdb bench on a machine with an NVIDIA GPU, or measure "
        "this processor with opdb bench --device cpu.",
    )


def driver(facts: Facts) -> Finding:
    nvidia = facts.nvidia
    if nvidia.driver is not None and nvidia.error is None:
        return fine("driver", nvidia.driver)
    said = f"NVML: {nvidia.error}"
    if "version mismatch" in str(nvidia.error):
        return blocks(
            "driver",
            said,
            "The driver was updated while the old one is loaded: reboot, or unload and load the "
            "nvidia modules.",
        )
    if "ermission" in str(nvidia.error):
        return blocks(
            "driver", said, "Give this user access to /dev/nvidia*, as its group or by udev."
        )
    if nvidia.on_bus or nvidia.driver:
        return blocks(
            "driver",
            said,
            "Install the NVIDIA driver with libnvidia-ml.so.1 and see whether nvidia-smi answers.",
        )
    return unknown("driver", said, "Without a GPU none is needed.")


def cuda(facts: Facts) -> Finding:
    serves, built = facts.nvidia.cuda, facts.torch.cuda
    if serves is None or built is None:
        known = f"driver {serves or 'none'}, torch {built or 'none'}"
        return unknown("CUDA", known, "It is told once there are a driver and a CUDA build.")
    said = f"driver up to {serves}, torch built for {built}"
    if _major(serves) >= _major(built):
        return fine("CUDA", said)
    return blocks(
        "CUDA",
        said,
        f"Update the driver to one that serves CUDA {built}, or install a torch built for CUDA "
        f"{_major(serves)} (https://pytorch.org/get-started/locally).",
    )


def _major(version: str) -> int:
    return int(version.partition(".")[0])


def torch(facts: Facts) -> Finding:
    found, boards = facts.torch, facts.nvidia.boards
    said = f"{found.version}, " + (f"CUDA {found.cuda}" if found.cuda else "CPU-only build")
    if found.error is not None:
        return blocks(
            "torch",
            found.error,
            "Install it anew: pip install --force-reinstall torch torchvision.",
        )
    if found.cuda is None:
        advice = (
            " a CUDA build: pip install --force-reinstall torch torchvision "
            "--index-url https://download.pytorch.org/whl/cu126, or as your driver asks."
        )
        if boards:
            return blocks("torch", f"{said} beside a GPU", f"Install{advice}")
        return note("torch", said, f"Enough without a GPU. To measure one: install{advice}")
    if boards and not found.gpus:
        return _sees_none(facts, said)
    missing = [b.state.name for b in boards if not _has_kernels(b, found.architectures)]
    if missing:
        return blocks(
            "torch",
            f"{said}, without kernels for {missing[0]} ({', '.join(found.architectures)})",
            "Install a torch build for this GPU's architecture "
            "(https://pytorch.org/get-started/locally).",
        )
    if found.gpus < len(boards):
        return note(
            "torch",
            f"{said}, sees {found.gpus} of {len(boards)} GPUs"
            + (f" (CUDA_VISIBLE_DEVICES={found.visible})" if found.visible is not None else ""),
            "Only those can be measured; unset CUDA_VISIBLE_DEVICES to see them all.",
        )
    return fine("torch", said)


def _sees_none(facts: Facts, said: str) -> Finding:
    found = facts.torch
    if found.visible is not None:
        return blocks(
            "torch",
            f"{said}, sees no GPU (CUDA_VISIBLE_DEVICES={found.visible!r})",
            "Unset CUDA_VISIBLE_DEVICES, or name a GPU that is there.",
        )
    return blocks(
        "torch",
        f"{said}, sees no GPU" + (f" ({found.why_none})" if found.why_none else ""),
        "Hold nvidia-smi and python -c 'import torch; torch.cuda.init()' against each other; a "
        "driver too old for this build or a GPU in a bad state (reboot) is the usual cause.",
    )


def _has_kernels(board: BoardFacts, architectures: Sequence[str]) -> bool:
    """Return whether code for a board is in a build: of its major version, or to be compiled."""
    capability = board.state.capability
    if capability is None or not architectures:
        return True
    for each in architectures:
        found = re.match(r"(sm|compute)_(\d+)(\d)", each)
        if found is None:
            continue
        listed = (int(found[2]), int(found[3]))
        if listed <= capability and (found[1] == "compute" or listed[0] == capability[0]):
            return True
    return False


def cudnn(facts: Facts) -> Finding:
    version = facts.torch.cudnn
    if version is not None:
        # 91900 is 9.19.0; before 9 it was 8907 for 8.9.7.
        scale = 10_000 if version >= 10_000 else 1_000
        return fine("cuDNN", f"{version // scale}.{version % scale // 100}.{version % 100}")
    if facts.torch.cuda is None:
        return unknown("cuDNN", "none in a build without CUDA", "It comes with a CUDA build.")
    return blocks(
        "cuDNN",
        "torch finds none",
        "Install torch anew with its own libraries: pip install --force-reinstall torch.",
    )


BUSY_SHARE = 0.05
"""The utilization above which a board does somebody's work."""

HELD_BACK = (
    "hardware slowdown",
    "software thermal slowdown",
    "hardware thermal slowdown",
    "hardware power brake",
)
"""Why a clock may be held back that no measurement can be made beside."""


def lost(board: BoardFacts) -> Finding:
    """Say that the driver lists a board that does not answer."""
    return blocks(
        "GPU state",
        "the driver lists this GPU and cannot reach it",
        "See sudo dmesg for Xid messages, then reset the GPU or reboot.",
    )


def mig(board: BoardFacts) -> Finding:
    if board.state.mig is None:
        return fine("MIG", "not known to this GPU")
    if not board.state.mig:
        return fine("MIG", "off")
    return blocks(
        "MIG",
        "on: the power of an instance cannot be read",
        "Measure on a GPU without MIG, or switch it off: "
        f"sudo nvidia-smi -i {board.state.uuid} -mig 0.",
    )


def processes(board: BoardFacts) -> Finding:
    busy = (board.state.utilization or 0.0) > BUSY_SHARE
    if board.processes is None:
        return unknown(
            "processes", "NVML does not tell", "Look with nvidia-smi that the GPU is idle."
        )
    if board.processes:
        return blocks(
            "processes",
            ", ".join(board.processes),
            "Stop them or wait for them: what they draw would be taken for the operators'; "
            "nvitop shows what they do.",
        )
    if busy:
        return note(
            "processes",
            f"none to be seen, but the GPU is {board.state.utilization:.0%} busy",
            "Look from the host, outside this container, for who uses the GPU, and wait.",
        )
    return fine("processes", "none")


def samples(board: BoardFacts) -> Finding:
    meters = board.meters
    if meters is not None and meters.new_samples:
        return fine("power samples", f"{meters.new_samples} new within {_waited(board)}")
    found = (
        f"none new within {_waited(board)}"
        if meters is not None and meters.new_samples is not None
        else "the driver gives none"
    )
    if meters is not None and meters.ticks:
        return note(
            "power samples",
            found,
            "Run opdb doctor --calibrate, which tests whether the energy counter can stand in.",
        )
    return blocks(
        "power samples",
        f"{found}, and no counter ticks",
        "No energy can be measured on this GPU, times can; update the driver or use another GPU.",
    )


def counter(board: BoardFacts) -> Finding:
    meters = board.meters
    if meters is not None and meters.ticks:
        return fine("energy counter", f"ticked {meters.ticks} × within {_waited(board)}")
    if meters is None or meters.ticks is None:
        return note(
            "energy counter",
            "the driver reports none",
            "None is needed where there are power samples; opdb doctor --calibrate then "
            "tests without it.",
        )
    return note(
        "energy counter",
        f"does not tick: the same reading for {_waited(board)}",
        "Run opdb doctor --calibrate --again, which keeps it from being used; if it stays so, "
        "reboot or update the driver.",
    )


def instant(board: BoardFacts) -> Finding:
    watts = None if board.meters is None else board.meters.instant_w
    if watts is not None:
        return fine("instant power", show(watts, "W"))
    return note(
        "instant power",
        "the driver reports none",
        "Nothing need be done: it only checks the other meters, and they are checked without it.",
    )


def _waited(board: BoardFacts) -> str:
    return show(None if board.meters is None else board.meters.waited_s, "s", digits=3)


def clocks(board: BoardFacts) -> Finding:
    """Judge whether something holds the clock back; NVML does not report a lock (-lgc) as such."""
    state = board.state
    said = f"{_mhz(state.clock_hz)} now, {_mhz(state.max_clock_hz)} at most"
    reasons = ", ".join(state.throttle_reasons)
    if set(state.throttle_reasons) & set(HELD_BACK):
        return blocks(
            "clocks",
            f"{said}, held back: {reasons}",
            "Look after cooling and power supply (nvidia-smi -q -d PERFORMANCE,TEMPERATURE), and "
            "wait until it is over.",
        )
    target, default = state.application_clock_hz, state.default_application_clock_hz
    changed = target is not None and default is not None and target != default
    if changed or "application clocks" in state.throttle_reasons:
        return note(
            "clocks",
            f"{said}, application clocks {_mhz(target)} (default {_mhz(default)})",
            "Give the clock back with sudo nvidia-smi -rac (and -rgc against a lock), unless "
            "costs at this clock are wanted.",
        )
    if reasons:
        return note(
            "clocks",
            f"{said}, held back: {reasons}",
            "Wait until the GPU is idle and look again.",
        )
    if state.clock_hz is None:
        return unknown(
            "clocks",
            "the driver reports none",
            "Look with nvidia-smi -q -d CLOCK whether they hold.",
        )
    return fine("clocks", f"{said}, held back by nothing that the driver reports")


def _mhz(hertz: float | None) -> str:
    return "–" if hertz is None else f"{hertz / MEGA:.0f} MHz"


def power_limit(board: BoardFacts) -> Finding:
    limit, default = board.state.power_limit_w, board.state.default_power_limit_w
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
        f"Costs go to a device of their own, named after the limit; for the default: "
        f"sudo nvidia-smi -i {board.state.uuid} -pl {default:.0f}.",
    )


FULL_BYTES = 200e6
"""With less free than this a disk counts as full: a bench, or one compiled model, may fill it."""

LOW_BYTES = 2e9

PURPOSES = {
    "estimates": "opdb learn",
    "plots": "pictures",
    "postgres": "a PostgreSQL database",
    "slurm": "opdb submit",
    "transformers": "models of transformers",
}
"""What each extra is for."""


def compiler(facts: Facts) -> Finding:
    found = facts.tools.toolchain
    lacks = [*found.no_cxx, *found.no_cc, *found.no_header]
    if not lacks:
        return fine("compiler", str(found.cxx))
    return note(
        "compiler",
        ", ".join(lacks),
        f"torch.compile needs it, eager and graph do not: {INSTALL}.",
    )


def switches(facts: Facts) -> Finding:
    off = facts.tools.switched_off
    if not off:
        return fine("compiling", "not switched off")
    names = " ".join(switch.split("=")[0] for switch in off)
    return note(
        "compiling",
        f"switched off by {', '.join(off)}",
        f"Modes that compile or trace need it, eager and graph do not: unset {names}.",
    )


def triton(facts: Facts) -> Finding:
    found = facts.tools.toolchain.triton
    if found is not None:
        return fine("Triton", found)
    return note(
        "Triton",
        "none",
        f"torch.compile needs it on a GPU, eager and graph do not: {INSTALL_TRITON}.",
    )


def nsight(facts: Facts) -> Finding:
    tools = facts.tools
    if tools.ncu is not None:
        return fine("Nsight Compute", tools.ncu)
    if tools.ncu_elsewhere is not None:
        folder = tools.ncu_elsewhere.rpartition("/")[0]
        return note(
            "Nsight Compute",
            f"{tools.ncu_elsewhere}, not on PATH",
            f"Put it on PATH: export PATH=$PATH:{folder}.",
        )
    return note(
        "Nsight Compute",
        "no ncu on PATH",
        f"Only hardware counters need it: {ncu.INSTALL} and put ncu on PATH.",
    )


def counters(facts: Facts) -> Finding:
    restricted = facts.nvidia.counters_restricted
    if restricted is None:
        return unknown(
            "counter permission",
            "/proc/driver/nvidia/params does not say",
            "On the machine with the GPU, opdb doctor tells.",
        )
    if not restricted:
        return fine("counter permission", "every user")
    if facts.nvidia.privileged:
        return fine("counter permission", "administrators, and this process is one")
    return note(
        "counter permission",
        "administrators alone (RmProfilingAdminOnly: 1)",
        f"Only ncu needs it: {ncu.PERMISSION}.",
    )


def processor_energy(facts: Facts) -> Finding:
    if facts.rapl_reason is None:
        return fine("processor energy", "RAPL")
    return note(
        "processor energy",
        facts.rapl_reason,
        "Only bench --device cpu needs it, and measures times without it; where RAPL is there, "
        "run as root.",
    )


def database(facts: Facts) -> Finding:
    found = facts.database
    if not found.is_file:
        return _server(found)
    if found.problem is not None:
        again = ", or restore it, or delete it and import its sets again"
        return blocks(
            "database",
            f"{found.location}: {found.problem}",
            f"Name another with --db (or OPDB_DB){'' if found.foreign else again}.",
        )
    if not found.writable:
        return blocks(
            "database",
            f"{found.location}: cannot be written",
            "Give this user the file and its folder, or name another with --db.",
        )
    return _schema(found)


def _schema(found: DatabaseFacts) -> Finding:
    if not found.size_bytes:
        return fine("database", f"{found.location}: none yet, the first command makes it")
    size = show(found.size_bytes, "B", digits=3)
    said = f"{found.location}, {size}, schema {found.schema}"
    if found.integrity not in (None, "ok"):
        return blocks(
            "database",
            f"{said}: {found.integrity}",
            "It is damaged: restore it, or delete it and import its published sets again.",
        )
    if found.schema != found.readable:
        return blocks(
            "database",
            f"{said}; this opdb reads schema {found.readable}",
            "Move the file away and opdb makes a new one, or name another database with --db.",
        )
    if found.integrity is None:
        return unknown(
            "database",
            f"{said}, too large to check at once",
            f"Check it with sqlite3 '{found.location}' 'PRAGMA integrity_check'.",
        )
    return fine("database", f"{said}, whole")


def _server(found: DatabaseFacts) -> Finding:
    if found.driver_missing:
        return blocks(
            "database",
            f"{found.location}: its driver is missing",
            f"Install it: {install('postgres')}.",
        )
    if found.problem is not None:
        return blocks(
            "database",
            f"{found.location}: {found.problem}",
            "Name another with --db, or see to its server.",
        )
    if not found.writable:
        return blocks(
            "database",
            f"{found.location}: it answers, and this user may not write it",
            "Ask its owner for the rights to insert, update and delete, or name another with --db.",
        )
    if found.schema is None:
        return fine("database", f"{found.location}: it answers; empty, the first command fills it")
    if found.schema != found.readable:
        return blocks(
            "database",
            f"{found.location}: it answers, schema {found.schema}; this opdb reads schema "
            f"{found.readable}",
            "Name another with --db.",
        )
    return fine("database", f"{found.location}: it answers, schema {found.schema}")


def disks(facts: Facts) -> list[Finding]:
    return [_disk(each.folder, each.holds, each.free_bytes) for each in facts.disks]


def _disk(folder: str, holds: str, free_bytes: int | None) -> Finding:
    if free_bytes is None:
        return unknown("disk", f"{folder} ({holds})", f"See with df {folder} whether it is there.")
    said = f"{show(free_bytes, 'B', digits=3)} free in {folder} ({holds})"
    if free_bytes < FULL_BYTES:
        advice = f"Free some space in {folder}, or move {holds} elsewhere"
        return blocks("disk", said, f"{advice} (--db, TORCHINDUCTOR_CACHE_DIR, TMPDIR).")
    if free_bytes < LOW_BYTES:
        return note("disk", said, f"Free some space in {folder} before a long bench.")
    return fine("disk", said)


def extras(facts: Facts) -> list[Finding]:
    if facts.extras is None:
        return [unknown("extras", "opdb runs without being installed", f"Install it: {install()}.")]
    if not facts.extras:
        return [fine("extras", "none missing")]
    return [
        note(
            f"extra {extra}",
            f"missing: {', '.join(packages)}",
            f"Only {PURPOSES.get(extra, f'what {extra} adds')} needs it: {install(extra)}.",
        )
        for extra, packages in facts.extras.items()
    ]


DRIVER_CHECKS: tuple[Callable[[Facts], Finding], ...] = (
    gpu,
    driver,
    cuda,
    torch,
    cudnn,
)
BOARD_CHECKS: tuple[Callable[[BoardFacts], Finding], ...] = (
    mig,
    processes,
    samples,
    counter,
    instant,
    clocks,
    power_limit,
)
MACHINE_CHECKS: tuple[Callable[[Facts], Finding], ...] = (
    compiler,
    switches,
    triton,
    nsight,
    counters,
    processor_energy,
    database,
)


def examine(facts: Facts) -> list[Finding]:
    """Make every check, in the order in which they are shown."""
    findings = [check(facts) for check in DRIVER_CHECKS]
    for index, each in enumerate(facts.nvidia.boards):
        made = [check(each) for check in BOARD_CHECKS] if each.state.uuid else [lost(each)]
        findings += [replace(finding, board=index) for finding in made]
    findings += [check(facts) for check in MACHINE_CHECKS]
    return [*findings, *disks(facts), *extras(facts)]


def works(facts: Facts, findings: Iterable[Finding]) -> tuple[bool, str]:
    """Return whether a GPU can be measured, and in one sentence what works on this machine."""
    names = list(dict.fromkeys(finding.check for finding in findings if finding.blocks))
    if not names:
        return True, "a GPU can be measured here"
    if {"database", "disk"} & set(names):
        rest = "nothing can be stored either"
    elif facts.torch.error is not None:
        rest = "predict works"
    elif facts.nvidia.boards:
        rest = "harvest and predict work"
    else:
        rest = "harvest and predict work, and bench --device cpu"
    if "GPU" in names and not facts.nvidia.on_bus:
        others = [name for name in names if name != "GPU"]
        rest += f"; to be put right: {', '.join(others)}" if others else ""
        return False, f"no GPU can be measured here, for there is none; {rest}"
    return (
        False,
        f"no GPU can be measured here before this is put right: {', '.join(names)}; {rest}",
    )
