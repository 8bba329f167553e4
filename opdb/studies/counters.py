"""What is counted of operators beside what hardware counters saw: operations and bytes.

Counted bytes are those that must move at least. Memory sees fewer where a cache held them or still
holds what was written, more where a kernel reads its input again or rewrites it first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from opdb.counters.metrics import Counters, Definition, counters_of, definition
from opdb.counters.profiles import profiles_of
from opdb.counters.report import names_of, read_report
from opdb.errors import InputError
from opdb.kinds import KINDS
from opdb.records import Board, Configuration, Profile, Workload
from opdb.settings import DEFAULT_SETTINGS, relevant_setting
from opdb.store import Store
from opdb.studies.peaks import MEMORY

FAR = 0.15
"""Bytes that differ by a larger share of those counted are told of."""


@dataclass(frozen=True)
class Compared:
    """One operator of some models: how often they call it, what is counted, what counters saw."""

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

    @property
    def is_far(self) -> bool:
        """Whether memory saw bytes that differ by more than `FAR` from those counted."""
        ratio = self.bytes_ratio
        return ratio is not None and abs(ratio - 1) > FAR


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
        if profile.board == board and profile.definition == chosen and _is_usual(profile, called)
    }
    return [c for key, c in called.items() if key not in known]


def known_profiles(
    store: Store, workloads: Iterable[Workload], device: str, board: str | None = None
) -> dict[str, Profile]:
    """Return by key the last profile of each configuration that workloads call, on a device.

    One of the board (UUID) goes before those of others of its kind, which count the same.
    """
    called = launching(workloads)
    found = [p for p in store.profiles(device, list(called)) if _is_usual(p, called)]
    found.sort(key=lambda profile: profile.board.uuid == board)
    return {profile.configuration: profile for profile in found}


def _is_usual(profile: Profile, called: Mapping[str, Configuration]) -> bool:
    kind = called[profile.configuration].kind
    return profile.setting == relevant_setting(kind, DEFAULT_SETTINGS)


def compare(workloads: Sequence[Workload], profiles: Mapping[str, Profile]) -> list[Compared]:
    """Hold what is counted against profiles, what takes the models longest under them first."""
    counts: dict[Configuration, int] = {}
    for workload in workloads:
        for configuration, count in workload.occurrences().items():
            counts[configuration] = counts.get(configuration, 0) + count
    found = []
    for configuration, count in counts.items():
        if (profile := profiles.get(configuration.key)) is not None:
            kind = KINDS[configuration.kind]
            found.append(
                Compared(
                    configuration,
                    count,
                    kind.flops(configuration),
                    kind.bytes_moved(configuration),
                    counters_of(profile),
                    tuple(names_of(profile.kernels)),
                )
            )
    return sorted(found, key=_weight, reverse=True)


def _weight(each: Compared) -> tuple[float, int]:
    """Return what an operator takes all models under the profiler, else what it moves."""
    return each.count * (each.counters.time_s or 0.0), each.count * each.bytes_moved


def median_difference(compared: Iterable[Compared]) -> float | None:
    """Return the median of how far memory's bytes are from those counted, as a share of these."""
    known = [abs(ratio - 1) for each in compared if (ratio := each.bytes_ratio) is not None]
    return median(known) if known else None


@dataclass(frozen=True)
class Taken:
    """What came in from a CSV file: the board, new profiles, and calls that nobody stored here."""

    board: Board
    profiles: int
    unknown: int


def take_csv(store: Store, path: Path, own: Definition | None = None) -> Taken:
    """Store what a CSV file of Nsight Compute (its raw page) saw of calls that opdb made.

    What is stored already stays as it is.

    Raises:
        InputError: the file cannot be read, says not where it was counted, or its device is not
            stored here.
    """
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    report = read_report(text, str(path))
    if report.board is None:
        raise InputError(f"{path}: no range in it names the board")
    device = {d.slug: d for d in store.devices()}.get(report.board.device)
    if device is None:
        raise InputError(
            f"{path}: counted on {report.board.device}, of which nothing is stored here; import "
            "its set first"
        )
    stored = [c for key in report.calls if (c := store.configuration(key)) is not None]
    found = profiles_of(
        report,
        stored,
        report.board,
        definition(report.metrics, own),
        environment={"ncu": None},
        measured_at=report.measured_at,
    )
    before = [_content(p) for p in store.profiles(device.slug, [c.key for c in stored])]
    new = [profile for profile in found if _content(profile) not in before]
    store.save_board(device, report.board)
    store.save_profiles(new)
    return Taken(report.board, len(new), len(report.calls) - len(stored))


def _content(profile: Profile) -> Profile:
    """Return a profile without what says nothing of the call: the name, the versions."""
    return replace(profile, id="", environment={})
