"""What a store holds of one device's boards, each part read once and when it is first needed."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Generic, TypeVar

from opdb.derive.boards import (
    BoardAnchors,
    Factors,
    board_anchors,
    factors,
    in_words,
    transferred,
    usual_calibration,
)
from opdb.derive.costs import cost_in
from opdb.derive.quiet import LEAST_BLOCKS, CallForm
from opdb.derive.runs import RunCost, run_cost
from opdb.derive.statistics import typical_on
from opdb.errors import DatabaseError, InputError, NothingMeasuredError, UnknownNameError
from opdb.kinds.registry import is_forcible, relevant_setting
from opdb.memory import resident_bytes
from opdb.predict.compose import inputs_in_pass
from opdb.predict.generation import InPart, Interpolated, between_steps
from opdb.predict.timeline import HostTimes, Pass, PredictionInputs, is_one_graph, with_estimates
from opdb.records import (
    ALGORITHM_SETTING,
    CAPTURED_MODE,
    COMPILED_MODES,
    ELSEWHERE,
    AfterOthers,
    Calibration,
    Configuration,
    Cost,
    Device,
    Form,
    Json,
    Mode,
    ModelRun,
    RunRatio,
    RunRatios,
    Workload,
)
from opdb.store import MeasuredWorkload, Store, usual_host_s
from opdb.units import plural

if TYPE_CHECKING:
    from opdb.estimates.estimator import Estimates, Estimator

T = TypeVar("T")

NO_TRANSITION_TIMES = "transition times between operators were never calibrated on this device"
TRANSITION_TIMES_OF_OTHERS = "transition times between operators were taken from other boards"
NOTHING_LEARNED = (
    "no estimates: none were learned on this device; python -m opdb.estimates learns them"
)
NOTHING_FORCED = "{} makes no calls whose algorithm can be forced: this is its usual prediction"
CAPTURED_NOTE = (
    "{} asks whether it is being captured in a CUDA graph, and then calls other operators than in "
    "eager: the prediction sums these"
)


class Lookup(Generic[T]):
    """What a database has under keys, each read once; `none` stands for what it has not."""

    def __init__(self, read: Callable[[list[str]], Mapping[str, T]], none: T) -> None:
        self._read, self._none = read, none
        self._known: dict[str, T] = {}

    def of(self, keys: Iterable[str]) -> dict[str, T]:
        """Return what is under these keys; what is not known yet is read at once."""
        asked = list(keys)
        if unread := [key for key in asked if key not in self._known]:
            found = self._read(unread)
            self._known |= {key: found.get(key, self._none) for key in unread}
        return {key: self._known[key] for key in asked}


@dataclass(frozen=True)
class Basis:
    """What all predictions of a workload on a board start from, whatever their mode.

    `refused` says why the forced algorithm cannot run some of its configurations (keys).
    """

    pass_: Pass
    inputs: PredictionInputs
    notes: tuple[str, ...]
    refused: Mapping[str, str]


class BoardData:
    """The boards of a device that measured something: costs, runs, and what was learned of them.

    `boards` are their UUIDs, in the order in which they were stored. Costs are those under some
    backend settings. Where these force an algorithm on convolutions, costs and runs are those under
    it; `usual` is the same data where torch chooses.
    """

    def __init__(self, store: Store, device: Device, settings: Mapping[str, Json]) -> None:
        self.device, self.settings = device, settings
        self.algorithm = settings.get(ALGORITHM_SETTING)
        self._store = store
        self._campaigns = {c.id: c for c in store.campaigns(device.slug)}
        measured = {c.board.uuid for c in self._campaigns.values()}  # calibrated alone is no help
        self.boards = [b.uuid for b in store.boards(device.slug) if b.uuid in measured]
        self._timed_on: Lookup[Mapping[str, Collection[str]]] = Lookup(store.timed_on, {})
        self._costs: dict[str, dict[str, Cost | None]] = defaultdict(dict)
        self._different = Lookup[int | None](partial(store.different_kernels, device.slug), None)
        self._after_others = Lookup[AfterOthers | None](
            partial(store.after_others, device.slug), None
        )
        self._workloads = Lookup[Workload | None](
            lambda keys: {each.key: each for each in store.workloads_by_key(keys)}, None
        )
        self._setting = cache(lambda kind: relevant_setting(kind, settings))
        self._anchors = cache(self._read_anchors)
        self._estimator = cache(self._read_estimator)
        self._kernels = cache(store.kernels)
        self._host_seen = cache(store.host_seen)
        self._usual_host_s = cache(
            lambda board, kind: usual_host_s(self._host_seen(board).get(kind, ()))
        )
        self._pass_of = cache(Pass)
        self.groups = cache(self._read_groups)
        self.measured_in = cache(self._choose_measured)
        self._runs = cache(
            lambda mode: Lookup[Sequence[ModelRun]](partial(self._read_runs, mode), ())
        )
        self._quiet = cache(self._read_quiet)
        self.calibration = cache(self._usual_calibration)
        self.factors = cache(self._factors)
        self._brought = cache(self._brought_over)
        self.stored_ratios = cache(self._stored_ratios)
        self._memory_rate = cache(self._highest_rate)
        self.run_cost = cache(self._cost_of_runs)
        self.basis = cache(self._measured_basis)
        self.full_basis = cache(self._with_estimates)

    @cached_property
    def usual(self) -> BoardData:
        """The same data where torch chooses the algorithms of convolutions."""
        if self.algorithm is None:
            return self
        settings = {k: v for k, v in self.settings.items() if k != ALGORITHM_SETTING}
        return BoardData(self._store, self.device, settings)

    def board(self, prefix: str) -> str:
        """Return the board whose UUID begins so, with or without its "GPU-", in any case."""
        start = prefix.lower()
        found = [b for b in self.boards if start and b.lower().startswith((start, f"gpu-{start}"))]
        if not found:
            hint = "(opdb show --json lists all)"
            raise UnknownNameError("board", prefix, self.boards, hint=hint)
        if len(found) > 1:
            raise InputError(f"board {prefix!r} is the beginning of several: {', '.join(found)}")
        return found[0]

    def check_any(self) -> None:
        if not self.boards:
            raise NothingMeasuredError(
                f"nothing was measured on {self.device.slug!r}; run opdb bench there"
            )

    def most_measured(self) -> str:
        self.check_any()
        counts = self._store.cost_counts()
        return max(self.boards, key=lambda board: counts.get(board, 0))

    def measured(self, configurations: Iterable[Configuration]) -> dict[str, set[Configuration]]:
        """Return which of these each board measured in these settings; no cost is read."""
        given = {c.key: c for c in configurations}
        found: dict[str, set[Configuration]] = {board: set() for board in self.boards}
        for key, timed_on in self._timed_on.of(given).items():
            for board, settings in timed_on.items():
                if board in found and self._setting(given[key].kind) in settings:
                    found[board].add(given[key])
        return found

    def measuring(self, configurations: Iterable[Configuration]) -> dict[str, set[Configuration]]:
        """Return what boards themselves measured of these, the board that measured most first.

        Boards that measured none are left out.
        """
        self.check_any()
        measured = self.measured(configurations)
        chosen = sorted(filter(measured.get, measured), key=lambda board: -len(measured[board]))
        return {board: measured[board] for board in chosen}

    def best_board(self, workload: Workload) -> str:
        """Return the board that measured the most of a workload's configurations.

        Where none measured any, it is one that measured operators at all, if there is one: others
        ran whole models alone.
        """
        if measuring := self.measuring(workload.occurrences()):
            return next(iter(measuring))
        counts = self._store.cost_counts()
        return next((each for each in self.boards if counts.get(each)), self.boards[0])

    def _factors(self, board: str, origin: str) -> Factors:
        return factors(self._anchors(board), self._anchors(origin))

    def _read_anchors(self, board: str) -> BoardAnchors:
        campaigns = [c for c in self._campaigns.values() if c.board.uuid == board]
        visits = self._store.visits(board, role="anchor")
        # what the same board saw under another power limit is another device's
        return board_anchors(campaigns, [v for v in visits if v.campaign in self._campaigns])

    def _usual_calibration(self, board: str) -> Calibration:
        return usual_calibration([c for c in self._campaigns.values() if c.board.uuid == board])

    def base_power_w(self, board: str) -> float | None:
        return self.calibration(board).base_power_w

    def _last(self, board: str) -> list[str]:
        """Return the device's boards, this one last: what it has itself replaces the others'."""
        return [*(b for b in self.boards if b != board), board]

    @cached_property
    def _transition_s(self) -> float | None:
        """The median time that the boards' campaigns found a transition to take, in seconds."""
        seen = (campaign.calibration.transition_s for campaign in self._campaigns.values())
        known = [seconds for seconds in seen if seconds is not None]
        return statistics.median(known) if known else None

    @cached_property
    def _facts(self) -> Mapping[str, Mapping[str, float]]:
        """The facts of each board at this power limit, as last calibrated."""
        found: dict[str, dict[str, float]] = {}
        for each in self._store.board_calibrations():
            if each.power_limit_w == self.device.power_limit_w:
                facts = {name: value for name, value in each.facts.items() if value is not None}
                found.setdefault(each.board.uuid, {}).update(facts)
        return found

    def _fact(self, board: str, name: str) -> float | None:
        return self._facts.get(board, {}).get(name)

    def _highest_rate(self, board: str) -> float | None:
        """Return the highest rate of a copy, in bytes/s read and written, as last calibrated.

        Of a board without one it is the others' median; None where no board has one.
        """
        rates = [self._fact(each, "copy_bytes_per_s") for each in (board, *self.boards)]
        known = [rate for rate in rates if rate is not None]
        return rates[0] or (statistics.median(known) if known else None)

    def read_costs(self, called: Mapping[str, Iterable[Workload]]) -> None:
        """Read at once what predictions of workloads for boards ask: small queries are slow."""
        every: set[str] = set()
        lacking: set[str] = set()
        for board, of_board in called.items():
            configurations = {c.key: c for w in of_board for c in w.occurrences()}
            own = self.own(configurations.values(), board)
            every |= configurations.keys()
            lacking |= configurations.keys() - own.keys()
        self._different.of(every)
        self._after_others.of(every)
        self._timed_on.of(lacking)

    def own(self, configurations: Iterable[Configuration], board: str) -> dict[str, Cost]:
        """Return what a board measured of these (by key), in these settings.

        Raises:
            DatabaseError: a cost is one that no visits can give.
        """
        known = self._costs[board]
        given = {c.key: c for c in configurations}
        if unread := [key for key in given if key not in known]:
            found = self._store.costs(board, unread)
            for key in unread:
                known[key] = self._in_settings(found.get(key, ()), given[key])
        return {key: cost for key in given if (cost := known[key]) is not None}

    def _in_settings(self, costs: Sequence[Cost], configuration: Configuration) -> Cost | None:
        cost = cost_in(costs, self._setting(configuration.kind))
        if cost is not None and (why := cost.impossible) is not None:
            raise DatabaseError(
                f"database {self._store.location}: the cost of {configuration.kind} "
                f"{configuration.key[:12]} on {cost.board} is none that was measured: {why}; "
                "python -m opdb.derive restores it"
            )
        return cost

    def _lent(
        self, configurations: Iterable[Configuration], board: str
    ) -> Iterator[tuple[str, Mapping[str, Cost]]]:
        """Yield the costs that a board lacks, by the other board that has them, the last one first.

        Where several boards have a cost, the last one lends it.
        """
        given = list(configurations)
        own = self.own(given, board)
        lacking = [c for c in given if c.key not in own]
        timed_on = self._timed_on.of(c.key for c in lacking)
        for other in reversed(self._last(board)[:-1]):
            timed = [c for c in lacking if other in timed_on[c.key]]
            if timed and (found := self.own(timed, other)):
                lacking = [c for c in lacking if c.key not in found]
                yield other, {key: self._brought(key, board, other) for key in found}

    def costs_on(self, board: str, configurations: Collection[Configuration]) -> dict[str, Cost]:
        """Return the costs of configurations on a board, by key, as far as any board has them.

        What only other boards of the device have is brought over by factors.
        """
        costs = self.own(configurations, board)
        for _, lent in self._lent(configurations, board):
            costs |= lent
        return costs

    def _brought_over(self, key: str, board: str, origin: str) -> Cost:
        cost = self._costs[origin][key]
        assert cost is not None
        return transferred(cost, board, self.factors(board, origin), self.base_power_w(board))

    def _transferred(self, costs: Mapping[str, Cost], board: str, origin: str) -> dict[str, Cost]:
        by = self.factors(board, origin)
        base_w = self.base_power_w(board)
        return {key: transferred(cost, board, by, base_w) for key, cost in costs.items()}

    def _forced(self, configurations: Iterable[Configuration]) -> list[Configuration]:
        if self.algorithm is None:
            return []
        return [c for c in configurations if is_forcible(c.kind)]

    def _refused(self, configurations: Iterable[Configuration]) -> dict[str, str]:
        by_setting: dict[str, list[str]] = {}
        for each in self._forced(configurations):
            by_setting.setdefault(self._setting(each.kind), []).append(each.key)
        return {
            key: reason
            for setting, keys in by_setting.items()
            for key, reason in self._store.refusals(self.device.slug, setting, keys).items()
        }

    @cached_property
    def _learned(self) -> dict[str, Json]:
        return self._store.learned(self.device.slug)

    def _read_estimator(self, board: str) -> Estimator:
        from opdb.estimates.estimator import from_document  # imports numpy, which takes its time

        return from_document(self._learned[board])

    def estimates(self, missing: Sequence[Configuration], board: str) -> Estimates | None:
        """Estimate what nobody measured; None where nothing was learned on the device.

        Of all boards' estimators, the one that refuses the fewest configurations estimates them,
        and among those the one that leaves the fewest to a roofline alone;
        among equals the board's own, then the latest. Estimates of another board's estimator keep
        its name in `board`, and factors bring them to this board as they bring its costs.
        """
        best: Estimates | None = None
        doubt = (0, 0)
        own = [board] if board in self._learned else []
        for each in (*own, *(other for other in reversed(self._learned) if other != board)):
            found = self._estimator(each).estimate(missing)
            of_found = len(found.refused), found.doubtful
            if best is None or of_found < doubt:
                best, doubt = found, of_found
            if not any(doubt):
                break
        if best is None or best.board == board:
            return best
        return replace(best, costs=self._transferred(best.costs, board, best.board))

    def _stored_ratios(self, mode: Mode, board: str) -> Mapping[str, RunRatio | None]:
        """Return what a board's runs in a mode showed of sums, by workload (key).

        They are as they were learned last; nothing of a board that has measured since.
        """
        learned_at, ratios = self._run_ratios
        of = [c.started_at for c in self._campaigns.values() if c.board.uuid == board]
        return ratios.get(mode, {}).get(board, {}) if max(of, default="") < learned_at else {}

    @cached_property
    def _run_ratios(self) -> tuple[str, RunRatios]:
        return self._store.run_ratios(self.device.slug)

    def _read_quiet(self, board: str) -> set[CallForm]:
        """Return the calls whose host time on a board is a quiet time."""
        found = self._store.host_blocks(board)
        return {call for call, blocks in found.items() if blocks >= LEAST_BLOCKS}

    def has_quiet_host(self, workload: Workload, board: str, costs: Mapping[str, Cost]) -> bool:
        """Return whether most of the host time that costs have of a workload is quiet time.

        Costs do not say so, but a board's host visits do. Where costs have no host time, the usual
        ones are taken, which are the board's latest. It matters only where the time around the
        workload's calls is known. On a CPU the host is the device.
        """
        if workload.around is None or self.device.type == "cpu":
            return True
        quiet = self._quiet(board)
        all_s = quiet_s = 0.0
        pass_ = self._pass_of(workload)
        for call, times in zip(pass_.calls, pass_.times, strict=True):
            key, form = call.configuration.key, call.form
            if (cost := costs.get(key)) and (own := cost.host_time_s.get(form)):
                all_s += times * own.mean
                quiet_s += times * own.mean if (key, form) in quiet else 0.0
        if not all_s:
            return bool(quiet)
        return quiet_s > all_s / 2

    def in_mode(self, inputs: PredictionInputs, pass_: Pass, mode: Mode) -> PredictionInputs:
        """Return inputs with the usual host times of kinds, where a pass waits for its host.

        They stand in where a call has none of its own: a host time depends on how a call is issued,
        hardly on its shape. Times of the board itself come first, then those of the other boards,
        the last board first.
        """
        if is_one_graph(mode) or self.device.type == "cpu":
            return inputs
        host = HostTimes(pass_, inputs)
        lacking = {
            (call.configuration.issued_as, call.form): call.configuration.kind
            for call in pass_.calls
            if host.own(call) is None
        }
        found: dict[tuple[str, Form], float] = {}
        for board in reversed(self._last(inputs.board)):
            for kind in {kind for call, kind in lacking.items() if call not in found}:
                found = {**self._usual_host_s(board, kind), **found}
        return replace(inputs, host_s=found)

    def inputs(
        self, workload: Workload, board: str, left_out: Collection[str] = ()
    ) -> PredictionInputs:
        """Gather what a prediction starts from, without the costs of what is left out (keys).

        Costs that are brought from another board lose the times of that board's host: the usual
        times of calls of their kind on this board's host are nearer.
        """
        costs = self.own(workload.occurrences(), board)
        brought: dict[str, Factors] = {}
        notes: tuple[str, ...] = ()
        for other, lent in self._lent(workload.occurrences(), board):
            by, of = self.factors(board, other), plural(len(lent), "configuration")
            brought |= dict.fromkeys(lent, by)
            costs |= {key: replace(cost, host_time_s={}) for key, cost in lent.items()}
            notes = (*notes, f"measured only on board {other}: {of}; {_scaled_by(by)}")
        kept = {key: cost for key, cost in costs.items() if key not in left_out}
        found = self.inputs_of(workload, board, self.calibration(board), kept)
        return replace(found, brought=brought, notes=(*found.notes, *notes))

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

        Host times in the costs are those of the board `timed_on`; None: of the board itself. What
        was not measured on the board, but depends on the kind of device, hardly on the board,
        is other boards': how long a transition takes, and what calls take longer after others.
        """
        notes: tuple[str, ...] = ()
        if calibration.transition_s is None and self.device.type != "cpu":
            lacks = self._transition_s is None
            notes = (NO_TRANSITION_TIMES if lacks else TRANSITION_TIMES_OF_OTHERS,)
            calibration = replace(calibration, transition_s=self._transition_s)
        lacking = [key for key, cost in costs.items() if cost.after_others is None]
        lent = {key: found for key, found in self._after_others.of(lacking).items() if found}
        costs = {**costs, **{key: replace(costs[key], after_others=lent[key]) for key in lent}}
        several = [
            key
            for key, cost in costs.items()
            if cost.after_others is None and cost.kernels and cost.kernels > 1
        ]
        return PredictionInputs(
            self.device,
            board,
            calibration,
            costs,
            resident_bytes=resident_bytes(self.device),
            kept_limit_w=self._fact(board, "limit_power_w"),
            memory_rate=self._memory_rate(board),
            notes=notes,
            different_kernels={
                key: count
                for key, count in self._different.of(several).items()
                if count is not None
            },
            quiet_host=self.has_quiet_host(workload, timed_on or board, costs),
        )

    def _measured_basis(self, workload: Workload, board: str) -> Basis:
        pass_ = self._pass_of(workload)
        inputs = inputs_in_pass(pass_, self.inputs(workload, board))
        refused = self._refused(
            c for key, c in pass_.configurations.items() if key not in inputs.costs
        )
        notes = [CAPTURED_NOTE.format(workload.name)] if workload.captured else []
        if self.algorithm is not None and not self._forced(pass_.configurations.values()):
            notes.append(NOTHING_FORCED.format(workload.name))
        elif self.algorithm is not None:
            notes += [
                f"{plural(count, 'configuration')} unsupported by {self.algorithm}: {reason}"
                for reason, count in Counter(refused.values()).items()
            ]
        return Basis(pass_, inputs, tuple(notes), refused)

    def _with_estimates(
        self, workload: Workload, board: str, between: Interpolated | None, *, learned: bool
    ) -> Basis:
        """Return the basis of a workload on a board, with estimates of what nobody measured.

        A pass between measured ones and a whole generation, between whose measured
        steps the others lie, have interpolated costs. What is left is estimated, if what was
        `learned` is asked; but not calls whose algorithm is forced: estimates are of the algorithms
        that torch takes.
        """
        basis = self.basis(workload, board)
        configurations, inputs = basis.pass_.configurations, basis.inputs
        forced = {c.key for c in self._forced(configurations.values())}
        known = inputs.costs.keys() | forced
        missing = [c for key, c in configurations.items() if key not in known]
        if not missing:
            return basis
        if workload.phase == "generate":
            steps = between_steps(workload, inputs.costs)
            between = steps if {c.key for c in missing} <= steps.costs.keys() else None
        if between is not None:
            missing = [c for c in missing if c.key not in between.costs]
            inputs = replace(inputs, estimates=between)
        estimates = self.estimates(missing, board) if missing and learned else None
        if estimates is not None:
            brought = dict(inputs.brought)
            if estimates.board != board:
                by = self.factors(board, estimates.board)
                brought |= dict.fromkeys(estimates.costs, by)
                if not by.is_known:
                    noted = f"estimated as for board {estimates.board}; {_scaled_by(by)}"
                    inputs = replace(inputs, notes=(*inputs.notes, noted))
            both = estimates if between is None else InPart(between, estimates)
            inputs = replace(inputs, estimates=both, brought=brought)
        elif missing and learned:
            inputs = replace(inputs, notes=(*inputs.notes, NOTHING_LEARNED))
        return replace(basis, inputs=with_estimates(configurations, inputs))

    def _read_groups(self, mode: Mode) -> Sequence[MeasuredWorkload]:
        """Return each workload with each board that has a good run of it in a mode, torch choosing.

        In a mode that compiles, the workloads are the compiled ones, where these are known; in
        that of a CUDA graph, the captured ones, where these differ.
        """
        found = self._store.measured(self.device.slug, mode)
        if mode in COMPILED_MODES:
            plain = self._store.workloads_by_key([each.key for each in found])
            keys = {w.key: self._compiled_key(w) for w in plain}
            known = self._workloads.of(keys.values())
            return [replace(each, key=keys[each.key]) for each in found if known[keys[each.key]]]
        if mode == CAPTURED_MODE and found:
            keys = self._store.captured_keys()
            return [replace(each, key=keys.get(each.key, each.key)) for each in found]
        return found

    def _compiled_key(self, workload: Workload) -> str:
        return replace(workload, compiled_for=self.device.slug).key

    def _choose_measured(self, mode: Mode) -> Mapping[str, MeasuredWorkload]:
        """Return the workloads (by key) of a mode's groups, each on one board.

        Of several boards that ran a workload it is the one that measured most of its operators, and
        among equals the one of the latest run.
        """
        by_key: dict[str, list[MeasuredWorkload]] = {}
        for each in self.groups(mode):
            by_key.setdefault(each.key, []).append(each)
        several = [key for key, measured in by_key.items() if len(measured) > 1]
        counts = self._store.cost_counts_of_workloads(several)
        return {
            key: max(reversed(measured), key=lambda each: counts.get((each.key, each.board), 0))
            for key, measured in by_key.items()
        }

    def captured(self, workloads: Sequence[Workload]) -> list[Workload]:
        """Return what workloads call while a CUDA graph captures them; as they are where alike."""
        keys = [replace(each, captured=True).key for each in workloads]
        found = self._workloads.of(keys)
        return [found[key] or each for key, each in zip(keys, workloads, strict=True)]

    def compiled(self, workload: Workload) -> Workload | None:
        [found] = self._workloads.of([self._compiled_key(workload)]).values()
        return found

    def uncompiled(self, modes: Collection[Mode] = COMPILED_MODES) -> int:
        """Count the good runs in modes that compile of which the compiled calls are not known."""
        return sum(
            len(self._store.measured(self.device.slug, mode)) - len(self.groups(mode))
            for mode in modes
            if mode in COMPILED_MODES
        )

    def workloads_of(self, keys: Sequence[str]) -> list[Workload]:
        found = self._workloads.of(keys)
        return [workload for key in keys if (workload := found[key]) is not None]

    def measured_workloads(self, mode: Mode) -> list[tuple[Workload, str]]:
        """Return the workloads that were measured in a mode, with the board whose run counts."""
        on = self.measured_in(mode)
        return [(workload, on[workload.key].board) for workload in self.workloads_of(list(on))]

    def runs_of(self, workload: Workload, mode: Mode) -> Sequence[ModelRun]:
        """Return a workload's runs in a mode that succeeded.

        A run in which a convolution did not take the forced algorithm does not count.
        """
        [found] = self._runs(mode).of([workload.model_key]).values()
        return found

    def read_runs(self, workloads: Iterable[Workload], mode: Mode) -> None:
        self._runs(mode).of([each.model_key for each in workloads])

    def _read_runs(self, mode: Mode, keys: Collection[str]) -> Mapping[str, Sequence[ModelRun]]:
        setting = {} if self.algorithm is None else {ALGORITHM_SETTING: self.algorithm}
        found: dict[str, list[ModelRun]] = {}
        for run in self._store.model_runs(
            *keys, device=self.device.slug, mode=mode, setting=setting
        ):
            if run.outcome == "ok" and not run.facts.get(ELSEWHERE):
                found.setdefault(run.workload, []).append(run)
        return found

    def board_of(self, run: ModelRun) -> str:
        return self._campaigns[run.campaign].board.uuid

    def _cost_of_runs(self, workload: Workload, mode: Mode, board: str) -> RunCost | None:
        runs = [run for run in self.runs_of(workload, mode) if self.board_of(run) == board]
        if not runs:
            return None
        return run_cost(runs, typical_on(self.device), self.base_power_w(board))

    def kernels_seen(self, run: ModelRun) -> dict[str, Mapping[str, int]]:
        """Return the kernels of configurations (keys), as a run's board saw them, else another."""
        found: dict[str, Mapping[str, int]] = {}
        for board in self._last(self.board_of(run)):
            found |= self._kernels(board)
        return found


def _scaled_by(by: Factors) -> str:
    how = "scaled" if by.is_known else "not scaled"
    return f"costs are {how} to this board ({in_words(by)})"
