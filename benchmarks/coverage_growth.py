"""How coverage grows with GPU-seconds: by significance, in harvest order, everything at random.

Run it anywhere, in a checkout; it reads the published set and measures nothing:

    python benchmarks/coverage_growth.py --csv docs/coverage_growth.csv \\
        --svg docs/coverage_growth.svg

The published models are measured once more on paper: a configuration costs the GPU-seconds that its
visits took, and covers the shares of its models that its published cost says. An order by
significance is decided as `opdb build` does, slice by slice, from what the slices before have
measured: all else is sized by its measured neighbours, as on a device of which nothing was learned,
and prices are estimates. Where it believes a model to be there too early, the model's run would
tell; its goal is then raised, as `opdb build` does. The oracle knows all costs beforehand. Printed
are the GPU-seconds until the last workload is at the goal, and their mean over workloads, with
ratios to harvest order; the bar is 0.7 for both.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from opdb.compose.sizes import SharesByKey, sizes_of
from opdb.plan.known import Prices, base_power_w, costs_on, prices_of
from opdb.plan.loop import FIRST_SLICE_S, RAISED_BY, SLICE_GROWTH
from opdb.plan.survey import Survey, configurations_of
from opdb.records import Cost, Workload
from opdb.settings import DEFAULT_SETTINGS
from opdb.significance import Significance
from opdb.store import Store, open_store
from opdb.store.exchange import import_set

ROOT = Path(__file__).resolve().parents[1]
DEVICE = "nvidia-h200"
GOAL = 0.9
BAR = 0.7
SHUFFLES = 9
ORDERS = ("significance", "oracle", "harvest order", "everything")
ROWS = 100


@dataclass(frozen=True)
class Truth:
    """The published models, all of whose operators were measured, and what each visit took."""

    survey: Survey
    seconds: Mapping[str, float]
    shares: Sequence[SharesByKey]


@dataclass(frozen=True)
class Point:
    """After so many GPU-seconds: models at the goal, the least and the mean of their coverage."""

    gpu_seconds: float
    at_goal: int
    least: float
    mean: float


@dataclass(frozen=True)
class Curve:
    """How coverage grows in an order, and when each model reached the goal."""

    points: Sequence[Point]
    reached_s: Sequence[float]

    @property
    def last_s(self) -> float:
        return max(self.reached_s)

    @property
    def mean_s(self) -> float:
        return statistics.mean(self.reached_s)


def truth(store: Store, device: str) -> Truth:
    """Return the workloads of which every operator was measured on a device."""
    every = store.workloads()
    costs = costs_on(store, device, configurations_of(every).values(), DEFAULT_SETTINGS)
    # As a harvest of the folder finds them: model by model, by name.
    full = sorted((w for w in every if all(c.key in costs for c in w.occurrences())), key=_by_name)
    found = surveyed(full, costs, device, base_power_w(store, device), prices_of({}))
    shares = [each for w in full if (each := found.shares(w)) is not None]
    return Truth(found, visit_seconds(store, device), shares)


def _by_name(workload: Workload) -> tuple[str, str, int]:
    return workload.name, workload.dtype, workload.batch_size


def surveyed(
    workloads: Sequence[Workload],
    costs: Mapping[str, Cost],
    device: str,
    base_w: float,
    prices: Prices,
) -> Survey:
    return Survey(
        device=device,
        workloads=tuple(workloads),
        costs=costs,
        failed={},
        sizes=sizes_of(configurations_of(workloads).values(), costs),
        prices=prices,
        base_w=base_w,
        energy=True,
    )


def visit_seconds(store: Store, device: str) -> dict[str, float]:
    """Return the GPU-seconds that a configuration's (key) visits took: the median over boards."""
    seconds: dict[str, list[float]] = defaultdict(list)
    for each in store.spent(device):
        seconds[each.configuration].append(each.seconds)
    return {key: statistics.median(some) for key, some in seconds.items()}


def by_significance(of: Truth, goal: float) -> tuple[list[str], int]:
    """Return the order that `opdb build` would have measured in, and how many goals were raised.

    Nothing is known at first, of sizes or of prices.
    """
    whole = of.survey
    goals = {workload.key: goal for workload in whole.workloads}
    order: list[str] = []
    slice_s, raised = FIRST_SLICE_S, 0
    while True:
        known = _known(of, order)
        steps = known.plan(goals, Significance())
        if steps:
            spent_s = 0.0
            for step in steps:
                if spent_s and spent_s + step.seconds > slice_s:
                    break
                order.append(step.key)
                spent_s += step.seconds
            slice_s *= SLICE_GROWTH
            continue
        short = {
            workload.key: goal - covered
            for workload, covered in zip(whole.workloads, coverages(of, order), strict=True)
            if covered < goal - 1e-9
        }
        if not short:
            return order, raised
        raised += len(short)
        for key, lack in short.items():
            goals[key] = min(1.0, goals[key] + max(RAISED_BY, lack))


def _known(of: Truth, order: Sequence[str]) -> Survey:
    """Return what is known once these configurations (keys) were measured."""
    whole = of.survey
    of_kind: dict[str, list[float]] = defaultdict(list)
    for key in order:
        of_kind[whole.configurations[key].kind].append(of.seconds[key])
    costs = {key: whole.costs[key] for key in order}
    return surveyed(whole.workloads, costs, whole.device, whole.base_w, prices_of(of_kind))


def by_oracle(of: Truth, goal: float) -> list[str]:
    """Return the order of one who knows every cost beforehand."""
    of_kind: dict[str, list[float]] = defaultdict(list)
    for key, configuration in of.survey.configurations.items():
        of_kind[configuration.kind].append(of.seconds[key])
    knowing = replace(of.survey, costs={}, prices=prices_of(of_kind))
    goals = {workload.key: goal for workload in knowing.workloads}
    return [step.key for step in knowing.plan(goals, Significance())]


def coverages(of: Truth, order: Sequence[str]) -> list[float]:
    """Return the smaller of the coverages of time and energy of each workload."""
    done = set(order)
    return [
        min(sum(both[q] for key, both in shares.items() if key in done) for q in (0, 1))
        for shares in of.shares
    ]


def curve(of: Truth, order: Sequence[str], goal: float) -> Curve:
    """Return how coverage grows where configurations (keys) are measured in an order."""
    users: dict[str, list[int]] = defaultdict(list)
    for number, shares in enumerate(of.shares):
        for key in shares:
            users[key].append(number)
    have = [[0.0, 0.0] for _ in of.shares]
    reached: dict[int, float] = {}
    points, spent_s = [Point(0.0, 0, 0.0, 0.0)], 0.0
    for key in order:
        spent_s += of.seconds[key]
        for number in users[key]:
            both = of.shares[number][key]
            have[number] = [h + s for h, s in zip(have[number], both, strict=True)]
            if number not in reached and min(have[number]) >= goal - 1e-9:
                reached[number] = spent_s
        least = [min(1.0, *each) for each in have]
        points.append(Point(spent_s, len(reached), min(least), statistics.mean(least)))
    if len(reached) < len(have):
        raise ValueError("the order ends before every model is at the goal")
    return Curve(points, [reached[number] for number in range(len(have))])


def optimum_s(of: Truth, goal: float) -> float:
    """Return the GPU-seconds of the cheapest set that covers every workload, to within 1 %."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import lil_array

    keys = [key for key in of.survey.configurations if of.seconds[key] > 0]
    place = {key: number for number, key in enumerate(keys)}
    matrix = lil_array((2 * len(of.shares), len(keys)))
    for row, (shares, quantity) in enumerate((s, q) for s in of.shares for q in (0, 1)):
        for key in shares.keys() & place.keys():
            matrix[row, place[key]] = shares[key][quantity]
    found = milp(
        [of.seconds[key] for key in keys],
        constraints=LinearConstraint(matrix.tocsr(), lb=goal),
        integrality=[1] * len(keys),
        bounds=Bounds(0, 1),
        options={"mip_rel_gap": 0.01},
    )
    return float(found.fun)


def at_random(of: Truth, goal: float, seed: int) -> Curve:
    """Return the curve of `opdb bench`, which visits all that is pending in random order."""
    order = list(of.survey.configurations)
    random.Random(seed).shuffle(order)
    return curve(of, order, goal)


def compare(of: Truth, goal: float) -> tuple[dict[str, Curve], dict[str, object]]:
    """Return a curve for each order, and the figures."""
    order, raised = by_significance(of, goal)
    shuffled = sorted((at_random(of, goal, n) for n in range(SHUFFLES)), key=lambda c: c.mean_s)
    curves = {
        "significance": curve(of, order, goal),
        "oracle": curve(of, by_oracle(of, goal), goal),
        "harvest order": curve(of, list(of.survey.configurations), goal),
        "everything": shuffled[SHUFFLES // 2],
    }
    usual = curves["harvest order"]
    figures: dict[str, object] = {
        name: {
            "last_s": each.last_s,
            "mean_s": each.mean_s,
            "ratio_last": each.last_s / usual.last_s,
            "ratio_mean": each.mean_s / usual.mean_s,
        }
        for name, each in curves.items()
    }
    models = {workload.name for workload in of.survey.workloads}
    figures |= {
        "goal": goal,
        "device": of.survey.device,
        "models": len(models),
        "workloads": len(of.survey.workloads),
        "configurations": len(of.survey.configurations),
        "gpu_seconds": sum(of.seconds[key] for key in of.survey.configurations),
        "goals_raised": raised,
    }
    return curves, figures


def write_csv(curves: Mapping[str, Curve], path: Path) -> None:
    """Write the curves, some hundred rows each."""
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(("order", "gpu_seconds", "at_goal", "least_coverage", "mean_coverage"))
        for name, each in curves.items():
            for p in _thinned(each.points):
                row = (f"{p.gpu_seconds:.1f}", p.at_goal, f"{p.least:.4f}", f"{p.mean:.4f}")
                writer.writerow((name, *row))


def _thinned(points: Sequence[Point]) -> list[Point]:
    every = max(1, len(points) // ROWS)
    kept = list(points[::every])
    return kept if kept[-1] == points[-1] else [*kept, points[-1]]


WIDTH, HEIGHT, LEFT, TOP, PANEL = 760, 330, 52, 34, 300
COLOURS = {
    "significance": "#0b6e4f",
    "oracle": "#7fb8a4",
    "harvest order": "#b5541c",
    "everything": "#7a7a7a",
}


def write_svg(curves: Mapping[str, Curve], figures: Mapping[str, object], path: Path) -> None:
    """Draw models at the goal, and the mean coverage, over GPU-seconds."""
    most_s = max(each.points[-1].gpu_seconds for each in curves.values())
    count = len(curves["oracle"].reached_s)
    panels = (
        (LEFT, f"workloads at {figures['goal']:g} coverage, of {count}", "at_goal", float(count)),
        (LEFT + PANEL + 60, "mean coverage, time or energy, the smaller", "mean", 1.0),
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
    ]
    for left, title, name, most in panels:
        parts += _axes(left, title, most_s, most)
        for order, each in curves.items():
            values = [(p.gpu_seconds, float(getattr(p, name))) for p in _thinned(each.points)]
            places = " ".join(_place(left, x / most_s, y / most) for x, y in values)
            parts.append(
                f'<polyline points="{places}" fill="none" stroke="{COLOURS[order]}" '
                f'stroke-width="2"{_dashes(order)}/>'
            )
    for number, order in enumerate(curves):
        x, y = LEFT + 60 + 160 * number, HEIGHT - 8
        parts.append(
            f'<line x1="{x}" y1="{y - 4}" x2="{x + 24}" y2="{y - 4}" stroke="{COLOURS[order]}" '
            f'stroke-width="2"{_dashes(order)}/><text x="{x + 30}" y="{y}">{order}</text>'
        )
    path.write_text("\n".join([*parts, "</svg>"]) + "\n")


def _dashes(order: str) -> str:
    return ' stroke-dasharray="5 4"' if order in ("oracle", "everything") else ""


def _place(left: int, x: float, y: float) -> str:
    return f"{left + PANEL * x:.1f},{TOP + 220 * (1 - y):.1f}"


def _axes(left: int, title: str, most_x: float, most_y: float) -> list[str]:
    bottom = TOP + 220
    parts = [
        f'<text x="{left}" y="{TOP - 12}">{title}</text>',
        f'<path d="M{left},{TOP} V{bottom} H{left + PANEL}" fill="none" stroke="black"/>',
        f'<text x="{left + PANEL}" y="{bottom + 32}" text-anchor="end">GPU-seconds</text>',
    ]
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        x, y = left + PANEL * share, bottom - 220 * share
        value = most_y * share
        label = f"{value:.0f}" if most_y > 1 else f"{value:.2g}"
        parts += [
            f'<text x="{x:.0f}" y="{bottom + 16}" text-anchor="middle">{most_x * share:.0f}</text>',
            f'<text x="{left - 6}" y="{y + 4:.0f}" text-anchor="end">{label}</text>',
        ]
    return parts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--goal", type=float, default=GOAL, metavar="SHARE")
    parser.add_argument(
        "--optimum", action="store_true", help="find the cheapest set of all as well: some seconds"
    )
    parser.add_argument("--csv", type=Path, metavar="FILE")
    parser.add_argument("--svg", type=Path, metavar="FILE")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, open_store(f"{folder}/set.sqlite") as store:
        import_set(store, ROOT / "db" / DEVICE)
        of = truth(store, DEVICE)
    curves, figures = compare(of, options.goal)
    if options.optimum:
        figures["optimum_s"] = optimum_s(of, options.goal)
    if options.csv:
        write_csv(curves, options.csv)
    if options.svg:
        write_svg(curves, figures, options.svg)
    mine = figures["significance"]
    assert isinstance(mine, dict)
    met = max(mine["ratio_last"], mine["ratio_mean"]) <= BAR
    if options.json:
        print(json.dumps({**figures, "bar": BAR, "bar_met": met}, indent=2))
        return 0 if met else 1
    print(
        f"{figures['models']} models, {figures['workloads']} workloads, "
        f"{figures['configurations']} configurations, {figures['gpu_seconds']:.0f} GPU-seconds"
    )
    for name, each in curves.items():
        ratio_last = each.last_s / curves["harvest order"].last_s
        ratio_mean = each.mean_s / curves["harvest order"].mean_s
        print(
            f"{name:14} last at {options.goal:g} after {each.last_s:6.0f} s ({ratio_last:.3f}), "
            f"mean {each.mean_s:6.0f} s ({ratio_mean:.3f})"
        )
    if options.optimum:
        print(f"the cheapest set of all: {figures['optimum_s']:.0f} s")
    print(f"goals raised for want of coverage: {figures['goals_raised']}")
    print(f"bar {BAR}: {'met' if met else 'missed'}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
