"""Prices and the carbon intensity, as `opdb predict` takes them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from opdb.errors import InputError

if TYPE_CHECKING:
    from opdb.predict.figures import Rates


@dataclass(frozen=True)
class Prices:
    """The options that say what the GPU and its energy cost."""

    price: Annotated[
        str | None,
        typer.Option(
            "--price",
            metavar="AMOUNT",
            help="What an hour of the GPU costs, in any currency: adds the rent of a million "
            "samples.",
        ),
    ] = None
    electricity_price: Annotated[
        str | None,
        typer.Option(
            "--electricity-price",
            metavar="AMOUNT",
            help="What a kWh costs, in any currency: adds what the board's energy costs.",
        ),
    ] = None
    carbon: Annotated[
        str | None,
        typer.Option(
            "--carbon",
            metavar="GRAMS",
            help="Grams of CO2 a kWh: adds the CO2 of the board's energy.",
        ),
    ] = None

    @property
    def rates(self) -> Rates:
        """The rates that the options give.

        Raises:
            InputError: one is no number of 0 or more.
        """
        from opdb.predict.figures import Rates

        return Rates(
            _amount("--price", self.price, "2.5 an hour"),
            _amount("--electricity-price", self.electricity_price, "0.3 a kWh"),
            _amount("--carbon", self.carbon, "380 grams a kWh"),
        )


def _amount(option: str, text: str | None, example: str) -> float | None:
    if text is None:
        return None
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not (math.isfinite(found) and found >= 0):
        number, _, unit = example.partition(" ")
        raise InputError(
            f"{option} {text!r}: give a number of 0 or more, such as {number} ({unit})"
        )
    return found
