"""Estimates learned from a store."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from opdb.predict.predictor import Predictor
from opdb.records import Board, Workload
from opdb.store import Store

if TYPE_CHECKING:
    from opdb.estimates.estimator import Estimator
    from opdb.estimates.training import CountedWork, Example


def learn(store: Store, predictor: Predictor, board: str | None = None) -> Estimator:
    """Learn from all that a board knows and store it; from the most measured board unless said.

    What all measured runs show of sums is stored beside it, so that no prediction need find it.
    """
    chosen = board or predictor.most_measured()
    examples = [example for example, _ in examples_with_users(store, predictor, chosen)]
    estimator = trained(examples, works_of(store), predictor, chosen)
    from opdb.estimates.estimator import to_document

    of = Board(chosen, predictor.device.slug)
    ratios = predictor.run_ratios()
    store.save_learned(of, estimator.trained_at, to_document(estimator), ratios)
    return estimator


def trained(
    examples: Sequence[Example], works: Sequence[CountedWork], predictor: Predictor, board: str
) -> Estimator:
    """Learn from examples; the sums over `works` say how wide sums are."""
    from opdb.estimates.training import calibrated, train

    moment = datetime.now(UTC).isoformat(timespec="seconds")
    found = train(examples, device=predictor.device.slug, board=board, trained_at=moment)
    return calibrated(found, examples, works, predictor.base_power_w(board))


def works_of(store: Store) -> list[CountedWork]:
    """Return all workloads as learning sees them, each of the family that its first word names."""
    from opdb.estimates.training import CountedWork

    return [
        CountedWork(first_word(w.name), {c.key: n for c, n in w.occurrences().items()})
        for w in store.workloads()
    ]


def examples_with_users(
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


def first_word(name: str) -> str:
    """Return the word that a model's name begins with: "resnet" of resnet18 and of resnet152."""
    found = re.match(r"[a-z]+", name.lower())
    return found.group() if found else name
