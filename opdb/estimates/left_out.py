"""Estimates of what one family of models alone calls, as if it had never been measured.

Nothing is learned anew: what the learned points say without some of them follows from blocks of the
inverse of their covariance. The kernels (some thirty lengths) and the kinds' levels did see all.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from opdb.errors import InputError
from opdb.estimates.estimator import Estimates, Estimator, Learned, _Asked, _Block
from opdb.estimates.features import features
from opdb.estimates.process import Matrix, Process, left_out, with_noise
from opdb.estimates.training import MOST_POINTS, Example, some, usable


@dataclass(frozen=True)
class _Family:
    """A family of kinds: its examples in the order of the learned points, and both inverses."""

    learned: Learned
    examples: Sequence[Example]
    time: tuple[Any, Any]
    power: tuple[Any, Any] | None


class PointsLeftOut:
    """The learned points of an estimator beside the examples that it learned from.

    Raises:
        InputError: these are not the examples that it learned from.
    """

    def __init__(self, estimator: Estimator, examples: Sequence[Example]) -> None:
        self._estimator = estimator
        by_family: dict[str, list[Example]] = defaultdict(list)
        for example in sorted(examples, key=lambda e: e.configuration.key):
            if usable(example):
                by_family[features(example.configuration).family].append(example)
        self._families = {}
        for name, learned in estimator.families.items():
            of = some(by_family[name], MOST_POINTS)
            if len(of) != len(learned.time.points):
                raise InputError(
                    f"{name}: {len(of)} examples, {len(learned.time.points)} learned points: "
                    "opdb learn makes estimates of this database"
                )
            power = None if learned.power is None else _inverse(learned.power)
            self._families[name] = _Family(learned, of, _inverse(learned.time), power)

    def of(self, family: str) -> set[str]:
        """Return the learned configurations (keys) that one family of models alone calls."""
        learned = (e for each in self._families.values() for e in each.examples)
        return {e.configuration.key for e in learned if e.models == {family}}

    def estimates(self, out: Collection[str]) -> Estimates:
        """Estimate learned configurations (keys) as if none of them had been measured."""
        found = Estimates(self._estimator.board, self._estimator.sums)
        for family in self._families.values():
            rows = [i for i, e in enumerate(family.examples) if e.configuration.key in out]
            if rows:
                self._add(family, rows, found)
        return found

    def _add(self, family: _Family, rows: Sequence[int], found: Estimates) -> None:
        """Add the estimates of some rows of a family, each and all of them left out."""
        learned, roofline = family.learned, self._estimator.roofline
        asked = [
            _Asked(e.configuration, features(e.configuration), None)
            for e in (family.examples[i] for i in rows)
        ]
        above, covariance = left_out(*family.time, rows)
        covariance = learned.together(asked, covariance)
        usuals = learned.slower.at([roofline.time_s(each.of) / each.of.steps for each in asked])
        slower = [
            roofline.slower(each.of, _seconds(family.examples[i]))
            - learned.levels[each.of.kind]
            - usual
            + off
            for i, each, off, usual in zip(rows, asked, above, usuals, strict=True)
        ]
        watts, of_power = _powers(family, rows, asked)
        keys = [each.configuration.key for each in asked]
        block = _Block(keys, covariance, of_power, learned.reach)
        self._estimator._add(learned, asked, (slower, watts), block, found)


def _powers(
    family: _Family, rows: Sequence[int], asked: Sequence[_Asked]
) -> tuple[Matrix | None, Matrix | None]:
    """Return logarithms of watts over what is usual, and their covariance.

    Rows without power are left in.
    """
    learned = family.learned
    if learned.power is None or family.power is None or learned.watts is None:
        return None, None
    watts, covariance = learned.power.at([learned.scaled(each.of) for each in asked])
    took_s = [
        _seconds(family.examples[row]) / a.of.steps for row, a in zip(rows, asked, strict=True)
    ]
    usual = learned.watts.at(took_s)
    at_point = {row: point for point, row in enumerate(learned.metered)}
    places = [k for k, row in enumerate(rows) if row in at_point]
    off, block = left_out(*family.power, [at_point[rows[k]] for k in places])
    for k, error in zip(places, off, strict=True):
        watts[k] = math.log(_watts(family.examples[rows[k]])) - usual[k] + error
    covariance[np.ix_(places, places)] = block
    return watts, covariance


def _inverse(process: Process) -> tuple[Any, Any]:
    """Return the inverse of the points' covariance and the weights of their values."""
    return np.linalg.inv(with_noise(process.kernel, process.points)), process.weights


def _seconds(example: Example) -> float:
    assert example.cost.time_s is not None
    return example.cost.time_s.mean


def _watts(example: Example) -> float:
    assert example.cost.dynamic_energy_j is not None
    return example.cost.dynamic_energy_j.mean / _seconds(example)
