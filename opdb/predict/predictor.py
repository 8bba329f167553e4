"""Workloads predicted, and predictions held against measured runs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
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
    is_one_graph,
    judged,
    with_estimates,
)
from opdb.derive.boards import Factors, in_words, transferred
from opdb.derive.launches import Launches
from opdb.errors import InputError
from opdb.predict.answer import Answer, Transfer
from opdb.predict.boards import Boards
from opdb.predict.truths import Truths
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
    Workload,
)
from opdb.settings import DEFAULT_SETTINGS
from opdb.store import Measured, Store
from opdb.units import counted

if TYPE_CHECKING:
    from opdb.estimates.estimator import Estimates

PLAIN_MODES: tuple[Mode, ...] = ("eager", "graph")
"""The modes that run a model's operators as it calls them."""

MODES: tuple[Mode, ...] = (*PLAIN_MODES, *COMPILED_MODES)
"""The modes that the composer predicts."""

NOTHING_LEARNED = "nothing was learned of this device; opdb learn lets predict estimate the missing"

NOTHING_FORCED = "{} calls nothing whose algorithm can be forced: this is what it takes as usual"

CAPTURED_NOTE = (
    "{} asks whether it is being captured in a CUDA graph, and then calls other operators than in "
    "eager: these are what is summed"
)

MOST_VALIDATIONS = 6
"""Runs of other models that an interval rests on: those most like the workload predicted."""

MOST_COMPOSED = 12
"""Measured workloads, the most alike in dtype and batch size, among which those are looked for."""


@dataclass(frozen=True)
class _Basis:
    """What a workload's predictions on a board start from: read once, whatever is asked of it."""

    made: Pass
    grounds: Grounds
    notes: tuple[str, ...]
    refused: Mapping[str, str]


class Predictor:
    """Predicts workloads on one device from a store, with estimates of what is missing or not.

    Where the settings name an algorithm of convolutions, these cost what they were benched to take
    by it, and the runs under it are the truth; all else is as usual, and so are other models' runs.
    """

    def __init__(
        self,
        store: Store,
        device: Device,
        settings: Mapping[str, Json] = DEFAULT_SETTINGS,
        *,
        estimates: bool = False,
    ) -> None:
        self.device = device
        self._settings = settings
        self._estimating = estimates
        self._boards = Boards(store, device, settings)
        told = {n: value for n, value in settings.items() if n == ALGORITHM_SETTING}
        self._truths = Truths(store, device, self._boards, told)
        usual = {n: value for n, value in settings.items() if n not in told}
        self._algorithm = told.get(ALGORITHM_SETTING)
        self._usual = Predictor(store, device, usual) if told else None
        self._passes: dict[str, Pass] = {}
        self._best: dict[Pass, str] = {}
        self._bases: dict[tuple[str, str], _Basis] = {}
        self._estimates: dict[tuple[Pass, str], Estimates | None] = {}
        self._predictions: dict[tuple[str, Mode], Prediction] = {}

    # What is known of the device

    def board(self, prefix: str) -> str:
        """Return the board whose UUID begins so, with or without its "GPU-".

        Raises:
            UnknownNameError: none does.
            InputError: several do.
        """
        return self._boards.find(prefix)

    def most_measured(self) -> str:
        """Return the board that has costs of the most configurations.

        Raises:
            NothingMeasuredError: nothing was measured on the device.
        """
        return self._boards.most_measured()

    def costs_on(self, board: str, configurations: Collection[Configuration]) -> dict[str, Cost]:
        """Return the costs of configurations on a board, by key, as far as any board has them.

        What only other boards of the device have is brought over by factors.
        """
        return self._boards.costs(board, configurations)

    def measured_workloads(self, mode: Mode) -> list[tuple[Workload, str]]:
        """Return the workloads that were measured in a mode, and whose run of each counts."""
        on = self._truths.measured(mode)
        return [(workload, on[workload.key].board) for workload in self._truths.workloads(mode)]

    def runs(self, names: Collection[str]) -> list[tuple[Workload, ModelRun]]:
        """Return the latest good run of each workload, mode and board; of these models, or all."""
        found: dict[tuple[str, str, str], tuple[Workload, ModelRun]] = {}
        for mode, workload in self._measured(names):
            for run in self._truths.runs(workload, mode):
                found[workload.key, mode, self._boards.of_run(run)] = (workload, run)
        return list(found.values())

    def launches(self, workload: Workload, run: ModelRun) -> Launches | None:
        """Hold a run's kernels against its operators', as its board saw them, else another."""
        return self._truths.launches(workload, run)

    # Predictions

    def answer(self, workload: Workload, mode: Mode, board: str | None = None) -> Answer:
        """Predict a workload for a board (UUID); the one that measured it where none is said.

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
        if mode == CAPTURED_MODE and not workload.captured:
            workload = self._truths.captured(workload) or workload
        if board is None:
            run = self._truths.measured(mode).get(workload.key) if self._usual is None else None
            board = self._best_board(workload) if run is None else run.board
        basis = self._estimated(self._basis(workload, board))
        grounds = basis.grounds
        if not is_one_graph(mode):  # of other models' passes the interval is not asked
            grounds = replace(grounds, host_ratios=self._boards.host_ratios(board))
        alone = composed(basis.made, mode, grounds)
        prediction = judged(alone, self._known(alone))
        held = self._held(replace(prediction, notes=(*prediction.notes, *basis.notes)))
        return replace(held, refused=basis.refused)

    def _compiled(self, workload: Workload) -> Workload:
        found = self._truths.compiled(workload)
        if found is None:
            name, slug = workload.name, self.device.slug
            if workload.phase != "inference" or workload.autocast is not None:
                raise InputError(
                    f"what {name} is compiled to is known of inference without autocast alone; "
                    "use another mode, such as eager"
                )
            known = "; ".join(dict.fromkeys(map(_at, self._truths.all_compiled(name))))
            raise InputError(
                f"what {name} is compiled to on {slug!r} {_at(workload)} is not known"
                + (f", only {known}" if known else "")
                + f": run opdb harvest {name} --mode compile there, then opdb bench fused "
                "enter_graph"
            )
        return found

    def uncompiled(self, modes: Collection[Mode] = COMPILED_MODES) -> int:
        """Count the runs in modes that compile of which the compiled calls are not known."""
        return sum(self._truths.uncompiled(mode) for mode in modes if mode in COMPILED_MODES)

    def answers(self, names: Collection[str], modes: Sequence[Mode] = MODES) -> list[Answer]:
        """Return an answer for every measured run in these modes of these models (none: all)."""
        found = [self.answer(workload, mode) for mode, workload in self._measured(names, modes)]
        return sorted(found, key=lambda answer: answer.order)

    def without(
        self, workload: Workload, mode: Mode, left_out: Collection[str], instead: Estimated
    ) -> Answer:
        """Predict a measured workload as if configurations (keys) had never been measured.

        `instead` holds the estimates of them that take their place.
        """
        board = self._truths.measured(mode)[workload.key].board
        grounds = self._boards.grounds(workload, board, left_out)
        return self._held(compose(workload, mode, replace(grounds, estimates=instead)))

    def transfers(self, names: Collection[str]) -> list[Transfer]:
        """Predict every measured run from each other board's costs alone, where these cover it."""
        found = []
        for mode, workload in self._measured(names):
            boards = {self._boards.of_run(run) for run in self._truths.runs(workload, mode)}
            found += [
                transfer
                for board in sorted(boards)
                for origin in self._boards.uuids
                if origin != board
                and (transfer := self._transfer(workload, mode, board, origin)) is not None
            ]
        return sorted(found, key=lambda transfer: transfer.raw.order)

    def _transfer(self, workload: Workload, mode: Mode, board: str, origin: str) -> Transfer | None:
        """Predict for a board from another's costs; None where these do not cover the workload."""
        costs = self._boards.own(workload.occurrences(), origin)
        if len(costs) < len(workload.occurrences()):
            return None
        by = self._boards.factors(board, origin)
        own = self._boards.calibration(board)
        base_w = self._boards.calibration(origin).base_power_w
        here_w = base_w * by.base_power if base_w and by.base_power else base_w
        raw = {key: replace(cost, board=board) for key, cost in costs.items()}
        brought = {key: transferred(cost, board, by, here_w) for key, cost in costs.items()}

        def held(watts: float | None, taken: Mapping[str, Cost], *by: Factors) -> Answer:
            calibration = replace(own, base_power_w=watts)
            grounds = self._boards.grounds_of(workload, board, calibration, taken)
            grounds = replace(grounds, brought={key: each for key in taken for each in by})
            return self._held(compose(workload, mode, grounds))

        return Transfer(origin, by, held(base_w, raw), held(here_w, brought, by))

    def _measured(
        self, names: Collection[str], modes: Sequence[Mode] = MODES
    ) -> list[tuple[Mode, Workload]]:
        """Return the measured workloads of these models, or of all, each in each of its modes."""
        return [
            (mode, workload)
            for mode in modes
            for workload in self._truths.workloads(mode)
            if not names or workload.name in names
        ]

    def _held(self, prediction: Prediction) -> Answer:
        """Hold a prediction against the runs of its board."""
        measured = self._truths.cost(prediction.workload, prediction.mode, prediction.board)
        return Answer(prediction, measured, self._settings)

    # What they start from

    def _best_board(self, workload: Workload) -> str:
        self._boards.check_any()
        made = self._pass(workload)
        if made not in self._best:
            called = workload.occurrences()
            self._best[made] = max(
                self._boards.uuids, key=lambda board: len(self._boards.own(called, board))
            )
        return self._best[made]

    def _pass(self, workload: Workload) -> Pass:
        found = self._passes.get(workload.key)
        if found is None or found.workload is not workload:
            found = self._passes[workload.key] = Pass(workload)
        return found

    def _basis(self, workload: Workload, board: str) -> _Basis:
        """Return what a workload's predictions on a board start from."""
        made, place = self._pass(workload), (workload.key, board)
        found = self._bases.get(place)
        if found is None or found.made is not made:
            grounds = found_by(made, self._boards.grounds(workload, board))
            refused = self._boards.refused(
                c for key, c in made.configurations.items() if key not in grounds.costs
            )
            notes = (*self._forced_notes(made, refused), *self._transfer_notes(workload, board))
            if workload.captured:
                notes = (CAPTURED_NOTE.format(workload.name), *notes)
            found = self._bases[place] = _Basis(made, grounds, notes, refused)
        return found

    def _estimated(self, basis: _Basis) -> _Basis:
        """Return a basis with estimates of what nobody measured, if they are wanted.

        Estimates are of what torch does: of what is told its algorithm there is none.
        """
        configurations, grounds = basis.made.configurations, basis.grounds
        forced = {c.key for c in self._boards.forced(configurations.values())}
        known = grounds.costs.keys() | forced
        missing = [c for key, c in configurations.items() if key not in known]
        if not missing or not self._estimating:
            return basis
        place = (basis.made, grounds.board)
        if place not in self._estimates:
            self._estimates[place] = self._boards.estimates(missing, grounds.board)
        estimates = self._estimates[place]
        if estimates is None:
            return replace(basis, grounds=replace(grounds, notes=(*grounds.notes, NOTHING_LEARNED)))
        brought = dict(grounds.brought)
        if estimates.board != grounds.board:
            by = self._boards.factors(grounds.board, estimates.board)
            brought |= dict.fromkeys(estimates.costs, by)
        grounds = replace(grounds, estimates=estimates, brought=brought)
        filled = with_estimates(configurations, grounds)
        return replace(basis, grounds=filled)

    def _forced_notes(self, made: Pass, refused: Mapping[str, str]) -> list[str]:
        """Say what the algorithm that is forced cannot run, and where it changes nothing."""
        if self._algorithm is None:
            return []
        if not self._boards.forced(made.configurations.values()):
            return [NOTHING_FORCED.format(made.workload.name)]
        return [
            f"{counted(count, 'configuration')} unsupported by {self._algorithm}: {reason}"
            for reason, count in Counter(refused.values()).items()
        ]

    def _transfer_notes(self, workload: Workload, board: str) -> list[str]:
        """Say what of a workload only other boards have, and by which factors it was brought."""
        return [
            f"measured on board {other} alone: {counted(len(brought), 'configuration')}; costs "
            f"are brought to this board ({in_words(self._boards.factors(board, other))})"
            for other, brought in self._boards.lent(workload.occurrences(), board)
        ]

    # What other models say of the interval

    def _known(self, prediction: Prediction) -> Known:
        """Hold the predictions of all other models against their runs, of the same mode and bound.

        A pass that waits for the host errs in another way than one that waits for the device, and
        one of short kernels in another way than one of long ones: of many, those are taken whose
        calls take most nearly as long. Usual runs all, held against what is predicted of them as
        usual. One of which a part is missing, estimated or not described says nothing of a sum.
        """
        if self._usual is not None:
            return self._usual._known(prediction)
        mode, workload = prediction.mode, prediction.workload
        others = [m for m in self._truths.measured(mode).values() if m.name != workload.name]
        others.sort(key=lambda other: _unlikeness(other, workload))
        others = others[:MOST_COMPOSED]
        chosen = self._truths.workloads_of([other.key for other in others])
        self._read_costs(chosen, [other.board for other in others])
        alike = [
            found
            for found in (self._plain(other, mode) for other in chosen)
            if not (found.missing or found.estimated or found.workload.unsupported)
            and found.host_bound == prediction.host_bound
        ]
        alike.sort(key=lambda found: _apart(found.call_time_s, prediction.call_time_s))
        answers = [self._held(found) for found in alike[:MOST_VALIDATIONS]]
        return Known(
            tuple(a for answer in answers if (a := answer.attribution_time) is not None),
            tuple(a for answer in answers if (a := answer.attribution_energy) is not None),
        )

    def _read_costs(self, workloads: Sequence[Workload], boards: Sequence[str]) -> None:
        """Read what workloads cost on their boards, all that one board has at once."""
        called: dict[str, set[Configuration]] = {}
        for workload, board in zip(workloads, boards, strict=True):
            if (workload.key, board) not in self._bases:
                called.setdefault(board, set()).update(workload.occurrences())
        for board, configurations in called.items():
            self._boards.own(configurations, board)

    def _plain(self, workload: Workload, mode: Mode) -> Prediction:
        """Predict a measured workload for its board, nothing known of other models."""
        if (workload.key, mode) not in self._predictions:
            basis = self._basis(workload, self._truths.measured(mode)[workload.key].board)
            self._predictions[workload.key, mode] = composed(basis.made, mode, basis.grounds)
        return self._predictions[workload.key, mode]


def check_mode(mode: Mode, among: Sequence[Mode] = MODES) -> None:
    """Check that a mode can be predicted, by what can do so in these modes.

    Raises:
        InputError: it cannot.
    """
    if mode not in among:
        raise InputError(f"mode {mode!r} cannot be predicted here; use {', '.join(among)}")


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


def _unlikeness(other: Measured, workload: Workload) -> tuple[bool, float]:
    return other.dtype != workload.dtype, _apart(other.batch_size, workload.batch_size)


def _apart(first: float | None, second: float | None) -> float:
    """Return how far two amounts are apart, as the logarithm of their ratio."""
    return abs(math.log(first / second)) if first and second else math.inf
