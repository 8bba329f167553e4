"""`python -m opdb.estimates`: what unmeasured operators cost, learned from the measured ones."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

import typer

from opdb.cli import main, options
from opdb.cli.console import note, show
from opdb.estimates.estimator import Estimator, to_document
from opdb.estimates.training import CountedWork, Example, calibrated, train
from opdb.predict.predictor import Predictor, predictor_for
from opdb.records import Board, Json, Workload
from opdb.store import Store, open_store
from opdb.tables import Listing
from opdb.units import plural


def learn(store: Store, predictor: Predictor, board: str | None = None) -> Estimator:
    """From the most measured board unless said. What runs show of sums is stored beside it."""
    chosen = board or predictor.most_measured()
    examples = [example for example, _ in examples_with_users(store, predictor, chosen)]
    estimator = trained(examples, works_of(store), predictor, chosen)
    of = Board(chosen, predictor.device.slug)
    ratios = predictor.run_ratios()
    store.save_learned(of, estimator.trained_at, to_document(estimator), ratios)
    return estimator


def trained(
    examples: Sequence[Example], works: Sequence[CountedWork], predictor: Predictor, board: str
) -> Estimator:
    """Learn from examples; the sums over `works` say how wide sums are."""
    moment = datetime.now(UTC).isoformat(timespec="seconds")
    found = train(examples, device=predictor.device.slug, board=board, trained_at=moment)
    return calibrated(found, examples, works, predictor.base_power_w(board))


def works_of(store: Store) -> list[CountedWork]:
    """Return all workloads as learning sees them, each of the family that its first word names."""
    return [
        CountedWork(first_word(w.name), {c.key: n for c, n in w.occurrences().items()})
        for w in store.workloads()
    ]


def examples_with_users(
    store: Store, predictor: Predictor, board: str
) -> list[tuple[Example, list[Workload]]]:
    users: dict[str, list[Workload]] = defaultdict(list)
    for workload in (*store.workloads(), *store.workloads(captured=True)):
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


def _listing(estimator: Estimator) -> Listing:
    families: dict[str, Json] = {
        name: {
            "points": len(learned.time.points),
            "kinds": sorted(learned.levels),
            "dtypes": sorted(learned.dtypes),
        }
        for name, learned in sorted(estimator.families.items())
    }
    document = {
        "device": estimator.device,
        "board": estimator.board,
        "trained_at": estimator.trained_at,
        "configurations": estimator.configurations,
        "families": families,
    }
    lines = [
        f"{name}: {family['points']} of {plural(len(family['kinds']), 'kind')}, "
        f"in {', '.join(family['dtypes'])}"
        for name, family in families.items()
    ]
    first = (
        f"{estimator.device}: learned from {estimator.configurations} configurations, as board "
        f"{estimator.board} has them"
    )
    return Listing(document, [first, *lines])


def run(
    device: options.DeviceName = None,
    board: Annotated[
        str | None,
        typer.Option(
            "--board",
            metavar="UUID",
            help="Learn as this board has it; the beginning of its UUID will do.  [default: the "
            "one with the most costs]",
        ),
    ] = None,
    db: options.Db = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Learn from the measured operators what others cost, for predictions of other models.

    All costs of the device count, those of other boards brought to this one. It takes
    some minutes for seven thousand configurations. benchmarks/left_out.py says how well it goes.
    """
    with open_store(db, create=False) as store:
        predictor = predictor_for(store, device, estimates=False)
        chosen = None if board is None else predictor.board(board)
        note("learning from thousands of configurations takes some minutes", quiet=quiet)
        estimator = learn(store, predictor, chosen)
    show(_listing(estimator), as_json=as_json)


if __name__ == "__main__":
    raise SystemExit(main(name="python -m opdb.estimates", run=run))
