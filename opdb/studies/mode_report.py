"""Runs in each mode and what they save: as data, as CSV, and as text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from opdb.errors import InputError, OpdbError, raise_all
from opdb.lookup.words import describe, workload_columns
from opdb.predict import choose_device, predictor_for
from opdb.records import Device, Json, Mode
from opdb.store import Store
from opdb.studies.modes import ModeRow, stored_rows, why_failed
from opdb.tables import MISSING, SHARE, Column, Report, Rows, Table
from opdb.units import show


def _fact(name: str) -> Callable[[ModeRow], Json]:
    return lambda row: row.run.facts.get(name)


MODES: Table[ModeRow] = Table(
    *workload_columns(lambda row: row.workload),
    Column("board", lambda row: row.board),
    Column("torch", lambda row: row.torch),
    Column("mode", lambda row: row.mode, title="mode"),
    Column("outcome", lambda row: row.run.outcome),
    Column("reason", lambda row: row.run.reason),
    Column("compiled", lambda row: row.compiled),
    Column("time_s", lambda row: row.cost.time_s.mean if row.cost else None, "time", "s"),
    Column("energy_j", lambda row: row.energy_j, "energy", "J"),
    Column("energy_reason", lambda row: row.energy_reason),
    Column("power_w", lambda row: row.cost.power_w if row.cost else None),
    Column("clock_hz", lambda row: row.cost.clock_hz if row.cost else None),
    Column("peak_memory_bytes", lambda row: row.run.peak_memory_bytes),
    Column("launches", lambda row: row.launches),
    Column(
        "compile_time_s",
        _fact("compile_time_s"),
        "compile",
        text=lambda row: show(_fact("compile_time_s")(row), "s", digits=3) if row.cost else MISSING,
        last=True,
    ),
    Column("compile_cold", _fact("compile_cold")),
    Column("graphs", _fact("graphs"), "graphs", last=True),
    Column("graph_breaks", _fact("graph_breaks"), "breaks", last=True),
    Column("graph_break_reasons", _fact("graph_break_reasons")),
    Column("output_difference", _fact("output_difference")),
    Column("saving_time", lambda row: row.saves.time, "saves: time", SHARE),
    Column("saving_energy", lambda row: row.saves.energy, "energy", SHARE),
    Column("operators_time_s", lambda row: row.operators.time_s if row.operators else None),
    Column("operators_energy_j", lambda row: row.operators.energy_j if row.operators else None),
    Column("operators_coverage_time", lambda row: row.coverage_time),
    Column(
        "saving_time_of_operators",
        lambda row: row.saves_of_operators.time,
        "of operators: time",
        SHARE,
    ),
    Column(
        "saving_energy_of_operators", lambda row: row.saves_of_operators.energy, "energy", SHARE
    ),
    Column("started_at", lambda row: row.run.started_at),
    Column("flags", lambda row: list(row.run.flags)),
)
"""A workload in one mode."""


@dataclass(frozen=True, repr=False)
class ModesReport(Report):
    """Rows of a device; `board` (UUID) is None where they may be of several.

    `left_out` are modes that the device lacks, `errors` say which models could not be harvested.
    """

    device: Device
    board: str | None
    found: Sequence[ModeRow]
    left_out: Sequence[Mode] = ()
    errors: Sequence[OpdbError] = ()

    def check(self) -> None:
        """Raise what went wrong with whole models; a mode that refuses one is a finding.

        Raises:
            OpdbError: a model could not be harvested, or fails as it stands.
        """
        failed = [
            OpdbError(f"{_named(row)} {row.mode}: {why_failed(row.run)}")
            for row in self.found
            if row.mode == "eager" and row.cost is None
        ]
        raise_all([*self.errors, *failed], "stored")

    def csv(self) -> str:
        """Return every row as CSV."""
        return MODES.csv(self.found)

    def to_dict(self) -> Json:
        """Return the rows, whose they are, and the modes that were left out."""
        return {
            "device": self.device.slug,
            "board": self.board,
            "rows": MODES.documents(self.found),
            "left_out": dict.fromkeys(self.left_out, "it needs a CUDA device"),
        }

    def blocks(self) -> Iterator[str | Rows[Any]]:
        """Yield a table of each board and version of torch, with remarks below it."""
        for (board, torch), found in groupby(self.found, key=lambda row: (row.board, row.torch)):
            rows = list(found)
            yield f"{self.device.name} ({board}), torch {torch}"
            yield Rows(MODES, rows)
            yield from _remarks(rows)
        if self.left_out:
            yield f"left out, as they need a CUDA device: {', '.join(self.left_out)}"


def stored_modes(
    store: Store,
    models: Sequence[str],
    batch_sizes: Sequence[int],
    modes: Sequence[Mode],
    device: str | None,
) -> ModesReport:
    """Return what the database has of a device (slug); of all models and sizes where none is named.

    Raises:
        InputError: it has nothing of what was asked for.
    """
    found = choose_device(store, device)
    rows = stored_rows(store, predictor_for(store, found, estimates=False), models, batch_sizes)
    rows = [row for row in rows if row.mode in modes]
    if not rows:
        raise InputError(f"no run of that on {found.slug}; without --stored opdb modes makes it")
    return ModesReport(found, None, rows)


def _named(row: ModeRow) -> str:
    return f"{row.workload.name} {describe(row.workload)}"


def _remarks(rows: Sequence[ModeRow]) -> Iterator[str]:
    """Yield each remark once a workload, with the modes that it concerns; what all share, once."""
    said: dict[str, dict[str, list[str]]] = {}
    for row in rows:
        for remark in row.remarks:
            said.setdefault(remark, {}).setdefault(_named(row), []).append(row.mode)
    for remark, concerned in said.items():
        if len(rows) > 1 and sum(map(len, concerned.values())) == len(rows):
            yield f"every run: {remark}"
        else:
            yield from (f"{who} {', '.join(of)}: {remark}" for who, of in concerned.items())
