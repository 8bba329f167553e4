"""Answers from the database: a workload predicted, and predictions held against measured runs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from opdb.compose import Grounds, Known, Prediction, compose
from opdb.derive.boards import BoardAnchors, Factors, board_anchors, factors, in_words, transferred
from opdb.derive.costs import ESTIMATOR
from opdb.derive.launches import Launches, compare_launches
from opdb.derive.runs import RunCost, run_cost
from opdb.errors import InputError, UnknownNameError
from opdb.footprint import resident_bytes
from opdb.records import Calibration, Campaign, Cost, Device, Form, Json, Mode, ModelRun, Workload
from opdb.settings import DEFAULT_SETTINGS, relevant_setting
from opdb.store import Store

MODES: tuple[Mode, ...] = ("eager", "graph")
"""The modes that the composer predicts."""


MOST_VALIDATIONS = 6
"""Runs of other models that an interval rests on: those most like the workload predicted."""

MOST_COMPOSED = 12
"""Measured workloads, the most alike in dtype and batch size, among which those are looked for."""


@dataclass(frozen=True)
class Answer:
    """A prediction, and the measured truth of the same board beside it where there is one."""

    prediction: Prediction
    measured: RunCost | None
    setting: Mapping[str, Json]

    @property
    def attribution_time(self) -> float | None:
        """Predicted over measured time."""
        if self.measured is None or self.prediction.time_s is None:
            return None
        return self.prediction.time_s / self.measured.time_s.mean

    @property
    def attribution_energy(self) -> float | None:
        """Predicted over measured energy."""
        if self.measured is None or self.measured.energy_j is None:
            return None
        if self.prediction.energy_j is None:
            return None
        return self.prediction.energy_j / self.measured.energy_j.mean

    def meets(self, target: float) -> bool:
        """Whether coverage reaches the target and attribution lies within 1 ± (1 - target).

        Both for time and for energy; an attribution that is not known does not count, a device
        without power readings is held to its time alone.
        """
        prediction = self.prediction
        if prediction.workload.unsupported or prediction.coverage_time < target:
            return False
        if prediction.energy_j is not None and prediction.coverage_energy < target:
            return False
        known = [a for a in (self.attribution_time, self.attribution_energy) if a is not None]
        return all(abs(a - 1) <= 1 - target + 1e-12 for a in known)


@dataclass(frozen=True)
class Transfer:
    """A measured run predicted from another board's costs: as they are, and brought by factors."""

    origin: str
    factors: Factors
    raw: Answer
    brought: Answer


class Predictor:
    """Predicts workloads on one device from a store."""

    def __init__(
        self, store: Store, device: Device, settings: Mapping[str, Json] = DEFAULT_SETTINGS
    ) -> None:
        self._store = store
        self.device = device
        self._settings = settings
        self._runs: dict[tuple[str, Mode], list[ModelRun]] = {}
        self._workloads: dict[Mode, list[Workload]] = {}
        self._campaigns = {c.id: c for c in store.campaigns(device.slug)}
        measured = {c.board.uuid for c in self._campaigns.values()}  # calibrated alone is no help
        self._boards = [b.uuid for b in store.boards(device.slug) if b.uuid in measured]
        self._costs: dict[str, dict[str, Cost | None]] = {board: {} for board in self._boards}
        self._usual_host: dict[str, dict[tuple[str, Form], float]] = {}
        self._predictions: dict[tuple[str, Mode], Prediction] = {}
        self._boards_of_runs: dict[Mode, Mapping[str, str]] = {}
        self._anchors: dict[str, BoardAnchors] = {}
        self._kernels: dict[str, Mapping[str, Mapping[str, int]]] = {}

    def board(self, prefix: str) -> str:
        """Return the board whose UUID begins so, with or without its "GPU-".

        Raises:
            UnknownNameError: none does.
            InputError: several do.
        """
        found = [b for b in self._boards if b.startswith(prefix) or _bare(b).startswith(prefix)]
        if not found or not prefix:
            raise UnknownNameError("board", prefix, self._boards)
        if len(found) > 1:
            raise InputError(f"board {prefix!r} is the beginning of several: {', '.join(found)}")
        return found[0]

    def answer(self, workload: Workload, mode: Mode, board: str | None = None) -> Answer:
        """Predict a workload for a board (UUID); the one that measured it where none is said.

        Without a board and a measured run it is the board that covers the workload best.

        Raises:
            InputError: nothing was ever measured on the device, or the mode cannot be predicted.
        """
        if mode not in MODES:
            raise InputError(f"mode {mode!r} cannot be predicted; use {' or '.join(MODES)}")
        if board is None:
            board = self._measured_on(mode).get(workload.key) or self._best_board(workload)
        grounds = self._grounds(workload, board)
        alone = compose(workload, mode, grounds)
        known = self._known(alone)
        prediction = compose(workload, mode, replace(grounds, known=known))
        notes = (*prediction.notes, *self._transfer_notes(workload, board))
        return self._held(replace(prediction, notes=notes))

    def answers(self, names: Collection[str]) -> list[Answer]:
        """Return an answer for every measured run of these models (of all when none is named)."""
        found = [
            self.answer(workload, mode)
            for mode in MODES
            for workload in self._workloads_in(mode)
            if not names or workload.name in names
        ]
        return sorted(found, key=_order)

    def transfers(self, names: Collection[str]) -> list[Transfer]:
        """Predict every measured run from each other board's costs alone, where these cover it."""
        found = []
        for mode in MODES:
            for workload in self._workloads_in(mode):
                if names and workload.name not in names:
                    continue
                boards = {self._board_of(run) for run in self._runs_of(workload.key, mode)}
                found += [
                    transfer
                    for board in sorted(boards)
                    for origin in self._boards
                    if origin != board
                    and (transfer := self._transfer(workload, mode, board, origin)) is not None
                ]
        return sorted(found, key=lambda transfer: _order(transfer.raw))

    def _transfer(self, workload: Workload, mode: Mode, board: str, origin: str) -> Transfer | None:
        """Predict for a board from another's costs; None where these do not cover the workload."""
        costs = self._own_costs(workload, origin)
        if len(costs) < len(workload.occurrences()):
            return None
        by = self._factors(board, origin)
        own = self._calibration(board)
        base_w = self._calibration(origin).base_power_w
        here_w = base_w * by.base_power if base_w and by.base_power else base_w
        raw = {key: replace(cost, board=board) for key, cost in costs.items()}
        brought = {key: transferred(cost, board, by, here_w) for key, cost in costs.items()}

        def held(watts: float | None, taken: Mapping[str, Cost]) -> Answer:
            calibration = replace(own, base_power_w=watts)
            grounds = self._grounds_on(workload, board, calibration, taken)
            return self._held(compose(workload, mode, grounds))

        return Transfer(origin, by, held(base_w, raw), held(here_w, brought))

    def _factors(self, board: str, origin: str) -> Factors:
        """Return what brings costs of the board `origin` to this one."""
        return factors(self._anchors_of(board), self._anchors_of(origin))

    def _anchors_of(self, board: str) -> BoardAnchors:
        if board not in self._anchors:
            campaigns = [c for c in self._campaigns.values() if c.board.uuid == board]
            visits = self._store.visits(board, role="anchor")
            self._anchors[board] = board_anchors(campaigns, visits)
        return self._anchors[board]

    def _transfer_notes(self, workload: Workload, board: str) -> list[str]:
        """Say what of a workload only other boards have, and by which factors it was brought."""
        own, notes = self._own_costs(workload, board), []
        seen = set(own)
        for other in reversed(self._own_last(board)[:-1]):
            brought = self._own_costs(workload, other).keys() - seen
            seen |= brought
            if brought:
                words = in_words(self._factors(board, other))
                notes.append(
                    f"{len(brought)} configurations were measured on board {other} alone; their "
                    f"costs are brought to this board ({words})"
                )
        return notes

    def launches(self, workload: Workload, run: ModelRun) -> Launches | None:
        """Hold a run's kernels against its operators', as its board saw them, else another."""
        of_operators: dict[str, Mapping[str, int]] = {}
        for board in self._own_last(self._board_of(run)):
            of_operators |= self._kernels_of(board)
        return compare_launches(workload, run, of_operators)

    def runs(self, names: Collection[str]) -> list[tuple[Workload, ModelRun]]:
        """Return the latest good run of each workload, mode and board; of these models, or all."""
        found: dict[tuple[str, str, str], tuple[Workload, ModelRun]] = {}
        for mode in MODES:
            for workload in self._workloads_in(mode):
                if not names or workload.name in names:
                    for run in self._runs_of(workload.key, mode):
                        found[workload.key, mode, self._board_of(run)] = (workload, run)
        return list(found.values())

    def _kernels_of(self, board: str) -> Mapping[str, Mapping[str, int]]:
        if board not in self._kernels:
            self._kernels[board] = self._store.kernels(board)
        return self._kernels[board]

    def _runs_of(self, workload: str, mode: Mode) -> list[ModelRun]:
        """Return a workload's (key) runs in a mode that succeeded; raw, so read when needed."""
        if (workload, mode) not in self._runs:
            runs = self._store.model_runs(workload, device=self.device.slug, mode=mode)
            self._runs[workload, mode] = [r for r in runs if r.outcome == "ok"]
        return self._runs[workload, mode]

    def _board_of(self, run: ModelRun) -> str:
        return self._campaigns[run.campaign].board.uuid

    def _known(self, prediction: Prediction) -> Known:
        """Hold the predictions of all other models against their runs, of the same mode and bound.

        A pass that waits for the host errs in another way than one that waits for the device, and
        one of short kernels in another way than one of long ones: of many, those are taken whose
        calls take most nearly as long.
        """
        mode, workload = prediction.mode, prediction.workload
        others = [w for w in self._workloads_in(mode) if w.name != workload.name]
        others.sort(key=lambda other: _unlikeness(other, workload))
        alike = [
            found
            for found in (self._plain(other, mode) for other in others[:MOST_COMPOSED])
            if not found.missing and found.host_bound == prediction.host_bound
        ]
        alike.sort(key=lambda found: _apart(found.call_time_s, prediction.call_time_s))
        answers = [self._held(found) for found in alike[:MOST_VALIDATIONS]]
        return Known(
            tuple(a for answer in answers if (a := answer.attribution_time) is not None),
            tuple(a for answer in answers if (a := answer.attribution_energy) is not None),
        )

    def _plain(self, workload: Workload, mode: Mode) -> Prediction:
        """Predict a measured workload for its board, nothing known of other models."""
        if (workload.key, mode) not in self._predictions:
            board = self._measured_on(mode)[workload.key]
            found = compose(workload, mode, self._grounds(workload, board))
            self._predictions[workload.key, mode] = found
        return self._predictions[workload.key, mode]

    def _held(self, prediction: Prediction) -> Answer:
        """Hold a prediction against the runs of its board."""
        runs = self._runs_of(prediction.workload.key, prediction.mode)
        measured = run_cost(r for r in runs if self._board_of(r) == prediction.board)
        return Answer(prediction, measured, self._settings)

    def _measured_on(self, mode: Mode) -> Mapping[str, str]:
        """Return the board of each measured workload's (key) latest run in a mode."""
        if mode not in self._boards_of_runs:
            found = self._store.measured_workloads(self.device.slug, mode)
            self._boards_of_runs[mode] = found
        return self._boards_of_runs[mode]

    def _workloads_in(self, mode: Mode) -> list[Workload]:
        """Return the workloads that were measured in a mode."""
        if mode not in self._workloads:
            self._workloads[mode] = self._store.workloads_by_key(self._measured_on(mode))
        return self._workloads[mode]

    def _best_board(self, workload: Workload) -> str:
        if not self._boards:
            raise InputError(f"nothing was measured on {self.device.slug!r}; run opdb bench there")
        return max(self._boards, key=lambda b: len(self._own_costs(workload, b)))

    def _grounds(self, workload: Workload, board: str) -> Grounds:
        """Gather the board's costs; what only other boards have is brought over by factors."""
        calibration = self._calibration(board)
        costs: dict[str, Cost] = {}
        for each in self._own_last(board):
            found = self._own_costs(workload, each)
            if each != board and found.keys() - self._own_costs(workload, board).keys():
                by, base_w = self._factors(board, each), calibration.base_power_w
                found = {key: transferred(c, board, by, base_w) for key, c in found.items()}
            costs |= found
        return self._grounds_on(workload, board, calibration, costs)

    def _grounds_on(
        self, workload: Workload, board: str, calibration: Calibration, costs: Mapping[str, Cost]
    ) -> Grounds:
        calibration, notes = self._with_transition(calibration)
        return Grounds(
            self.device,
            board,
            calibration,
            costs,
            self._usual_host_s(workload, board, costs),
            resident_bytes=resident_bytes(self.device),
            kept_limit_w=self._kept_limit_w(board),
            notes=notes,
        )

    def _kept_limit_w(self, board: str) -> float | None:
        """Return the power that the board keeps to at its limit, as last calibrated."""
        found = [
            kept
            for each in self._store.board_calibrations(board)
            if each.power_limit_w == self.device.power_limit_w
            and (kept := each.facts.get("limit_power_w")) is not None
        ]
        return found[-1] if found else None

    def _usual_host_s(
        self, workload: Workload, board: str, costs: Mapping[str, Cost]
    ) -> Mapping[tuple[str, Form], float]:
        """Return the usual host times of kinds, where a call of the workload has none of its own.

        The host's part hangs on the kind and form of a call, hardly on its shape.
        """
        lacking = any(
            cost is None or call.form not in cost.host_time_s
            for call in workload.calls
            for cost in [costs.get(call.configuration.key)]
        )
        if not lacking or self.device.type == "cpu":
            return {}
        if board not in self._usual_host:
            found: dict[tuple[str, Form], float] = {}
            for each in self._own_last(board):
                found |= self._store.usual_host_times(each)
            self._usual_host[board] = found
        return self._usual_host[board]

    def _own_last(self, board: str) -> list[str]:
        """Return the device's boards, this one last: what it has itself replaces the others'."""
        return [*(b for b in self._boards if b != board), board]

    def _own_costs(self, workload: Workload, board: str) -> dict[str, Cost]:
        """Return what a board measured of a workload, in these settings; each row is read once."""
        kinds = {c.key: c.kind for c in workload.occurrences()}
        seen = self._costs[board]
        unread = [key for key in kinds if key not in seen]
        if unread:
            seen |= dict.fromkeys(unread)
            for key, costs in self._store.costs(board, unread).items():
                setting = relevant_setting(kinds[key], self._settings)
                # Costs of this version's estimator stand before those of any other.
                for cost in sorted(costs, key=lambda cost: cost.estimator == ESTIMATOR):
                    if cost.setting == setting and cost.time_s is not None:
                        seen[key] = cost
        return {key: known for key in kinds if (known := seen[key]) is not None}

    def _calibration(self, board: str) -> Calibration:
        """Return the calibration of the board's latest campaign that has base power."""
        campaigns: list[Campaign] = [c for c in self._campaigns.values() if c.board.uuid == board]
        powered = [c for c in campaigns if c.calibration.base_power_w is not None]
        return (powered or campaigns)[-1].calibration

    def _with_transition(self, calibration: Calibration) -> tuple[Calibration, tuple[str, ...]]:
        """Return a calibration with what transitions take, and the note that says whose it is.

        The kind of device decides it, hardly the board: another one's is better than none.
        """
        if calibration.transition_s is not None or self.device.type == "cpu":
            return calibration, ()
        known = [t for c in self._campaigns.values() if (t := c.calibration.transition_s)]
        if not known:
            note = "what transitions between operators take was never calibrated on this device"
            return calibration, (note,)
        lent = replace(calibration, transition_s=statistics.median(known))
        return lent, ("what transitions between operators take is that of other boards",)


def _bare(board: str) -> str:
    return board.removeprefix("GPU-")


def _unlikeness(other: Workload, workload: Workload) -> tuple[bool, float]:
    apart = abs(math.log(other.batch_size / workload.batch_size))
    return other.dtype != workload.dtype, apart


def _apart(first_s: float | None, second_s: float | None) -> float:
    """Return how far two times are apart, as the logarithm of their ratio."""
    return abs(math.log(first_s / second_s)) if first_s and second_s else math.inf


def _order(answer: Answer) -> tuple[str, str, str, int]:
    workload = answer.prediction.workload
    return workload.name, answer.prediction.mode, workload.dtype, workload.batch_size


def choose_device(store: Store, name: str | None) -> Device:
    """Return the device of that slug; unnamed: this machine's GPU, else the most measured one.

    Raises:
        UnknownNameError: no device of that name was measured.
        InputError: the store holds no device at all.
    """
    devices = {d.slug: d for d in store.devices()}
    if not devices:
        raise InputError(
            f"{store.location} holds no measurements; run opdb bench on a machine with a GPU, or "
            "opdb import a published set"
        )
    if name is not None:
        if name not in devices:
            raise UnknownNameError("device", name, devices)
        return devices[name]
    if len(devices) == 1:
        return next(iter(devices.values()))  # whatever this machine has: NVML need not be asked
    here = _gpus_here()
    for device in devices.values():
        if device.name in here:
            return device
    visits = {slug: len(store.visit_outcomes(slug)) for slug in devices}
    return devices[max(visits, key=lambda slug: visits[slug])]


def _gpus_here() -> list[str]:
    """Name this machine's NVIDIA GPUs; none where there is no driver."""
    from opdb.meters.nvml import gpu_names

    return gpu_names()
