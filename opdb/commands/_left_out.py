"""Estimates held against what was measured, each group of workloads left out of learning in turn.

What `opdb validate --estimates` prints.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

from opdb.commands.validate import MEASURES, Leaving, Measure, attribution, errors_of, inside
from opdb.errors import InputError
from opdb.estimates.estimator import ESTIMATED
from opdb.estimates.features import Features, features, roofline
from opdb.estimates.training import Example, usable
from opdb.learning import examples_with_users, first_word, trained, works_of
from opdb.predict.predictor import PLAIN_MODES, Answer, Predictor
from opdb.predict.timeline import EstimatedCosts
from opdb.records import Configuration, Cost, Json, Mode, Quantity, Workload
from opdb.spec import workload_columns
from opdb.store import Store
from opdb.tables import SHARE, Column, Listing, Rows, Table
from opdb.units import plural, show_ratio, show_share

OURS = "estimates"
"""The name of opdb's own estimates beside the baselines'."""


class OperatorError(NamedTuple):
    """The measured cost of a configuration that was left out, and what each method says of it."""

    measured: Cost
    guessed: Mapping[str, Cost]


class LeftOutError(NamedTuple):
    """A measured run predicted with what it alone uses estimated, by each method.

    `estimated` is the share of its device time that rests on estimates, `refused` the share that
    was refused.
    """

    group: str
    estimated: float
    refused: float
    answers: Mapping[str, Answer]


NAMES: Mapping[Leaving, Callable[[Workload], str]] = {
    "model": lambda workload: workload.name,
    "family": lambda workload: first_word(workload.name),
    "batch_size": lambda workload: f"batch {workload.batch_size}",
}
"""What can be left out, and which group a workload then belongs to."""


def estimation(
    store: Store,
    predictor: Predictor,
    models: Collection[str],
    leaving: Leaving,
    note: Callable[[str], None],
) -> Listing:
    """Leave out one group of measured workloads after another, and estimate what it alone uses.

    Where `models` are named, only the groups that these belong to.
    """
    named = NAMES[leaving]
    measured: dict[tuple[str, str], list[tuple[Workload, Mode]]] = defaultdict(list)
    for mode in PLAIN_MODES:
        for workload, board in predictor.measured_workloads(mode):
            measured[named(workload), board].append((workload, mode))
    if len({group for group, _ in measured}) < 2:
        raise InputError(f"nothing can be left out: too few {leaving}s were measured whole")
    works = works_of(store)
    known: dict[str, list[tuple[Example, list[Workload]]]] = {}
    operators: list[OperatorError] = []
    refused = 0
    runs: list[LeftOutError] = []
    for (group, board), of_group in sorted(measured.items()):
        if models and not any(workload.name in models for workload, _ in of_group):
            continue
        if board not in known:
            known[board] = examples_with_users(store, predictor, board)
        out: list[Example] = []
        rest: list[Example] = []
        for example, users in known[board]:
            is_own = bool(users) and {named(workload) for workload in users} == {group}
            (out if is_own else rest).append(example)
        configurations = [example.configuration for example in out]
        learned = trained(rest, works, predictor, board)
        methods: dict[str, EstimatedCosts] = {
            OURS: learned.estimate(configurations, alike_only=True)
        }
        for name, made in BASELINES.items():
            methods[name] = apply_rule(made(rest), configurations, learned.board)
        working = [example for example in out if example.cost.kernels]
        for example in working:
            key = example.configuration.key
            if key in methods[OURS].costs:
                guessed = {name: method.costs[key] for name, method in methods.items()}
                operators.append(OperatorError(example.cost, guessed))
            else:
                refused += 1
        keys = {configuration.key for configuration in configurations}
        runs += [_ran(group, run, keys, predictor, methods) for run in of_group]
        note(f"without {group}: {plural(len(working), 'operator')}")
    if not operators and not refused:
        raise InputError("nothing measured uses operators that nothing else uses")
    return _listing(leaving, operators, refused, runs)


def _ran(
    group: str,
    run: tuple[Workload, Mode],
    left_out: set[str],
    predictor: Predictor,
    methods: Mapping[str, EstimatedCosts],
) -> LeftOutError:
    """Predict a measured run, what was left out estimated by each method."""
    parts = predictor.answer(*run).prediction.parts
    shares = {p.configuration.key: p.share_time for p in parts}
    out = {key: share for key, share in shares.items() if key in left_out}
    refused = sum(share for key, share in out.items() if key in methods[OURS].refused)
    answers = {
        name: predictor.without(*run, left_out, instead) for name, instead in methods.items()
    }
    return LeftOutError(group, sum(out.values()) - refused, refused, answers)


MOSTLY_ESTIMATED = 0.2
"""A run counts whose estimated share of the time is at least this …"""

HARDLY_REFUSED = 0.02
"""… and whose refused share is at most this: what is refused is in no prediction."""

WIDTHS = (0.0, 0.15, 0.3, 0.6, math.inf)
"""Half widths of a time's stated interval, in logarithms, between which errors are told apart."""


def _attribution(measure: Measure) -> Column[LeftOutError]:
    return Column(
        f"attribution_{measure}",
        lambda run: {name: attribution(answer, measure) for name, answer in run.answers.items()},
        title=measure,
        text=lambda run: show_ratio(
            attribution(run.answers[OURS], measure), inside(run.answers[OURS], measure)
        ),
    )


ESTIMATED_RUNS: Table[LeftOutError] = Table(
    *workload_columns(lambda run: run.answers[OURS].prediction.workload),
    Column("mode", lambda run: run.answers[OURS].prediction.mode, title="mode"),
    Column("left_out", lambda run: run.group),
    Column("share_estimated", lambda run: run.estimated, title="estimated", unit=SHARE),
    Column("share_refused", lambda run: run.refused, title="refused", unit=SHARE),
    *map(_attribution, MEASURES),
    Column("inside_interval_time", lambda run: inside(run.answers[OURS], "time")),
    Column("inside_interval_energy", lambda run: inside(run.answers[OURS], "energy")),
)


def _of(member: str, name: str) -> Callable[[tuple[str, Json]], Json]:
    return lambda row: (row[1][member] or {}).get(name)


METHODS: Table[tuple[str, Json]] = Table(
    Column(title="method", get=lambda row: row[0]),
    *(
        Column(title=heading, get=_of(member, name), unit=SHARE)
        for heading, member, name in (
            ("operators: time", "operators", "time"),
            ("inside", "operators", "inside_time"),
            ("energy", "operators", "energy"),
            ("inside", "operators", "inside_energy"),
            ("models: time", "models_time", "median"),
            ("inside", "models_time", "inside"),
            ("energy", "models_energy", "median"),
            ("inside", "models_energy", "inside"),
        )
    ),
)

BY_WIDTH: Table[Json] = Table(
    Column(
        "from",
        lambda row: row["from"],
        title="interval of a time",
        text=lambda row: f"± {show_share(row['from'])} or more, in logarithms",
    ),
    Column("to", lambda row: row["to"]),
    Column("count", lambda row: row["count"], title="operators"),
    Column("median", lambda row: row["median"], title="median error", unit=SHARE),
    Column("inside", lambda row: row["inside"], title="inside", unit=SHARE),
)
"""The errors of times whose intervals were stated about equally wide."""


def _listing(
    leaving: Leaving, operators: Sequence[OperatorError], refused: int, runs: Sequence[LeftOutError]
) -> Listing:
    """Return what was estimated after each group was left out of learning, and how right it is."""
    resting = [run for run in runs if run.estimated + run.refused >= MOSTLY_ESTIMATED]
    judged = [
        run for run in runs if run.estimated >= MOSTLY_ESTIMATED and run.refused <= HARDLY_REFUSED
    ]
    summary = {name: _summary(operators, judged, name) for name in (OURS, *BASELINES)}
    by_width = [_between(operators, *ends) for ends in pairwise(WIDTHS)]
    document: Json = {
        "leaving": leaving,
        "rows": ESTIMATED_RUNS.documents(runs),
        "summary": summary,
        "by_width": BY_WIDTH.documents(by_width),
        "refused_operators": refused,
        "refused_runs": len(resting) - len(judged),
    }
    methods, widths = Rows(METHODS, list(summary.items())), Rows(BY_WIDTH, by_width)
    words = (
        f"median errors over {plural(len(operators), 'operator')} and {plural(len(judged), 'run')};"
        f" refused: {plural(refused, 'operator')}, {plural(len(resting) - len(judged), 'run')}"
    )
    return Listing(document, [Rows(ESTIMATED_RUNS, resting), "", methods, "", widths, words])


def _summary(
    operators: Sequence[OperatorError], runs: Sequence[LeftOutError], name: str
) -> dict[str, Json]:
    """Return how right a method is; a baseline states no intervals."""
    of_operators: dict[str, Json] = {"count": len(operators)}
    for measure, quantity in (("time", "time_s"), ("energy", "dynamic_energy_j")):
        take = attrgetter(quantity)
        pairs = [(take(each.guessed[name]), take(each.measured)) for each in operators]
        of_operators[measure] = _median(_error(*pair) for pair in pairs)
        if name == OURS:
            of_operators[f"inside_{measure}"] = _share(_holds(*pair) for pair in pairs)
    answers = [run.answers[name] for run in runs]
    found: dict[str, Json] = {"operators": of_operators}
    for measure in MEASURES:
        errors = errors_of(answers, measure)
        found[f"models_{measure}"] = errors and {
            "count": errors.count,
            "median": errors.median,
            "largest": errors.largest,
            "inside": errors.inside_interval if name == OURS else None,
        }
    return found


def _between(operators: Sequence[OperatorError], low: float, high: float) -> Json:
    """Return the errors of times whose intervals are stated about so wide, in logarithms."""
    pairs = [
        (time, each.measured.time_s)
        for each in operators
        if (time := each.guessed[OURS].time_s) is not None
        and time.high is not None
        and time.mean > 0
        and low <= math.log(time.high / time.mean) < high
    ]
    return {
        "from": low,
        "to": None if math.isinf(high) else high,
        "count": len(pairs),
        "median": _median(_error(*pair) for pair in pairs),
        "inside": _share(_holds(*pair) for pair in pairs),
    }


def _error(estimate: Quantity | None, truth: Quantity | None) -> float | None:
    """Return how far an estimate is off: |ln(estimate / truth)|, None where that says nothing."""
    if not estimate or not truth or truth.mean <= 0 or estimate.mean <= 0:
        return None
    return abs(math.log(estimate.mean / truth.mean))


def _holds(estimate: Quantity | None, truth: Quantity | None) -> bool | None:
    if not estimate or not truth or estimate.low is None or estimate.high is None:
        return None
    return estimate.low <= truth.mean <= estimate.high


def _median(errors: Iterable[float | None]) -> float | None:
    found = [e for e in errors if e is not None]
    return statistics.median(found) if found else None


def _share(told: Iterable[bool | None]) -> float | None:
    found = [each for each in told if each is not None]
    return sum(found) / len(found) if found else None


# Simple rules with which estimates are compared: those that anybody would try first.

CostRule = Callable[[Features], tuple[float, float]]
"""A call's time (seconds) and dynamic energy (joules)."""


@dataclass(eq=False)
class RuleCosts:
    costs: dict[str, Cost]
    refused: Mapping[str, str] = field(default_factory=dict)

    def half_widths(
        self, counts: Mapping[str, float], base_w: float | None
    ) -> tuple[float, float | None]:
        return 0.0, 0.0


def apply_rule(rule: CostRule, configurations: Iterable[Configuration], board: str) -> RuleCosts:
    """Apply a rule to configurations; a call that launches nothing costs nothing."""
    costs = {}
    for configuration in configurations:
        of = features(configuration)
        time_s, dynamic_j = rule(of) if of.launches else (0.0, 0.0)
        costs[configuration.key] = Cost(
            configuration=configuration.key,
            board=board,
            setting="",
            estimator=ESTIMATED,
            visits=0,
            kernels=None,
            time_s=_exactly(time_s),
            eager_time_s=None,
            power_w=None,
            energy_j=None,
            dynamic_energy_j=_exactly(dynamic_j),
        )
    return RuleCosts(costs)


def _exactly(value: float) -> Quantity:
    return Quantity(value, value, value, value, 0)


def proportional_to_flops(examples: Sequence[Example]) -> CostRule:
    """Time and dynamic energy in proportion to operations, as all examples together have them."""
    seen = [(features(e.configuration), *_cost(e)) for e in examples if usable(e)]
    flops = math.fsum(of.flops for of, _, _ in seen)
    time_s, dynamic_j = math.fsum(t for _, t, _ in seen), math.fsum(d for _, _, d in seen)
    return lambda of: (of.flops * time_s / flops, of.flops * dynamic_j / flops)


def plain_roofline(examples: Sequence[Example]) -> CostRule:
    """The larger of operations and bytes over the best rates seen, at the usual dynamic power."""
    seen = [(features(e.configuration), *_cost(e)) for e in examples if usable(e)]
    under = roofline((of, time_s) for of, time_s, _ in seen)
    watts = statistics.median(dynamic_j / time_s for _, time_s, dynamic_j in seen)

    def rule(of: Features) -> tuple[float, float]:
        time_s = under.time_s(of) - under.shortest_s
        return time_s, time_s * watts

    return rule


def nearest_neighbour(examples: Sequence[Example], *, scaled: bool = False) -> CostRule:
    """Time and dynamic energy of the most alike measured call: of its kind, in its dtype.

    `scaled`, they are brought to the call's size by the neighbour's utilisation and dynamic power.
    """
    seen = [(features(e.configuration), *_cost(e)) for e in examples if usable(e)]
    under = roofline((of, time_s) for of, time_s, _ in seen)

    def rule(of: Features) -> tuple[float, float]:
        nearest, time_s, dynamic_j = min(seen, key=lambda each: _apart(each[0], of))
        if not scaled:
            return time_s, dynamic_j
        scaled_s = time_s * under.time_s(of) / under.time_s(nearest)
        return scaled_s, scaled_s * dynamic_j / time_s

    return rule


def _apart(one: Features, other: Features) -> tuple[bool, bool, bool, float]:
    squares = ((value - other.numbers[name]) ** 2 for name, value in one.numbers.items())
    return (
        one.kind != other.kind,
        one.dtype != other.dtype,
        one.family != other.family,
        math.fsum(squares),
    )


def _cost(example: Example) -> tuple[float, float]:
    """Return the time (seconds) and dynamic energy (joules; 0 if not metered) of a usable one."""
    time, dynamic = example.cost.time_s, example.cost.dynamic_energy_j
    assert time is not None
    return time.mean, dynamic.mean if dynamic else 0.0


BASELINES: Mapping[str, Callable[[Sequence[Example]], CostRule]] = {
    "proportional to FLOPs": proportional_to_flops,
    "plain roofline": plain_roofline,
    "nearest neighbour": nearest_neighbour,
    "nearest neighbour, scaled": partial(nearest_neighbour, scaled=True),
}
"""Every baseline by name: what makes its rule from examples."""
