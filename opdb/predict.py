"""Answers from the database: a workload predicted, and predictions held against measured runs."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from opdb.compose import (
    Estimated,
    Grounds,
    Known,
    Pass,
    Prediction,
    compose,
    composed,
    found_by,
    judged,
)
from opdb.derive.boards import BoardAnchors, Factors, board_anchors, factors, in_words, transferred
from opdb.derive.costs import ESTIMATOR
from opdb.derive.launches import Launches, compare_launches
from opdb.derive.runs import RunCost, run_cost
from opdb.errors import InputError, NothingMeasuredError, UnknownNameError
from opdb.footprint import resident_bytes
from opdb.records import (
    Calibration,
    Campaign,
    Configuration,
    Cost,
    Device,
    Form,
    Json,
    Mode,
    ModelRun,
    Workload,
)
from opdb.settings import DEFAULT_SETTINGS, relevant_setting
from opdb.store import Measured, Store

if TYPE_CHECKING:
    from opdb.estimates.estimator import Estimates, Estimator

MODES: tuple[Mode, ...] = ("eager", "graph")
"""The modes that the composer predicts."""


NOTHING_LEARNED = "nothing was learned of this device; opdb learn lets predict estimate the missing"

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


@dataclass(frozen=True)
class _Basis:
    """What a workload's predictions on a board start from: read once, whatever is asked of it."""

    made: Pass
    grounds: Grounds
    notes: tuple[str, ...]


class Predictor:
    """Predicts workloads on one device from a store, with estimates of what is missing or not."""

    def __init__(
        self,
        store: Store,
        device: Device,
        settings: Mapping[str, Json] = DEFAULT_SETTINGS,
        *,
        estimates: bool = False,
    ) -> None:
        self._store = store
        self.device = device
        self._settings = settings
        self._estimating = estimates
        self._estimators: dict[str, Estimator | None] = {}
        self._runs: dict[tuple[str, Mode], list[ModelRun]] = {}
        self._workloads: dict[str, Workload] = {}
        self._passes: dict[str, Pass] = {}
        self._best: dict[Pass, str] = {}
        self._bases: dict[tuple[str, str], _Basis] = {}
        self._run_costs: dict[tuple[str, Mode, str], RunCost | None] = {}
        self._campaigns = {c.id: c for c in store.campaigns(device.slug)}
        measured = {c.board.uuid for c in self._campaigns.values()}  # calibrated alone is no help
        self._boards = [b.uuid for b in store.boards(device.slug) if b.uuid in measured]
        self._costs: dict[str, dict[str, Cost | None]] = {board: {} for board in self._boards}
        self._usual_host: dict[str, Mapping[tuple[str, Form], float]] = {}
        self._predictions: dict[tuple[str, Mode], Prediction] = {}
        self._measured: dict[Mode, Mapping[str, Measured]] = {}
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
        check_mode(mode)
        if board is None:
            run = self._measured_in(mode).get(workload.key)
            board = self._best_board(workload) if run is None else run.board
        basis = self._basis(workload, board)
        alone = composed(basis.made, mode, basis.grounds)
        prediction = judged(alone, self._known(alone))
        return self._held(replace(prediction, notes=(*prediction.notes, *basis.notes)))

    def _basis(self, workload: Workload, board: str) -> _Basis:
        """Return what a workload's predictions on a board start from."""
        made, place = self._pass(workload), (workload.key, board)
        found = self._bases.get(place)
        if found is None or found.made is not made:
            notes = tuple(self._transfer_notes(workload, board))
            found = _Basis(made, found_by(made, self._grounds(workload, board)), notes)
            self._bases[place] = found
        return found

    def _pass(self, workload: Workload) -> Pass:
        found = self._passes.get(workload.key)
        if found is None or found.workload is not workload:
            found = self._passes[workload.key] = Pass(workload)
        return found

    def answers(self, names: Collection[str]) -> list[Answer]:
        """Return an answer for every measured run of these models (of all when none is named)."""
        found = [
            self.answer(workload, mode)
            for mode in MODES
            for workload in self._workloads_in(mode)
            if not names or workload.name in names
        ]
        return sorted(found, key=_order)

    def measured_workloads(self, mode: Mode) -> list[tuple[Workload, str]]:
        """Return the workloads that were measured in a mode, and the board of each's latest run."""
        on = self._measured_in(mode)
        return [(workload, on[workload.key].board) for workload in self._workloads_in(mode)]

    def without(
        self, workload: Workload, mode: Mode, left_out: Collection[str], instead: Estimated
    ) -> Answer:
        """Predict a measured workload as if configurations (keys) had never been measured.

        `instead` holds the estimates of them that take their place.
        """
        board = self._measured_in(mode)[workload.key].board
        costs = self.costs_on(board, workload.occurrences())
        kept = {key: cost for key, cost in costs.items() if key not in left_out}
        grounds = self._grounds_on(workload, board, self._calibration(board), kept)
        return self._held(compose(workload, mode, replace(grounds, estimates=instead)))

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
        return [
            f"{len(brought)} configurations were measured on board {other} alone; their "
            f"costs are brought to this board ({in_words(self._factors(board, other))})"
            for other, brought in self._lent(workload.occurrences(), board)
        ]

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
        others = [m for m in self._measured_in(mode).values() if m.name != workload.name]
        others.sort(key=lambda other: _unlikeness(other, workload))
        chosen = self._workloads_of([other.key for other in others[:MOST_COMPOSED]])
        alike = [
            found
            for found in (self._plain(other, mode) for other in chosen)
            if not (found.missing or found.estimated) and found.host_bound == prediction.host_bound
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
            basis = self._basis(workload, self._measured_in(mode)[workload.key].board)
            self._predictions[workload.key, mode] = composed(basis.made, mode, basis.grounds)
        return self._predictions[workload.key, mode]

    def _held(self, prediction: Prediction) -> Answer:
        """Hold a prediction against the runs of its board."""
        measured = self._run_cost(prediction.workload.key, prediction.mode, prediction.board)
        return Answer(prediction, measured, self._settings)

    def _run_cost(self, workload: str, mode: Mode, board: str) -> RunCost | None:
        """Return what a workload (key) took on a board in a mode; None where it was not run."""
        place = workload, mode, board
        if place not in self._run_costs:
            runs = [r for r in self._runs_of(workload, mode) if self._board_of(r) == board]
            self._run_costs[place] = run_cost(runs)
        return self._run_costs[place]

    def _measured_in(self, mode: Mode) -> Mapping[str, Measured]:
        """Return the workloads (by key) with a good run in a mode, without their calls."""
        if mode not in self._measured:
            found = self._store.measured(self.device.slug, mode)
            self._measured[mode] = {each.key: each for each in found}
        return self._measured[mode]

    def _workloads_in(self, mode: Mode) -> list[Workload]:
        """Return the workloads that were measured in a mode."""
        return self._workloads_of(list(self._measured_in(mode)))

    def _workloads_of(self, keys: Sequence[str]) -> list[Workload]:
        """Return the workloads of these keys, in this order; each is read once."""
        unread = [key for key in keys if key not in self._workloads]
        if unread:
            self._workloads |= {w.key: w for w in self._store.workloads_by_key(unread)}
        return [self._workloads[key] for key in keys]

    def most_measured(self) -> str:
        """Return the board that has costs of the most configurations.

        Raises:
            InputError: nothing was measured on the device.
        """
        if not self._boards:
            raise NothingMeasuredError(
                f"nothing was measured on {self.device.slug!r}; run opdb bench there"
            )
        counts = self._store.cost_counts()
        return max(self._boards, key=lambda board: counts.get(board, 0))

    def _best_board(self, workload: Workload) -> str:
        if not self._boards:
            raise NothingMeasuredError(
                f"nothing was measured on {self.device.slug!r}; run opdb bench there"
            )
        made = self._pass(workload)
        if made not in self._best:
            boards = {board: len(self._own_costs(workload, board)) for board in self._boards}
            self._best[made] = max(boards, key=lambda board: boards[board])
        return self._best[made]

    def _grounds(self, workload: Workload, board: str) -> Grounds:
        """Gather the board's costs, others' brought to it, and estimates of the rest if wanted."""
        costs = self.costs_on(board, workload.occurrences())
        grounds = self._grounds_on(workload, board, self._calibration(board), costs)
        missing = [c for c in workload.occurrences() if c.key not in costs]
        if not missing or not self._estimating:
            return grounds
        estimates = self._estimates(missing, board)
        if estimates is None:
            return replace(grounds, notes=(*grounds.notes, NOTHING_LEARNED))
        return replace(grounds, estimates=estimates)

    def costs_on(self, board: str, configurations: Collection[Configuration]) -> dict[str, Cost]:
        """Return the costs of configurations on a board, by key, as far as any board has them.

        What only other boards of the device have is brought over by factors.
        """
        base_w = self._calibration(board).base_power_w
        costs = self._read(configurations, board)
        for other, brought in self._lent(configurations, board):
            by = self._factors(board, other)
            costs |= {key: transferred(c, board, by, base_w) for key, c in brought.items()}
        return costs

    def _lent(
        self, configurations: Iterable[Configuration], board: str
    ) -> Iterator[tuple[str, Mapping[str, Cost]]]:
        """Yield what a board lacks and others have: each board and its costs, the last board first.

        What several have is the last one's.
        """
        given = list(configurations)
        own = self._read(given, board)
        lacking = [c for c in given if c.key not in own]
        for other in reversed(self._own_last(board)[:-1]):
            if lacking and (found := self._read(lacking, other)):
                lacking = [c for c in lacking if c.key not in found]
                yield other, found

    def _estimates(self, missing: Sequence[Configuration], board: str) -> Estimates | None:
        """Estimate what nobody measured; None where nothing was learned on the device.

        What was learned on another board is brought to this one as its costs are.
        """
        if board not in self._estimators:
            self._estimators[board] = self._estimator(board)
        estimator = self._estimators[board]
        if estimator is None:
            return None
        found = estimator.estimate(missing)
        if estimator.board == board:
            return found
        by, base_w = self._factors(board, estimator.board), self._calibration(board).base_power_w
        costs = {key: transferred(c, board, by, base_w) for key, c in found.costs.items()}
        return replace(found, board=board, costs=costs)

    def _estimator(self, board: str) -> Estimator | None:
        """Return what was learned from the board's costs, else from another board's, last first."""
        documents = self._store.learned(self.device.slug)
        chosen = documents.get(board) or next(reversed(documents.values()), None)
        if chosen is None:
            return None
        from opdb.estimates.document import from_document  # it takes numpy, which takes its time

        return from_document(chosen)

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

        The host's part hangs on the kind and form of a call, hardly on its shape. What the board
        itself has comes first, then what the last of the others has.
        """
        lacking = {
            (call.configuration.title, call.form)
            for call in workload.calls
            for cost in [costs.get(call.configuration.key)]
            if cost is None or call.form not in cost.host_time_s
        }
        found: dict[tuple[str, Form], float] = {}
        if self.device.type != "cpu":
            for each in reversed(self._own_last(board)):
                if lacking <= found.keys():
                    break
                found = {**self._usual_host_of(each), **found}
        return found

    def _usual_host_of(self, board: str) -> Mapping[tuple[str, Form], float]:
        if board not in self._usual_host:
            self._usual_host[board] = self._store.usual_host_times(board)
        return self._usual_host[board]

    def _own_last(self, board: str) -> list[str]:
        """Return the device's boards, this one last: what it has itself replaces the others'."""
        return [*(b for b in self._boards if b != board), board]

    def _own_costs(self, workload: Workload, board: str) -> dict[str, Cost]:
        """Return what a board measured of a workload, in these settings."""
        return self._read(workload.occurrences(), board)

    def _read(self, configurations: Iterable[Configuration], board: str) -> dict[str, Cost]:
        """Return what a board measured of these, in these settings; each row is read once."""
        kinds = {c.key: c.kind for c in configurations}
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


def check_mode(mode: Mode) -> None:
    """Check that a mode can be predicted.

    Raises:
        InputError: it can be measured alone.
    """
    if mode not in MODES:
        raise InputError(f"mode {mode!r} cannot be predicted; use {' or '.join(MODES)}")


def _bare(board: str) -> str:
    return board.removeprefix("GPU-")


def _unlikeness(other: Measured, workload: Workload) -> tuple[bool, float]:
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
    counts = store.cost_counts()
    measured = {
        slug: sum(counts.get(board.uuid, 0) for board in store.boards(slug)) for slug in devices
    }
    return devices[max(measured, key=lambda slug: measured[slug])]


def _gpus_here() -> list[str]:
    """Name this machine's NVIDIA GPUs; none where there is no driver."""
    from opdb.meters.nvml import gpu_names

    return gpu_names()
