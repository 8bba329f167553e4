"""The inputs of a prediction: costs, calibration, estimates; in the weights' cache state."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

from opdb.compose.intervals import PeerRatio
from opdb.derive.boards import Factors
from opdb.footprint import is_kept
from opdb.records import Calibration, Cost, Device, Form, Workload


@dataclass(frozen=True)
class PeerRatios:
    """Predicted / measured time and energy of other models' runs."""

    time: tuple[PeerRatio, ...] = ()
    energy: tuple[PeerRatio, ...] = ()


class EstimatedCosts(Protocol):
    """Costs that were never measured, by configuration key, and why others were refused."""

    @property
    def costs(self) -> Mapping[str, Cost]:
        """The cost of one call of each, as far as it could be estimated."""
        ...

    @property
    def refused(self) -> Mapping[str, str]:
        """Why the others could not."""
        ...

    def half_widths(
        self, counts: Mapping[str, float], base_w: float | None
    ) -> tuple[float, float | None]:
        """Return half the 95 % intervals of the time (seconds) and energy (joules) of calls.

        They are halves of the intervals of logarithms, times the sums.
        """
        ...


class UsualHostTimes(Mapping[tuple[str, Form], float]):
    """Usual host times by `issued_as` and form, read when they are first asked for.

    A CUDA graph waits for no host, and reading them takes as long as a prediction.
    """

    def __init__(self, read: Callable[[], Mapping[tuple[str, Form], float]]) -> None:
        self._read = read

    @cached_property
    def _known(self) -> Mapping[tuple[str, Form], float]:
        return self._read()

    def __getitem__(self, key: tuple[str, Form]) -> float:
        return self._known[key]

    def __iter__(self) -> Iterator[tuple[str, Form]]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


@dataclass(frozen=True)
class PredictionInputs:
    """The inputs of a prediction: one board's costs by configuration key, and its calibration.

    `host_s` holds the board's usual host times by `issued_as` and form, for calls without their
    own; `resident_bytes` is how much its L2 keeps from one pass to the next, `kept_limit_w` the
    power at which the board was seen to keep under its limit (None: at the limit itself),
    `memory_rate` the bytes that its memory reads and writes in a second (None: not known). `notes`
    say which of these were not measured on the board itself; `estimates` are costs of calls that
    nobody measured. `quiet_host` says whether host times are quiet times, beside which the time
    around a pass's calls counts. `host_ratios` are predicted / measured times of other models'
    passes that wait for their host (None: not asked), `brought` the factors that brought costs
    (keys) from other boards. `different_kernels` counts those of a configuration (key) that
    launches several, as far as known.
    """

    device: Device
    board: str
    calibration: Calibration
    costs: Mapping[str, Cost]
    host_s: Mapping[tuple[str, Form], float] = field(default_factory=dict)
    peer_ratios: PeerRatios = field(default_factory=PeerRatios)
    resident_bytes: float | None = None
    kept_limit_w: float | None = None
    memory_rate: float | None = None
    notes: tuple[str, ...] = ()
    estimates: EstimatedCosts | None = None
    host_ratios: tuple[float, ...] | None = None
    brought: Mapping[str, Factors] = field(default_factory=dict)
    different_kernels: Mapping[str, int] = field(default_factory=dict)
    quiet_host: bool = True

    @property
    def limit_w(self) -> float | None:
        """The mean power that no pass exceeds."""
        return self.kept_limit_w or self.device.power_limit_w

    def containers_in(self, workload: Workload) -> float:
        """Return what the host does around the calls of an eager pass, as a number of containers.

        Host times in random order, as older versions took them, hold some of that time already:
        beside them the containers alone count.
        """
        return workload.containers_worth if self.quiet_host else workload.containers


def with_estimates(keys: Iterable[str], inputs: PredictionInputs) -> PredictionInputs:
    """Return the inputs with estimated costs of the configurations (keys) without measured ones.

    This is the one place where estimates come in: later steps do not tell costs apart.
    """
    if inputs.estimates is None:
        return inputs
    estimated = inputs.estimates.costs
    added = {
        key: estimated[key]
        for key in keys
        if key in estimated and ((cost := inputs.costs.get(key)) is None or cost.time_s is None)
    }
    return replace(inputs, costs={**inputs.costs, **added})


def with_weights_found(touched_bytes: int, inputs: PredictionInputs) -> PredictionInputs:
    """Return the inputs with the costs of hot weights, where a pass leaves its weights in the L2.

    Configurations not measured with hot weights keep their usual cost.
    """
    if not is_kept(touched_bytes, inputs.resident_bytes):
        return inputs
    return replace(inputs, costs={key: _hot(cost) for key, cost in inputs.costs.items()})


def _hot(cost: Cost) -> Cost:
    if cost.hot is None or cost.time_s is None:
        return cost
    longer_s = cost.hot.time_s - cost.time_s.mean
    dynamic, eager = cost.dynamic_energy_j, cost.eager_time_s
    if dynamic is not None and cost.hot.dynamic_energy_j is not None:
        dynamic = dynamic.moved(cost.hot.dynamic_energy_j - dynamic.mean)
    return replace(
        cost,
        time_s=cost.time_s.moved(longer_s),
        eager_time_s=None if eager is None or eager.mean + longer_s <= 0 else eager.moved(longer_s),
        dynamic_energy_j=dynamic,
    )
