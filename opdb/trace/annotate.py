"""Give a profile the energy of the operators that a database knows."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from opdb.errors import UnsupportedError
from opdb.records import Configuration, Cost, Json, Quantity, canonical_json
from opdb.trace.profile import Node, Profile
from opdb.units import MICRO

_UNSEEN = ("values", "role", "gradient")
"""What a configuration says of a tensor and a profile does not."""


@dataclass(frozen=True)
class Known:
    """A profiled operator that the database knows.

    `costs` are those of the configurations that it may be: they differ only in what a profile does
    not tell. Times are seconds of device work in the profile.
    """

    node: Node
    configurations: Sequence[str]
    costs: Sequence[Cost]
    time_s: float

    def dynamic_j(self) -> Quantity | None:
        """Return its energy above base power (J): the mean of its costs, the widest interval."""
        found = [c.dynamic_energy_j for c in self.costs if c.dynamic_energy_j is not None]
        if not found:
            return None
        mean = sum(each.mean for each in found) / len(found)
        ends = [(each.low, each.high) for each in found]
        lows = [low for low, _ in ends if low is not None]
        highs = [high for _, high in ends if high is not None]
        whole = len(lows) == len(found)
        low, high = (min(lows), max(highs)) if whole else (None, None)
        return Quantity(mean, mean, low, high, len(found))


@dataclass(frozen=True)
class Annotation:
    """What a database knows of a profile.

    `unknown` has the device time (s) of what it does not know, by operator's or kernel's name.
    `idle_s` is the time from the first device work to the last in which there is none.
    """

    known: Sequence[Known]
    unknown: Mapping[str, float] = field(default_factory=dict)
    device_s: float = 0.0
    idle_s: float = 0.0

    @property
    def known_s(self) -> float:
        """The device time of what has an energy, in seconds."""
        return sum(each.time_s for each in self.known)


class Index:
    """The configurations of a database that have a cost, by what a profile tells of a call."""

    def __init__(self, configurations: Collection[Configuration], costs: Mapping[str, Cost]):
        self._costs = costs
        self._by: dict[str, list[Configuration]] = defaultdict(list)
        for each in configurations:
            cost = costs.get(each.key)
            if cost is None or cost.dynamic_energy_j is None or each.pass_name != "forward":
                continue
            if each.autocast is None:
                self._by[_told(each)].append(each)

    def find(self, name: str, args: Mapping[str, Json]) -> list[tuple[Configuration, Cost]]:
        """Return what an event may be, with costs; nothing where the database does not know it."""
        from opdb.operators.profiled import describe_profiled

        try:
            called = describe_profiled(name, args)
        except UnsupportedError:
            return []
        wanted = _without(called.configuration.parameters, called.unknown)
        every = self._by.get(_told(called.configuration), ())
        fitting = [c for c in every if _without(c.parameters, called.unknown) == wanted]
        return [(each, self._costs[each.key]) for each in fitting]


def annotate(profile: Profile, index: Index) -> Annotation:
    """Find what a database knows of a profile: of each tree of calls the outermost operators."""
    known: list[Known] = []
    unknown: Counter[str] = Counter()
    given: set[int] = set()
    cache: dict[str, list[tuple[Configuration, Cost]]] = {}

    def visit(node: Node) -> None:
        work = list(node.all_work())
        if not work:
            return
        event = node.event
        call = json.dumps([event["name"], event["args"].get("Input type"), _call(event["args"])])
        if call not in cache:
            cache[call] = index.find(event["name"], event["args"])
        if found := cache[call]:
            given.update(map(id, work))
            keys = [configuration.key for configuration, _ in found]
            known.append(Known(node, keys, [cost for _, cost in found], _seconds(work)))
            return
        for child in node.children:
            visit(child)
        for each in node.work:
            unknown[event["name"]] += each["dur"] * MICRO
            given.add(id(each))

    for root in profile.roots:
        visit(root)
    for each in profile.work:
        if id(each) not in given:
            unknown[each["name"]] += each["dur"] * MICRO
    return Annotation(known, dict(unknown), _seconds(profile.work), _idle_s(profile.work))


def annotated_trace(profile: Profile, found: Annotation, base_w: float, about: Json) -> Json:
    """Return the profile with `opdb_…` arguments in operators and kernels that are known.

    A kernel has the share of its operator's energy that its time has of the operator's.
    """
    for each in found.known:
        whole = energy_of(each, base_w)
        args = {"opdb_configurations": list(each.configurations), **_arguments(whole)}
        each.node.event["args"] |= args
        for event in each.node.all_work():
            share = event["dur"] * MICRO / each.time_s if each.time_s else 0.0
            event["args"] |= _arguments(whole, share)
    return {**profile.document, "opdb": about}


def energy_of(known: Known, base_w: float) -> Quantity:
    """Return an operator's energy (J): base power over its profiled time, and what is above it."""
    dynamic = known.dynamic_j()
    assert dynamic is not None  # the index holds no other
    return dynamic.moved(base_w * known.time_s)


def _arguments(energy: Quantity, share: float = 1.0) -> dict[str, Json]:
    ends = [energy.low, energy.high]
    interval = None if None in ends else [share * end for end in ends if end is not None]
    return {"opdb_energy_j": share * energy.mean, "opdb_energy_interval_j": interval}


def _call(args: Mapping[str, Any]) -> list[Any]:
    return [args.get(name) for name in ("Input Dims", "Input Strides", "Concrete Inputs")]


def _told(configuration: Configuration) -> str:
    """Return what a profile tells of a configuration, apart from its parameters."""
    return f"{configuration.kind} {canonical_json(_seen(dict(configuration.inputs)))}"


def _seen(value: Json) -> Json:
    if isinstance(value, Mapping):
        return {name: _seen(each) for name, each in value.items() if name not in _UNSEEN}
    return [_seen(each) for each in value] if isinstance(value, list) else value


def _without(parameters: Mapping[str, Json], names: Collection[str]) -> dict[str, Json]:
    return {name: value for name, value in parameters.items() if name not in names}


def _seconds(work: Sequence[Any]) -> float:
    return float(sum(each["dur"] for each in work)) * MICRO


def _idle_s(work: Sequence[Any]) -> float:
    """Return the time between the first and the last device work in which there is none."""
    return sum(_gaps_us(work)) * MICRO


def _gaps_us(work: Sequence[Any]) -> Iterator[float]:
    until = work[0]["ts"]
    for each in work:
        yield max(each["ts"] - until, 0.0)
        until = max(until, each["ts"] + each["dur"])
