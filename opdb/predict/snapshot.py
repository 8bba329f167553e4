"""What a store holds of one device's boards, each part read once and when it is first needed."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, TypeVar

from opdb.derive.boards import BoardAnchors, Factors, board_anchors, factors, usual_calibration
from opdb.derive.quiet import LEAST_BLOCKS, CallForm
from opdb.errors import InputError, NothingMeasuredError, UnknownNameError
from opdb.records import (
    AfterOthers,
    Calibration,
    Cost,
    Device,
    Form,
    Json,
    Mode,
    ModelRun,
    RunRatio,
    RunRatios,
)
from opdb.store import Store

if TYPE_CHECKING:
    from opdb.estimates.estimator import Estimator

T = TypeVar("T")


class Snapshot:
    """The boards of a device that measured something, and what they know, whatever the settings.

    `boards` are their UUIDs, in the order in which they were stored.
    """

    def __init__(self, store: Store, device: Device) -> None:
        self.device = device
        self._store = store
        self._campaigns = {c.id: c for c in store.campaigns(device.slug)}
        measured = {c.board.uuid for c in self._campaigns.values()}  # calibrated alone is no help
        self.boards = [b.uuid for b in store.boards(device.slug) if b.uuid in measured]
        self._costs: dict[str, dict[str, Sequence[Cost]]] = {board: {} for board in self.boards}
        self._timed_on: dict[str, Mapping[str, Collection[str]]] = {}
        self._different: dict[str, int | None] = {}
        self._after_others: dict[str, AfterOthers | None] = {}
        self._anchors = cache(self._read_anchors)
        self._estimator = cache(self._read_estimator)
        self._host_seen = cache(store.host_seen)
        self.kept_limit_w = cache(self._read_kept_limit_w)
        self.kernels = cache(store.kernels)
        self.usual_host_s = cache(self._read_usual_host_s)

    @property
    def location(self) -> str:
        """Where the store is, for messages."""
        return self._store.location

    # Its boards

    def find(self, prefix: str) -> str:
        """Return the board whose UUID begins so, with or without its "GPU-", in any case.

        Raises:
            UnknownNameError: none does.
            InputError: several do.
        """
        start = prefix.lower()
        found = [b for b in self.boards if start and b.lower().startswith((start, f"gpu-{start}"))]
        if not found:
            hint = "(opdb status --json lists all)"
            raise UnknownNameError("board", prefix, self.boards, hint=hint)
        if len(found) > 1:
            raise InputError(f"board {prefix!r} is the beginning of several: {', '.join(found)}")
        return found[0]

    def most_measured(self, kinds: Collection[str] | None = None) -> str:
        """Return the board that has costs of the most configurations, of some kinds or of all.

        Raises:
            NothingMeasuredError: nothing was measured on the device.
        """
        self.check_any()
        counts = self.cost_counts() if kinds is None else self._store.cost_counts(kinds)
        return max(self.boards, key=lambda board: counts.get(board, 0))

    def cost_counts(self) -> dict[str, int]:
        """Return how many costs each board (UUID) has; a board without any is left out."""
        return self._store.cost_counts()

    def check_any(self) -> None:
        """Check that there is a board.

        Raises:
            NothingMeasuredError: nothing was measured on the device.
        """
        if not self.boards:
            raise NothingMeasuredError(
                f"nothing was measured on {self.device.slug!r}; run opdb bench there"
            )

    def last(self, board: str) -> list[str]:
        """Return the device's boards, this one last: what it has itself replaces the others'."""
        return [*(b for b in self.boards if b != board), board]

    def board_of(self, run: ModelRun) -> str:
        """Return the board that a run was made on."""
        return self._campaigns[run.campaign].board.uuid

    # What they measured

    def costs(self, board: str, keys: Collection[str]) -> dict[str, Sequence[Cost]]:
        """Return a board's costs of configurations (keys), of every setting and estimator.

        None of those that have no time on the board.
        """
        seen = self._costs[board]
        if unread := [key for key in keys if key not in seen]:
            timed_on = self.timed_on(unread)
            timed = [key for key in unread if board in timed_on[key]]
            read = self._store.costs(board, timed) if timed else {}
            seen |= {key: read.get(key, ()) for key in unread}
        return {key: seen[key] for key in keys}

    def timed_on(self, keys: Collection[str]) -> dict[str, Mapping[str, Collection[str]]]:
        """Return the settings in which configurations (keys) were timed, by board.

        Of most configurations, few boards have a cost.
        """
        if unknown := [key for key in keys if key not in self._timed_on]:
            found = self._store.timed_on(unknown)
            self._timed_on |= {key: found.get(key, {}) for key in unknown}
        return {key: self._timed_on[key] for key in keys}

    def read_costs(self, keys: Collection[str]) -> None:
        """Read all boards' costs of configurations (keys) at once: many small queries are slow.

        Of a board that has fewer costs than there are keys, all are read.
        """
        counts = self.cost_counts()
        for board, seen in self._costs.items():
            if counts.get(board, 0) <= len(keys):
                read = self._store.costs(board)
                seen |= {key: read.get(key, ()) for key in keys}
            else:
                self.costs(board, keys)
        self.read_others(keys)

    def read_others(self, keys: Collection[str]) -> None:
        """Read at once what is known of configurations (keys) whichever board saw it."""
        self._read(self._different, keys, self._store.different_kernels)
        self._read(self._after_others, keys, self._store.after_others)

    def _read(
        self,
        known: dict[str, T | None],
        keys: Collection[str],
        read: Callable[[str, Collection[str]], Mapping[str, T]],
    ) -> None:
        """Read what is not known yet of configurations (keys); None where there is nothing."""
        if unread := [key for key in keys if key not in known]:
            found = read(self.device.slug, unread)
            known |= {key: found.get(key) for key in unread}

    def different_kernels(self, costs: Mapping[str, Cost]) -> dict[str, int]:
        """Return how many different kernels configurations (keys) launch that launch several."""
        several = [key for key, cost in costs.items() if cost.kernels and cost.kernels > 1]
        self._read(self._different, several, self._store.different_kernels)
        return {key: count for key in several if (count := self._different[key]) is not None}

    def with_after_others(self, costs: Mapping[str, Cost]) -> dict[str, Cost]:
        """Return costs with what another board saw a call take longer after others.

        That of the board itself stays. It depends on the kind of device, hardly on the board.
        """
        lacking = [key for key, cost in costs.items() if cost.after_others is None]
        self._read(self._after_others, lacking, self._store.after_others)
        lent = {key: found for key in lacking if (found := self._after_others[key]) is not None}
        return {
            key: replace(cost, after_others=lent[key]) if key in lent else cost
            for key, cost in costs.items()
        }

    def refusals(self, setting: str, keys: Collection[str]) -> dict[str, str]:
        """Return why configurations (keys) are unsupported in a setting."""
        return self._store.refusals(self.device.slug, setting, keys)

    def factors(self, board: str, origin: str) -> Factors:
        """Return the factors that bring costs of the board `origin` to this one."""
        return factors(self._anchors(board), self._anchors(origin))

    def _read_anchors(self, board: str) -> BoardAnchors:
        campaigns = [c for c in self._campaigns.values() if c.board.uuid == board]
        visits = self._store.visits(board, role="anchor")
        # what the same board saw under another power limit is another device's
        return board_anchors(campaigns, [v for v in visits if v.campaign in self._campaigns])

    def calibration(self, board: str) -> Calibration:
        """Return the board's calibration, by `usual_calibration` of its campaigns."""
        return usual_calibration([c for c in self._campaigns.values() if c.board.uuid == board])

    @cached_property
    def transition_s(self) -> float | None:
        """The median time that the boards' campaigns found a transition to take, in seconds."""
        seen = (campaign.calibration.transition_s for campaign in self._campaigns.values())
        known = [seconds for seconds in seen if seconds is not None]
        return statistics.median(known) if known else None

    def memory_rate(self, board: str) -> float | None:
        """Return the highest rate of a copy, in bytes/s read and written, as last calibrated.

        Of a board without one it is the others' median; None where no board has one.
        """
        rates = self._copy_rates
        return rates.get(board, statistics.median(rates.values()) if rates else None)

    @cached_property
    def _copy_rates(self) -> dict[str, float]:
        found = (
            (each.board.uuid, each.facts.get("copy_bytes_per_s"))
            for each in self._store.board_calibrations()
            if each.board.uuid in self.boards and each.power_limit_w == self.device.power_limit_w
        )
        return {board: rate for board, rate in found if rate is not None}

    def _read_kept_limit_w(self, board: str) -> float | None:
        """Return the power that the board keeps to at its limit, as last calibrated."""
        found = [
            each.facts.get("limit_power_w")
            for each in self._store.board_calibrations(board)
            if each.power_limit_w == self.device.power_limit_w
        ]
        return next((kept for kept in reversed(found) if kept is not None), None)

    def _read_usual_host_s(self, board: str, kind: str) -> Mapping[tuple[str, Form], float]:
        """Return a kind's usual host times on a board, by `issued_as` and form."""
        return self._host_seen(board).usual_s(kind)

    def quiet_calls(self, board: str, keys: Collection[str] | None = None) -> set[CallForm]:
        """Return the calls whose host time on a board is a quiet time; of configurations (keys)."""
        found = self._store.host_blocks(board, keys)
        return {call for call, blocks in found.items() if blocks >= LEAST_BLOCKS}

    # What was learned from them

    def estimators(self, board: str) -> Iterator[Estimator]:
        """Yield the estimators: the board's own first, then other boards', the latest first."""
        others = [each for each in reversed(self._learned) if each != board]
        own = [board] if board in self._learned else []
        return map(self._estimator, own + others)

    def run_ratios(self, mode: Mode, board: str) -> Mapping[str, RunRatio | None]:
        """Return what a board's runs in a mode showed of sums, by workload (key).

        They are as they were learned last; nothing of a board that has measured since.
        """
        learned_at, ratios = self._run_ratios
        of = [c.started_at for c in self._campaigns.values() if c.board.uuid == board]
        return ratios.get(mode, {}).get(board, {}) if max(of, default="") < learned_at else {}

    @cached_property
    def _run_ratios(self) -> tuple[str, RunRatios]:
        return self._store.run_ratios(self.device.slug)

    @cached_property
    def _learned(self) -> dict[str, Json]:
        return self._store.learned(self.device.slug)

    def _read_estimator(self, board: str) -> Estimator:
        from opdb.estimates.document import from_document  # imports numpy, which takes its time

        return from_document(self._learned[board])
