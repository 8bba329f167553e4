"""Measured calls of made-up sizes and costs, to learn from in no time."""

from __future__ import annotations

from collections.abc import Mapping

from opdb.estimates.estimator import Estimator
from opdb.estimates.training import Example, train
from opdb.records import Configuration, Cost, Form, Quantity


def quantity(value: float) -> Quantity:
    return Quantity(value, value, value, value, 1)


def call(batch: int, kind: str = "relu", dtype: str = "float32") -> Configuration:
    parameters = {"dim": 1} if kind == "softmax" else {}
    return Configuration(kind, parameters, {"input": {"shape": [batch, 64], "dtype": dtype}})


def example(
    configuration: Configuration,
    time_s: float | None,
    *,
    dynamic_w: float | None = 100.0,
    kernels: int | None = 1,
    eager_s: float | None = None,
    host_s: Mapping[Form, float] | None = None,
    models: tuple[str, ...] = (),
) -> Example:
    """Return a call that took so long, at so much power, alone or issued eagerly."""
    energy = None if dynamic_w is None or time_s is None else quantity(dynamic_w * time_s)
    cost = Cost(
        configuration=configuration.key,
        board="a board",
        setting="",
        estimator="a test",
        visits=1,
        kernels=kernels,
        time_s=None if time_s is None else quantity(time_s),
        eager_time_s=None if eager_s is None else quantity(eager_s),
        power_w=None,
        energy_j=None,
        dynamic_energy_j=energy,
        host_time_s={form: quantity(seconds) for form, seconds in (host_s or {}).items()},
    )
    return Example(configuration, cost, frozenset(models))


def learned(examples: list[Example]) -> Estimator:
    return train(examples, device="a device", board="a board", trained_at="2026-11-25")
