"""Estimates from a store: learn them, and test them on models that they were not shown."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from opdb.compose import EstimatedCosts
from opdb.errors import InputError
from opdb.predict import PLAIN_MODES, Answer, Predictor
from opdb.records import Board, Cost, Json, Mode, Workload
from opdb.store import Store
from opdb.tables import Report, Rows
from opdb.units import plural

if TYPE_CHECKING:
    from opdb.estimates.estimator import Estimates, Estimator
    from opdb.estimates.sums import Work
    from opdb.estimates.training import Example

Leaving: TypeAlias = Literal["model", "family", "batch_size"]
"""What is left out together: a model, all whose names begin with one word, a batch size."""

OURS = "estimates"
"""The name of opdb's own estimates beside the baselines'."""


@dataclass(frozen=True)
class OperatorError:
    """A configuration that was left out: its measured cost and what was estimated of it.

    `estimated` is None where the estimate was refused, `guessed` what each baseline says.
    """

    group: str
    kind: str
    measured: Cost
    estimated: Cost | None
    guessed: Mapping[str, Cost]


@dataclass(frozen=True)
class ModelError:
    """A measured run predicted with what it alone uses estimated, by `opdb` and by baselines.

    `estimated` is the share of its device time that rests on estimates, `refused` the share that
    was refused.
    """

    group: str
    workload: Workload
    mode: Mode
    estimated: float
    refused: float
    answers: Mapping[str, Answer]


@dataclass(frozen=True)
class Lesson(Report):
    """What was learned: from how many configurations, of which kinds and dtypes, by family."""

    estimator: Estimator

    def to_dict(self) -> Json:
        """Return what was learned of each family."""
        estimator = self.estimator
        return {
            "device": estimator.device,
            "board": estimator.board,
            "trained_at": estimator.trained_at,
            "configurations": estimator.configurations,
            "families": {
                name: {
                    "points": len(learned.time.points),
                    "kinds": learned.kinds,
                    "dtypes": sorted(learned.dtypes),
                }
                for name, learned in sorted(estimator.families.items())
            },
        }

    def blocks(self) -> Iterator[str | Rows[Any]]:
        """Yield a line for each family."""
        told = self.to_dict()
        yield (
            f"{told['device']}: learned from {told['configurations']} configurations, as board "
            f"{told['board']} has them"
        )
        for name, family in told["families"].items():
            yield (
                f"{name}: {family['points']} of {plural(len(family['kinds']), 'kind')}, "
                f"in {', '.join(family['dtypes'])}"
            )


@dataclass(frozen=True)
class LeftOut:
    """What was found when a group was left out."""

    group: str
    operators: tuple[OperatorError, ...]
    models: tuple[ModelError, ...]


@dataclass(frozen=True)
class _Known:
    """What a board knows: examples beside the workloads that use them, and all workloads."""

    board: str
    examples: Sequence[tuple[Example, list[Workload]]]
    works: Sequence[Work]


def learn(store: Store, predictor: Predictor, board: str | None = None) -> Estimator:
    """Learn from all that a board knows and store it; from the most measured board unless said.

    What all measured runs show of sums is stored beside it, so that no prediction need find it.

    Raises:
        InputError: too little was measured.
    """
    chosen = board or predictor.most_measured()
    examples = examples_of(store, predictor, chosen)
    estimator = _trained(examples, works_of(store), predictor, chosen)
    from opdb.estimates.document import to_document

    of = Board(chosen, predictor.device.slug)
    ratios = predictor.run_ratios()
    store.save_learned(of, estimator.trained_at, to_document(estimator), ratios)
    return estimator


def examples_of(store: Store, predictor: Predictor, board: str) -> list[Example]:
    """Return every configuration with a cost on a board, its own or brought there."""
    return [example for example, _ in _examples(store, predictor, board)]


def _trained(
    examples: Sequence[Example], works: Sequence[Work], predictor: Predictor, board: str
) -> Estimator:
    """Learn from examples; the sums over `works` say how wide sums are."""
    from opdb.estimates.sums import calibrated
    from opdb.estimates.training import train

    moment = datetime.now(UTC).isoformat(timespec="seconds")
    found = train(examples, device=predictor.device.slug, board=board, trained_at=moment)
    return calibrated(found, examples, works, predictor.base_power_w(board))


def works_of(store: Store) -> list[Work]:
    """Return all workloads as learning sees them, each of the family that its first word names."""
    from opdb.estimates.sums import Work

    return [
        Work(first_word(w.name), {c.key: n for c, n in w.occurrences().items()})
        for w in store.workloads()
    ]


def _examples(
    store: Store, predictor: Predictor, board: str
) -> list[tuple[Example, list[Workload]]]:
    """Return every configuration with a cost on a board, and the workloads that use it."""
    from opdb.estimates.training import Example

    users: dict[str, list[Workload]] = defaultdict(list)
    for workload in (*store.workloads(), *store.captured_workloads()):
        for configuration in workload.occurrences():
            users[configuration.key].append(workload)
    configurations = store.configurations()
    costs = predictor.costs_on(board, configurations)
    return [
        (
            Example(c, costs[c.key], frozenset(first_word(w.name) for w in users[c.key])),
            users[c.key],
        )
        for c in configurations
        if c.key in costs
    ]


def leave_out(
    store: Store, predictor: Predictor, leaving: Leaving, models: Collection[str] = ()
) -> Iterator[LeftOut]:
    """Leave out one group of measured workloads after another, and estimate what it alone uses.

    Where `models` are named, only the groups that these belong to.

    Yields:
        What was found of each group and board.

    Raises:
        InputError: fewer than two groups were measured as a whole.
    """
    named = NAMES[leaving]
    runs: dict[tuple[str, str], list[tuple[Workload, Mode]]] = defaultdict(list)
    for mode in PLAIN_MODES:
        for workload, board in predictor.measured_workloads(mode):
            runs[named(workload), board].append((workload, mode))
    if len({group for group, _ in runs}) < 2:
        raise InputError(f"nothing can be left out: too few {leaving}s were measured whole")
    works = works_of(store)
    known: dict[str, _Known] = {}
    for (group, board), measured in sorted(runs.items()):
        if models and not any(workload.name in models for workload, _ in measured):
            continue
        if board not in known:
            known[board] = _Known(board, _examples(store, predictor, board), works)
        yield _without(group, measured, known[board], predictor, leaving)


NAMES: Mapping[Leaving, Callable[[Workload], str]] = {
    "model": lambda workload: workload.name,
    "family": lambda workload: first_word(workload.name),
    "batch_size": lambda workload: f"batch {workload.batch_size}",
}
"""What can be left out, and which group a workload then belongs to."""


def first_word(name: str) -> str:
    """Return the word that a model's name begins with: "resnet" of resnet18 and of resnet152."""
    found = re.match(r"[a-z]+", name.lower())
    return found.group() if found else name


def _without(
    group: str,
    measured: Sequence[tuple[Workload, Mode]],
    known: _Known,
    predictor: Predictor,
    leaving: Leaving,
) -> LeftOut:
    from opdb.estimates.baselines import BASELINES, apply_rule

    named = NAMES[leaving]
    out = [e for e, users in known.examples if users and {named(w) for w in users} == {group}]
    keys = {example.configuration.key for example in out}
    rest = [e for e, _ in known.examples if e.configuration.key not in keys]
    estimates = _trained(rest, known.works, predictor, known.board).estimate(
        (e.configuration for e in out), alike_only=True
    )
    guesses = {
        name: apply_rule(made(rest), [e.configuration for e in out], known.board)
        for name, made in BASELINES.items()
    }
    each: dict[str, EstimatedCosts] = {OURS: estimates, **guesses}
    operators = tuple(
        OperatorError(
            group,
            example.configuration.kind,
            example.cost,
            estimates.costs.get(key),
            {name: guessed.costs[key] for name, guessed in guesses.items()},
        )
        for example in out
        if example.cost.kernels
        for key in [example.configuration.key]
    )
    models = tuple(
        ModelError(
            group,
            workload,
            mode,
            *_shares(predictor, workload, mode, keys, estimates),
            {
                name: predictor.without(workload, mode, keys, instead)
                for name, instead in each.items()
            },
        )
        for workload, mode in measured
    )
    return LeftOut(group, operators, models)


def _shares(
    predictor: Predictor, workload: Workload, mode: Mode, left_out: set[str], estimates: Estimates
) -> tuple[float, float]:
    """Return the shares of measured device time that are estimated, and that were refused."""
    parts = predictor.answer(workload, mode).prediction.parts
    shares = {p.configuration.key: p.share_time for p in parts}
    out = {key: share for key, share in shares.items() if key in left_out}
    refused = sum(share for key, share in out.items() if key in estimates.refused)
    return sum(out.values()) - refused, refused
