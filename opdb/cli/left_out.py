"""What `opdb validate --estimates` shows: estimates of what was left out, and simpler rules'."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from opdb.cli.console import note, print_json, print_table
from opdb.cli.selection import describe, identity
from opdb.errors import InputError
from opdb.learning import OURS, Leaving, leave_out
from opdb.records import Json, Quantity
from opdb.units import counted, show_share

if TYPE_CHECKING:
    from opdb.learning import ModelError, OperatorError
    from opdb.predict import Answer, Predictor
    from opdb.store import Store

MOSTLY_ESTIMATED = 0.2
"""A run counts whose estimated share of the time is at least this …"""

HARDLY_REFUSED = 0.02
"""… and whose refused share is at most this: what is refused is in no prediction."""


WIDTHS = (0.0, 0.15, 0.3, 0.6, math.inf)
"""Half widths of a time's stated interval, in logarithms, between which errors are told apart."""


def left_out(
    store: Store,
    predictor: Predictor,
    models: Collection[str],
    leaving: Leaving,
    *,
    as_json: bool,
    quiet: bool,
) -> None:
    """Show how estimates do on models, families or batch sizes that were left out of learning.

    Raises:
        InputError: nothing measured uses anything of its own.
        CannotMeasureError: scikit-learn is not installed.
    """
    operators: list[OperatorError] = []
    runs: list[ModelError] = []
    for found in leave_out(store, predictor, leaving, models):
        note(f"without {found.group}: {counted(len(found.operators), 'operator')}", quiet=quiet)
        operators += found.operators
        runs += found.models
    if not operators:
        raise InputError("nothing measured uses operators that nothing else uses")
    judged = [
        run for run in runs if run.estimated >= MOSTLY_ESTIMATED and run.refused <= HARDLY_REFUSED
    ]
    summary = _summary(operators, judged)
    refused = sum(run.estimated + run.refused >= MOSTLY_ESTIMATED for run in runs) - len(judged)
    if as_json:
        print_json(
            {
                "leaving": leaving,
                "rows": [_row(run) for run in runs],
                "summary": summary,
                "by_width": _by_width(operators),
                "refused_operators": sum(each.estimated is None for each in operators),
                "refused_runs": refused,
            }
        )
        return
    _print(runs, summary, _by_width(operators))
    print(
        f"refused: {sum(each.estimated is None for each in operators)} of "
        f"{counted(len(operators), 'operator')}; so told above and not counted below: "
        f"{counted(refused, 'run')}"
    )


def _summary(operators: Sequence[OperatorError], runs: Sequence[ModelError]) -> dict[str, Json]:
    """Return each method's errors, over the operators and runs that opdb estimates."""
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
    """Return the errors of times by how wide their intervals were stated."""
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


def _of_runs(runs: Sequence[ModelError], name: str, what: str) -> Json:
    answers = [run.answers[name] for run in runs]
    errors = sorted(abs(ratio - 1) for a in answers if (ratio := _attribution(a, what)) is not None)
    if not errors:
        return None
    return {
        "count": len(errors),
        "median": statistics.median(errors),
        "largest": errors[-1],
        "inside": _share(_inside(a, what) for a in answers) if name == OURS else None,
    }


def _attribution(answer: Answer, what: str) -> float | None:
    return answer.attribution_time if what == "time" else answer.attribution_energy


def _inside(answer: Answer, what: str) -> bool | None:
    prediction, measured = answer.prediction, answer.measured
    if measured is None:
        return None
    interval = prediction.time_interval_s if what == "time" else prediction.energy_interval_j
    truth = measured.time_s if what == "time" else measured.energy_j
    if interval is None or truth is None:
        return None
    return interval[0] <= truth.mean <= interval[1]


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


def _row(run: ModelError) -> dict[str, Json]:
    ours = run.answers[OURS]
    return {
        **identity(run.workload),
        "mode": run.mode,
        "left_out": run.group,
        "share_estimated": run.estimated,
        "share_refused": run.refused,
        "attribution_time": {n: a.attribution_time for n, a in run.answers.items()},
        "attribution_energy": {n: a.attribution_energy for n, a in run.answers.items()},
        "inside_interval_time": _inside(ours, "time"),
        "inside_interval_energy": _inside(ours, "energy"),
    }


def _print(runs: Sequence[ModelError], summary: dict[str, Json], by_width: Sequence[Json]) -> None:
    print_table(
        ("model", "workload", "mode", "estimated", "refused", "time", "±", "energy"),
        [
            (
                run.workload.name,
                describe(run.workload),
                run.mode,
                show_share(run.estimated),
                show_share(run.refused),
                _ratio(run.answers[OURS].attribution_time),
                _width(run.answers[OURS]),
                _ratio(run.answers[OURS].attribution_energy),
            )
            for run in runs
            if run.estimated + run.refused >= MOSTLY_ESTIMATED
        ],
    )
    print()
    print_table(
        ("method", "operators: time", "energy", "inside", "models: time", "energy", "inside"),
        [
            (
                name,
                _shown(found["operators"]["time"]),
                _shown(found["operators"]["energy"]),
                _both(found["operators"]["inside_time"], found["operators"]["inside_energy"]),
                _shown(found["models_time"] and found["models_time"]["median"]),
                _shown(found["models_energy"] and found["models_energy"]["median"]),
                _both(
                    found["models_time"] and found["models_time"]["inside"],
                    found["models_energy"] and found["models_energy"]["inside"],
                ),
            )
            for name, found in summary.items()
        ],
    )
    print()
    print_table(
        ("interval of a time", "operators", "median error", "inside"),
        [
            (
                f"± {show_share(each['from'])} or more, in logarithms",
                each["count"],
                _shown(each["median"]),
                _shown(each["inside"]),
            )
            for each in by_width
        ],
    )
    ours = summary[OURS]
    print(
        f"median errors over {counted(ours['operators']['count'], 'operator')} and "
        f"{counted((ours['models_time'] or {'count': 0})['count'], 'run')}; inside: how many "
        "truths the 95 % intervals hold, of time and of energy"
    )


def _ratio(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _width(answer: Answer) -> str:
    prediction = answer.prediction
    if prediction.time_interval_s is None or not prediction.time_s:
        return "–"
    return show_share(prediction.time_interval_s[1] / prediction.time_s - 1)


def _shown(value: float | None) -> str:
    return "–" if value is None else show_share(value)


def _both(time: float | None, energy: float | None) -> str:
    if time is None or energy is None:
        return "–"
    return f"{show_share(time)}, {show_share(energy)}"
