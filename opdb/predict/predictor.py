"""Predict workloads, and compare predictions with measured runs."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache

from opdb.compose import (
    Breakdown,
    EstimatedCosts,
    Prediction,
    Schedule,
    break_down,
    compose,
    compose_pass,
    is_one_graph,
    schedule,
    time_on_host_s,
    with_intervals,
)
from opdb.compose.ladder import Interpolated, between, in_part_between, standing
from opdb.derive.boards import Factors, transferred
from opdb.derive.host import HostFactor
from opdb.derive.launches import Launches
from opdb.errors import InputError
from opdb.growth import Sizes
from opdb.models.usual import asked_as
from opdb.predict.answer import Answer, Transfer
from opdb.predict.bases import Bases
from opdb.predict.boards import Boards
from opdb.predict.device import choose_device
from opdb.predict.hosts import CalibratedHost, OnHost
from opdb.predict.measured_runs import MeasuredRuns
from opdb.predict.peers import Peers
from opdb.predict.snapshot import Snapshot
from opdb.records import (
    ALGORITHM_SETTING,
    CAPTURED_MODE,
    COMPILED_MODES,
    Configuration,
    Cost,
    Device,
    Json,
    Mode,
    ModelRun,
    Phase,
    RunRatios,
    Workload,
)
from opdb.settings import DEFAULT_SETTINGS
from opdb.store import Store

PLAIN_MODES: tuple[Mode, ...] = ("eager", "graph")
"""The modes that run a model's operators as it calls them."""

MODES: tuple[Mode, ...] = (*PLAIN_MODES, *COMPILED_MODES)
"""The modes that the composer predicts."""


ESTIMATED_AT_ONCE = 500
"""Configurations that are estimated together: their covariances take memory by the square."""


class Predictor:
    """Predicts workloads on one device from a store, as `opdb predict` does.

    Configurations that were never measured are estimated where `opdb learn` has learned enough;
    without `estimates` they are missing, but for steps of a whole generation between measured ones.

    Where the settings force an algorithm on convolutions, their costs are those benched under it,
    and predictions are compared with runs under it; all else is as torch chooses, and so are other
    models' runs. `predictor_for` makes one of a device's name.
    """

    def __init__(
        self,
        store: Store,
        device: Device,
        settings: Mapping[str, Json] = DEFAULT_SETTINGS,
        *,
        estimates: bool = True,
    ) -> None:
        self.device = device
        self._settings = settings
        self._algorithm = settings.get(ALGORITHM_SETTING)
        self._snapshot = snapshot = Snapshot(store, device)
        self._runs = MeasuredRuns(store, snapshot)
        self._boards = usual_boards = Boards(snapshot, settings)
        self._bases = usual_bases = Bases(snapshot, self._boards, self._algorithm)
        usual = {name: value for name, value in settings.items() if name != ALGORITHM_SETTING}
        if self._algorithm is not None:
            usual_boards = Boards(snapshot, usual)
            usual_bases = Bases(snapshot, usual_boards)
        as_learned = usual == DEFAULT_SETTINGS
        self._peers = Peers(self._runs, snapshot, usual_boards, usual_bases, as_learned=as_learned)
        self._basis = self._bases.estimated if estimates else self._bases.stepped
        self._best_board = cache(self._find_best_board)
        self._measured_of = cache(self._find_measured)
        self._pass_on = cache(self._find_pass)

    # What is known of the device

    def board(self, prefix: str) -> str:
        """Return the board whose UUID begins so, with or without its "GPU-".

        Raises:
            UnknownNameError: none does.
            InputError: several do.
        """
        return self._snapshot.find(prefix)

    @property
    def boards(self) -> list[str]:
        """The boards of the device that measured something, by UUID."""
        return self._snapshot.boards

    def most_measured(self, kinds: Collection[str] | None = None) -> str:
        """Return the board that has costs of the most configurations, of some kinds or of all.

        Raises:
            NothingMeasuredError: nothing was measured on the device.
        """
        return self._snapshot.most_measured(kinds)

    def costs_on(self, board: str, configurations: Collection[Configuration]) -> dict[str, Cost]:
        """Return the costs of configurations on a board, by key, as far as any board has them.

        What only other boards of the device have is brought over by factors.
        """
        return self._boards.costs(board, configurations)

    def estimated(self, configurations: Sequence[Configuration]) -> dict[str, Cost]:
        """Return estimates of configurations, by key, as for the board that measured most.

        What no estimate covers is left out: all of them, where nothing was learned on the device.

        Raises:
            InputError: what was learned is damaged.
        """
        found: dict[str, Cost] = {}
        for first in range(0, len(configurations) if self.boards else 0, ESTIMATED_AT_ONCE):
            some = configurations[first : first + ESTIMATED_AT_ONCE]
            estimates = self._boards.estimates(some, self.most_measured())
            if estimates is not None:
                found |= estimates.costs
        return found

    def base_power_w(self, board: str) -> float | None:
        """Return a board's usual base power (W); None where none was read."""
        return self._snapshot.calibration(board).base_power_w

    def measured_workloads(self, mode: Mode) -> list[tuple[Workload, str]]:
        """Return the workloads that were measured in a mode, with the board whose run counts."""
        on = self._runs.measured(mode)
        return [(workload, on[workload.key].board) for workload in self._runs.workloads(mode)]

    def runs(self, names: Collection[str]) -> list[tuple[Workload, ModelRun]]:
        """Return the latest good run of each workload, mode and board; of these models, or all."""
        found: dict[tuple[str, str, str], tuple[Workload, ModelRun]] = {}
        for mode, workload in self._measured(names):
            for run in self._runs.runs(workload, mode, self._algorithm):
                found[workload.key, mode, self._snapshot.board_of(run)] = (workload, run)
        return list(found.values())

    def run_ratios(self) -> RunRatios:
        """Return what every measured run shows of the sum of its workload's operators."""
        return self._peers.ratios(MODES)

    def launches(self, workload: Workload, run: ModelRun) -> Launches | None:
        """Compare a run's kernels with its operators', as its board saw them, else another."""
        return self._runs.launches(workload, run)

    # Predictions

    def answer(self, workload: Workload, mode: Mode, board: str | None = None) -> Answer:
        """Predict a workload for a board (UUID), by default for the one that measured it.

        Without a board and a measured run, and always under an algorithm, it is the board that
        covers the workload best. In a mode that compiles, the calls are those which the workload
        was compiled to; in that of a CUDA graph those which it makes while it is captured, where
        these are known to be others.

        Raises:
            InputError: nothing was ever measured on the device, the mode or the phase cannot be
                predicted, or nobody has seen what the workload is compiled to.
        """
        check_mode(mode)
        if self._algorithm is not None:
            check_forced(str(self._algorithm), workload.name, mode, workload.phase)
        if mode in COMPILED_MODES and workload.compiled_for is None:
            workload = self._compiled(workload)
        between = board is not None and self._bases.is_between(workload, board)
        if mode == CAPTURED_MODE and not workload.captured and not between:
            [workload] = self._runs.captured([workload])
        if board is None:
            run = None if self._algorithm else self._runs.measured(mode).get(workload.key)
            board = self._best_board(workload) if run is None else run.board
        measured, basis = self._bases.of(workload, board), self._basis(workload, board)
        shown = self._peers.evidence(workload, mode)
        inputs = basis.inputs
        if not is_one_graph(mode):
            inputs = replace(inputs, host_ratios=shown.host_ratios)
        found = with_intervals(compose_pass(basis.pass_, mode, inputs), shown.ratios)
        found = replace(found, workload=workload, notes=(*found.notes, *basis.notes))
        brought = sum(basis.pass_.counts[key] for key in measured.inputs.brought)
        return replace(self._compared(found), refused=basis.refused, brought=brought)

    def between(
        self, rungs: Sequence[Workload], sizes: Sizes, mode: Mode, board: str | None = None
    ) -> tuple[Workload, str] | None:
        """Return a generation's pass as measured or between measured ones, and their board.

        `rungs` are passes of one model at other sizes. One that a board measured as a whole and
        that is, or stands for, the pass of these sizes comes first; then one between such passes,
        of which `answer` takes the calls' interpolated costs; then one between all passes, of which
        it interpolates what boards measured and estimates the rest. The board is by default the one
        that measured the most. None where no passes reach the sizes.
        """
        if mode == CAPTURED_MODE:
            rungs = self._runs.captured(rungs)
        if not rungs:
            return None
        rungs = tuple(rungs)
        boards = self._snapshot.boards if board is None else [board]
        measured = self._measured_of(rungs)
        boards = sorted(boards, key=lambda each: len(measured[each]), reverse=True)
        ways = [(look, each) for look in (standing, between) for each in boards]
        for look, each in [*ways, (in_part_between, boards[0])]:
            found = self._pass_on(each, look, rungs, tuple(sizes.items()))
            if found is not None:
                workload, interpolated = found
                self._bases.interpolate(workload, each, interpolated)
                return workload, each
        return None

    def _find_pass(
        self,
        board: str,
        look: Callable[..., tuple[Workload, Interpolated] | None],
        rungs: Sequence[Workload],
        sizes: Sequence[tuple[str, int]],
    ) -> tuple[Workload, Interpolated] | None:
        """Look among rungs for a pass of these sizes, with what a board measured.

        Where lines are to reach a part of the calls alone, with what other boards lend it, too.
        """
        in_part = look is in_part_between
        if not in_part:
            measured = self._measured_of(tuple(rungs))[board]
            rungs = [each for each in rungs if each.occurrences().keys() <= measured]
            if not rungs:
                return None
        called = _called(rungs)
        costs = self._boards.costs(board, called) if in_part else self._boards.own(called, board)
        return look(rungs, costs, dict(sizes))

    def _find_measured(self, workloads: Sequence[Workload]) -> dict[str, set[Configuration]]:
        """Return which calls of some workloads each board measured."""
        return self._boards.measured(_called(workloads))

    def host_factor(self, host: CalibratedHost, board: str) -> HostFactor | None:
        """Return how many times as long a host takes as a board's; None where that is not known."""
        return host.factor(self._boards, board)

    def on_host(self, prediction: Prediction, host: CalibratedHost) -> OnHost | None:
        """Return what one of its predictions takes on a host that was calibrated.

        None where the pass waits neither for that host nor for the board's, where a part of it has
        no cost, and where no factor between the two hosts is known.
        """
        time_s, mode = prediction.time_s, prediction.mode
        waits = not is_one_graph(mode) and self.device.type != "cpu"
        if not waits or time_s is None or not prediction.time_complete:
            return None
        factor = self.host_factor(host, prediction.board)
        if factor is None:
            return None
        basis = self._basis(prediction.workload, prediction.board)

        def on(times: float) -> float:
            return time_on_host_s(basis.pass_, mode, basis.inputs, factor.factor * times)

        slowdown = host.slowdown
        slowed_s = None if slowdown is None else on(slowdown.median)
        if not prediction.host_bound and max(on(1.0), slowed_s or 0.0) <= time_s:
            return None
        return OnHost(factor, host.calibration.measured_at, on(1.0), slowdown, slowed_s)

    def breakdown(self, prediction: Prediction) -> Breakdown:
        """Return the parts of the time and energy of one of its predictions."""
        basis = self._basis(prediction.workload, prediction.board)
        return break_down(basis.pass_, prediction.mode, basis.inputs)

    def schedule(self, prediction: Prediction) -> Schedule:
        """Return the calls of one of its predictions, each at its time on host and device."""
        basis = self._basis(prediction.workload, prediction.board)
        return schedule(basis.pass_, prediction.mode, basis.inputs)

    def _compiled(self, workload: Workload) -> Workload:
        check_compiled(workload.name, "compile", workload.phase, workload.autocast)
        found = self._runs.compiled(workload)
        if found is None:
            name, slug = workload.name, self.device.slug
            known = "; ".join(dict.fromkeys(map(_at, self._runs.all_compiled(name))))
            raise InputError(
                f"the compiled calls of {name} on {slug!r} {_at(workload)} are not known"
                + (f", only {known}" if known else "")
                + f": run opdb {shlex.join(['harvest', name, *asked_as(workload)])} --mode compile "
                "there, then opdb bench fused enter_graph"
            )
        return found

    def uncompiled(self, modes: Collection[Mode] = COMPILED_MODES) -> int:
        """Count the runs in modes that compile of which the compiled calls are not known."""
        return sum(self._runs.uncompiled(mode) for mode in modes if mode in COMPILED_MODES)

    def answers(self, names: Collection[str], modes: Sequence[Mode] = MODES) -> list[Answer]:
        """Return an answer for every measured run in these modes of these models (none: all).

        A workload has one for each mode and each board that ran it, predicted for that board.
        """
        asked = [
            (mode, each)
            for mode in modes
            for each in self._runs.groups(mode)
            if not names or each.name in names
        ]
        if not names:
            for mode in modes:
                self._runs.read_runs(mode)
        workloads = self._runs.workloads_of([each.key for _, each in asked])
        self.read_costs(workloads)
        found = [
            self.answer(workload, mode, each.board)
            for workload, (mode, each) in zip(workloads, asked, strict=True)
        ]
        return sorted(found, key=lambda answer: answer.order)

    def read_costs(self, workloads: Iterable[Workload]) -> None:
        """Read at once what all boards' answers for these workloads ask of the database."""
        self._snapshot.read_costs({c.key for w in workloads for c in w.occurrences()})

    def without(
        self, workload: Workload, mode: Mode, left_out: Collection[str], instead: EstimatedCosts
    ) -> Answer:
        """Predict a measured workload as if configurations (keys) had never been measured.

        `instead` holds the estimates of them that take their place.
        """
        board = self._runs.measured(mode)[workload.key].board
        inputs = self._boards.inputs(workload, board, left_out)
        return self._compared(compose(workload, mode, replace(inputs, estimates=instead)))

    def transfers(self, names: Collection[str]) -> list[Transfer]:
        """Predict every measured run from each other board's costs alone, where these cover it."""
        found = []
        for mode, workload in self._measured(names):
            boards = {
                self._snapshot.board_of(run)
                for run in self._runs.runs(workload, mode, self._algorithm)
            }
            found += [
                transfer
                for board in sorted(boards)
                for origin in self._snapshot.boards
                if origin != board
                and (transfer := self._transfer(workload, mode, board, origin)) is not None
            ]
        return sorted(found, key=lambda transfer: transfer.raw.order)

    def _transfer(self, workload: Workload, mode: Mode, board: str, origin: str) -> Transfer | None:
        """Predict for a board from another's costs; None where these do not cover the workload."""
        costs = self._boards.own(workload.occurrences(), origin)
        if len(costs) < len(workload.occurrences()):
            return None
        by = self._snapshot.factors(board, origin)
        own = self._snapshot.calibration(board)
        base_w = self._snapshot.calibration(origin).base_power_w
        here_w = base_w * by.base_power if base_w and by.base_power else base_w
        raw = {key: replace(cost, board=board) for key, cost in costs.items()}
        brought = {key: transferred(cost, board, by, here_w) for key, cost in costs.items()}

        def answer(watts: float | None, taken: Mapping[str, Cost], *by: Factors) -> Answer:
            calibration = replace(own, base_power_w=watts)
            inputs = self._boards.inputs_of(workload, board, calibration, taken, timed_on=origin)
            inputs = replace(inputs, brought={key: each for key in taken for each in by})
            return self._compared(compose(workload, mode, inputs))

        return Transfer(origin, by, answer(base_w, raw), answer(here_w, brought, by))

    def _measured(
        self, names: Collection[str], modes: Sequence[Mode] = MODES
    ) -> list[tuple[Mode, Workload]]:
        """Return the measured workloads of these models, or of all, each in each of its modes."""
        return [
            (mode, workload)
            for mode in modes
            for workload in self._runs.workloads(mode)
            if not names or workload.name in names
        ]

    def _compared(self, prediction: Prediction) -> Answer:
        """Return a prediction beside the measured runs of its board."""
        measured = self._runs.cost(
            prediction.workload, prediction.mode, prediction.board, self._algorithm
        )
        return Answer(prediction, measured, self._settings)

    def _find_best_board(self, workload: Workload) -> str:
        """Return the board that measured the most of a workload's configurations.

        Where none measured any, it is one that measured operators at all, if there is one: others
        ran whole models alone.
        """
        self._snapshot.check_any()
        boards, measured = self._snapshot.boards, self._boards.measured(workload.occurrences())
        counts = {board: len(found) for board, found in measured.items()}
        if not any(counts.values()):
            counts = self._snapshot.cost_counts()
            return next((board for board in boards if counts.get(board)), boards[0])
        return max(boards, key=counts.__getitem__)


def _called(workloads: Iterable[Workload]) -> set[Configuration]:
    """Return what any of some workloads calls."""
    return {c for each in workloads for c in each.occurrences()}


def predictor_for(
    store: Store,
    device: Device | str | None = None,
    settings: Mapping[str, Json] = DEFAULT_SETTINGS,
    *,
    estimates: bool = True,
) -> Predictor:
    """Return a store's predictor for a device, or the one of that name; `choose_device`'s for None.

    Raises:
        UnknownNameError: no device of that name was measured.
        InputError: the store holds no device at all.
    """
    chosen = device if isinstance(device, Device) else choose_device(store, device)
    return Predictor(store, chosen, settings, estimates=estimates)


def check_mode(mode: Mode, among: Sequence[Mode] = MODES) -> None:
    """Check that a mode is among those that can be predicted.

    Raises:
        InputError: it cannot.
    """
    if mode not in among:
        raise InputError(f"mode {mode!r} cannot be predicted here; use {', '.join(among)}")


def check_compiled(model: str, mode: Mode, phase: Phase, autocast: str | None) -> None:
    """Check that the compiled calls of a model can be known, where the mode compiles.

    Raises:
        InputError: it is a training step, or under autocast.
    """
    if mode in COMPILED_MODES and (phase != "inference" or autocast is not None):
        raise InputError(
            f"the compiled calls of {model} are known only for inference without autocast; use "
            "another mode, such as eager"
        )


def check_forced(algorithm: str, model: str, mode: Mode, phase: Phase) -> None:
    """Check that a model can be predicted with its convolutions forced to an algorithm.

    Raises:
        InputError: the mode waits for the host or is compiled, or it is a training step.
    """
    if mode != CAPTURED_MODE:
        raise InputError(
            f"mode {mode!r} cannot be predicted under the algorithm {algorithm!r}: forced "
            f"convolutions have no host times and are not compiled; use {CAPTURED_MODE}"
        )
    if phase != "inference":
        raise InputError(
            f"{model}'s {phase} cannot be predicted under the algorithm {algorithm!r}: algorithms "
            "are forced in forward passes alone; use --phase inference"
        )


def _at(workload: Workload) -> str:
    return f"at batch {workload.batch_size} in {workload.dtype}"
