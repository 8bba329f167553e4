"""What a prediction under a named convolution algorithm adds: what may be asked, what is shown."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from opdb.algorithms.names import ALGORITHMS, Algorithm
from opdb.cli import options
from opdb.errors import InputError
from opdb.kinds import get_kind
from opdb.records import CAPTURED_MODE, Json, Mode, Quantity
from opdb.settings import DEFAULT_SETTINGS, is_forcible
from opdb.units import show, show_share

if TYPE_CHECKING:
    from opdb.compose import Share
    from opdb.predict import Answer, Predictor
    from opdb.records import Cost

HEADER = (
    *("kind", "input", "weight", "stride", "calls", "share of time", "share of energy"),
    *("time of a call", "energy of a call"),
)


@dataclass(frozen=True)
class Convolution:
    """A convolution of a workload: its share of a pass, and what a call of it was benched to cost.

    `cost` is that on the board predicted for, its own or brought there.
    """

    share: Share
    cost: Cost

    @property
    def document(self) -> dict[str, Json]:
        """The convolution as JSON, but for what every share says."""
        configuration = self.share.configuration
        return {
            "parameters": dict(configuration.parameters),
            "inputs": dict(configuration.inputs),
            "time_s": quantity_document(self.cost.time_s),
            "energy_j": quantity_document(self.cost.energy_j),
        }

    @property
    def row(self) -> tuple[object, ...]:
        """The convolution as a person is shown it, under `HEADER`."""
        share, cost = self.share, self.cost
        view = get_kind(share.configuration.kind).view(share.configuration)
        stride = view["stride"]
        return (
            share.configuration.title,
            _sizes(view.shape()),
            _sizes(view.shape("weight")),
            _sizes(stride) if isinstance(stride, list) else stride,
            share.count,
            show_share(share.share_time),
            show_share(share.share_energy),
            show(cost.time_s.mean if cost.time_s else None, "s"),
            show(cost.energy_j.mean if cost.energy_j else None, "J"),
        )


def quantity_document(quantity: Quantity | None) -> Json:
    """Return a quantity as JSON."""
    if quantity is None:
        return None
    return {"mean": quantity.mean, "interval": [quantity.low, quantity.high]}


def _sizes(sizes: Collection[int]) -> str:
    return "x".join(map(str, sizes))


def one_algorithm(names: list[str] | None) -> Algorithm | None:
    """Return the algorithm of these names; None where none is named.

    Raises:
        InputError: there is none of a name, or they name several.
    """
    found = options.parse_algorithms(names)
    if len(found) > 1:
        raise InputError(
            f"--algorithm {', '.join(names or [])}: a prediction is under one algorithm; name one "
            f"of {', '.join(ALGORITHMS)}"
        )
    return found[0] if found else None


def mode_under(algorithm: Algorithm | None, mode: str | None) -> Mode:
    """Return the mode that was asked for, else eager, and graph where an algorithm is forced.

    Raises:
        UnknownNameError: there is no such mode.
    """
    forced = algorithm is not None and algorithm.is_forced
    return cast(Mode, options.parse_mode(mode or (CAPTURED_MODE if forced else "eager")))


def settings_under(algorithm: Algorithm | None) -> Mapping[str, Json]:
    """Return the settings in which an algorithm's measurements are kept."""
    return DEFAULT_SETTINGS if algorithm is None else {**DEFAULT_SETTINGS, **algorithm.setting}


def convolutions(predictor: Predictor, answer: Answer) -> list[Convolution]:
    """Return the measured convolutions of an answer, the longest first."""
    shares = [s for s in answer.prediction.parts if is_forcible(s.configuration.kind)]
    costs = predictor.costs_on(answer.prediction.board, [s.configuration for s in shares])
    return [Convolution(share, costs[share.configuration.key]) for share in shares]


def how_to_measure(answer: Answer, algorithm: Algorithm | None) -> str:
    """Return the commands that measure what an answer lacks; none of what was refused."""
    prediction = answer.prediction
    lacking = [
        share.configuration.kind
        for share in (*prediction.estimated, *prediction.missing)
        if share.configuration.key not in answer.refused
    ]
    kinds = dict.fromkeys(lacking)
    forced = algorithm is not None and algorithm.is_forced
    told = [kind for kind in kinds if forced and is_forcible(kind)]
    usual = [kind for kind in kinds if kind not in told]
    commands = [f"opdb bench {' '.join(usual)}"] if usual else []
    if told and algorithm is not None:
        commands.append(f"opdb bench {' '.join(told)} --algorithm {algorithm.slug}")
    return "; ".join(commands)
