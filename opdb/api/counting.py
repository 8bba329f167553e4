"""Hardware counters: count with Nsight Compute here, or take in what was counted elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from opdb.errors import CannotMeasureError, InputError
from opdb.runs.progress import Display
from opdb.units import plural

if TYPE_CHECKING:
    from opdb.bench.platform import Platform
    from opdb.counters.metrics import Definition
    from opdb.records import Workload
    from opdb.store import Store


def take_counts(
    store: Store, file: Path, own: Definition | None, named: str | None, display: Display
) -> str:
    """Take in a CSV of Nsight Compute, by metrics of the user's own where given.

    Returns the device (slug) that it was counted on, which is to be the one `named`.

    Raises:
        InputError: the file is no such CSV, or of another device than the one that is named.
    """
    from opdb.studies.counters import take_csv

    taken = take_csv(store, file, own)
    _check_device(taken.board.device, named)
    display.note(f"profiles taken in: {taken.profiles} of {taken.board.uuid}")
    if taken.unknown:
        display.note(f"left out: {plural(taken.unknown, 'call')} of no model that is stored here")
    return taken.board.device


def count_here(
    store: Store,
    workloads: Sequence[Workload],
    own: Definition | None,
    report: Path | None,
    named: str | None,
    display: Display,
) -> str:
    """Count with Nsight Compute what workloads call and was not counted before.

    `report` keeps its report. Returns this machine's GPU (slug), which is to be the one `named`.

    Raises:
        CannotMeasureError: counters cannot be read here.
        InputError: another device is named.
    """
    from opdb.counters import ncu
    from opdb.counters.metrics import definition
    from opdb.studies.counters import lacking

    tool = ncu.find()
    platform = _gpu()
    _check_device(platform.device.slug, named)
    from opdb.bench.profiles import Lens, profile_calls

    chosen = definition(tool.known_metrics(), own)
    wanted = lacking(store, workloads, platform.board, chosen)
    if not wanted and report is not None:
        display.note("all of it was counted before: there is no report to keep")
    with display.progress(len(wanted), "count") as shown:
        shown.doing(f"with {tool.name}")
        lens = Lens(tool, chosen, report)
        looked = profile_calls(store, platform, lens, wanted, done=shown.done)
    for written in looked.reports:
        display.note(f"written: {written}")
    for reason, calls in Counter(looked.missing.values()).items():
        display.note(f"no profile of {plural(calls, 'configuration')}: {reason}")
    return platform.device.slug


def _gpu() -> Platform:
    """Return this machine's GPU.

    Raises:
        CannotMeasureError: there is none.
    """
    from opdb.bench.platform import detect

    platform = detect()
    if platform.device.type != "cuda":
        raise CannotMeasureError(
            "no CUDA device here to read hardware counters of; run on a machine with an NVIDIA "
            "GPU, or take in what was counted there with --ncu-csv"
        )
    return platform


def _check_device(counted_on: str, named: str | None) -> None:
    """Check that the device that was named is the one that is counted on.

    Raises:
        InputError: it is another.
    """
    if named is not None and named != counted_on:
        raise InputError(f"--device {named}: these counters are those of {counted_on}")
