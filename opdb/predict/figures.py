"""Figures for decisions: throughput, energy per sample, price of a million samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from opdb.compose import Prediction
from opdb.derive.runs import RunCost
from opdb.records import Json, Workload

JOULES_PER_KWH = 3.6e6
SECONDS_PER_HOUR = 3600.0
MILLION = 1e6

_COLOURS = (1, 3, 4)
"""Channels by which an input of four dimensions is taken for a batch of images."""


@dataclass(frozen=True)
class Rates:
    """Prices and the carbon intensity as they were given; None where one was not.

    Prices are in whatever currency they were given in.
    """

    price_per_gpu_hour: float | None = None
    electricity_price_per_kwh: float | None = None
    carbon_g_per_kwh: float | None = None


NO_RATES = Rates()


@dataclass(frozen=True)
class Amount:
    """A positive quantity with its 95 % interval; None where no interval is stated."""

    value: float
    interval: tuple[float, float] | None = None

    @classmethod
    def of(cls, value: float | None, interval: tuple[float, float] | None) -> Amount | None:
        """Return the amount of a value; None where there is none."""
        return None if value is None else cls(value, interval)

    def times(self, factor: float) -> Amount:
        """Return the amount times a factor."""
        within = self.interval
        scaled = None if within is None else (within[0] * factor, within[1] * factor)
        return Amount(self.value * factor, scaled)

    def inverse(self, of: float) -> Amount | None:
        """Return a number over the amount; None where that is 0, no interval where its low is."""
        if self.value <= 0:
            return None
        low, high = self.interval or (0.0, 0.0)
        return Amount(of / self.value, (of / high, of / low) if low > 0 else None)


@dataclass(frozen=True)
class Figures:
    """Throughput, energy and price per sample of a pass, from its time (s) and energy (J).

    The energy is the board's alone: neither the host's nor that of cooling. Unless the pass is
    `complete`, a part of it has no cost, and the figures are bounds.
    """

    workload: Workload
    time_s: Amount | None
    energy_j: Amount | None
    rates: Rates = NO_RATES
    complete: bool = True

    @classmethod
    def predicted(cls, found: Prediction, rates: Rates = NO_RATES) -> Figures:
        """Return the figures of a prediction."""
        time_s = Amount.of(found.time_s, found.time_interval_s)
        energy_j = Amount.of(found.energy_j, found.energy_interval_j)
        return cls(found.workload, time_s, energy_j, rates, found.complete)

    @classmethod
    def measured(cls, workload: Workload, run: RunCost | None, rates: Rates = NO_RATES) -> Figures:
        """Return the figures of a measured run, without intervals; empty ones for None."""
        time_s = None if run is None else Amount(run.time_s.mean)
        energy_j = None if run is None or run.energy_j is None else Amount(run.energy_j.mean)
        return cls(workload, time_s, energy_j, rates)

    @property
    def samples(self) -> int:
        """The number of samples in a pass, or in a training step."""
        return self.workload.batch_size * _batches(self.workload)

    @property
    def tokens(self) -> int | None:
        """The number of tokens in the first input; None where that holds no tokens."""
        spec = _first_input(self.workload.inputs)
        shape = spec.get("shape", [])
        is_index = str(spec.get("dtype", "")).startswith("int") and "range" in _values(spec)
        if not is_index or len(shape) != 2 or shape[0] != self.workload.batch_size:
            return None
        return int(shape[0] * shape[1]) * _batches(self.workload)

    @property
    def sample(self) -> str:
        """The word for a sample: "image" where the first input is a batch of images."""
        spec = _first_input(self.workload.inputs)
        shape = spec.get("shape", [])
        is_float = "float" in str(spec.get("dtype", "float32"))
        listed = isinstance((self.workload.inputs.get("args") or [None])[0], list)
        channels = shape[0:1] if listed and len(shape) == 3 else shape[1:2]
        is_image = is_float and (len(shape) == 4 or listed) and channels[:1]
        return "image" if is_image and channels[0] in _COLOURS else "sample"

    @property
    def samples_per_s(self) -> Amount | None:
        """The throughput."""
        return None if self.time_s is None else self.time_s.inverse(self.samples)

    @property
    def tokens_per_s(self) -> Amount | None:
        """The throughput in tokens of the first input; None where that is not of tokens."""
        if self.time_s is None or self.tokens is None:
            return None
        return self.time_s.inverse(self.tokens)

    @property
    def energy_per_sample_j(self) -> Amount | None:
        """The energy of a sample."""
        return None if self.energy_j is None else self.energy_j.times(1 / self.samples)

    @property
    def energy_per_million_samples_kwh(self) -> Amount | None:
        """The energy of a million samples."""
        each = self.energy_per_sample_j
        return None if each is None else each.times(MILLION / JOULES_PER_KWH)

    @property
    def rent_per_million_samples(self) -> Amount | None:
        """The rent of the device for the time of a million samples; None without a price."""
        price = self.rates.price_per_gpu_hour
        if self.time_s is None or price is None:
            return None
        return self.time_s.times(MILLION / self.samples / SECONDS_PER_HOUR * price)

    @property
    def electricity_per_million_samples(self) -> Amount | None:
        """The price of the energy of a million samples; None without a price."""
        return self._of_energy(self.rates.electricity_price_per_kwh)

    @property
    def co2_per_million_samples_g(self) -> Amount | None:
        """The CO2 of a million samples' energy, in grams; None without an intensity."""
        return self._of_energy(self.rates.carbon_g_per_kwh)

    def _of_energy(self, per_kwh: float | None) -> Amount | None:
        energy_kwh = self.energy_per_million_samples_kwh
        return None if energy_kwh is None or per_kwh is None else energy_kwh.times(per_kwh)


def _batches(workload: Workload) -> int:
    """Return the number of batches in a pass: in a training step those it accumulates."""
    return int((workload.inputs.get("training") or {}).get("accumulation", 1))


def _first_input(inputs: Mapping[str, Json]) -> dict[str, Json]:
    """Return the spec of the first tensor among the inputs; empty where there is none."""
    given = [*(inputs.get("args") or []), *(inputs.get("kwargs") or {}).values()]
    return next(_specs(given), {})


def _specs(given: Json) -> Iterator[dict[str, Json]]:
    """Yield the tensor specs in nested inputs, in order."""
    if isinstance(given, dict) and "shape" in given:
        yield given
    elif isinstance(given, dict | list):
        for each in given.values() if isinstance(given, dict) else given:
            yield from _specs(each)


def _values(spec: Mapping[str, Json]) -> Json:
    """Return the value class of a spec where it is an object, else an empty one."""
    values = spec.get("values")
    return values if isinstance(values, dict) else {}
