"""Profiles of torch's profiler with the energy of the operators that a database knows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opdb.errors import NothingMeasuredError
from opdb.records import Json, Quantity
from opdb.tables import SHARE, Column, Report, Rows, Table, quantity
from opdb.units import plural, show, show_share

if TYPE_CHECKING:
    from opdb.trace.annotate import Annotation
    from opdb.trace.profile import Profile


@dataclass(frozen=True)
class Operator:
    """All calls of one name: their device time (s) and share of it, their energy where known.

    `by` says how they were found: by the call, or by the names of the kernels.
    """

    name: str
    by: str | None
    calls: int | None
    time_s: float
    share: float
    energy_j: Quantity | None


OPERATORS: Table[Operator] = Table(
    Column("operator", lambda row: row.name, title="operator"),
    Column("by", lambda row: row.by, title="known by"),
    Column("calls", lambda row: row.calls, title="calls"),
    Column("time_s", lambda row: row.time_s, title="time", unit="s"),
    Column("share_time", lambda row: row.share, title="of time", unit=SHARE),
    *quantity("energy", "J", lambda row: row.energy_j, title="energy"),
)


@dataclass(frozen=True, repr=False)
class Annotated(Report):
    """A profile annotated; printed, its operators with the longest first.

    `energy_j` is that of the stretch from the first device work to the last: of known operators,
    and base power in the rest of the time. It is a lower bound where `share` is below 1.
    """

    profile: Profile
    annotation: Annotation
    device: str
    board: str
    base_power_w: float

    @property
    def share(self) -> float:
        """The share of the device time that was given an energy."""
        return self.annotation.known_s / self.annotation.device_s

    @property
    def known_energy_j(self) -> float:
        """The energy of the known operators, in joules."""
        return math.fsum(row.energy_j.mean for row in self.operators if row.energy_j is not None)

    @property
    def energy_j(self) -> float:
        """The energy of the whole stretch, in joules."""
        found = self.annotation
        rest_s = found.idle_s + math.fsum(found.unknown.values())
        return self.known_energy_j + self.base_power_w * rest_s

    @cached_property
    def operators(self) -> list[Operator]:
        """The operators by name, the longest first; those without an energy are unknown."""
        from opdb.trace.annotate import energy_of

        whole_s, known = self.annotation.device_s, self.annotation.known
        rows = []
        for name, by in dict.fromkeys((each.name, each.by) for each in known):
            own = [each for each in known if (each.name, each.by) == (name, by)]
            time_s = math.fsum(each.time_s for each in own)
            energy = _sum([energy_of(each, self.base_power_w) for each in own])
            rows.append(Operator(name, by, len(own), time_s, time_s / whole_s, energy))
        for name, time_s in self.annotation.unknown.items():
            rows.append(Operator(name, None, None, time_s, time_s / whole_s, None))
        return sorted(rows, key=lambda row: row.time_s, reverse=True)

    def trace(self) -> Json:
        """Return the profile with the energies, as Chrome trace JSON."""
        from opdb.trace.annotate import annotated_trace

        about = {n: v for n, v in self.to_dict().items() if n != "operators"}
        return annotated_trace(self.profile, self.annotation, self.base_power_w, about)

    def to_bytes(self, *, compressed: bool = False) -> bytes:
        """Return the content of the annotated file, compressed by gzip if asked."""
        from opdb.trace import as_bytes

        return as_bytes(self.trace(), compressed=compressed)

    def to_dict(self) -> dict[str, Json]:
        """Return what `opdb annotate --json` prints: a summary, not the trace."""
        return {
            "device": self.device,
            "board": self.board,
            "device_time_s": self.annotation.device_s,
            "idle_s": self.annotation.idle_s,
            "known_share": self.share,
            "known_share_by_call": self.annotation.share("call"),
            "known_share_by_kernels": self.annotation.share("kernels"),
            "known_energy_j": self.known_energy_j,
            "energy_j": self.energy_j,
            "operators": OPERATORS.documents(self.operators),
        }

    def blocks(self) -> Iterator[str | Rows[Any]]:
        """Yield what `opdb annotate` prints."""
        found = self.annotation
        yield f"on {self.device} ({self.board})"
        yield Rows(OPERATORS, self.operators)
        yield (
            f"{show_share(self.share)} of {show(found.device_s, 's')} of device time is of "
            f"operators that the database knows: {show(self.known_energy_j, 'J')}"
        )
        at_least = "at least " if found.unknown else ""
        yield (
            f"from the first kernel to the last, {show(found.idle_s, 's')} idle: "
            f"{at_least}{show(self.energy_j, 'J')}"
        )
        if by_kernels := found.share("kernels"):
            yield (
                f"{show_share(by_kernels)} of device time is known by kernel names alone: at the "
                "power of operators that launch the same kernels for about as long"
            )
        calls = [each for each in found.known if each.by == "call"]
        several = sum(len(each.configurations) > 1 for each in calls)
        if several:
            yield (
                f"{plural(several, 'call')} may be one of several configurations that a profile "
                "does not tell apart (their values): the mean of their costs is taken"
            )


def annotate(
    profile: str | Path,
    *,
    device: str | None = None,
    board: str | None = None,
    db: str | None = None,
) -> Annotated:
    """Give the operators of a profile their energy, as `opdb annotate` does; this needs torch.

    `profile` is a trace that torch's profiler exported, with record_shapes=True and a GPU's
    activity. `device` is the one that it was made on.

    Raises:
        InputError: the profile cannot be read, or has no shapes or no device work.
        NothingMeasuredError: the device has no base power.
    """
    from opdb.predict import predictor_for
    from opdb.store import open_store
    from opdb.trace.annotate import Index
    from opdb.trace.annotate import annotate as found_in
    from opdb.trace.by_kernels import KernelIndex
    from opdb.trace.profile import read_profile

    read = read_profile(Path(profile))
    with open_store(db, create=False) as store:
        predictor = predictor_for(store, device)
        chosen = predictor.most_measured() if board is None else predictor.board(board)
        base_w = predictor.base_power_w(chosen)
        slug = predictor.device.slug
        if base_w is None:
            raise NothingMeasuredError(f"{slug!r}: no base power was measured on {chosen}")
        every = store.configurations()
        costs = predictor.costs_on(chosen, every)
        launched = {key: seen for on in predictor.boards for key, seen in store.kernels(on).items()}
        found = found_in(read, Index(every, costs), KernelIndex(launched, costs))
    return Annotated(read, found, slug, chosen, base_w)


def _sum(found: list[Quantity]) -> Quantity:
    """Return the sum of calls of one name; errors of equal operators are taken to be equal."""
    mean = math.fsum(each.mean for each in found)
    widths = [each.half_width for each in found]
    known = [width for width in widths if width is not None]
    half_width = math.fsum(known) if len(known) == len(widths) else None
    return Quantity.around(mean, mean, half_width, len(found))
