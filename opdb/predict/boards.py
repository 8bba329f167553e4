"""What each board of a device knows in some settings, and what it may take from the others."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from opdb.compose import PredictionInputs
from opdb.compose.inputs import UsualHostTimes
from opdb.derive.boards import Factors, transferred
from opdb.derive.costs import cost_in
from opdb.derive.quiet import CallForm
from opdb.errors import DatabaseError
from opdb.footprint import resident_bytes
from opdb.predict.snapshot import Snapshot
from opdb.records import ALGORITHM_SETTING, Calibration, Configuration, Cost, Form, Json, Workload
from opdb.settings import is_forcible, relevant_setting

if TYPE_CHECKING:
    from opdb.estimates.estimator import Estimates

NO_TRANSITION_TIMES = "transition times between operators were never calibrated on this device"

TRANSITION_TIMES_OF_OTHERS = "transition times between operators were taken from other boards"


class Boards:
    """What the boards of a snapshot know of operators under some backend settings."""

    def __init__(self, snapshot: Snapshot, settings: Mapping[str, Json]) -> None:
        self._snapshot = snapshot
        self._settings = settings
        self._setting = cache(lambda kind: relevant_setting(kind, settings))
        self._cost = cache(self._choose_cost)
        self.lent_to = cache(self._lent_to)

    # What operators cost

    def measured(self, configurations: Iterable[Configuration]) -> dict[str, set[Configuration]]:
        """Return which of these each board measured in these settings; no cost is read."""
        given = {c.key: c for c in configurations}
        found: dict[str, set[Configuration]] = {board: set() for board in self._snapshot.boards}
        for key, timed_on in self._snapshot.timed_on(given).items():
            for board, settings in timed_on.items():
                if board in found and self._setting(given[key].kind) in settings:
                    found[board].add(given[key])
        return found

    def own(self, configurations: Iterable[Configuration], board: str) -> dict[str, Cost]:
        """Return what a board measured of these (by key), in these settings.

        Raises:
            DatabaseError: a cost has values that no measurement gives.
        """
        given = {c.key: c for c in configurations}
        read = self._snapshot.costs(board, given)  # one query for all
        costs = {key: self._cost(given[key], board) for key, found in read.items() if found}
        return {key: cost for key, cost in costs.items() if cost is not None}

    def _choose_cost(self, configuration: Configuration, board: str) -> Cost | None:
        """Return a board's cost of a configuration in these settings; None where it has none.

        Raises:
            DatabaseError: it has values that no measurement gives.
        """
        [costs] = self._snapshot.costs(board, [configuration.key]).values()
        cost = cost_in(costs, self._setting(configuration.kind))
        if cost is not None and (why := cost.impossible) is not None:
            raise DatabaseError(
                f"database {self._snapshot.location}: the cost of {configuration.kind} "
                f"{cost.configuration[:12]} on {cost.board} is none that was measured: {why}; "
                "opdb derive restores it"
            )
        return cost

    def lent(
        self, configurations: Iterable[Configuration], board: str
    ) -> Iterator[tuple[str, Mapping[str, Cost]]]:
        """Yield the costs that a board lacks, by the other board that has them, the last one first.

        Where several boards have a cost, the last one lends it.
        """
        given = list(configurations)
        own = self.own(given, board)
        lacking = [c for c in given if c.key not in own]
        for other in reversed(self._snapshot.last(board)[:-1]):
            if lacking and (found := self.own(lacking, other)):
                lacking = [c for c in lacking if c.key not in found]
                yield other, found

    def _lent_to(self, workload: Workload, board: str) -> Sequence[tuple[str, Mapping[str, Cost]]]:
        """Return what other boards lend a board of a workload's costs."""
        return list(self.lent(workload.occurrences(), board))

    def costs(self, board: str, configurations: Collection[Configuration]) -> dict[str, Cost]:
        """Return the costs of configurations on a board, by key, as far as any board has them.

        What only other boards of the device have is brought over by factors.
        """
        costs = self.own(configurations, board)
        for other, lent in self.lent(configurations, board):
            costs |= self._transferred(lent, board, other)
        return costs

    def forced(self, configurations: Iterable[Configuration]) -> list[Configuration]:
        """Return the configurations whose algorithm these settings force."""
        if ALGORITHM_SETTING not in self._settings:
            return []
        return [c for c in configurations if is_forcible(c.kind)]

    def refused(self, configurations: Iterable[Configuration]) -> dict[str, str]:
        """Return why configurations (keys) cannot run by the algorithm that is forced on them."""
        by_setting: dict[str, list[str]] = {}
        for each in self.forced(configurations):
            by_setting.setdefault(self._setting(each.kind), []).append(each.key)
        return {
            key: reason
            for setting, keys in by_setting.items()
            for key, reason in self._snapshot.refusals(setting, keys).items()
        }

    def estimates(self, missing: Sequence[Configuration], board: str) -> Estimates | None:
        """Estimate what nobody measured; None where nothing was learned on the device.

        Of all boards' estimators, the one that refuses the fewest configurations estimates them,
        and among those the one that leaves the fewest to a roofline alone;
        among equals the board's own, then the latest. Estimates of another board's estimator keep
        its name in `board`, and factors bring them to this board as they bring its costs.
        """
        best: Estimates | None = None
        for estimator in self._snapshot.estimators(board):
            found = estimator.estimate(missing)
            if best is None or _doubt(found) < _doubt(best):
                best = found
            if not any(_doubt(best)):
                break
        if best is None or best.board == board:
            return best
        return replace(best, costs=self._transferred(best.costs, board, best.board))

    def _transferred(self, costs: Mapping[str, Cost], board: str, origin: str) -> dict[str, Cost]:
        """Return costs of the board `origin`, brought to another one by factors."""
        by = self._snapshot.factors(board, origin)
        base_w = self._snapshot.calibration(board).base_power_w
        return {key: transferred(cost, board, by, base_w) for key, cost in costs.items()}

    # How long the hosts take

    def host_times_s(
        self, configurations: Iterable[Configuration], board: str
    ) -> dict[CallForm, float]:
        """Return the quiet host times (seconds) of calls on a board's host, of each form timed."""
        return {
            (key, form): quantity.mean
            for key, cost in self.own(configurations, board).items()
            for form, quantity in cost.host_time_s.items()
        }

    # What predictions start from

    def inputs(
        self, workload: Workload, board: str, left_out: Collection[str] = ()
    ) -> PredictionInputs:
        """Gather what a prediction starts from, without the costs of what is left out (keys).

        Costs that are brought from another board lose the times of that board's host: the usual
        times of calls of their kind on this board's host are nearer.
        """
        costs = self.own(workload.occurrences(), board)
        brought: dict[str, Factors] = {}
        for other, lent in self.lent_to(workload, board):
            brought |= dict.fromkeys(lent, self._snapshot.factors(board, other))
            for key, cost in self._transferred(lent, board, other).items():
                costs[key] = replace(cost, host_time_s={})
        kept = {key: cost for key, cost in costs.items() if key not in left_out}
        found = self.inputs_of(workload, board, self._snapshot.calibration(board), kept)
        return replace(found, brought=brought)

    def inputs_of(
        self,
        workload: Workload,
        board: str,
        calibration: Calibration,
        costs: Mapping[str, Cost],
        *,
        timed_on: str | None = None,
    ) -> PredictionInputs:
        """Gather what a prediction starts from, with these costs and this calibration.

        Host times in the costs are those of the board `timed_on`; None: of the board itself.
        """
        device = self._snapshot.device
        calibration, notes = self._with_transition(calibration)
        costs = self._snapshot.with_after_others(costs)
        seen_alone = {key: cost for key, cost in costs.items() if cost.after_others is None}
        return PredictionInputs(
            device,
            board,
            calibration,
            costs,
            UsualHostTimes(lambda: self._usual_host_s(workload, board, costs)),
            resident_bytes=resident_bytes(device),
            kept_limit_w=self._snapshot.kept_limit_w(board),
            memory_rate=self._snapshot.memory_rate(board),
            notes=notes,
            different_kernels=self._snapshot.different_kernels(seen_alone),
            quiet_host=self._has_quiet_host(workload, timed_on or board, costs),
        )

    def _has_quiet_host(self, workload: Workload, board: str, costs: Mapping[str, Cost]) -> bool:
        """Return whether most of the host time that costs have of a workload is quiet time.

        Costs do not say so, but a board's host visits do. Where costs have no host time, the usual
        ones are taken, which are the board's latest. It matters only where the time around the
        workload's calls is known. On a CPU the host is the device.
        """
        if workload.around is None or self._snapshot.device.type == "cpu":
            return True
        quiet = self._snapshot.quiet_calls(board, [c.key for c in workload.occurrences()])
        all_s = quiet_s = 0.0
        for call in workload.calls:
            key, form = call.configuration.key, call.form
            if (cost := costs.get(key)) and (own := cost.host_time_s.get(form)):
                all_s += own.mean
                quiet_s += own.mean if (key, form) in quiet else 0.0
        if not all_s:
            return bool(self._snapshot.quiet_calls(board))
        return quiet_s > all_s / 2

    def _with_transition(self, calibration: Calibration) -> tuple[Calibration, tuple[str, ...]]:
        """Return a calibration with a transition time, and a note where it is not the board's own.

        It depends on the kind of device, hardly on the board: that of others is better than none.
        """
        if calibration.transition_s is not None or self._snapshot.device.type == "cpu":
            return calibration, ()
        median_s = self._snapshot.transition_s
        if median_s is None:
            return calibration, (NO_TRANSITION_TIMES,)
        return replace(calibration, transition_s=median_s), (TRANSITION_TIMES_OF_OTHERS,)

    def _usual_host_s(
        self, workload: Workload, board: str, costs: Mapping[str, Cost]
    ) -> Mapping[tuple[str, Form], float]:
        """Return the usual host times of kinds, where a call of the workload has none of its own.

        A host time depends on how a call is issued, hardly on its shape. Times of the board itself
        come first, then those of the other boards, the last board first.
        """
        lacking = {
            (call.configuration.issued_as, call.form): call.configuration.kind
            for call in workload.calls
            for cost in [costs.get(call.configuration.key)]
            if cost is None or call.form not in cost.host_time_s
        }
        found: dict[tuple[str, Form], float] = {}
        if self._snapshot.device.type != "cpu":
            for each in reversed(self._snapshot.last(board)):
                for kind in {kind for call, kind in lacking.items() if call not in found}:
                    found = {**self._snapshot.usual_host_s(each, kind), **found}
        return found


def _doubt(estimates: Estimates) -> tuple[int, int]:
    """Return how many configurations are refused, and how many rest on a roofline alone."""
    return len(estimates.refused), estimates.doubtful
