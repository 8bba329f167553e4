"""What predictions are shown as: figures for decisions, changes, layers."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from opdb.derive.runs import RunCost
from opdb.errors import InputError
from opdb.predict.compose import Prediction, Schedule, Slot
from opdb.records import Call, Configuration, Json, Workload, positive_interval

# Figures for decisions: throughput, energy per sample, price of a million samples.


JOULES_PER_KWH = 3.6e6
SECONDS_PER_HOUR = 3600.0
MILLION = 1e6


@dataclass(frozen=True)
class Amount:
    """A positive quantity with its 95 % interval; None where no interval is stated."""

    value: float
    interval: tuple[float, float] | None = None

    def times(self, factor: float) -> Amount:
        within = self.interval
        scaled = None if within is None else (within[0] * factor, within[1] * factor)
        return Amount(self.value * factor, scaled)

    def inverse(self, of: float) -> Amount | None:
        """Return a number over the amount; None where that is 0, no interval where its low is."""
        if self.value <= 0:
            return None
        low, high = self.interval or (0.0, 0.0)
        return Amount(of / self.value, (of / high, of / low) if low > 0 else None)


def scaled(amount: Amount | None, factor: float | None) -> Amount | None:
    """Return an amount times a factor; None where one of them is not known."""
    return None if amount is None or factor is None else amount.times(factor)


def time_of(found: Prediction) -> Amount | None:
    return None if found.time_s is None else Amount(found.time_s, found.time_interval_s)


def energy_of(found: Prediction) -> Amount | None:
    return None if found.energy_j is None else Amount(found.energy_j, found.energy_interval_j)


def total(parts: Sequence[tuple[float, Amount | None]]) -> Amount | None:
    """Return the sum of amounts of passes, each so many times; None where one is not known.

    The errors of the passes are taken for common to all: they rest on the same operators of one
    board. There is no interval where one pass has none.
    """
    known = [(count, each) for count, each in parts if each is not None]
    within = [(count, *each.interval) for count, each in known if each.interval is not None]
    if len(known) < len(parts):
        return None
    value = math.fsum(count * each.value for count, each in known)
    if len(within) < len(parts):
        return Amount(value)
    low, high = (math.fsum(n * ends[of] for n, *ends in within) for of in (0, 1))
    return Amount(value, (low, high))


@dataclass(frozen=True)
class Figures:
    """Throughput, energy and price per sample of a pass, from its time (s) and energy (J).

    The energy is the board's alone: neither the host's nor that of cooling. Where time or energy
    has no interval, a part of the pass has no cost, and the figures are bounds. Prices are of an
    hour of the device and of a kWh, in any currency, `carbon` grams of CO2 a kWh; None where none
    was given.
    """

    workload: Workload
    time_s: Amount | None
    energy_j: Amount | None
    price: float | None = None
    electricity_price: float | None = None
    carbon: float | None = None

    @classmethod
    def predicted(cls, found: Prediction, *rates: float | None) -> Figures:
        return cls(found.workload, time_of(found), energy_of(found), *rates)

    def measured(self, run: RunCost | None) -> Figures:
        time_s = None if run is None else Amount(run.time_s.mean)
        energy_j = None if run is None or run.energy_j is None else Amount(run.energy_j.mean)
        return replace(self, time_s=time_s, energy_j=energy_j)

    @property
    def samples(self) -> int:
        return self.workload.batch_size * _batches(self.workload)

    @property
    def tokens(self) -> dict[str, int]:
        """The tokens of a pass, of all its samples, by what they are: prompt, new or input.

        A prefill reads a prompt, a decoding step gives each sequence a new token, a whole
        generation does both. Of all else it is the first input; empty where that holds no tokens.
        """
        spec, phase = _first_input(self.workload.inputs), self.workload.phase
        shape = spec.get("shape", [])
        is_index = str(spec.get("dtype", "")).startswith("int")
        is_index = is_index and "range" in (spec.get("values") or ())
        if not is_index or len(shape) != 2 or shape[0] != self.workload.batch_size:
            return {}
        given = int(shape[0] * shape[1]) * _batches(self.workload)
        if phase == "generate":
            generated = self.workload.inputs["generation"]["max_new_tokens"]
            return {"prompt": given, "new": self.workload.batch_size * int(generated)}
        return {{"prefill": "prompt", "decode": "new"}.get(phase, "input"): given}

    @property
    def samples_per_s(self) -> Amount | None:
        return None if self.time_s is None else self.time_s.inverse(self.samples)

    def tokens_per_s(self, what: str) -> Amount | None:
        """Return the throughput in prompt, new or input tokens; None where the pass has none."""
        if self.time_s is None or what not in self.tokens:
            return None
        return self.time_s.inverse(self.tokens[what])

    @property
    def energy_per_sample_j(self) -> Amount | None:
        return scaled(self.energy_j, 1 / self.samples)

    @property
    def energy_per_million_samples_kwh(self) -> Amount | None:
        return scaled(self.energy_per_sample_j, MILLION / JOULES_PER_KWH)

    @property
    def rent_per_million_samples(self) -> Amount | None:
        hours = MILLION / self.samples / SECONDS_PER_HOUR
        return scaled(self.time_s, None if self.price is None else hours * self.price)

    @property
    def electricity_per_million_samples(self) -> Amount | None:
        return scaled(self.energy_per_million_samples_kwh, self.electricity_price)

    @property
    def co2_per_million_samples_g(self) -> Amount | None:
        return scaled(self.energy_per_million_samples_kwh, self.carbon)


def _batches(workload: Workload) -> int:
    return int((workload.inputs.get("training") or {}).get("accumulation", 1))


def _first_input(inputs: Mapping[str, Json]) -> dict[str, Json]:
    given = [*(inputs.get("args") or []), *(inputs.get("kwargs") or {}).values()]
    return next(_specs(given), {})


def _specs(given: Json) -> Iterator[dict[str, Json]]:
    if isinstance(given, dict) and "shape" in given:
        yield given
    elif isinstance(given, dict | list):
        for each in given.values() if isinstance(given, dict) else given:
            yield from _specs(each)


# What moved between two predictions: by how much, and by how many intervals.
#
# A quantity moved where the logarithm of after / before is larger than the joint half width of both
# 95 % intervals, √(a² + b²). Errors that both sides share are not taken out of it: it is rather too
# wide than too narrow.


WAITING = "waits for the host"


@dataclass(frozen=True)
class Change:
    before: Amount | None
    after: Amount | None

    @property
    def ratio(self) -> float | None:
        """After / before; None where one is not known, or not above 0."""
        if self.before is None or self.after is None:
            return None
        if self.before.value <= 0 or self.after.value <= 0:
            return None
        return self.after.value / self.before.value

    @property
    def difference(self) -> float:
        return (self.after.value if self.after else 0) - (self.before.value if self.before else 0)

    @property
    def intervals(self) -> float | None:
        """The change in joint half widths; None where an interval is missing or has no width."""
        ratio, joint = self.ratio, self._joint
        if ratio == 1:
            return 0.0
        return abs(math.log(ratio)) / joint if ratio and joint else None

    @property
    def moved(self) -> bool | None:
        """Whether the change is larger than the joint interval; None where that is not known."""
        if self.ratio == 1:
            return False
        if self._joint is None:
            return None
        return self.intervals is None or self.intervals > 1

    @property
    def _joint(self) -> float | None:
        """Half the joint interval, on logarithms, of the ends that face each other."""
        below, above = self.before, self.after
        if self.ratio is None or below is None or above is None:
            return None
        if above.value < below.value:
            below, above = above, below
        if below.interval is None or above.interval is None or above.interval[0] <= 0:
            return None
        up = math.log(below.interval[1] / below.value)
        return math.hypot(up, math.log(above.value / above.interval[0]))


@dataclass(frozen=True)
class OperatorChange:
    """What calls of one configuration, or of one kind (`configuration` None), take in a pass.

    `calls` are those before and after.
    """

    operator: str
    configuration: Configuration | None
    calls: tuple[int, int]
    time_s: Change
    energy_j: Change


def operator_changes(
    before: Schedule, after: Schedule, samples: tuple[int, int] = (1, 1)
) -> list[OperatorChange]:
    """Return what the operators of two passes take, the largest difference of time first.

    They are matched by configuration where both passes have the same ones, else by kind. Waiting is
    a row of its own, so that the differences add up to that of the passes; each pass is divided by
    its `samples`.
    """
    same = before.costs.keys() == after.costs.keys()
    sides = [
        _operators(schedule, same, 1 / count)
        for schedule, count in zip((before, after), samples, strict=True)
    ]
    found = []
    for name in dict.fromkeys([*sides[0], *sides[1]]):
        old, new = (side.get(name, (None, 0, None, None)) for side in sides)
        of = old[0] or new[0]
        title = WAITING if of is None else of.title
        known = of if same else None
        times, energies = Change(old[2], new[2]), Change(old[3], new[3])
        found.append(OperatorChange(title, known, (old[1], new[1]), times, energies))
    return sorted(found, key=lambda row: abs(row.time_s.difference), reverse=True)


def _operators(
    schedule: Schedule, by_configuration: bool, per: float
) -> dict[str, tuple[Configuration | None, int, Amount | None, Amount | None]]:
    """Return calls of a pass, and what they take times `per`, by configuration or kind; waiting.

    Of each it is one configuration of them, their number, their time and their energy.
    """
    groups: dict[str, list[Slot]] = defaultdict(list)
    for slot in schedule.slots:
        of = slot.call.configuration
        groups[of.key if by_configuration else of.title].append(slot)
    found: dict[str, tuple[Configuration | None, int, Amount | None, Amount | None]] = {}
    for name, slots in groups.items():
        time_s, energy_j = (scaled(each, per) for each in _amounts(slots, schedule))
        found[name] = slots[0].call.configuration, len(slots), time_s, energy_j
    waiting_s = schedule.end_s - schedule.start_s - sum(s.device_s for s in schedule.slots)
    if waiting_s > 0:
        base_w = schedule.base_power_w
        waiting_j = None if base_w is None else Amount(base_w * waiting_s)
        found[WAITING] = None, 0, Amount(waiting_s).times(per), scaled(waiting_j, per)
    return found


def _amounts(slots: Sequence[Slot], schedule: Schedule) -> tuple[Amount, Amount | None]:
    """Return the time and energy of some slots; calls of one configuration err alike."""
    base_w = schedule.base_power_w
    counts = Counter(slot.call.configuration.key for slot in slots)
    time_s = sum(slot.device_s for slot in slots)
    costs = {key: schedule.costs[key] for key in counts}
    halves_s = {key: n * (costs[key].time_s.half_width or 0.0) for key, n in counts.items()}
    time = _amount(time_s, math.sqrt(sum(half**2 for half in halves_s.values())))
    dynamic = {key: cost.dynamic_energy_j for key, cost in costs.items()}
    if base_w is None or any(each is None for each in dynamic.values()):
        return time, None
    metered = {key: each for key, each in dynamic.items() if each is not None}
    energy_j = sum(
        base_w * slot.device_s + metered[slot.call.configuration.key].mean for slot in slots
    )
    squares = sum(
        (base_w * halves_s[key]) ** 2 + (n * (metered[key].half_width or 0.0)) ** 2
        for key, n in counts.items()
    )
    return time, _amount(energy_j, math.sqrt(squares))


def _amount(value: float, half: float) -> Amount:
    interval = positive_interval(value, half / value, half / value) if value > 0 else None
    return Amount(value, interval)


# A prediction layer by layer: time and energy of each module's calls, and of the rest.


Status: TypeAlias = Literal["measured", "estimated", "missing"]


@dataclass(frozen=True)
class Layer:
    """The equal calls that one module makes; `path` is the module's, "" the model's own.

    Times and energies are those of all `count` calls; None where they have none. `share_time` is
    of the pass's time. `energy_j` holds the base power that flows meanwhile, `dynamic_energy_j`
    does not. Of what is no layer (several of them, or what a pass takes beside its calls) `path`
    says what it is, and what it lacks is None.
    """

    path: str
    time_s: float | None
    share_time: float | None
    energy_j: float | None
    count: int | None = None
    configuration: Configuration | None = None
    status: Status | None = None
    dynamic_energy_j: float | None = None

    @property
    def shape(self) -> list[int] | None:
        return None if self.configuration is None else first_shape(self.configuration)


@dataclass(frozen=True)
class Layers:
    """The layers of a pass in the order of their first calls, and the rest of the pass.

    The times of layers and rest add up to the pass's, and so do the energies.
    """

    layers: Sequence[Layer]
    rest: Sequence[Layer]
    time_s: float | None

    def longest(self, number: int | None) -> list[Layer]:
        """Return the given number of layers that take longest, in their order; None: all."""
        ranked = sorted(self.layers, key=lambda layer: layer.time_s or 0.0, reverse=True)
        kept = {id(layer) for layer in ranked[:number]}
        return [layer for layer in self.layers if id(layer) in kept]

    def together(self, what: str, parts: Sequence[Layer]) -> Layer:
        """Return several parts as one, which has no time or energy where none of them has any."""
        times = [each.time_s for each in parts if each.time_s is not None]
        energies = [each.energy_j for each in parts if each.energy_j is not None]
        time_s = math.fsum(times) if times else None
        energy_j = math.fsum(energies) if energies else None
        count = sum(each.count or 0 for each in parts)
        return Layer(what, time_s, _share(time_s, self.time_s), energy_j, count)


def layers(prediction: Prediction, calls: Sequence[Call]) -> Layers:
    """Return a prediction layer by layer; `calls` are the workload's with their modules' paths."""
    check_layered(prediction)
    _check_same(prediction.workload, calls)
    found = prediction.total
    estimated = {share.configuration.key for share in prediction.estimated}
    configurations = {call.configuration.key: call.configuration for call in calls}
    counts = Counter((call.path or "", call.configuration.key) for call in calls)
    is_known = prediction.energy_j is not None
    base_w = found.base_power_w if is_known else None

    def layer(path: str, key: str, count: int) -> Layer:
        time_s = _times(count, found.call_s.get(key))
        dynamic_j = _times(count, found.call_j.get(key)) if is_known else None
        flowing_j = None if base_w is None or time_s is None else base_w * time_s
        energy_j = None if flowing_j is None else flowing_j + (dynamic_j or 0.0)
        status: Status = "missing"
        if time_s is not None:
            status = "estimated" if key in estimated else "measured"
        share = _share(time_s, prediction.time_s)
        return Layer(path, time_s, share, energy_j, count, configurations[key], status, dynamic_j)

    every = [layer(path, key, count) for (path, key), count in counts.items()]
    return Layers(every, rests(prediction), prediction.time_s)


def rests(prediction: Prediction) -> list[Layer]:
    """Return what a pass takes beside its calls: between kernels, and for its host."""
    base_w = None if prediction.energy_j is None else prediction.total.base_power_w
    is_cpu = prediction.device.type == "cpu"
    return [
        Layer(
            what,
            time_s,
            _share(time_s, prediction.time_s),
            None if base_w is None else base_w * time_s,
        )
        for what, time_s in (
            ("transitions between kernels", prediction.total.timed.transition_s),
            (
                "containers of modules" if is_cpu else "the device waits for the host",
                prediction.total.waiting_s,
            ),
        )
    ]


def first_shape(configuration: Configuration) -> list[int] | None:
    first = next(iter(configuration.inputs.values()), None)
    while isinstance(first, list):
        first = first[0] if first else None
    return first.get("shape") if isinstance(first, dict) else None


def _share(time_s: float | None, whole_s: float | None) -> float | None:
    return time_s / whole_s if time_s is not None and whole_s else None


def _times(count: int, value: float | None) -> float | None:
    return None if value is None else math.fsum([value] * count)


def check_layered(prediction: Prediction) -> None:
    workload = prediction.workload
    if workload.compiled_for is not None:
        raise InputError(
            f"{workload.name} in mode {prediction.mode}: operators that torch.compile "
            "fused have no layers; use --mode eager or graph"
        )


def _check_same(workload: Workload, calls: Sequence[Call]) -> None:
    """Check that calls are those of a predicted workload, and have paths."""
    if tuple(calls) != tuple(workload.calls):
        raise InputError(
            f"{workload.name} calls something else here than what is stored and was predicted "
            f"({workload.source} {workload.source_version}); opdb harvest --anew, with the same "
            "options, stores what it calls here"
        )
    if any(call.path is None for call in calls):
        raise InputError(f"{workload.name}: which modules make its calls is not known")
