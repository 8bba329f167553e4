"""What the boards of one device know: each its own, and what it may take from the others."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from opdb.compose import Grounds
from opdb.derive.boards import BoardAnchors, Factors, board_anchors, factors, transferred
from opdb.derive.costs import ESTIMATOR
from opdb.derive.host import moment_ratios
from opdb.errors import DatabaseError, InputError, NothingMeasuredError, UnknownNameError
from opdb.footprint import resident_bytes
from opdb.records import (
    ALGORITHM_SETTING,
    Calibration,
    Configuration,
    Cost,
    Device,
    Form,
    Json,
    ModelRun,
    Workload,
)
from opdb.settings import is_forcible, relevant_setting
from opdb.store import HostSeen, Store

if TYPE_CHECKING:
    from opdb.estimates.estimator import Estimates, Estimator


class Boards:
    """The boards of a device that measured something, read from a store once and as needed."""

    def __init__(self, store: Store, device: Device, settings: Mapping[str, Json]) -> None:
        self._store = store
        self._device = device
        self._settings = settings
        self._campaigns = {c.id: c for c in store.campaigns(device.slug)}
        measured = {c.board.uuid for c in self._campaigns.values()}  # calibrated alone is no help
        self.uuids = [b.uuid for b in store.boards(device.slug) if b.uuid in measured]
        self._costs: dict[str, dict[str, Cost | None]] = {board: {} for board in self.uuids}
        self._kept_limits_w: dict[str, float | None] = {}
        self._host_seen: dict[str, HostSeen] = {}
        self._usual_host: dict[tuple[str, str], Mapping[tuple[str, Form], float]] = {}
        self._host_ratios: dict[str, tuple[float, ...]] = {}
        self._anchors: dict[str, BoardAnchors] = {}
        self._learned: dict[str, Json] | None = None
        self._estimators: dict[str, Estimator] = {}

    def find(self, prefix: str) -> str:
        """Return the board whose UUID begins so, with or without its "GPU-", in any case.

        Raises:
            UnknownNameError: none does.
            InputError: several do.
        """
        said = prefix.lower()
        found = [b for b in self.uuids if said and b.lower().startswith((said, f"gpu-{said}"))]
        if not found:
            hint = "(opdb status --json lists all)"
            raise UnknownNameError("board", prefix, self.uuids, hint=hint)
        if len(found) > 1:
            raise InputError(f"board {prefix!r} is the beginning of several: {', '.join(found)}")
        return found[0]

    def most_measured(self) -> str:
        """Return the board that has costs of the most configurations.

        Raises:
            NothingMeasuredError: nothing was measured on the device.
        """
        self.check_any()
        counts = self._store.cost_counts()
        return max(self.uuids, key=lambda board: counts.get(board, 0))

    def check_any(self) -> None:
        """Check that there is one.

        Raises:
            NothingMeasuredError: nothing was measured on the device.
        """
        if not self.uuids:
            raise NothingMeasuredError(
                f"nothing was measured on {self._device.slug!r}; run opdb bench there"
            )

    def last(self, board: str) -> list[str]:
        """Return the device's boards, this one last: what it has itself replaces the others'."""
        return [*(b for b in self.uuids if b != board), board]

    def of_run(self, run: ModelRun) -> str:
        """Return the board that a run was made on."""
        return self._campaigns[run.campaign].board.uuid

    # What operators cost

    def own(self, configurations: Iterable[Configuration], board: str) -> dict[str, Cost]:
        """Return what a board measured of these, in these settings; each row is read once.

        Raises:
            DatabaseError: a cost is none that visits can give.
        """
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
                        self._check(cost, kinds[key])
                        seen[key] = cost
        return {key: known for key in kinds if (known := seen[key]) is not None}

    def _check(self, cost: Cost, kind: str) -> None:
        if (why := cost.impossible) is not None:
            raise DatabaseError(
                f"database {self._store.location}: the cost of {kind} {cost.configuration[:12]} on "
                f"{cost.board} is none that was measured: {why}; opdb derive restores it"
            )

    def lent(
        self, configurations: Iterable[Configuration], board: str
    ) -> Iterator[tuple[str, Mapping[str, Cost]]]:
        """Yield what a board lacks and others have: each board and its costs, the last board first.

        What several have is the last one's.
        """
        given = list(configurations)
        own = self.own(given, board)
        lacking = [c for c in given if c.key not in own]
        for other in reversed(self.last(board)[:-1]):
            if lacking and (found := self.own(lacking, other)):
                lacking = [c for c in lacking if c.key not in found]
                yield other, found

    def costs(self, board: str, configurations: Collection[Configuration]) -> dict[str, Cost]:
        """Return the costs of configurations on a board, by key, as far as any board has them.

        What only other boards of the device have is brought over by factors.
        """
        base_w = self.calibration(board).base_power_w
        costs = self.own(configurations, board)
        for other, brought in self.lent(configurations, board):
            by = self.factors(board, other)
            costs |= {key: transferred(c, board, by, base_w) for key, c in brought.items()}
        return costs

    def _brought(self, configurations: Iterable[Configuration], board: str) -> dict[str, Factors]:
        """Return by which factors the costs (keys) that a board lacks are brought to it."""
        return {
            key: self.factors(board, other)
            for other, found in self.lent(configurations, board)
            for key in found
        }

    def forced(self, configurations: Iterable[Configuration]) -> list[Configuration]:
        """Return those of the configurations that these settings tell their algorithm."""
        if ALGORITHM_SETTING not in self._settings:
            return []
        return [c for c in configurations if is_forcible(c.kind)]

    def refused(self, configurations: Iterable[Configuration]) -> dict[str, str]:
        """Return why configurations (keys) cannot run by the algorithm that they are told."""
        by_setting: dict[str, list[str]] = {}
        for each in self.forced(configurations):
            setting = relevant_setting(each.kind, self._settings)
            by_setting.setdefault(setting, []).append(each.key)
        return {
            key: reason
            for setting, keys in by_setting.items()
            for key, reason in self._store.refusals(self._device.slug, setting, keys).items()
        }

    def factors(self, board: str, origin: str) -> Factors:
        """Return what brings costs of the board `origin` to this one."""
        return factors(self._anchors_of(board), self._anchors_of(origin))

    def _anchors_of(self, board: str) -> BoardAnchors:
        if board not in self._anchors:
            campaigns = [c for c in self._campaigns.values() if c.board.uuid == board]
            visits = self._store.visits(board, role="anchor")
            # what the same board saw under another power limit is another device's
            own = [visit for visit in visits if visit.campaign in self._campaigns]
            self._anchors[board] = board_anchors(campaigns, own)
        return self._anchors[board]

    def estimates(self, missing: Sequence[Configuration], board: str) -> Estimates | None:
        """Estimate what nobody measured; None where nothing was learned on the device.

        The board's own estimates come first, then those of others, last first; of all, those which
        refuse the least. What was learned on another board, whose the estimates then say they are,
        is brought to this one as its costs are.
        """
        best: Estimates | None = None
        for estimator in self._estimators_for(board):
            found = estimator.estimate(missing)
            if best is None or len(found.refused) < len(best.refused):
                best = found
            if not best.refused:
                break
        if best is None or best.board == board:
            return best
        by, base_w = self.factors(board, best.board), self.calibration(board).base_power_w
        costs = {key: transferred(c, board, by, base_w) for key, c in best.costs.items()}
        return replace(best, costs=costs)

    def _estimators_for(self, board: str) -> Iterator[Estimator]:
        """Yield what was learned from the board's costs, then from other boards', last first."""
        if self._learned is None:
            self._learned = self._store.learned(self._device.slug)
        others = [each for each in reversed(self._learned) if each != board]
        own = [board] if board in self._learned else []
        for each in own + others:
            if each not in self._estimators:
                # It takes numpy, which takes its time.
                from opdb.estimates.document import from_document

                self._estimators[each] = from_document(self._learned[each])
            yield self._estimators[each]

    # What a pass of a model starts from

    def calibration(self, board: str) -> Calibration:
        """Return the calibration of the board's latest campaign that has base power."""
        campaigns = [c for c in self._campaigns.values() if c.board.uuid == board]
        powered = [c for c in campaigns if c.calibration.base_power_w is not None]
        return (powered or campaigns)[-1].calibration

    def grounds(self, workload: Workload, board: str, left_out: Collection[str] = ()) -> Grounds:
        """Gather what a prediction starts from, but for the costs of what is left out (keys).

        Times of another host do not come with the costs that are brought from its board: what calls
        of their kind usually take on this one tells more of them.
        """
        configurations = workload.occurrences()
        brought = self._brought(configurations, board)
        costs = {
            key: replace(cost, host_time_s={}) if key in brought else cost
            for key, cost in self.costs(board, configurations).items()
            if key not in left_out
        }
        found = self.grounds_of(workload, board, self.calibration(board), costs)
        return replace(found, brought=brought)

    def grounds_of(
        self, workload: Workload, board: str, calibration: Calibration, costs: Mapping[str, Cost]
    ) -> Grounds:
        """Gather what a prediction starts from, with these costs and this calibration."""
        calibration, notes = self._with_transition(calibration)
        return Grounds(
            self._device,
            board,
            calibration,
            costs,
            self._usual_host_s(workload, board, costs),
            resident_bytes=resident_bytes(self._device),
            kept_limit_w=self._kept_limit_w(board),
            notes=notes,
        )

    def _with_transition(self, calibration: Calibration) -> tuple[Calibration, tuple[str, ...]]:
        """Return a calibration with what transitions take, and the note that says whose it is.

        The kind of device decides it, hardly the board: another one's is better than none.
        """
        if calibration.transition_s is not None or self._device.type == "cpu":
            return calibration, ()
        seen = (campaign.calibration.transition_s for campaign in self._campaigns.values())
        known = [seconds for seconds in seen if seconds is not None]
        if not known:
            note = "what transitions between operators take was never calibrated on this device"
            return calibration, (note,)
        lent = replace(calibration, transition_s=statistics.median(known))
        return lent, ("what transitions between operators take is that of other boards",)

    def _kept_limit_w(self, board: str) -> float | None:
        """Return the power that the board keeps to at its limit, as last calibrated."""
        if board not in self._kept_limits_w:
            found = [
                each.facts.get("limit_power_w")
                for each in self._store.board_calibrations(board)
                if each.power_limit_w == self._device.power_limit_w
            ]
            known = [kept for kept in found if kept is not None]
            self._kept_limits_w[board] = known[-1] if known else None
        return self._kept_limits_w[board]

    def host_ratios(self, board: str) -> tuple[float, ...]:
        """Return what the same calls took the board's host at one moment over another."""
        if board not in self._host_ratios:
            self._host_ratios[board] = moment_ratios(self._store.host_visits(board))
        return self._host_ratios[board]

    def _usual_host_s(
        self, workload: Workload, board: str, costs: Mapping[str, Cost]
    ) -> Mapping[tuple[str, Form], float]:
        """Return the usual host times of kinds, where a call of the workload has none of its own.

        The host's part hangs on how a call is issued, hardly on its shape. What the board
        itself has comes first, then what the last of the others has.
        """
        lacking = {
            (call.configuration.issued_as, call.form): call.configuration.kind
            for call in workload.calls
            for cost in [costs.get(call.configuration.key)]
            if cost is None or call.form not in cost.host_time_s
        }
        found: dict[tuple[str, Form], float] = {}
        if self._device.type != "cpu":
            for each in reversed(self.last(board)):
                if lacking.keys() <= found.keys():
                    break
                for kind in set(lacking.values()):
                    found = {**self._usual_host_of(each, kind), **found}
        return found

    def _usual_host_of(self, board: str, kind: str) -> Mapping[tuple[str, Form], float]:
        if (board, kind) not in self._usual_host:
            if board not in self._host_seen:
                self._host_seen[board] = self._store.host_seen(board)
            self._usual_host[board, kind] = self._host_seen[board].usual_s(kind)
        return self._usual_host[board, kind]
