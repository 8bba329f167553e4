"""Models of a database under the roofs of a board: points, peaks, and what is not known of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from opdb.compose import Pass, PredictionInputs, inputs_in_pass
from opdb.counters.metrics import counters_of
from opdb.derive.boards import usual_calibration
from opdb.errors import NothingMeasuredError
from opdb.footprint import bytes_moved, resident_bytes
from opdb.kinds import KINDS
from opdb.predict import PLAIN_MODES, Answer, Predictor, check_mode
from opdb.records import Configuration, Cost, Mode, Profile, Workload
from opdb.settings import DEFAULT_SETTINGS
from opdb.store import Store
from opdb.studies.peaks import MEMORY, Peaks, measured_peaks, read_peaks, unit_of, vendor_peaks
from opdb.studies.points import ModelRoofline, Point, under_roofs, with_energy
from opdb.units import plural

ABOVE = 1.05
"""A note says so where a call exceeds its roof by more than this."""


@dataclass(frozen=True)
class Study:
    """Models on one board, under the same peaks: measured ones (or a user's), and the vendor's."""

    device: str
    board: str
    mode: Mode
    measured: Peaks
    vendor: Peaks
    models: tuple[ModelRoofline, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class RoofOptions:
    """Options of a study: a board (UUID), a file of peaks, what counters saw.

    Peaks of a user's file take the place of the measured ones. With `profiles` (by configuration
    key) operations and bytes are those that hardware counters saw, counted where there is none.
    """

    board: str | None = None
    peaks_file: Path | None = None
    profiles: Mapping[str, Profile] | None = None


def study(
    store: Store,
    predictor: Predictor,
    workloads: Sequence[Workload],
    mode: Mode,
    options: RoofOptions = RoofOptions(),
) -> Study:
    """Place workloads under the roofs of one board: the one named, else that of the first answer.

    Backend settings are torch's own.

    Raises:
        NothingMeasuredError: nothing of a workload was measured.
        InputError: the mode cannot be predicted, or the peaks file holds none.
    """
    check_mode(mode, PLAIN_MODES)
    answers, board = [], options.board
    for workload in workloads:
        answers.append(predictor.answer(workload, mode, board))
        board = answers[-1].prediction.board
        if answers[-1].prediction.time_s is None:
            raise NothingMeasuredError(
                f"nothing of {workload.name} (batch {workload.batch_size} {workload.dtype}) was "
                f"measured on {predictor.device.slug}; run opdb bench there"
            )
    assert board is not None
    reader = _Reader(store, predictor, board, mode, options.profiles or {})
    if options.peaks_file is not None:
        peaks = read_peaks(options.peaks_file, reader.base_power_w)
    else:
        known = {w.key: w for on in PLAIN_MODES for w, _ in predictor.measured_workloads(on)}
        known |= {answer.prediction.workload.key: answer.prediction.workload for answer in answers}
        peaks = with_energy(reader.peaks(), reader.points_of(known.values()))
    vendor = vendor_peaks(predictor.device.name)
    models = tuple(reader.model(answer, peaks, vendor) for answer in answers)
    notes = _notes(models, peaks)
    if options.profiles is not None:
        notes = (_metered_note(models), *notes)
    return Study(predictor.device.slug, board, mode, peaks, vendor, models, notes)


class _Reader:
    """Reads the points of one board from a store."""

    def __init__(
        self,
        store: Store,
        predictor: Predictor,
        board: str,
        mode: Mode,
        profiles: Mapping[str, Profile],
    ) -> None:
        self._store, self._predictor, self._board, self._mode = store, predictor, board, mode
        self._profiles = profiles
        self._calibration = usual_calibration(store.campaigns(board=board))

    @property
    def base_power_w(self) -> float | None:
        """The board's base power."""
        return self._calibration.base_power_w

    def peaks(self) -> Peaks:
        """Return the peaks measured on the board, else on another of its device."""
        device = self._predictor.device
        boards = {b.uuid for b in self._store.boards(device.slug)}
        found = [c for c in self._store.board_calibrations() if c.board.uuid in boards]
        return measured_peaks(found, self._board, device.power_limit_w, self.base_power_w)

    def points_of(self, workloads: Iterable[Workload]) -> list[Point]:
        """Return each configuration that workloads call as a point, weights cold."""
        configurations = {c.key: c for w in workloads for c in w.occurrences()}
        costs = self._predictor.costs_on(self._board, list(configurations.values()))
        return [
            p for key, cost in costs.items() if (p := self._point(configurations[key], 1, cost))
        ]

    def model(self, answer: Answer, peaks: Peaks, vendor: Peaks) -> ModelRoofline:
        """Return a workload as points, its weights in the state that a pass finds them in."""
        workload = answer.prediction.workload
        counts = workload.occurrences()
        costs = self._costs_in(workload, counts)
        points, unmeasured = [], {}
        for configuration, count in counts.items():
            cost = costs.get(configuration.key)
            point = None if cost is None else self._point(configuration, count, cost)
            if point is None:
                unmeasured[configuration] = count
            else:
                under = under_roofs(point, peaks)
                points.append(replace(point, measured=under, vendor=under_roofs(point, vendor)))
        points.sort(key=lambda p: (p.count * p.time_s, p.bytes_moved), reverse=True)
        return ModelRoofline(workload, answer, tuple(points), unmeasured, self.base_power_w)

    def _costs_in(
        self, workload: Workload, configurations: Collection[Configuration]
    ) -> Mapping[str, Cost]:
        device = self._predictor.device
        inputs = PredictionInputs(
            device,
            self._board,
            self._calibration,
            self._predictor.costs_on(self._board, configurations),
            resident_bytes=resident_bytes(device),
        )
        return inputs_in_pass(Pass(workload), inputs).costs

    def _point(self, configuration: Configuration, count: int, cost: Cost) -> Point | None:
        kind = KINDS.get(configuration.kind)
        if kind is None or cost.time_s is None:
            return None
        eager = cost.eager_time_s if self._mode == "eager" else None
        # subtracting what restores an input of a short call can leave less than nothing of it
        time_s = eager.mean if eager is not None and eager.mean > 0 else cost.time_s.mean
        dynamic_j = cost.dynamic_energy_j.mean if cost.dynamic_energy_j else None
        base_w = self.base_power_w
        known = dynamic_j is not None and base_w is not None
        point = Point(
            configuration,
            count,
            unit_of(configuration, DEFAULT_SETTINGS),
            kind.flops(configuration),
            bytes_moved(configuration),
            time_s,
            (dynamic_j or 0.0) + (base_w or 0.0) * time_s if known else None,
            dynamic_j,
        )
        return _as_metered(point, self._profiles.get(configuration.key))


def _as_metered(point: Point, profile: Profile | None) -> Point:
    """Return a point with the operations and bytes that counters saw, where they saw both.

    Of several units it is the one that did most; the operations are all of them.
    """
    if profile is None:
        return point
    seen = counters_of(profile)
    flops, moved = seen.all_flops, seen.bytes[MEMORY]
    if flops is None or moved is None:
        return point
    unit = seen.unit or point.unit
    return replace(point, unit=unit, flops=flops, bytes_moved=moved, metered=True)


def _metered_note(models: Sequence[ModelRoofline]) -> str:
    """Say of how many configurations hardware counters saw operations and bytes."""
    working = {p.configuration.key: p.metered for m in models for p in m.points if p.works}
    return (
        f"operations and bytes of {sum(working.values())} of "
        f"{plural(len(working), 'configuration')} are those that hardware counters saw; the "
        "others' are counted"
    )


def _notes(models: Sequence[ModelRoofline], peaks: Peaks) -> tuple[str, ...]:
    """Say what is not known, and what reaches more than it should."""
    found = list(peaks.notes)
    working = [p for m in models for p in m.points if p.works]
    computing = {p.unit or "whole numbers" for p in working if p.flops}
    for unit in sorted(computing - peaks.flops_per_s.keys()):
        found.append(f"no peak is known for {unit}: what computes in it has no roof")
    if working and MEMORY not in peaks.bytes_per_s:
        found.append("no peak is known for memory: nothing has a roof")
    if peaks.base_power_w is None:
        found.append("base power is not known: there is no roof for energy")
    else:
        for unit in sorted(computing & (peaks.flops_per_s.keys() - peaks.flops_per_j.keys())):
            found.append(
                f"no energy of an operation is known for {unit}: no roof for energy (no operator "
                "that was measured in it reaches half of its peak)"
            )
        if MEMORY in peaks.bytes_per_s and MEMORY not in peaks.bytes_per_j:
            found.append("no energy of a byte is known for memory: no roof for energy")
    above = [p for p in working if p.measured.time and p.measured.time.reached > ABOVE]
    if above:
        found.append(
            f"more than the roof is reached by {plural(len(above), 'configuration')}: data come "
            "from a cache, or kernels move or compute less than is counted"
        )
    for model in models:
        limited = [n for n in model.answer.prediction.notes if n.startswith("the power limit")]
        found += [f"{model.workload.name}: {note}" for note in limited]
        if model.unmeasured:
            calls = sum(model.unmeasured.values())
            found.append(
                f"not measured and left out: {plural(calls, 'call')} of {model.workload.name}; "
                "opdb bench measures what is lacking"
            )
        if model.workload.unsupported:
            calls = sum(model.workload.unsupported.values())
            found.append(f"of no known operator: {plural(calls, 'call')} of {model.workload.name}")
    return tuple(dict.fromkeys(found))
