"""Simple rules with which estimates are compared: those that anybody would try first."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from opdb.estimates.estimator import ESTIMATED
from opdb.estimates.features import Features, features, roofline
from opdb.estimates.training import Example, usable
from opdb.records import Configuration, Cost, Quantity

Rule = Callable[[Features], tuple[float, float]]
"""A call's time (seconds) and dynamic energy (joules)."""


@dataclass(eq=False)
class RuleCosts:
    costs: dict[str, Cost]
    refused: Mapping[str, str] = field(default_factory=dict)

    def half_widths(
        self, counts: Mapping[str, float], base_w: float | None
    ) -> tuple[float, float | None]:
        return 0.0, 0.0


def apply_rule(rule: Rule, configurations: Iterable[Configuration], board: str) -> RuleCosts:
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


def proportional_to_flops(examples: Sequence[Example]) -> Rule:
    """Time and dynamic energy in proportion to operations, as all examples together have them."""
    seen = [(features(e.configuration), *_cost(e)) for e in examples if usable(e)]
    flops = math.fsum(of.flops for of, _, _ in seen)
    time_s, dynamic_j = math.fsum(t for _, t, _ in seen), math.fsum(d for _, _, d in seen)
    return lambda of: (of.flops * time_s / flops, of.flops * dynamic_j / flops)


def plain_roofline(examples: Sequence[Example]) -> Rule:
    """The larger of operations and bytes over the best rates seen, at the usual dynamic power."""
    seen = [(features(e.configuration), *_cost(e)) for e in examples if usable(e)]
    under = roofline((of, time_s) for of, time_s, _ in seen)
    watts = statistics.median(dynamic_j / time_s for _, time_s, dynamic_j in seen)

    def rule(of: Features) -> tuple[float, float]:
        time_s = under.time_s(of) - under.shortest_s
        return time_s, time_s * watts

    return rule


def nearest_neighbour(examples: Sequence[Example], *, scaled: bool = False) -> Rule:
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


BASELINES: Mapping[str, Callable[[Sequence[Example]], Rule]] = {
    "proportional to FLOPs": proportional_to_flops,
    "plain roofline": plain_roofline,
    "nearest neighbour": nearest_neighbour,
    "nearest neighbour, scaled": partial(nearest_neighbour, scaled=True),
}
"""Every baseline by name: what makes its rule from examples."""
