"""What each mode saves: a board's runs beside those in eager, and beside the operators' sum."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from opdb.derive.runs import RunCost, run_cost
from opdb.derive.statistics import typical_on
from opdb.errors import UnknownNameError
from opdb.predict import Answer, Predictor
from opdb.records import Board, Campaign, Mode, ModelRun, Workload
from opdb.runs.models import ModelPolicy
from opdb.store import Store

SUMMED: Mode = "graph"
"""The mode in which a pass is predicted to take what its operators take, and nothing else."""

NO_POWER = "no power: "


@dataclass(frozen=True)
class Saving:
    """The share of time and energy that a mode saves; below 0 where it takes more."""

    time: float | None
    energy: float | None


NOTHING_KNOWN = Saving(None, None)


@dataclass(frozen=True)
class OperatorSum:
    """What the operators of a pass take together, none of them missing, on the run's board."""

    time_s: float
    energy_j: float | None


@dataclass(frozen=True)
class ModeRow:
    """A workload in one mode: the run, what it cost, and what it saves.

    `cost` is None where the run gave none; `run.reason` says why. `coverage_time` is the share of
    the operators' time that was measured; where it is not all, nothing is held against their sum.
    """

    workload: Workload
    mode: Mode
    board: str
    torch: str | None
    run: ModelRun
    cost: RunCost | None
    saves: Saving
    operators: OperatorSum | None
    saves_of_operators: Saving
    coverage_time: float | None

    @property
    def compiled(self) -> bool | None:
        """Whether the mode compiled the model, or part of it; None where it compiles nothing."""
        found: bool | None = self.run.facts.get("compiled")
        return found

    @property
    def energy_j(self) -> float | None:
        """The energy of a pass in joules."""
        return self.cost.energy_j.mean if self.cost and self.cost.energy_j else None

    @property
    def launches(self) -> int | None:
        """How many kernels a pass launches; None where they could not be seen."""
        return None if self.run.kernels is None else sum(self.run.kernels.values())

    @property
    def remarks(self) -> list[str]:
        """What must be known beside the figures, or why there are none."""
        if self.cost is None:
            return [why_failed(self.run)]
        broken = self.run.facts.get("graph_break_reasons") or []
        return [*(f"dynamo breaks off: {reason}" for reason in broken), *self.run.flags]

    @property
    def energy_reason(self) -> str | None:
        """Why there is no energy where there is a time."""
        if self.cost is None or self.cost.energy_j is not None:
            return None
        said = (f.removeprefix(NO_POWER) for f in self.run.flags if f.startswith(NO_POWER))
        return next(said, "power was not read in every repeat")


def why_failed(run: ModelRun) -> str:
    """Say what came of a run that gave no figures."""
    return str(run.reason) if run.outcome == "unsupported" else f"{run.outcome}: {run.reason}"


def policy(board: Board, torch: str | None) -> ModelPolicy:
    """Return what counts as run already: what this board ran with this version of torch."""
    return ModelPolicy((board.device,), (board.uuid,), {"torch": torch})


def mode_rows(
    store: Store, predictor: Predictor, board: str, workloads: Iterable[Workload]
) -> list[ModeRow]:
    """Return a row for each mode that each workload was run in on a board, in the modes' order.

    Of several runs the last good one counts, else the last. All are of the predictor's device, so
    under one power limit, and of one version of torch, that of the workload's last run.
    """
    device = predictor.device.slug
    campaigns = {c.id: c for c in store.campaigns(device, board=board)}
    rows = []
    for workload in workloads:
        runs = store.model_runs(workload.key, device=device, board=board)
        if not runs:
            continue
        torch = _torch_of(campaigns[runs[-1].campaign])
        alike = [run for run in runs if _torch_of(campaigns[run.campaign]) == torch]
        rows += _rows_of(workload, board, torch, alike, predictor.answer(workload, SUMMED, board))
    return rows


def stored_rows(
    store: Store, predictor: Predictor, models: Collection[str], batch_sizes: Collection[int]
) -> list[ModeRow]:
    """Return a row for each mode that each board of the predictor's device ran a workload in.

    Of inference, of these models and at these batch sizes; where none are named, of all.

    Raises:
        UnknownNameError: nothing of a model was run on that device.
    """
    slug = predictor.device.slug
    boards = {campaign.id: campaign.board.uuid for campaign in store.campaigns(slug)}
    ran_on = {(boards[run.campaign], run.workload) for run in store.model_runs(device=slug)}
    ran = {workload for _, workload in ran_on}
    heads = [h.workload for h in store.heads() if h.workload.phase == "inference"]
    heads = [workload for workload in heads if workload.key in ran]
    names = {workload.name for workload in heads}
    for model in models:
        if model not in names:
            raise UnknownNameError("model", model, names, hint=f"(of those measured on {slug})")
    wanted = {
        workload.key
        for workload in heads
        if (not models or workload.name in models)
        and (not batch_sizes or workload.batch_size in batch_sizes)
    }
    workloads = [w for w in store.workloads(phase="inference") if w.key in wanted]
    predictor.read_costs(workloads)
    rows = []
    for board in store.boards(slug):
        own = [w for w in workloads if (board.uuid, w.key) in ran_on]
        rows += mode_rows(store, predictor, board.uuid, own)
    return rows


def _rows_of(
    workload: Workload, board: str, torch: str | None, runs: Sequence[ModelRun], answer: Answer
) -> list[ModeRow]:
    chosen = by_mode(runs)
    typical = typical_on(answer.prediction.device)
    costs = {mode: run_cost([run], typical) for mode, run in chosen.items()}
    summed = _summed(answer)
    against = None if summed is None else (summed.time_s, summed.energy_j)
    return [
        ModeRow(
            workload=workload,
            mode=mode,
            board=board,
            torch=torch,
            run=run,
            cost=costs[mode],
            saves=NOTHING_KNOWN if mode == "eager" else saving(costs[mode], costs.get("eager")),
            operators=summed,
            saves_of_operators=_saving(costs[mode], against),
            coverage_time=answer.prediction.coverage_time,
        )
        for mode, run in chosen.items()
    ]


def by_mode(runs: Sequence[ModelRun]) -> Mapping[Mode, ModelRun]:
    """Return the run that counts in each mode: the last good one, else the last."""
    ordered = sorted(runs, key=lambda run: run.outcome == "ok")
    return dict(sorted({run.mode: run for run in ordered}.items(), key=lambda item: place(item[0])))


def place(mode: Mode) -> int:
    """Return where a mode stands in the order in which modes are listed."""
    return list(get_args(Mode)).index(mode)


def saving(cost: RunCost | None, other: RunCost | None) -> Saving:
    """Return what one run saves of another's time and energy."""
    if other is None:
        return NOTHING_KNOWN
    return _saving(cost, (other.time_s.mean, other.energy_j.mean if other.energy_j else None))


def _saving(cost: RunCost | None, other: tuple[float, float | None] | None) -> Saving:
    if cost is None or other is None:
        return NOTHING_KNOWN
    time_s, energy_j = other
    return Saving(
        1 - cost.time_s.mean / time_s if time_s else None,
        1 - cost.energy_j.mean / energy_j if cost.energy_j and energy_j else None,
    )


def _summed(answer: Answer) -> OperatorSum | None:
    """Return the operators' sum; None where one of them was not measured."""
    found = answer.prediction
    whole = not (found.missing or found.estimated or found.workload.unsupported)
    return OperatorSum(found.time_s, found.energy_j) if whole and found.time_s else None


def _torch_of(campaign: Campaign) -> str | None:
    return campaign.environment.get("torch")
