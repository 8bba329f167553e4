"""A prediction layer by layer: time and energy of each module's calls, and of the rest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from opdb.compose import Breakdown, Prediction
from opdb.errors import InputError
from opdb.records import Call, Configuration

Status: TypeAlias = Literal["measured", "estimated", "missing"]


@dataclass(frozen=True)
class Layer:
    """The equal calls that one module makes; `path` is the module's, "" the model's own.

    Times and energies are those of all `count` calls; None where they have none. `share_time` is
    of the pass's time. `energy_j` holds the base power that flows meanwhile, `dynamic_energy_j`
    does not.
    """

    path: str
    configuration: Configuration
    count: int
    status: Status
    time_s: float | None
    share_time: float | None
    energy_j: float | None
    dynamic_energy_j: float | None

    @property
    def shape(self) -> list[int] | None:
        """The shape of its first input; None where it has none."""
        return first_shape(self.configuration)


@dataclass(frozen=True)
class Part:
    """A part of a pass that is no layer: its time, and its energy (None: unknown).

    `count` is the number of its calls, None where it is beside them.
    """

    what: str
    time_s: float | None
    share_time: float | None
    energy_j: float | None
    count: int | None = None


@dataclass(frozen=True)
class Layers:
    """The layers of a pass in the order of their first calls, and the rest of the pass.

    The times of layers and rest add up to the pass's, and so do the energies.
    """

    layers: Sequence[Layer]
    rest: Sequence[Part]
    time_s: float | None

    def longest(self, number: int | None) -> list[Layer]:
        """Return the given number of layers that take longest, in their order; None: all."""
        if number is None:
            return list(self.layers)
        ranked = sorted(self.layers, key=lambda layer: layer.time_s or 0.0, reverse=True)
        kept = {id(layer) for layer in ranked[:number]}
        return [layer for layer in self.layers if id(layer) in kept]

    def together(self, what: str, parts: Sequence[Layer | Part]) -> Part:
        """Return several parts as one, which has no time or energy where none of them has any."""
        times = [each.time_s for each in parts if each.time_s is not None]
        energies = [each.energy_j for each in parts if each.energy_j is not None]
        time_s = math.fsum(times) if times else None
        return Part(
            what,
            time_s,
            _share(time_s, self.time_s),
            math.fsum(energies) if energies else None,
            sum(each.count or 0 for each in parts),
        )


def layers(prediction: Prediction, found: Breakdown, calls: Sequence[Call]) -> Layers:
    """Return a prediction layer by layer; `calls` are the workload's with their modules' paths.

    Raises:
        InputError: these are not the calls that were predicted, or their paths are not known.
    """
    check_layered(prediction)
    _check_same(prediction, calls)
    estimated = {share.configuration.key for share in prediction.estimated}
    counts: dict[tuple[str, str], int] = {}
    configurations: dict[str, Configuration] = {}
    for call in calls:
        key = call.configuration.key
        configurations[key] = call.configuration
        counts[call.path or "", key] = counts.get((call.path or "", key), 0) + 1
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
        return Layer(path, configurations[key], count, status, time_s, share, energy_j, dynamic_j)

    return Layers(
        [layer(path, key, count) for (path, key), count in counts.items()],
        rests(prediction, found),
        prediction.time_s,
    )


def rests(prediction: Prediction, found: Breakdown) -> list[Part]:
    """Return the parts of a pass beside its calls."""
    base_w = None if prediction.energy_j is None else found.base_power_w

    def rest(what: str, time_s: float) -> Part:
        share = _share(time_s, prediction.time_s)
        return Part(what, time_s, share, None if base_w is None else base_w * time_s)

    device = prediction.device.type
    waiting = "containers of modules" if device == "cpu" else "the device waits for the host"
    return [
        rest("transitions between kernels", found.transition_s),
        rest(waiting, found.waiting_s),
    ]


def first_shape(configuration: Configuration) -> list[int] | None:
    """Return the shape of a configuration's first input; None where it has none."""
    first = next(iter(configuration.inputs.values()), None)
    while isinstance(first, list):
        first = first[0] if first else None
    return first.get("shape") if isinstance(first, dict) else None


def _share(time_s: float | None, whole_s: float | None) -> float | None:
    """Return a time as a share of the pass's; None where either is not known."""
    return time_s / whole_s if time_s is not None and whole_s else None


def _times(count: int, value: float | None) -> float | None:
    return None if value is None else math.fsum([value] * count)


def check_layered(prediction: Prediction) -> None:
    """Check that a prediction has layers.

    Raises:
        InputError: torch.compile has fused them.
    """
    workload = prediction.workload
    if workload.compiled_for is not None:
        raise InputError(
            f"{workload.name} in mode {prediction.mode}: operators that torch.compile "
            "fused have no layers; use --mode eager or graph"
        )


def _check_same(prediction: Prediction, calls: Sequence[Call]) -> None:
    """Check that calls are those of a prediction's workload, one by one, and have paths.

    Raises:
        InputError: they are not, or have none.
    """
    workload = prediction.workload
    of_both = zip(workload.calls, calls, strict=False)
    apart = [n for n, (before, now) in enumerate(of_both) if before != now]
    if apart or len(workload.calls) != len(calls):
        place = apart[0] if apart else min(len(workload.calls), len(calls))
        raise InputError(
            f"{workload.name} calls something else here than what is stored and was predicted "
            f"({workload.source} {workload.source_version}), from call {place + 1} of "
            f"{len(workload.calls)} on: which layer a stored call belongs to is not guessed; "
            "opdb harvest --anew, with the same options, stores what it calls here"
        )
    if any(call.path is None for call in calls):
        raise InputError(f"{workload.name}: which modules make its calls is not known")
