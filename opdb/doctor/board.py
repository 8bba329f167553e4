"""Judge one board: whether it is whole, this user's alone, and what its meters say. Pure."""

from __future__ import annotations

from opdb.doctor.facts import BoardFacts
from opdb.doctor.finding import Finding, blocks, fine, note, unknown
from opdb.units import MEGA, show

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
    """Judge whether a board is split, so that no energy can be attributed."""
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
    """Judge whether the board is this user's alone."""
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
    """Judge the driver's ring of power samples, which opdb takes power from."""
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
            "Run opdb calibrate, which tests whether the energy counter can stand in.",
        )
    return blocks(
        "power samples",
        f"{found}, and no counter ticks",
        "No energy can be measured on this GPU, times can; update the driver or use another GPU.",
    )


def counter(board: BoardFacts) -> Finding:
    """Judge the energy counter by whether it ticks."""
    meters = board.meters
    if meters is not None and meters.ticks:
        return fine("energy counter", f"ticked {meters.ticks} × within {_waited(board)}")
    if meters is None or meters.ticks is None:
        return note(
            "energy counter",
            "the driver reports none",
            "None is needed where there are power samples; opdb calibrate then tests without it.",
        )
    return note(
        "energy counter",
        f"does not tick: the same reading for {_waited(board)}",
        "Run opdb calibrate --again, which keeps it from being used; if it stays so, reboot or "
        "update the driver.",
    )


def instant(board: BoardFacts) -> Finding:
    """Judge the instant power, which only checks the others."""
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
    """Judge whether the board keeps its maker's power limit."""
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
