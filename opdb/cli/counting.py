"""What `opdb roofline` does with hardware counters: run Nsight Compute, take its CSV, show both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from opdb.cli.console import note, print_json, print_table, progress
from opdb.cli.files import check_writable
from opdb.errors import CannotMeasureError, InputError
from opdb.records import Json, Workload
from opdb.units import counted, show_share
from opdb.units import show as show_value

if TYPE_CHECKING:
    from opdb.bench.platform import Platform
    from opdb.counters.metrics import Definition
    from opdb.records import Profile
    from opdb.store import Store
    from opdb.studies.counters import Compared

Run: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--ncu", help="Count operations and bytes here with Nsight Compute, then show with them."
    ),
]
Stored: TypeAlias = Annotated[
    bool,
    typer.Option("--counters", help="Show with what hardware counters saw before, as stored."),
]
Csv: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--ncu-csv",
        metavar="FILE",
        help="Take in what ncu --import REPORT --csv --page raw printed of such a run.",
    ),
]
Metrics: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--ncu-metrics", metavar="FILE", help="Metrics of your own (JSON) by quantity, for --ncu."
    ),
]
Report: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--ncu-report", metavar="FILE", help="Keep Nsight Compute's report (.ncu-rep) of --ncu."
    ),
]

HEAVIEST = 20
"""Operators that a person is shown, and that the median is of; --json has all."""


@dataclass(frozen=True)
class Counting:
    """What was said of hardware counters on the command line."""

    ncu: bool = False
    stored: bool = False
    csv: Path | None = None
    metrics: Path | None = None
    report: Path | None = None

    @property
    def asked(self) -> bool:
        """Whether anything is to be shown as counters saw it."""
        return self.ncu or self.stored or self.csv is not None

    def own_metrics(self) -> Definition | None:
        """Return the metrics of the user's own; None where there are none.

        Raises:
            InputError: the file does not hold metrics.
        """
        from opdb.counters.metrics import read_metrics

        return None if self.metrics is None else read_metrics(self.metrics)

    def check(self) -> None:
        """Raise where options do not go together, or a report cannot be kept.

        Raises:
            InputError: they do not.
        """
        if self.ncu and self.csv is not None:
            raise InputError("--ncu counts here, --ncu-csv takes what was counted: give one")
        if self.metrics is not None and not self.ncu and self.csv is None:
            raise InputError("--ncu-metrics says what to count: give --ncu or --ncu-csv too")
        if self.report is not None and not self.ncu:
            raise InputError("--ncu-report keeps the report of --ncu: give that too")
        if self.report is not None:
            check_writable(self.report)


def count(
    store: Store, workloads: Sequence[Workload], asked: Counting, named: str | None, *, quiet: bool
) -> str | None:
    """Do what was asked for and return the device that it concerns; None where that is open.

    `named` is the device that was named.

    Raises:
        CannotMeasureError: counters cannot be read here.
        InputError: a file is not what it should be, or another device was named.
    """
    if asked.csv is not None:
        return _take(store, asked.csv, asked.own_metrics(), named, quiet=quiet)
    return _run(store, workloads, asked, named, quiet=quiet) if asked.ncu else None


def _take(
    store: Store, file: Path, own: Definition | None, named: str | None, *, quiet: bool
) -> str:
    from opdb.studies.counters import take_csv

    taken = take_csv(store, file, own)
    _check_device(taken.board.device, named)
    note(f"profiles taken in: {taken.profiles} of {taken.board.uuid}", quiet=quiet)
    if taken.unknown:
        note(
            f"left out: {counted(taken.unknown, 'call')} of no model that is stored here",
            quiet=quiet,
        )
    return taken.board.device


def _run(
    store: Store, workloads: Sequence[Workload], asked: Counting, named: str | None, *, quiet: bool
) -> str:
    from opdb.counters import ncu
    from opdb.counters.metrics import definition
    from opdb.studies.counters import lacking

    own, tool = asked.own_metrics(), ncu.find()
    platform = _gpu()
    _check_device(platform.device.slug, named)
    from opdb.bench.profiles import Lens, profile_calls

    chosen = definition(tool.known_metrics(), own)
    wanted = lacking(store, workloads, platform.board, chosen)
    if not wanted and asked.report is not None:
        note("all of it was counted before: there is no report to keep", quiet=quiet)
    with progress(len(wanted), "count", quiet=quiet) as shown:
        shown.doing(f"with {tool.name}")
        lens = Lens(tool, chosen, asked.report)
        looked = profile_calls(store, platform, lens, wanted, done=shown.done)
    for report in looked.reports:
        note(f"written: {report}", quiet=quiet)
    for reason, calls in Counter(looked.missing.values()).items():
        note(f"no profile of {counted(calls, 'configuration')}: {reason}", quiet=quiet)
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


@dataclass(frozen=True)
class Seen:
    """What counters saw of models: profiles by configuration, and beside what is counted.

    `missing` are the configurations (keys) that give the device work and have no profile.
    """

    device: str
    profiles: Mapping[str, Profile]
    compared: Sequence[Compared]
    missing: Sequence[str]

    @property
    def metrics(self) -> list[str]:
        """Every metric that was used, each once."""
        of_all = (p.definition.values() for p in self.profiles.values())
        return list(dict.fromkeys(m for values in of_all for weights in values for m in weights))


def seen(store: Store, workloads: Sequence[Workload], device: str, board: str | None) -> Seen:
    """Return what counters saw of workloads on a device.

    Raises:
        InputError: they saw nothing of them.
    """
    from opdb.studies.counters import compare, known_profiles, launching

    profiles = known_profiles(store, workloads, device, board)
    if not profiles:
        names = ", ".join(dict.fromkeys(workload.name for workload in workloads))
        raise InputError(
            f"no hardware counter saw anything of {names} on {device}; --ncu counts on a machine "
            "with that GPU, --ncu-csv takes in what was counted there"
        )
    missing = [key for key in launching(workloads) if key not in profiles]
    return Seen(device, profiles, compare(workloads, profiles), missing)


def document(found: Seen | None) -> Json:
    """Return what is counted beside what counters saw, as JSON; null where nobody asked."""
    if found is None:
        return None
    from opdb.studies.counters import median_difference

    return {
        "device": found.device,
        "metrics": found.metrics,
        "median_difference_bytes": median_difference(found.compared[:HEAVIEST]),
        "operators": [_row(each) for each in found.compared],
        "missing": list(found.missing),
    }


def _row(each: Compared) -> Json:
    return {
        "kind": each.configuration.kind,
        "pass": each.configuration.pass_name,
        "configuration": each.configuration.key,
        "count": each.count,
        "counted_flops": each.flops,
        "counted_bytes": each.bytes_moved,
        "flops": dict(each.counters.flops),
        "bytes": dict(each.counters.bytes),
        "time_s": each.counters.time_s,
        "flops_ratio": each.flops_ratio,
        "bytes_ratio": each.bytes_ratio,
        "kernels": list(each.kernels),
    }


def show_alone(found: Seen, why: str, *, as_json: bool) -> None:
    """Show what counters saw where nothing has a time: no roofline, and why."""
    if as_json:
        print_json({"models": [], "notes": [why], "counters": document(found)})
        return
    show(found)
    print(f"note: no roofline: {why}")


def show(found: Seen) -> None:
    """Print what is counted beside what counters saw, the heaviest operators first."""
    from opdb.studies.counters import FAR, median_difference

    heaviest = found.compared[:HEAVIEST]
    print(f"a call as counted, and as hardware counters saw it ({found.device})")
    print_table(
        ("", "operator", "calls", "FLOP counted", "seen", "ratio", "bytes counted", "memory saw",
         "ratio", "L2 saw", "L1 saw", "kernels"),
        [(number, *_cells(each)) for number, each in enumerate(heaviest, start=1)],
    )  # fmt: skip
    if len(found.compared) > HEAVIEST:
        more = counted(len(found.compared) - HEAVIEST, "more configuration")
        print(f"… and {more} (all with --json)")
    if (difference := median_difference(heaviest)) is not None:
        print(f"bytes: median difference {show_share(difference)} of those counted")
    far = [(number, each) for number, each in enumerate(heaviest, start=1) if each.is_far]
    if far:
        print(f"memory saw bytes that differ by more than {show_share(FAR)} of:")
    for number, each in far:
        less = each.bytes_ratio is not None and each.bytes_ratio < 1
        why = "less: a cache held some" if less else "more: some moved more than once"
        print(f"  {number} {each.configuration.title}, {why}; kernels {', '.join(each.kernels)}")
    if found.missing:
        missing = counted(len(found.missing), "more configuration")
        print(f"no counter saw anything of {missing}")
    print(f"metrics: {', '.join(found.metrics)}")


def _cells(each: Compared) -> tuple[object, ...]:
    counters = each.counters
    return (
        each.configuration.title,
        each.count,
        show_value(each.flops, "", digits=3).strip(),
        show_value(counters.all_flops, "", digits=3).strip(),
        _ratio(each.flops_ratio),
        show_value(each.bytes_moved, "B", digits=3),
        show_value(counters.bytes["memory"], "B", digits=3),
        _ratio(each.bytes_ratio),
        show_value(counters.bytes["l2"], "B", digits=3),
        show_value(counters.bytes["l1"], "B", digits=3),
        counters.kernels,
    )


def _ratio(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
