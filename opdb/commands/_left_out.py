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
from typing import TYPE_CHECKING

from opdb.commands.validate import MEASURES, Leaving, Measure, attribution, inside
from opdb.errors import InputError
from opdb.estimates.estimator import ESTIMATED
from opdb.estimates.features import Features, features, roofline
from opdb.estimates.training import Example, usable
from opdb.learning import examples_with_users, first_word, trained, works_of
from opdb.predict.predictor import PLAIN_MODES, Answer, Predictor
from opdb.predict.timeline import EstimatedCosts
from opdb.progress import Display
from opdb.records import Configuration, Cost, Json, Mode, Quantity, Workload
from opdb.spec import workload_columns
from opdb.store import Store
from opdb.tables import SHARE, Column, Listing, Rows, Table
from opdb.units import plural, show_share

if TYPE_CHECKING:
    from opdb.estimates.estimator import Estimator


OURS = "estimates"
"""The name of opdb's own estimates beside the baselines'."""


@dataclass(frozen=True)
class OperatorError:
    """A configuration that was left out: its measured cost and what was estimated of it.

    `estimated` is None where the estimate was refused, `guessed` what each baseline says.
    """

    measured: Cost
    estimated: Cost | None
    guessed: Mapping[str, Cost]


@dataclass(frozen=True)
class LeftOutError:
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


NAMES: Mapping[Leaving, Callable[[Workload], str]] = {
    "model": lambda workload: workload.name,
    "family": lambda workload: first_word(workload.name),
    "batch_size": lambda workload: f"batch {workload.batch_size}",
}
"""What can be left out, and which group a workload then belongs to."""


def estimation(
    store: Store, predictor: Predictor, models: Collection[str], leaving: Leaving, display: Display
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
    runs: list[LeftOutError] = []
    for (group, board), of_group in sorted(measured.items()):
        if models and not any(workload.name in models for workload, _ in of_group):
            continue
        if board not in known:
            known[board] = examples_with_users(store, predictor, board)
        own = [(e, users and {named(w) for w in users} == {group}) for e, users in known[board]]
        out = [example for example, is_out in own if is_out]
        learned = trained([e for e, is_out in own if not is_out], works, predictor, board)
        found = _estimated(out, [e for e, is_out in own if not is_out], learned)
        operators += found[0]
        runs += [
            _ran(group, run, {e.configuration.key for e in out}, predictor, found[1])
            for run in of_group
        ]
        display.note(f"without {group}: {plural(len(found[0]), 'operator')}")
    if not operators:
        raise InputError("nothing measured uses operators that nothing else uses")
    return _listing(leaving, operators, runs)


def _estimated(
    out: Sequence[Example], rest: Sequence[Example], learned: Estimator
) -> tuple[list[OperatorError], dict[str, EstimatedCosts]]:
    from opdb.commands._left_out import BASELINES, apply_rule

    estimates = learned.estimate((e.configuration for e in out), alike_only=True)
    guesses = {
        name: apply_rule(made(rest), [e.configuration for e in out], learned.board)
        for name, made in BASELINES.items()
    }
    operators = [
        OperatorError(
            example.cost,
            estimates.costs.get(key),
            {name: guessed.costs[key] for name, guessed in guesses.items()},
        )
        for example in out
        if example.cost.kernels
        for key in [example.configuration.key]
    ]
    return operators, {OURS: estimates, **guesses}


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
    return LeftOutError(group, *run, sum(out.values()) - refused, refused, answers)


MOSTLY_ESTIMATED = 0.2
"""A run counts whose estimated share of the time is at least this …"""

HARDLY_REFUSED = 0.02
"""… and whose refused share is at most this: what is refused is in no prediction."""

WIDTHS = (0.0, 0.15, 0.3, 0.6, math.inf)
"""Half widths of a time's stated interval, in logarithms, between which errors are told apart."""


def _attributions(measure: Measure) -> Callable[[LeftOutError], Json]:
    return lambda run: {name: attribution(a, measure) for name, a in run.answers.items()}


def _ours(measure: Measure) -> Callable[[LeftOutError], str]:
    def ratio(run: LeftOutError) -> str:
        found = attribution(run.answers[OURS], measure)
        return "–" if found is None else f"{found:.3f}"

    return ratio


def _half_width(run: LeftOutError) -> float | None:
    prediction = run.answers[OURS].prediction
    if prediction.time_interval_s is None or not prediction.time_s:
        return None
    return prediction.time_interval_s[1] / prediction.time_s - 1


ESTIMATED_RUNS: Table[LeftOutError] = Table(
    *workload_columns(lambda run: run.workload),
    Column("mode", lambda run: run.mode, title="mode"),
    Column("left_out", lambda run: run.group),
    Column("share_estimated", lambda run: run.estimated, title="estimated", unit=SHARE),
    Column("share_refused", lambda run: run.refused, title="refused", unit=SHARE),
    Column("attribution_time", _attributions("time"), title="time", text=_ours("time")),
    Column(title="±", get=_half_width, unit=SHARE),
    Column("attribution_energy", _attributions("energy"), title="energy", text=_ours("energy")),
    Column("inside_interval_time", lambda run: inside(run.answers[OURS], "time")),
    Column("inside_interval_energy", lambda run: inside(run.answers[OURS], "energy")),
)


def _in_all(found: Json, of: str, member: str) -> float | None:
    value: float | None = (found[of] or {}).get(member)
    return value


def _both(time: float | None, energy: float | None) -> str:
    if time is None or energy is None:
        return "–"
    return f"{show_share(time)}, {show_share(energy)}"


METHODS: Table[tuple[str, Json]] = Table(
    Column("method", lambda row: row[0], title="method"),
    Column(title="operators: time", get=lambda r: _in_all(r[1], "operators", "time"), unit=SHARE),
    Column(title="energy", get=lambda r: _in_all(r[1], "operators", "energy"), unit=SHARE),
    Column(
        title="inside",
        text=lambda row: _both(
            *(_in_all(row[1], "operators", f"inside_{measure}") for measure in MEASURES)
        ),
    ),
    Column(title="models: time", get=lambda r: _in_all(r[1], "models_time", "median"), unit=SHARE),
    Column(title="energy", get=lambda r: _in_all(r[1], "models_energy", "median"), unit=SHARE),
    Column(
        title="inside",
        text=lambda row: _both(
            *(_in_all(row[1], f"models_{measure}", "inside") for measure in MEASURES)
        ),
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
    leaving: Leaving, operators: Sequence[OperatorError], runs: Sequence[LeftOutError]
) -> Listing:
    """Return what was estimated after each group was left out of learning, and how right it is."""
    resting = [run for run in runs if run.estimated + run.refused >= MOSTLY_ESTIMATED]
    judged = [
        run for run in runs if run.estimated >= MOSTLY_ESTIMATED and run.refused <= HARDLY_REFUSED
    ]
    summary, by_width = _summary(operators, judged), _by_width(operators)
    refused = sum(each.estimated is None for each in operators)
    not_judged, ours = len(resting) - len(judged), summary[OURS]
    document: Json = {
        "leaving": leaving,
        "rows": ESTIMATED_RUNS.documents(runs),
        "summary": summary,
        "by_width": BY_WIDTH.documents(by_width),
        "refused_operators": refused,
        "refused_runs": not_judged,
    }
    return Listing(
        document,
        [
            Rows(ESTIMATED_RUNS, resting),
            "",
            Rows(METHODS, list(summary.items())),
            "",
            Rows(BY_WIDTH, by_width),
            f"median errors over {plural(ours['operators']['count'], 'operator')} and "
            f"{plural((ours['models_time'] or {'count': 0})['count'], 'run')}; inside: how many "
            "truths the 95 % intervals hold, of time and of energy",
            f"refused: {refused} of {plural(len(operators), 'operator')}; so told above and not "
            f"counted below: {plural(not_judged, 'run')}",
        ],
    )


def _summary(operators: Sequence[OperatorError], runs: Sequence[LeftOutError]) -> dict[str, Json]:
    told = [each for each in operators if each.estimated is not None]
    names = [OURS, *(told[0].guessed if told else ())]
    return {
        name: {
            "operators": _of_operators(told, name),
            "models_time": _of_runs(runs, name, "time"),
            "models_energy": _of_runs(runs, name, "energy"),
        }
        for name in names
    }


def _by_width(operators: Sequence[OperatorError]) -> list[Json]:
    found: list[Json] = []
    for low, high in pairwise(WIDTHS):
        pairs = [
            (time, each.measured.time_s)
            for each in operators
            if each.estimated is not None
            and (time := each.estimated.time_s) is not None
            and time.high is not None
            and time.mean > 0
            and low <= math.log(time.high / time.mean) < high
        ]
        found.append(
            {
                "from": low,
                "to": None if math.isinf(high) else high,
                "count": len(pairs),
                "median": _median(_error(*pair) for pair in pairs),
                "inside": _share(_holds(*pair) for pair in pairs),
            }
        )
    return found


def _of_operators(told: Sequence[OperatorError], name: str) -> Json:
    pairs = [
        (estimate, each.measured)
        for each in told
        if (estimate := each.estimated if name == OURS else each.guessed[name]) is not None
    ]
    return {
        "count": len(pairs),
        "time": _median(_error(e.time_s, m.time_s) for e, m in pairs),
        "energy": _median(_error(e.dynamic_energy_j, m.dynamic_energy_j) for e, m in pairs),
        "inside_time": _share(_holds(e.time_s, m.time_s) for e, m in pairs)
        if name == OURS
        else None,
        "inside_energy": _share(_holds(e.dynamic_energy_j, m.dynamic_energy_j) for e, m in pairs)
        if name == OURS
        else None,
    }


def _of_runs(runs: Sequence[LeftOutError], name: str, what: Measure) -> Json:
    answers = [run.answers[name] for run in runs]
    errors = sorted(abs(ratio - 1) for a in answers if (ratio := attribution(a, what)) is not None)
    if not errors:
        return None
    return {
        "count": len(errors),
        "median": statistics.median(errors),
        "largest": errors[-1],
        "inside": _share(inside(a, what) for a in answers) if name == OURS else None,
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
