"""Predict workloads, and compare predictions with measured runs."""

from __future__ import annotations

import ctypes
import json
import math
import re
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Literal, NamedTuple

from opdb.derive.runs import Launches, RunCost, compare_launches
from opdb.errors import InputError, UnknownNameError
from opdb.growth import Sizes
from opdb.kinds.registry import DEFAULT_SETTINGS
from opdb.memory import Memory, memory_of
from opdb.predict.board_data import BoardData
from opdb.predict.compose import (
    PassSum,
    Prediction,
    compose_pass,
)
from opdb.predict.generation import Interpolated, between, in_part_between, standing
from opdb.records import (
    CAPTURED_MODE,
    COMPILED_MODES,
    Configuration,
    Cost,
    Device,
    Json,
    Mode,
    ModelRun,
    Phase,
    Quantity,
    RunRatio,
    RunRatios,
    Workload,
)
from opdb.store import MeasuredWorkload, Store, how_to_fill, is_default, published_devices, take_in

# Choose the device that a command predicts for.


def choose_device(store: Store, name: str | None) -> Device:
    """Return the device that is meant; unnamed: this machine's GPU, else the most measured one.

    The default database takes in the published sets of a device once that is chosen.
    """
    published, known = published_devices(), {each.slug: each.name for each in store.devices()}
    if name is not None:
        slug: str | None = _meant(name, published | known)
    else:
        slug = _of_this_machine(published | known if is_default(store) else known)
    if slug in published:
        take_in(store, slug)
    devices = {each.slug: each for each in store.devices()}
    if slug is not None and slug in devices:
        return devices[slug]
    if slug is not None or not devices:
        raise InputError(
            f"{store.location} holds {f'nothing of device {slug!r}' if slug else 'no measurements'}"
            f"; run opdb bench on a machine with {'one' if slug else 'a GPU'}; "
            + how_to_fill(store.url, slug)
        )
    counts = store.cost_counts() if len(devices) > 1 else {}
    return max(
        devices.values(),
        key=lambda each: sum(counts.get(board.uuid, 0) for board in store.boards(each.slug)),
    )


def _meant(name: str, known: Mapping[str, str]) -> str:
    """Return the device (slug) that a name means, of these (names by slug).

    It is a slug or a vendor's name in any case, else some whole words that one device alone has.
    """
    words = "-".join(re.findall("[a-z0-9]+", name.lower()))
    whole = [slug for slug in known if words == slug] or [
        slug for slug, full in known.items() if full.lower() == name.strip().lower()
    ]
    found = whole or [slug for slug in known if words and f"-{words}-" in f"-{slug}-"]
    if not found:
        raise UnknownNameError("device", name, known)
    if len(found) > 1:
        raise InputError(f"device {name!r} could be any of {', '.join(sorted(found))}; name one")
    return found[0]


def _of_this_machine(known: Mapping[str, str]) -> str | None:
    """Return the first device (slug) whose name a GPU of this machine has.

    None where there is none, or where no choice is.
    """
    if len(known) < 2:
        return None
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None  # no driver: NVML's module need not be imported
    from opdb.meters.nvml import gpu_names

    here = gpu_names()
    return next((slug for slug, name in known.items() if name in here), None)


# The answer for a workload: its prediction, and the measured run beside it.


@dataclass(frozen=True)
class Answer:
    """A prediction, and the measured run of the same board beside it where there is one.

    `refused` says why the forced algorithm cannot run some convolutions (keys). `brought` counts
    the calls that the board did not measure: they have another board's cost, scaled by factors.
    """

    prediction: Prediction
    measured: RunCost | None
    refused: Mapping[str, str] = field(default_factory=dict)
    brought: int = 0

    @cached_property
    def memory(self) -> Memory:
        return memory_of(self.prediction.workload, self.prediction.device)

    @property
    def attribution_time(self) -> float | None:
        return _ratio(self.prediction.time_s, self.measured.time_s if self.measured else None)

    @property
    def attribution_energy(self) -> float | None:
        return _ratio(self.prediction.energy_j, self.measured.energy_j if self.measured else None)

    @property
    def inside_time(self) -> bool | None:
        """Whether the interval holds the measured time; None where either is not known."""
        measured = self.measured.time_s if self.measured else None
        return _holds(self.prediction.time_interval_s, measured)

    @property
    def inside_energy(self) -> bool | None:
        """Whether the interval holds the measured energy; None where either is not known."""
        measured = self.measured.energy_j if self.measured else None
        return _holds(self.prediction.energy_interval_j, measured)

    @property
    def order(self) -> tuple[str, str, str, int, str]:
        found, workload = self.prediction, self.prediction.workload
        return workload.name, found.mode, workload.dtype, workload.batch_size, found.board

    def meets(self, target: float) -> bool:
        """Whether coverage reaches the target and attribution lies within 1 ± (1 - target).

        Both for time and for energy; an attribution that is not known does not count, a device
        without power readings is held to its time alone.
        """
        prediction = self.prediction
        if prediction.workload.unsupported or min(prediction.coverages.values()) < target:
            return False
        known = [a for a in (self.attribution_time, self.attribution_energy) if a is not None]
        return all(abs(a - 1) <= 1 - target + 1e-12 for a in known)


def _ratio(predicted: float | None, measured: Quantity | None) -> float | None:
    return None if predicted is None or measured is None else predicted / measured.mean


def _holds(interval: tuple[float, float] | None, measured: Quantity | None) -> bool | None:
    if interval is None or measured is None or not measured.mean:
        return None
    return interval[0] <= measured.mean <= interval[1]


PLAIN_MODES: tuple[Mode, ...] = ("eager", "graph")
"""The modes that run a model's operators as it calls them."""

MODES: tuple[Mode, ...] = (*PLAIN_MODES, *COMPILED_MODES)
"""The modes that the composer predicts."""


ESTIMATED_AT_ONCE = 500
"""Configurations that are estimated together: their covariances take memory by the square."""


class Predictor(BoardData):
    """Predicts workloads on one device from a store, as `opdb predict` does.

    Configurations that were never measured are estimated where `python -m opdb.estimates` has
    learned enough; without `estimates` they are missing, but for steps of a whole generation
    between measured ones.

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
        super().__init__(store, device, settings)
        as_learned = self.usual.settings == DEFAULT_SETTINGS
        self._peers = Peers(self.usual, as_learned=as_learned)
        self._estimates = estimates
        self._best_board = cache(self.best_board)
        self._measured_of = cache(lambda workloads: self.measured(_called(workloads)))

    def estimated(self, configurations: Sequence[Configuration]) -> dict[str, Cost]:
        """Return estimates of configurations, by key, as for the board that measured most.

        What no estimate covers is left out: all of them, where nothing was learned on the device.
        """
        found: dict[str, Cost] = {}
        for first in range(0, len(configurations) if self.boards else 0, ESTIMATED_AT_ONCE):
            some = configurations[first : first + ESTIMATED_AT_ONCE]
            estimates = self.estimates(some, self.most_measured())
            if estimates is not None:
                found |= estimates.costs
        return found

    def runs(self, names: Collection[str]) -> list[tuple[Workload, ModelRun]]:
        """Return the latest good run of each workload, mode and board; of these models, or all."""
        found: dict[tuple[str, str, str], tuple[Workload, ModelRun]] = {}
        for mode in MODES:
            for workload in self.workloads_of(list(self.measured_in(mode))):
                if not names or workload.name in names:
                    for run in self.runs_of(workload, mode):
                        found[workload.key, mode, self.board_of(run)] = (workload, run)
        return list(found.values())

    def run_ratios(self) -> RunRatios:
        return self._peers.ratios(MODES)

    def launches(self, workload: Workload, run: ModelRun) -> Launches | None:
        return compare_launches(workload, run, self.kernels_seen(run))

    def answer(
        self,
        workload: Workload,
        mode: Mode,
        board: str | None = None,
        between: Interpolated | None = None,
    ) -> Answer:
        """Predict a workload for a board (UUID), by default for the one that measured it.

        Without a board and a measured run, and always under an algorithm, it is the board that
        covers the workload best. In a mode that compiles, the calls are those which the workload
        was compiled to; in that of a CUDA graph those which it makes while it is captured, where
        these are known to be others.
        """
        check_mode(mode)
        if self.algorithm is not None:
            check_forced(str(self.algorithm), workload.name, mode, workload.phase)
        if mode in COMPILED_MODES and workload.compiled_for is None:
            workload = self._as_compiled(workload)
        if mode == CAPTURED_MODE and not workload.captured and between is None:
            [workload] = self.captured([workload])
        if board is None:
            run = None if self.algorithm else self.measured_in(mode).get(workload.key)
            board = self._best_board(workload) if run is None else run.board
        basis = self.full_basis(workload, board, between, learned=self._estimates)
        inputs = self.in_mode(basis.inputs, basis.pass_, mode)
        inputs = replace(inputs, peers=self._peers.evidence(workload, mode))
        found = compose_pass(basis.pass_, mode, inputs)
        found = replace(found, workload=workload, notes=(*found.notes, *basis.notes))
        measured = (key for key in inputs.brought if not inputs.costs[key].is_estimated)
        brought = sum(basis.pass_.counts[key] for key in measured)
        return replace(
            self._compared(found),
            refused=basis.refused,
            brought=brought,
        )

    def between(
        self, rungs: Sequence[Workload], sizes: Sizes, mode: Mode, board: str | None = None
    ) -> tuple[Workload, str, Interpolated] | None:
        """Return a generation's pass as measured or between measured ones, their board, and costs.

        `rungs` are passes of one model at other sizes. One that a board measured as a whole and
        that is, or stands for, the pass of these sizes comes first; then one between such passes,
        with the calls' interpolated costs, which `answer` takes; then one between all passes, with
        costs of what boards measured alone: the rest is estimated. The board is by default the one
        that measured the most. None where no passes reach the sizes.
        """
        if mode == CAPTURED_MODE:
            rungs = self.captured(rungs)
        if not rungs:
            return None
        boards = self.boards if board is None else [board]
        measured = self._measured_of(tuple(rungs))
        boards = sorted(boards, key=lambda each: len(measured[each]), reverse=True)
        for look in (standing, between):
            for each in boards:
                whole = [rung for rung in rungs if rung.occurrences().keys() <= measured[each]]
                own = self.own(_called(whole), each)
                if whole and (found := look(whole, own, sizes)) is not None:
                    return found[0], each, found[1]
        costs = self.costs_on(boards[0], _called(rungs))  # with what other boards lend it
        found = in_part_between(rungs, costs, sizes)
        return None if found is None else (found[0], boards[0], found[1])

    def _as_compiled(self, workload: Workload) -> Workload:
        check_compiled(workload.name, "compile", workload.phase, workload.autocast)
        found = self.compiled(workload)
        if found is None:
            words = ["harvest", workload.name, "-b", str(workload.batch_size)]
            words += ["--dtype", workload.dtype]
            raise InputError(
                f"the compiled calls of {workload.name} on {self.device.slug!r} at batch "
                f"{workload.batch_size} in {workload.dtype} are not known: run opdb "
                f"{shlex.join(words)} --mode compile there, then opdb bench fused enter_graph"
            )
        return found

    def answers(self, names: Collection[str], modes: Sequence[Mode] = MODES) -> list[Answer]:
        """Return an answer for every measured run in these modes of these models (none: all).

        A workload has one for each mode and each board that ran it, predicted for that board.
        """
        asked = [
            (mode, each)
            for mode in modes
            for each in self.groups(mode)
            if not names or each.name in names
        ]
        workloads = self.workloads_of([each.key for _, each in asked])
        self.workloads_of([each.model_key for each in workloads])  # by which peers are compared
        called: dict[str, list[Workload]] = {}
        of_mode: dict[Mode, list[Workload]] = {}
        for workload, (mode, each) in zip(workloads, asked, strict=True):
            called.setdefault(each.board, []).append(workload)
            of_mode.setdefault(mode, []).append(workload)
        self.read_costs(called)
        for mode, those in of_mode.items():
            self.read_runs(those, mode)
        self.captured([each for each in of_mode.get(CAPTURED_MODE, ()) if not each.captured])
        found = [
            self.answer(workload, mode, each.board)
            for workload, (mode, each) in zip(workloads, asked, strict=True)
        ]
        return sorted(found, key=lambda answer: answer.order)

    def _compared(self, prediction: Prediction) -> Answer:
        workload, mode, board = prediction.workload, prediction.mode, prediction.board
        return Answer(prediction, self.run_cost(workload, mode, board))


def _called(workloads: Iterable[Workload]) -> set[Configuration]:
    return {c for each in workloads for c in each.occurrences()}


def predictor_for(
    store: Store,
    device: Device | str | None = None,
    settings: Mapping[str, Json] = DEFAULT_SETTINGS,
    *,
    estimates: bool = True,
) -> Predictor:
    """Return a store's predictor for a device, a device of that name, or `choose_device`'s."""
    chosen = device if isinstance(device, Device) else choose_device(store, device)
    return Predictor(store, chosen, settings, estimates=estimates)


def check_mode(mode: Mode, among: Sequence[Mode] = MODES) -> None:
    if mode not in among:
        raise InputError(f"mode {mode!r} cannot be predicted here; use {', '.join(among)}")


def check_compiled(model: str, mode: Mode, phase: Phase, autocast: str | None) -> None:
    """Check that the compiled calls of a model can be known, where the mode compiles."""
    if mode in COMPILED_MODES and (phase != "inference" or autocast is not None):
        raise InputError(
            f"the compiled calls of {model} are known only for inference without autocast; use "
            "another mode, such as eager"
        )


def check_forced(algorithm: str, model: str, mode: Mode, phase: Phase) -> None:
    """Check that a model can be predicted with its convolutions forced to an algorithm."""
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


# The regimes in which sums of operators err in different ways: how work is issued × batch size.


Family = Literal["graph", "eager", "compiled", "training"]
Batch = Literal["1", "2–16", "over 16"]

FAMILIES: tuple[Family, ...] = ("graph", "eager", "compiled", "training")
BATCHES: tuple[Batch, ...] = ("1", "2–16", "over 16")

LARGEST_SMALL_BATCH = 16


class Regime(NamedTuple):
    family: Family
    batch: Batch


def batch_of(batch_size: int) -> Batch:
    if batch_size <= 1:
        return "1"
    return "2–16" if batch_size <= LARGEST_SMALL_BATCH else "over 16"


def regime_of(workload: Workload, mode: Mode) -> Regime:
    issued: Mapping[Mode, Family] = {CAPTURED_MODE: "graph", "eager": "eager"}
    family = "training" if workload.phase == "training" else issued.get(mode, "compiled")
    return Regime(family, batch_of(workload.batch_size))


# Other models that were measured: their runs show how far a sum may be off.


MOST_PEERS = 12
"""Other models that an interval rests on, one run of each: those most like the workload."""

SAME = 0.4
"""Models are one where they share this share of the smaller one's calls that have weights: BERT
under two names, the sizes of ResNet, a ViT of two libraries."""


class Peers:
    """The measured workloads of other models, told from a workload's own by their operators.

    `as_learned`: what their runs showed when that was last learned need not be computed again. In
    all of these runs torch chose the algorithms.
    """

    def __init__(self, data: BoardData, *, as_learned: bool) -> None:
        self._data = data
        self._as_learned = as_learned
        self._weighted_calls = cache(weighted_calls)
        self._ranked = cache(self._by_likeness)

    def evidence(self, workload: Workload, mode: Mode) -> list[RunRatio]:
        """Return what measured runs of the other models most like a workload show of sums.

        A model of which a part is missing or not described says nothing. Of energy a pass that
        waits for its host shows how far the sum is off, had the pass taken the measured time.
        """
        others = self.of(workload, mode)
        known: dict[str, RunRatio | None] = {}
        for each in others if self._as_learned else ():
            stored = self._data.stored_ratios(mode, each.board)
            if each.key in stored:
                known[each.key] = stored[each.key]
        known |= self._compared([each for each in others if each.key not in known], mode)
        return [found for each in others if (found := known[each.key]) is not None]

    def ratios(self, modes: Iterable[Mode]) -> RunRatios:
        """Return what every measured run in some modes shows, one of each workload."""
        found: dict[str, dict[str, dict[str, RunRatio | None]]] = {}
        for mode in modes:
            measured = self._data.measured_in(mode)
            for key, shown in self._compared(list(measured.values()), mode).items():
                of_board = found.setdefault(mode, {}).setdefault(measured[key].board, {})
                of_board[key] = shown
        return found

    def _compared(
        self, others: Sequence[MeasuredWorkload], mode: Mode
    ) -> dict[str, RunRatio | None]:
        workloads = self._data.workloads_of([each.key for each in others])
        called: dict[str, list[Workload]] = {}
        for workload, each in zip(workloads, others, strict=True):
            called.setdefault(each.board, []).append(workload)
        self._data.read_costs(called)
        return {
            each.key: self._compare(workload, mode, each.board)
            for workload, each in zip(workloads, others, strict=True)
        }

    def _compare(self, workload: Workload, mode: Mode, board: str) -> RunRatio | None:
        basis = self._data.basis(workload, board)
        found = PassSum(basis.pass_, mode, self._data.in_mode(basis.inputs, basis.pass_, mode))
        measured = self._data.run_cost(workload, mode, board)
        lacks = len(found.costed) < len(basis.pass_.counts) or bool(workload.unsupported)
        if measured is None or lacks or not found.time_s:
            return None
        # A processor is its own host.
        waits = found.host_bound and self._data.device.type != "cpu"
        energy = None
        if measured.energy_j is not None and found.energy_j is not None:
            base_w = self._data.base_power_w(board) or 0.0
            excess_s = found.time_s - measured.time_s.mean if waits else 0.0
            energy = (found.energy_j - base_w * excess_s) / measured.energy_j.mean
            energy = energy if energy > 0 else None  # all of it is base power
        kernel_s = found.kernel_s or None  # a host issues views, which no kernel runs
        return RunRatio(found.time_s / measured.time_s.mean, energy, kernel_s, waits)

    def of(self, workload: Workload, mode: Mode) -> list[MeasuredWorkload]:
        """Return the nearest measured workload of each other model, of the `MOST_PEERS` nearest.

        The nearest is of the same phase and range of batch sizes, of the same dtype, and has the
        batch size that is least apart.
        """
        alike = self._ranked(mode, workload.phase, workload.batch_size, workload.dtype)
        candidates = [each for each in alike[: MOST_PEERS + 1] if each.name != workload.name]
        candidates = candidates[:MOST_PEERS]
        found = self._data.workloads_of([other.key for other in candidates])
        plain = self._data.workloads_of([other.model_key for other in found])
        own = self._weighted_calls(workload)
        return [
            other
            for other, as_called in zip(candidates, plain, strict=True)
            if not is_same_model(own, self._weighted_calls(as_called))
        ]

    def _by_likeness(
        self, mode: Mode, phase: Phase, batch_size: int, dtype: str
    ) -> list[MeasuredWorkload]:
        """Return the workload of each name that is nearest to one of these, the nearest first."""

        def unlikeness(other: MeasuredWorkload) -> tuple[bool, bool, bool, float]:
            apart = math.inf  # of an empty batch
            if other.batch_size and batch_size:
                apart = abs(math.log(other.batch_size / batch_size))
            other_batch = batch_of(other.batch_size) != batch_of(batch_size)
            return other.phase != phase, other_batch, other.dtype != dtype, apart

        nearest: dict[str, MeasuredWorkload] = {}
        for other in sorted(self._data.measured_in(mode).values(), key=unlikeness):
            nearest.setdefault(other.name, other)
        return list(nearest.values())


def weighted_calls(workload: Workload) -> Counter[str]:
    """Count a workload's calls with weights, by what no batch size, dtype or mode changes."""
    counts: Counter[str] = Counter()
    for configuration, count in workload.occurrences().items():
        shapes = {
            name: each["shape"]
            for name, each in configuration.inputs.items()
            if isinstance(each, dict) and each.get("role") == "weight"
        }
        if shapes:
            what = [configuration.kind, dict(configuration.parameters), shapes]
            counts[json.dumps(what, sort_keys=True)] += count
    return counts


def is_same_model(one: Counter[str], other: Counter[str]) -> bool:
    """Return whether two models, by their calls with weights, are one under two names or sizes."""
    smaller = min(one.total(), other.total())
    return smaller > 0 and (one & other).total() >= SAME * smaller
