"""Operators as counted, and as hardware counters saw them: operations and bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from opdb.errors import InputError
from opdb.files import LARGEST_BYTES, read_bytes
from opdb.kinds import KINDS
from opdb.meters.ncu import Counters, Definition, counters_of, definition, names_of, read_report
from opdb.records import Board, Configuration, Json, Profile, Workload
from opdb.store import Store
from opdb.studies.roofline.peaks import MEMORY
from opdb.tables import RATIO, Column, Report, Rows, Table
from opdb.units import plural, show, show_share


@dataclass(frozen=True)
class CountedCall:
    configuration: Configuration
    count: int
    flops: int
    bytes_moved: int
    counters: Counters
    kernels: tuple[str, ...]

    @property
    def bytes_ratio(self) -> float | None:
        """Bytes that memory saw over those counted."""
        seen = self.counters.bytes.get(MEMORY)
        return None if seen is None or not self.bytes_moved else seen / self.bytes_moved

    @property
    def flops_ratio(self) -> float | None:
        """Operations that counters saw over those counted; None where none is counted."""
        seen = self.counters.all_flops
        return None if seen is None or not self.flops else seen / self.flops


def launching(workloads: Iterable[Workload]) -> dict[str, Configuration]:
    """Return by key what workloads call that gives the device work."""
    called = {c.key: c for workload in workloads for c in workload.occurrences()}
    return {k: c for k, c in called.items() if c.kind in KINDS and KINDS[c.kind].launches(c)}


def lacking(
    store: Store, workloads: Iterable[Workload], board: Board, chosen: Definition
) -> list[Configuration]:
    """Return what workloads call of which a board has no profile by these metrics."""
    called = launching(workloads)
    known = {
        profile.configuration
        for profile in store.profiles(board.device, list(called))
        if profile.board == board and profile.definition == chosen
    }
    return [c for key, c in called.items() if key not in known]


def known_profiles(
    store: Store, workloads: Iterable[Workload], device: str, board: str | None = None
) -> dict[str, Profile]:
    """Return by key the last profile of each configuration that workloads call, on a device.

    One of the board (UUID) goes before those of others of its kind, which count the same.
    """
    called = launching(workloads)
    found = list(store.profiles(device, list(called)))
    found.sort(key=lambda profile: profile.board.uuid == board)
    return {profile.configuration: profile for profile in found}


def compare(workloads: Sequence[Workload], profiles: Mapping[str, Profile]) -> list[CountedCall]:
    """Hold what is counted against profiles, what takes the models longest under them first."""
    counts: Counter[Configuration] = Counter()
    for workload in workloads:
        counts.update(workload.occurrences())
    found = []
    for configuration, count in counts.items():
        if (profile := profiles.get(configuration.key)) is not None:
            kind = KINDS[configuration.kind]
            found.append(
                CountedCall(
                    configuration,
                    count,
                    kind.flops(configuration),
                    kind.bytes_moved(configuration),
                    counters_of(profile),
                    tuple(names_of(profile.kernels)),
                )
            )
    return sorted(found, key=_weight, reverse=True)


def _weight(each: CountedCall) -> tuple[float, int]:
    return each.count * (each.counters.time_s or 0.0), each.count * each.bytes_moved


def median_difference(compared: Iterable[CountedCall]) -> float | None:
    """Return the median of how far memory's bytes are from those counted, as a share of these."""
    known = [abs(ratio - 1) for each in compared if (ratio := each.bytes_ratio) is not None]
    return median(known) if known else None


def take_csv(store: Store, path: Path, own: Definition | None = None) -> tuple[Board, int, int]:
    """Store what a CSV file of Nsight Compute (its raw page) saw of calls that opdb made.

    What is stored already stays as it is. Returns the board, how many profiles are new, and how
    many calls nobody stored here.
    """
    content = read_bytes(path, "a CSV of Nsight Compute", LARGEST_BYTES)
    report = read_report(content.decode("utf-8", errors="replace"), str(path))
    if report.board is None:
        raise InputError(f"{path}: no range in it names the board")
    device = {d.slug: d for d in store.devices()}.get(report.board.device)
    if device is None:
        raise InputError(
            f"{path}: counted on {report.board.device}, of which nothing is stored here; import "
            "its set first"
        )
    stored = [c for key in report.calls if (c := store.configuration(key)) is not None]
    found = report.profiles(
        stored,
        report.board,
        definition(report.units, own),
        environment={"ncu": None},
        measured_at=report.measured_at,
    )
    before = [_content(p) for p in store.profiles(device.slug, [c.key for c in stored])]
    new = [profile for profile in found if _content(profile) not in before]
    store.save_board(device, report.board)
    store.save_profiles(new)
    return report.board, len(new), len(report.calls) - len(stored)


def _content(profile: Profile) -> Profile:
    """Return a profile without what says nothing of the call: the name, the versions."""
    return replace(profile, id="", environment={})


# What is shown

HEAVIEST = 20
"""Operators that people are shown, and that the median is of; `to_dict()` has all."""


def _megas(value: float | None, unit: str = "") -> str:
    return show(value, unit, digits=3).strip()


OPERATORS: Table[CountedCall] = Table(
    Column(title="operator", text=lambda each: each.configuration.title),
    Column("kind", lambda each: each.configuration.kind),
    Column("pass", lambda each: each.configuration.pass_name),
    Column("configuration", lambda each: each.configuration.key),
    Column("count", lambda each: each.count, title="calls"),
    Column(
        "counted_flops",
        lambda each: each.flops,
        title="FLOP counted",
        text=lambda each: _megas(each.flops),
    ),
    Column(
        "flops",
        lambda each: dict(each.counters.flops),
        title="seen",
        text=lambda each: _megas(each.counters.all_flops),
    ),
    Column("flops_ratio", lambda each: each.flops_ratio, title="ratio", unit=RATIO),
    Column(
        "counted_bytes",
        lambda each: each.bytes_moved,
        title="bytes counted",
        text=lambda each: _megas(each.bytes_moved, "B"),
    ),
    Column(
        "bytes",
        lambda each: dict(each.counters.bytes),
        title="memory saw",
        text=lambda each: _megas(each.counters.bytes["memory"], "B"),
    ),
    Column("bytes_ratio", lambda each: each.bytes_ratio, title="ratio", unit=RATIO),
    Column(title="L2 saw", text=lambda each: _megas(each.counters.bytes["l2"], "B")),
    Column(title="L1 saw", text=lambda each: _megas(each.counters.bytes["l1"], "B")),
    Column("time_s", lambda each: each.counters.time_s),
    Column(
        "kernels",
        lambda each: list(each.kernels),
        title="kernels",
        text=lambda each: each.counters.kernels,
    ),
)
"""An operator as counted, and as hardware counters saw it."""


@dataclass(frozen=True)
class CountersSeen(Report):
    """What counters saw of models: profiles by configuration, and beside what is counted.

    `missing` are the configurations (keys) that give the device work and have no profile.
    """

    device: str
    profiles: Mapping[str, Profile]
    compared: Sequence[CountedCall]
    missing: Sequence[str]

    @property
    def metrics(self) -> list[str]:
        of_all = (p.definition.values() for p in self.profiles.values())
        return list(dict.fromkeys(m for values in of_all for weights in values for m in weights))

    def to_dict(self) -> Json:
        return {
            "device": self.device,
            "metrics": self.metrics,
            "median_difference_bytes": median_difference(self.compared[:HEAVIEST]),
            "operators": OPERATORS.documents(self.compared),
            "missing": list(self.missing),
        }

    def blocks(self) -> Iterator[str | Rows[Any]]:
        yield f"a call as counted, and as hardware counters saw it ({self.device})"
        yield Rows(OPERATORS, self.compared[:HEAVIEST])
        if len(self.compared) > HEAVIEST:
            more = plural(len(self.compared) - HEAVIEST, "more configuration")
            yield f"… and {more} (all with --json)"
        if (difference := median_difference(self.compared[:HEAVIEST])) is not None:
            yield f"bytes: median difference {show_share(difference)} of those counted"
        if self.missing:
            missing = plural(len(self.missing), "more configuration")
            yield f"no counter saw anything of {missing}"
        yield f"metrics: {', '.join(self.metrics)}"


def seen_by_counters(
    store: Store, workloads: Sequence[Workload], device: str, board: str | None
) -> CountersSeen:
    profiles = known_profiles(store, workloads, device, board)
    if not profiles:
        names = ", ".join(dict.fromkeys(workload.name for workload in workloads))
        raise InputError(
            f"no hardware counter saw anything of {names} on {device}; --ncu counts on a machine "
            "with that GPU, --ncu-csv takes in what was counted there"
        )
    missing = [key for key in launching(workloads) if key not in profiles]
    return CountersSeen(device, profiles, compare(workloads, profiles), missing)
