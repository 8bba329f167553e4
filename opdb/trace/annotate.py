"""Give a profile the energy of the operators that a database knows."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from opdb.errors import UnsupportedError
from opdb.records import Configuration, Cost, Json, Quantity, canonical_json
from opdb.trace.by_kernels import KernelIndex
from opdb.trace.profile import Event, Node, Profile
from opdb.units import MICRO

_UNSEEN = ("values", "role", "gradient")
"""What a configuration says of a tensor and a profile does not."""


By = Literal["call", "kernels"]
"""How device work was found: by its operator's call, or by the names of its kernels."""


@dataclass(frozen=True)
class Known:
    """Device work that the database knows, and the operator that launched it, if one did.

    `configurations` are those that it may be, in which a profile does not tell the difference. Its
    dynamic energy (J) is the mean of theirs. `time_s` is its device time in the profile.
    """

    name: str
    event: Event | None
    work: Sequence[Event]
    configurations: Sequence[str]
    dynamic_j: Quantity
    time_s: float
    by: By = "call"


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

    def share(self, by: By) -> float:
        """Return the share of the device time that was given an energy in this way."""
        return sum(each.time_s for each in self.known if each.by == by) / self.device_s


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


def annotate(profile: Profile, index: Index, by_kernels: KernelIndex) -> Annotation:
    """Find what a database knows of a profile: of each tree of calls the outermost operators.

    Work of an operator that is not known by its call, and work without an operator, may be known
    by its kernels.
    """
    finder = _Finder(index, by_kernels)
    for root in profile.roots:
        finder.visit(root)
    for each in profile.work:
        if id(each) not in finder.given:
            finder.take_work(each["name"], None, [each])
    whole_s = _seconds(profile.work)
    return Annotation(finder.known, dict(finder.unknown), whole_s, _idle_s(profile.work))


class _Finder:
    """Gives each piece of device work to what the database knows, or to what is unknown."""

    def __init__(self, index: Index, by_kernels: KernelIndex) -> None:
        self._index, self._by_kernels = index, by_kernels
        self._found: dict[str, list[tuple[Configuration, Cost]]] = {}
        self.known: list[Known] = []
        self.unknown: dict[str, float] = defaultdict(float)
        self.given: set[int] = set()

    def visit(self, node: Node) -> None:
        """Take an operator's work by its call, else by its parts."""
        work = list(node.all_work())
        if not work:
            return
        event = node.event
        if found := self._of_call(event):
            self.given.update(map(id, work))
            keys = [configuration.key for configuration, _ in found]
            energy = _mean([cost.dynamic_energy_j for _, cost in found])
            self.known.append(Known(event["name"], event, work, keys, energy, _seconds(work)))
            return
        for child in node.children:
            self.visit(child)
        if node.work:
            self.take_work(event["name"], event, node.work)

    def take_work(self, name: str, event: Event | None, work: Sequence[Event]) -> None:
        """Take work by its kernels: those of one operator together, else each alone."""
        self.given.update(map(id, work))
        time_s = _seconds(work)
        if match := self._by_kernels.find([each["name"] for each in work], time_s):
            keys, energy = match.configurations, match.dynamic_j
            self.known.append(Known(name, event, work, keys, energy, time_s, by="kernels"))
        elif len(work) > 1:
            for each in work:
                self.take_work(name, None, [each])
        else:
            self.unknown[name] += time_s

    def _of_call(self, event: Event) -> list[tuple[Configuration, Cost]]:
        args = event["args"]
        call = json.dumps([event["name"], args.get("Input type"), _call(args)])
        if call not in self._found:
            self._found[call] = self._index.find(event["name"], args)
        return self._found[call]


def annotated_trace(profile: Profile, found: Annotation, base_w: float, about: Json) -> Json:
    """Return the profile with `opdb_…` arguments in operators and kernels that are known.

    A kernel has the share of its operator's energy that its time has of the operator's.
    """
    for each in found.known:
        whole = energy_of(each, base_w)
        about_it = {"opdb_configurations": list(each.configurations), "opdb_by": each.by}
        if each.event is not None:
            each.event["args"] |= {**about_it, **_arguments(whole)}
        for event in each.work:
            share = event["dur"] * MICRO / each.time_s if each.time_s else 0.0
            event["args"] |= {"opdb_by": each.by, **_arguments(whole, share)}
    return {**profile.document, "opdb": about}


def energy_of(known: Known, base_w: float) -> Quantity:
    """Return an operator's energy (J): base power over its profiled time, and what is above it."""
    return known.dynamic_j.moved(base_w * known.time_s)


def _mean(found: Sequence[Quantity | None]) -> Quantity:
    """Return the mean of energies, with an interval that spans all of theirs."""
    known = [each for each in found if each is not None]  # the index holds no other
    mean = sum(each.mean for each in known) / len(known)
    lows = [each.low for each in known if each.low is not None]
    highs = [each.high for each in known if each.high is not None]
    whole = len(lows) == len(highs) == len(known)
    low, high = (min(lows), max(highs)) if whole else (None, None)
    return Quantity(mean, mean, low, high, len(known))


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
