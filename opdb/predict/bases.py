"""The basis of predictions of a workload on a board: its pass, and the inputs of the sums."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

from opdb.compose import Pass, PredictionInputs, inputs_in_pass, with_estimates
from opdb.compose.ladder import InPart, Interpolated, between_steps
from opdb.derive.boards import in_words
from opdb.predict.boards import Boards
from opdb.predict.snapshot import Snapshot
from opdb.records import Json, Workload
from opdb.units import plural

NOTHING_LEARNED = "no estimates: none were learned on this device; opdb learn learns them"

NOTHING_FORCED = "{} makes no calls whose algorithm can be forced: this is its usual prediction"

CAPTURED_NOTE = (
    "{} asks whether it is being captured in a CUDA graph, and then calls other operators than in "
    "eager: the prediction sums these"
)


@dataclass(frozen=True)
class Basis:
    """What all predictions of a workload on a board start from, whatever their mode.

    `refused` says why the forced algorithm cannot run some of its configurations (keys).
    """

    pass_: Pass
    inputs: PredictionInputs
    notes: tuple[str, ...]
    refused: Mapping[str, str]


class Bases:
    """The bases of workloads on boards, each made once.

    `algorithm` is the one forced on every convolution, None where torch chooses.
    """

    def __init__(self, snapshot: Snapshot, boards: Boards, algorithm: Json = None) -> None:
        self._snapshot = snapshot
        self._boards = boards
        self._algorithm = algorithm
        self._between: dict[tuple[Workload, str], Interpolated] = {}
        self._pass_of = cache(Pass)
        self.of = cache(self._measured)
        self.stepped = cache(self._with_steps)
        self.estimated = cache(self._with_estimates)

    def interpolate(self, workload: Workload, board: str, costs: Interpolated) -> None:
        """Take these costs for what the board did not measure of a pass between measured ones."""
        self._between[workload, board] = costs

    def is_between(self, workload: Workload, board: str) -> bool:
        """Return whether costs of a pass were interpolated for a board."""
        return (workload, board) in self._between

    def _measured(self, workload: Workload, board: str) -> Basis:
        """Return the basis of a workload on a board, of measured costs alone."""
        pass_ = self._pass_of(workload)
        inputs = inputs_in_pass(pass_, self._boards.inputs(workload, board))
        refused = self._boards.refused(
            c for key, c in pass_.configurations.items() if key not in inputs.costs
        )
        notes = (*self._forced_notes(pass_, refused), *self._transfer_notes(workload, board))
        if workload.captured:
            notes = (CAPTURED_NOTE.format(workload.name), *notes)
        return Basis(pass_, inputs, notes, refused)

    def _with_steps(self, workload: Workload, board: str) -> Basis:
        """Return the basis of a workload on a board; of a whole generation, with all its steps.

        Those that were not measured are interpolated between those that were, where these suffice.
        """
        basis = self.of(workload, board)
        configurations, inputs = basis.pass_.configurations, basis.inputs
        missing = configurations.keys() - inputs.costs.keys()
        if workload.phase != "generate" or not missing:
            return basis
        steps = between_steps(workload, inputs.costs)
        if missing - steps.costs.keys():
            return basis
        inputs = replace(inputs, estimates=steps)
        return replace(basis, inputs=with_estimates(configurations, inputs))

    def _with_estimates(self, workload: Workload, board: str) -> Basis:
        """Return the basis of a workload on a board, with estimates of what nobody measured.

        Calls whose algorithm is forced have none: estimates are of the algorithms that torch takes.
        """
        basis = self.stepped(workload, board)
        configurations, inputs = basis.pass_.configurations, basis.inputs
        forced = {c.key for c in self._boards.forced(configurations.values())}
        known = inputs.costs.keys() | forced
        missing = [c for key, c in configurations.items() if key not in known]
        if not missing:
            return basis
        between = self._between.get((workload, board))
        if between is not None:
            missing = [c for c in missing if c.key not in between.costs]
            inputs = replace(inputs, estimates=between)
        estimates = self._boards.estimates(missing, board) if missing else None
        if estimates is not None:
            brought = dict(inputs.brought)
            if estimates.board != board:
                by = self._snapshot.factors(board, estimates.board)
                brought |= dict.fromkeys(estimates.costs, by)
            both = estimates if between is None else InPart(between, estimates)
            inputs = replace(inputs, estimates=both, brought=brought)
        elif missing:
            inputs = replace(inputs, notes=(*inputs.notes, NOTHING_LEARNED))
        return replace(basis, inputs=with_estimates(configurations, inputs))

    def _forced_notes(self, pass_: Pass, refused: Mapping[str, str]) -> list[str]:
        """Say which calls the forced algorithm cannot run, and where it changes nothing."""
        if self._algorithm is None:
            return []
        if not self._boards.forced(pass_.configurations.values()):
            return [NOTHING_FORCED.format(pass_.workload.name)]
        return [
            f"{plural(count, 'configuration')} unsupported by {self._algorithm}: {reason}"
            for reason, count in Counter(refused.values()).items()
        ]

    def _transfer_notes(self, workload: Workload, board: str) -> list[str]:
        """Say which costs come from other boards alone, and by which factors."""
        return [
            f"measured only on board {other}: {plural(len(lent), 'configuration')}; costs "
            f"are scaled to this board ({in_words(self._snapshot.factors(board, other))})"
            for other, lent in self._boards.lent_to(workload, board)
        ]
