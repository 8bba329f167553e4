"""Make every check, and say what works: one small pure function a check.

A finding that blocks makes the platform unhealthy: a GPU cannot be measured until it is put right.
Any other that is not fine is a note.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from opdb.doctor import board, driver, surroundings
from opdb.doctor.facts import BoardFacts, Facts
from opdb.doctor.finding import Finding

DRIVER_CHECKS: tuple[Callable[[Facts], Finding], ...] = (
    driver.gpu,
    driver.driver,
    driver.cuda,
    driver.torch,
    driver.cudnn,
)
BOARD_CHECKS: tuple[Callable[[BoardFacts], Finding], ...] = (
    board.mig,
    board.processes,
    board.samples,
    board.counter,
    board.instant,
    board.clocks,
    board.power_limit,
)
MACHINE_CHECKS: tuple[Callable[[Facts], Finding], ...] = (
    surroundings.compiler,
    surroundings.switches,
    surroundings.triton,
    surroundings.nsight,
    surroundings.counters,
    surroundings.processor_energy,
    surroundings.database,
)


def examine(facts: Facts) -> list[Finding]:
    """Make every check, in the order in which they are shown."""
    findings = [check(facts) for check in DRIVER_CHECKS]
    for index, each in enumerate(facts.nvidia.boards):
        made = [check(each) for check in BOARD_CHECKS] if each.state.uuid else [board.lost(each)]
        findings += [replace(finding, board=index) for finding in made]
    findings += [check(facts) for check in MACHINE_CHECKS]
    return [*findings, *surroundings.disks(facts), *surroundings.extras(facts)]


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
