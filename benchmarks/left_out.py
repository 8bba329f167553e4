"""How right estimates are of what they were not learned from: other boards, other model families.

It measures nothing and reads a database (an SQLite file; boards are UUIDs or beginnings of such):

    python -m benchmarks.left_out DATABASE model|family|batch_size [MODEL...]
    python -m benchmarks.left_out DATABASE families
    python -m benchmarks.left_out DATABASE boards BOARD...
    python -m benchmarks.left_out DATABASE transfer [MODEL...]

Each prints one JSON document.

`model`, `family`, `batch_size`: each model, family of models or batch size is left out in turn, and
estimates are learned anew from what the others use, which takes minutes to hours. What it alone
uses is estimated so, and by simple rules that anybody would try first; a whole run counts if at
least 20 % of its time is estimated and at most 2 % was refused. Errors are |ln(estimate /
measured)| of operators and |predicted / measured - 1| of runs, at the median.

`families`: each family of models (names that begin with the same word: all ResNets) is left out
with all that it alone calls and estimated from the rest. Its measured CUDA graphs, of which at
least 20 % of the time is estimated, are compared with predictions that use these estimates. The
stored estimates' own points are left out by blocks of the inverse of their covariance, so nothing
is learned again: the kernels' some thirty lengths and levels did see all models (`family` learns
from the rest alone). The widths of sums are learned from all other families. `inside_low` to
`inside_high` is the binomial interval of the share inside, for as many independent graphs as there
are (benchmarks/intervals.py).

`boards`: all that these boards measured is deleted from a copy of the database, and estimates are
learned from what is left. Compared are the operators that no other board measured, grouped by what
their estimates rest on and by sort of operator, and the boards' CUDA graphs of which at least 20 %
of the time is estimated.

`transfer`: each measured run is predicted from another board's costs alone, where these cover it,
as they are and scaled by the factors that the anchors of both boards give.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sqlite3
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.intervals import binomial_interval, effective, score
from opdb import records
from opdb.commands.validate import MEASURES, Measure, attribution, inside, predicted
from opdb.commands.validate import errors_of as errors_between
from opdb.derive.boards import UNKNOWN_BASE_POWER, Factors, transferred
from opdb.errors import InputError, OpdbError
from opdb.estimates.__main__ import examples_with_users, first_word, learn, trained, works_of
from opdb.estimates.estimator import ESTIMATED, from_document
from opdb.estimates.features import Features, features, roofline
from opdb.estimates.training import Example, PointsLeftOut, errors_of, usable, widened
from opdb.predict.compose import compose_pass, inputs_in_pass
from opdb.predict.generation import Interpolated
from opdb.predict.predictor import PLAIN_MODES, Answer, Predictor, predictor_for
from opdb.predict.timeline import EstimatedCosts, Pass, PredictionInputs
from opdb.records import Configuration, Cost, Mode, Quantity, Workload
from opdb.store import Store, open_store

LEAST_ESTIMATED = 0.2
ALIKE = "operators like it"
RESTS = (records.ROOFLINE_ALONE, records.OTHER_KINDS, records.OTHER_DTYPE)
"""What an estimate can rest on."""


def graph_document(each: Answer) -> dict[str, Any]:
    of, workload = each.prediction, each.prediction.workload
    found: dict[str, Any]
    found = {"model": workload.name, "batch_size": workload.batch_size, "dtype": workload.dtype}
    found |= {"mode": of.mode, "board": of.board, "measured": of.coverage_time}
    for measure in MEASURES:
        found[measure] = attribution(each, measure)
        found[f"{measure}_inside"] = inside(each, measure)
    return found


def composed(
    predictor: Predictor, workload: Workload, mode: Mode, inputs: PredictionInputs
) -> Answer:
    pass_ = Pass(workload)
    inputs = inputs_in_pass(pass_, predictor.in_mode(inputs, pass_, mode))
    return Answer(
        compose_pass(pass_, mode, inputs), predictor.run_cost(workload, mode, inputs.board)
    )


def predicted_without(
    predictor: Predictor, workload: Workload, mode: Mode, out: set[str], instead: EstimatedCosts
) -> Answer:
    """Predict a measured run as if some configurations (keys) had only estimates, `instead`."""
    board = predictor.measured_in(mode)[workload.key].board
    inputs = replace(predictor.inputs(workload, board, out), estimates=instead)
    return composed(predictor, workload, mode, inputs)


# model, family, batch_size

OURS = "estimates"
"""The name of opdb's own estimates beside the simple rules'."""

NAMES: Mapping[str, Callable[[Workload], str]] = {
    "model": lambda workload: workload.name,
    "family": lambda workload: first_word(workload.name),
    "batch_size": lambda workload: f"batch {workload.batch_size}",
}
"""What can be left out, and which group a workload then belongs to."""

HARDLY_REFUSED = 0.02
WIDTHS = (0.0, 0.15, 0.3, 0.6, math.inf)
"""Half widths of a time's stated interval, in logarithms, between which errors are told apart."""


class Guess(NamedTuple):
    """The measured cost of a configuration that was left out, and what each method says of it."""

    measured: Cost
    guessed: Mapping[str, Cost]


class Ran(NamedTuple):
    """A measured run predicted with what its group alone uses estimated, by each method.

    `estimated` is the share of its device time that rests on estimates, `refused` the share that
    was refused.
    """

    group: str
    estimated: float
    refused: float
    answers: Mapping[str, Answer]


def learned_anew(
    store: Store, predictor: Predictor, leaving: str, models: Collection[str]
) -> tuple[list[Guess], int, list[Ran]]:
    """Leave out one group of measured workloads after another, and estimate what it alone uses.

    Where `models` are named, only the groups that these belong to. Returned are the operators, how
    many were refused, and the runs.
    """
    named = NAMES[leaving]
    measured: dict[tuple[str, str], list[tuple[Workload, Mode]]] = defaultdict(list)
    for mode in PLAIN_MODES:
        for workload, board in predictor.measured_workloads(mode):
            measured[named(workload), board].append((workload, mode))
    if len({group for group, _ in measured}) < 2:
        raise InputError(f"nothing can be left out: too few {leaving}s were measured whole")
    works = works_of(store)
    known = {board: examples_with_users(store, predictor, board) for _, board in measured}
    guesses, refused, runs = [], 0, []
    for (group, board), of_group in sorted(measured.items()):
        if models and not any(workload.name in models for workload, _ in of_group):
            continue
        out: list[Example] = []
        rest: list[Example] = []
        for example, users in known[board]:
            is_own = bool(users) and {named(workload) for workload in users} == {group}
            (out if is_own else rest).append(example)
        asked = [example.configuration for example in out]
        learned = trained(rest, works, predictor, board)
        found = learned.estimate(asked)
        unlike = {k: "unlike all" for k, c in found.costs.items() if {*RESTS} & {*c.flags}}
        costs = {k: c for k, c in found.costs.items() if k not in unlike}
        ours = replace(found, costs=costs, refused=found.refused | unlike)
        methods: dict[str, EstimatedCosts] = {OURS: ours}
        for name, made in BASELINES.items():
            methods[name] = apply_rule(made(rest), asked, learned.board)
        working = [e for e in out if e.cost.kernels]
        for example in working:
            key = example.configuration.key
            if key in methods[OURS].costs:
                guessed = {name: method.costs[key] for name, method in methods.items()}
                guesses.append(Guess(example.cost, guessed))
            else:
                refused += 1
        keys = {each.key for each in asked}
        runs += [_ran(group, run, keys, predictor, methods) for run in of_group]
        print(f"without {group}: {len(working)} operators", file=sys.stderr)
    if not guesses and not refused:
        raise InputError("nothing measured uses operators that nothing else uses")
    return guesses, refused, runs


def _ran(
    group: str,
    run: tuple[Workload, Mode],
    left_out: set[str],
    predictor: Predictor,
    methods: Mapping[str, EstimatedCosts],
) -> Ran:
    """Predict a measured run, what was left out estimated by each method."""
    parts = predictor.answer(*run).prediction.parts
    shares = {p.configuration.key: p.share_time for p in parts}
    out = {key: share for key, share in shares.items() if key in left_out}
    refused = sum(share for key, share in out.items() if key in methods[OURS].refused)
    answers = {n: predicted_without(predictor, *run, left_out, of) for n, of in methods.items()}
    return Ran(group, sum(out.values()) - refused, refused, answers)


def of_learned_anew(
    store: Store, predictor: Predictor, leaving: str, models: Collection[str] = ()
) -> dict[str, Any]:
    guesses, refused, runs = learned_anew(store, predictor, leaving, models)
    resting = [run for run in runs if run.estimated + run.refused >= LEAST_ESTIMATED]
    judged = [
        run for run in runs if run.estimated >= LEAST_ESTIMATED and run.refused <= HARDLY_REFUSED
    ]
    return {
        "rows": [
            {
                **graph_document(run.answers[OURS]),
                "left_out": run.group,
                "share_estimated": run.estimated,
                "share_refused": run.refused,
                "by_method": {
                    name: {m: attribution(answer, m) for m in MEASURES}
                    for name, answer in run.answers.items()
                },
            }
            for run in runs
        ],
        "summary": {name: method_errors(guesses, judged, name) for name in (OURS, *BASELINES)},
        "by_width": [errors_by_width(guesses, *ends) for ends in pairwise(WIDTHS)],
        "refused_operators": refused,
        "refused_runs": len(resting) - len(judged),
    }


def method_errors(guesses: Sequence[Guess], runs: Sequence[Ran], name: str) -> dict[str, Any]:
    """Return how right a method is; a simple rule states no intervals."""
    of_operators: dict[str, Any] = {"count": len(guesses)}
    for measure, quantity in (("time", "time_s"), ("energy", "dynamic_energy_j")):
        take = attrgetter(quantity)
        pairs = [(take(each.guessed[name]), take(each.measured)) for each in guesses]
        of_operators[measure] = _over(statistics.median, (_error(*pair) for pair in pairs))
        if name == OURS:
            held = (_holds(*pair) for pair in pairs)
            of_operators[f"inside_{measure}"] = _over(statistics.fmean, held)
    found: dict[str, Any] = {"operators": of_operators}
    for measure in MEASURES:
        errors = errors_between([run.answers[name] for run in runs], measure)
        found[f"models_{measure}"] = errors and {
            "count": errors.count,
            "median": errors.median,
            "largest": errors.largest,
            "inside": errors.inside_interval if name == OURS else None,
        }
    return found


def errors_by_width(guesses: Sequence[Guess], low: float, high: float) -> dict[str, Any]:
    """Return the errors of times whose intervals are stated about so wide, in logarithms."""
    pairs = [
        (time, each.measured.time_s)
        for each in guesses
        if (time := each.guessed[OURS].time_s) is not None
        and time.high is not None
        and time.mean > 0
        and low <= math.log(time.high / time.mean) < high
    ]
    return {
        "from": low,
        "to": None if math.isinf(high) else high,
        "count": len(pairs),
        "median": _over(statistics.median, (_error(*pair) for pair in pairs)),
        "inside": _over(statistics.fmean, (_holds(*pair) for pair in pairs)),
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


def _over(mean: Callable[[list[float]], float], values: Iterable[float | None]) -> float | None:
    known = [float(value) for value in values if value is not None]
    return mean(known) if known else None


CostRule = Callable[[Features], tuple[float, float]]
"""A call's time (seconds) and dynamic energy (joules)."""


def apply_rule(rule: CostRule, configurations: Iterable[Configuration], board: str) -> Interpolated:
    """Apply a rule to configurations; a call that launches nothing costs nothing."""
    costs = {}
    for configuration in configurations:
        of, key = features(configuration), configuration.key
        taken = rule(of) if of.launches else (0.0, 0.0)
        time, dynamic = (Quantity(each, each, each, each, 0) for each in taken)
        costs[key] = Cost(
            key, board, "", ESTIMATED, 0, None, time, None, None, None, dynamic_energy_j=dynamic
        )
    return Interpolated(costs, (0.0, 0.0))


def _seen(examples: Sequence[Example]) -> list[tuple[Features, float, float]]:
    """Return the usable calls with their times (seconds) and dynamic energies (joules)."""
    found = []
    for each in filter(usable, examples):
        time, dynamic = each.cost.time_s, each.cost.dynamic_energy_j
        assert time is not None
        found.append((features(each.configuration), time.mean, dynamic.mean if dynamic else 0.0))
    return found


def proportional_to_flops(examples: Sequence[Example]) -> CostRule:
    """Time and dynamic energy in proportion to operations, as all examples together have them."""
    of, times_s, dynamic_j = zip(*_seen(examples), strict=True)
    flops = math.fsum(each.flops for each in of)
    time_s, energy_j = math.fsum(times_s), math.fsum(dynamic_j)
    return lambda of: (of.flops * time_s / flops, of.flops * energy_j / flops)


def plain_roofline(examples: Sequence[Example]) -> CostRule:
    """The larger of operations and bytes over the best rates seen, at the usual dynamic power."""
    seen = _seen(examples)
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
    seen = _seen(examples)
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


BASELINES: Mapping[str, Callable[[Sequence[Example]], CostRule]] = {
    "proportional to FLOPs": proportional_to_flops,
    "plain roofline": plain_roofline,
    "nearest neighbour": nearest_neighbour,
    "nearest neighbour, scaled": partial(nearest_neighbour, scaled=True),
}


# families


@dataclass(frozen=True)
class Seen:
    """An error of a model, held against half of its interval, both relative."""

    model: str
    error: float
    half_width: float
    inside: bool


def of_families(store: Store, predictor: Predictor) -> dict[str, Any]:
    """Return every measured graph of every family, the family left out, and summaries."""
    [estimator] = [from_document(d) for d in store.learned(predictor.device.slug).values()]
    examples = [e for e, _ in examples_with_users(store, predictor, estimator.board)]
    rest = PointsLeftOut(estimator, examples)
    errors = errors_of(rest, examples, works_of(store), predictor.base_power_w(estimator.board))
    graphs: dict[str, list[Workload]] = defaultdict(list)
    for workload, _ in predictor.measured_workloads("graph"):
        graphs[first_word(workload.name)].append(workload)
    found: list[tuple[float, Answer]] = []
    for word, workloads in sorted(graphs.items()):
        out = rest.of(word)
        others = [[each for each in some if each.family != word] for some in errors]
        sums = widened(estimator, *others).sums
        estimates = replace(rest.estimates(out), sums=sums)
        for workload in workloads:
            whole = predictor.answer(workload, "graph").prediction
            share = sum(p.share_time for p in whole.parts if p.configuration.key in out)
            if share >= LEAST_ESTIMATED and whole.coverage_calls == 1:
                answer = predicted_without(predictor, workload, "graph", out, estimates)
                found.append((share, answer))
    answers = [answer for _, answer in found]
    return {
        "graphs": [{**graph_document(answer), "estimated": share} for share, answer in found],
        "summary": {measure: summary(seen_of(answers, measure)) for measure in MEASURES},
    }


def seen_of(graphs: Sequence[Answer], measure: Measure) -> list[Seen]:
    found = []
    for each in graphs:
        ratio, amount = attribution(each, measure), predicted(each, measure)
        if ratio is not None and amount is not None and amount.interval and amount.value:
            half_width = (amount.interval[1] - amount.interval[0]) / 2 / amount.value
            name = each.prediction.workload.name
            found.append(Seen(name, ratio - 1, half_width, bool(inside(each, measure))))
    return found


def summary(seen: Sequence[Seen]) -> dict[str, float]:
    errors = sorted(abs(each.error) for each in seen)
    constant = [statistics.fmean(score(each, width) for each in errors) for width in errors]
    by_model: dict[str, list[float]] = defaultdict(list)
    for each in seen:
        by_model[each.model].append(float(each.inside))
    share = statistics.fmean(each.inside for each in seen)
    low, high = binomial_interval(share, effective(by_model))
    return {
        "number": len(seen),
        "models": len(by_model),
        "median": statistics.median(errors),
        "percentile_95": errors[math.ceil(0.95 * len(errors)) - 1],
        "worst": errors[-1],
        "inside": share,
        "inside_low": low,
        "inside_high": high,
        "half_width": statistics.median(each.half_width for each in seen),
        "score": statistics.fmean(score(each.error, each.half_width) for each in seen),
        "best_constant_score": min(constant),
    }


# boards


@dataclass(frozen=True)
class Operator:
    """An operator that was measured after it had been estimated.

    `error` is the logarithm of its estimated over its measured time, `half_width` half the
    interval's; `rests_on` is what its estimate rested on.
    """

    sort: str
    dtype: str
    error: float
    half_width: float
    rests_on: str


@dataclass(frozen=True)
class Group:
    """The operators of a dtype that are of one sort, or whose estimates rest on the same."""

    name: str
    dtype: str
    operators: Sequence[Operator]

    def numbers(self) -> dict[str, Any]:
        """Return the group's errors and intervals.

        `percentile_95` is the ratio that 95 % of the estimates do not exceed, `bias` the median of
        estimate over measured, `width` the median ratio of an interval's upper end to the estimate.
        """
        errors = sorted(abs(each.error) for each in self.operators)
        return {
            "group": self.name,
            "dtype": self.dtype,
            "number": len(errors),
            "median_error": math.expm1(statistics.median(errors)),
            "percentile_95": math.exp(errors[math.ceil(0.95 * len(errors)) - 1]),
            "bias": math.exp(statistics.median(each.error for each in self.operators)),
            "inside": statistics.fmean(abs(e.error) <= e.half_width for e in self.operators),
            "width": math.exp(statistics.median(each.half_width for each in self.operators)),
        }


def without(database: Path, boards: Sequence[str], path: Path) -> None:
    """Copy a database to a path, without what these boards measured, and without estimates."""
    shutil.copy(database, path)
    marks = ", ".join("?" * len(boards))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA foreign_keys = ON")
        for table in ("campaign", "cost"):
            connection.execute(f"DELETE FROM {table} WHERE board IN ({marks})", boards)
        connection.execute("DELETE FROM learned")


def sort_of(of: Features) -> str:
    """Return what sort of operator a call is: a kind, convolutions by window and groups."""
    if not of.family.startswith("convolution"):
        return of.kind
    if of.numbers["depthwise"]:
        return f"{of.kind} depthwise"
    if of.numbers["grouped"]:
        return f"{of.kind} in groups"
    return f"{of.kind} 1×1" if of.numbers["window"] == 0 else f"{of.kind} of windows"


def operators_of(known: Store, rest: Predictor, full: Predictor) -> Iterator[Operator]:
    """Yield the operators that were measured on the boards left out alone."""
    estimator = learn(known, rest)
    configurations = known.configurations()
    before = rest.costs_on(estimator.board, configurations)
    missing = [each for each in configurations if each.key not in before]
    measured = full.costs_on(estimator.board, missing)
    estimates = estimator.estimate(c for c in missing if c.key in measured).costs
    for each in missing:
        cost, estimated = measured.get(each.key), estimates.get(each.key)
        if cost is None or estimated is None or not (cost.time_s and estimated.time_s):
            continue
        of = features(each)
        if of.launches and cost.time_s.mean:
            assert estimated.time_s.high is not None
            yield Operator(
                sort=sort_of(of),
                dtype=of.dtype,
                error=math.log(estimated.time_s.mean / cost.time_s.mean),
                half_width=math.log(estimated.time_s.high / estimated.time_s.mean),
                rests_on=next((f for f in estimated.flags if f in RESTS), ALIKE),
            )


def graphs_of(rest: Predictor, full: Predictor, boards: Collection[str]) -> Iterator[Answer]:
    """Yield the predictions of what these boards ran as CUDA graphs, beside their runs."""
    for workload, board in full.measured_workloads("graph"):
        if board in boards:
            answer = rest.answer(workload, "graph")
            if (answer.prediction.coverage_time or 0.0) <= 1 - LEAST_ESTIMATED:
                yield replace(answer, measured=full.answer(workload, "graph", board).measured)


def groups(operators: Sequence[Operator]) -> list[Group]:
    """Return all operators, then what estimates rest on and sorts, the most first; then dtypes."""
    found = [Group("all", "all", operators)]
    for name in ("rests_on", "sort"):
        for dtype in (lambda _: "all", attrgetter("dtype")):
            members: dict[tuple[str, str], list[Operator]] = defaultdict(list)
            for each in operators:
                members[getattr(each, name), dtype(each)].append(each)
            of_name = [Group(*named, those) for named, those in members.items()]
            found += sorted(of_name, key=lambda each: (-len(each.operators), each.name, each.dtype))
    return found


def of_boards(database: Path, full: Predictor, boards: Sequence[str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rest.sqlite")
        without(database, boards, path)
        with open_store(str(path), create=False) as known:
            rest = predictor_for(known, full.device)
            operators = [each.numbers() for each in groups(list(operators_of(known, rest, full)))]
            graphs = list(graphs_of(predictor_for(known, full.device), full, boards))
    ran = list(map(graph_document, graphs))
    summaries = {measure: summary(seen_of(graphs, measure)) for measure in MEASURES}
    return {"operators": operators, "graphs": ran, "summary": summaries}


# transfer


def of_transfers(predictor: Predictor, models: Collection[str] = ()) -> dict[str, Any]:
    """Return each measured run predicted from each other board's costs, raw and by factors."""
    rows = []
    found: dict[str, list[Answer]] = {"raw": [], "factored": []}
    for workload, run in predictor.runs(models):
        board = predictor.board_of(run)
        costs_of = {b: predictor.own(workload.occurrences(), b) for b in predictor.boards}
        for origin, costs in costs_of.items():
            if origin == board or len(costs) < len(workload.occurrences()):
                continue
            by, both = _transfer(predictor, (workload, run.mode), board, origin)
            for how, answer in both.items():
                found[how].append(answer)
            told = {how: {m: attribution(a, m) for m in MEASURES} for how, a in both.items()}
            rows.append({**graph_document(both["raw"]), "from": origin, **told, **asdict(by)})
    errors = {how: {m: errors_between(those, m) for m in MEASURES} for how, those in found.items()}
    summaries = {
        how: {m: each and asdict(each) for m, each in of.items()} for how, of in errors.items()
    }
    return {"transfers": rows, "summary": summaries}


def _transfer(
    predictor: Predictor, run: tuple[Workload, Mode], board: str, origin: str
) -> tuple[Factors, dict[str, Answer]]:
    by, own = predictor.factors(board, origin), predictor.calibration(board)
    base_w = predictor.base_power_w(origin)
    here_w = base_w * by.base_power if base_w and by.base_power else base_w
    if here_w and by.base_power is None:
        reach_w = UNKNOWN_BASE_POWER.half_width * here_w
        own = replace(own, base_power_interval_w=(here_w - reach_w, here_w + reach_w))
    costs = predictor.own(run[0].occurrences(), origin)
    raw = {key: replace(cost, board=board) for key, cost in costs.items()}
    brought = {key: transferred(cost, board, by, here_w) for key, cost in costs.items()}
    answers = {}
    for how, watts, taken in (("raw", base_w, raw), ("factored", here_w, brought)):
        calibration = replace(own, base_power_w=watts)
        inputs = predictor.inputs_of(run[0], board, calibration, taken, timed_on=origin)
        factors = dict.fromkeys(taken, by) if how == "factored" else {}
        answers[how] = composed(predictor, *run, replace(inputs, brought=factors))
    return by, answers


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("database", type=Path)
    parser.add_argument("check", choices=(*NAMES, "families", "boards", "transfer"))
    parser.add_argument("names", nargs="*", metavar="BOARD or MODEL")
    parser.add_argument("--device", help="by default the one with the most costs")
    options = parser.parse_args()
    check, names = options.check, options.names
    if check == "boards" and not names:
        parser.error("name the boards that are left out")
    try:
        with open_store(str(options.database), create=False) as store:
            full = predictor_for(store, options.device, estimates=False)
            if check in NAMES:
                found = of_learned_anew(store, full, check, names)
            elif check == "families":
                found = of_families(store, full)
            elif check == "transfer":
                found = of_transfers(full, names)
            else:
                found = of_boards(options.database, full, [full.board(name) for name in names])
    except OpdbError as error:
        print(f"left_out: {error}", file=sys.stderr)
        return error.exit_status
    print(json.dumps(found, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
