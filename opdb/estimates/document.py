"""An estimator as one JSON value: numbers and names alone, so reading one runs no code."""

from __future__ import annotations

import math
import zlib
from binascii import a2b_base64, b2a_base64
from collections.abc import Mapping
from dataclasses import asdict

import numpy as np

from opdb.errors import InputError
from opdb.estimates.estimator import Estimator, KindMedians, Learned, Reach, Trend
from opdb.estimates.process import Kernel, Matrix, Process
from opdb.estimates.roofline import Roofline
from opdb.estimates.widths import SumWidths
from opdb.records import Json, Quantity

FORMAT = 8
FLOAT32 = np.dtype("<f4")

MOST_BYTES = 64 * 1024 * 1024
"""The most numbers that are unpacked, in bytes: a short text could claim to hold gigabytes."""


_DAMAGED = (
    *(KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError),
    zlib.error,
)


def to_document(estimator: Estimator) -> Json:
    """Return an estimator as a JSON value."""
    return {
        "format": FORMAT,
        "device": estimator.device,
        "board": estimator.board,
        "trained_at": estimator.trained_at,
        "configurations": estimator.configurations,
        "roofline": asdict(estimator.roofline),
        "families": {name: _family(learned) for name, learned in estimator.families.items()},
        "usual": {kind: asdict(usual) for kind, usual in estimator.usual.items()},
        "sums": asdict(estimator.sums),
    }


def from_document(document: Json) -> Estimator:
    """Read an estimator back.

    Raises:
        InputError: it is none, or of a format that this version does not read.
    """
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        found = document.get("format") if isinstance(document, dict) else document
        raise InputError(
            f"estimates of format {found!r:.40}; this version reads {FORMAT}: opdb learn makes them"
        )
    try:
        return Estimator(
            device=str(document["device"]),
            board=str(document["board"]),
            trained_at=str(document["trained_at"]),
            configurations=int(document["configurations"]),
            roofline=Roofline(**document["roofline"]),
            families={name: _learned(d) for name, d in document["families"].items()},
            usual={kind: _usual(d) for kind, d in document["usual"].items()},
            sums=_sums(document["sums"]),
        )
    except _DAMAGED as error:
        raise InputError(f"damaged estimates: {error}; opdb learn makes them anew") from error


def _family(learned: Learned) -> Json:
    return {
        "columns": list(learned.columns),
        "centre": list(learned.centre),
        "scale": list(learned.scale),
        "levels": dict(learned.levels),
        "slower": asdict(learned.slower),
        "watts": None if learned.watts is None else asdict(learned.watts),
        "dtypes": sorted(learned.dtypes),
        "points": _packed(learned.time.points.T),  # a column after the other: these repeat
        "time": _process(learned.time),
        "power": None
        if learned.power is None
        else {**_process(learned.power), "rows": list(learned.metered)},
        "reach": asdict(learned.reach),
    }


def _process(process: Process) -> Json:
    kernel = asdict(process.kernel)
    return {"kernel": kernel, "mean": process.mean, "weights": _packed(process.weights)}


def _learned(document: Mapping[str, Json]) -> Learned:
    columns = tuple(document["columns"])
    points = np.ascontiguousarray(_unpacked(document["points"]).reshape(len(columns), -1).T)
    power = document["power"]
    metered = [] if power is None else [int(row) for row in power["rows"]]
    reach = _reach(document["reach"])
    if (power is None) != (reach.energy is None):
        raise ValueError("a reach of energies without powers, or powers without one")
    return Learned(
        columns=columns,
        centre=tuple(document["centre"]),
        scale=tuple(document["scale"]),
        levels={kind: float(level) for kind, level in document["levels"].items()},
        slower=_trend(document["slower"]),
        watts=None if document["watts"] is None else _trend(document["watts"]),
        dtypes=frozenset(document["dtypes"]),
        time=_process_of(document["time"], points),
        power=None if power is None else _process_of(power, points[metered]),
        metered=tuple(metered),
        reach=reach,
    )


def _trend(document: Mapping[str, Json]) -> Trend:
    knots, values = (tuple(map(float, document[name])) for name in ("knots", "values"))
    if len(knots) != len(values) or list(knots) != sorted(set(knots)):
        raise ValueError("knots out of order, or other than their values")
    return Trend(knots, values)


def _reach(document: Mapping[str, Json]) -> Reach:
    energy = document["energy"]
    return Reach(float(document["time"]), None if energy is None else float(energy))


def _sums(document: Mapping[str, Json]) -> SumWidths:
    energy = document["energy"]
    return SumWidths(_width(document["time"]), None if energy is None else _width(energy))


def _width(value: Json) -> float:
    width = float(value)
    if not 0 <= width < math.inf:
        raise ValueError(f"sums as wide as {width}")
    return width


def _process_of(document: Mapping[str, Json], points: Matrix) -> Process:
    kernel = document["kernel"]
    weights = _unpacked(document["weights"])
    if points.shape != (len(weights), len(kernel["lengths"])):
        raise ValueError(f"{len(weights)} weights for points of shape {points.shape}")
    return Process(
        Kernel(float(kernel["variance"]), tuple(kernel["lengths"]), float(kernel["noise"])),
        float(document["mean"]),
        points,
        weights,
    )


def _packed(numbers: Matrix) -> str:
    """Return numbers in float32 as base64 of zlib: what is read is there at once."""
    compressed = zlib.compress(numbers.astype(FLOAT32).tobytes(), 9)
    return b2a_base64(compressed, newline=False).decode()


def _unpacked(text: str) -> Matrix:
    found = zlib.decompressobj().decompress(a2b_base64(text, strict_mode=True), MOST_BYTES)
    return np.frombuffer(found, FLOAT32).astype(float)


def _usual(document: Mapping[str, Json]) -> KindMedians:
    hosts = {form: Quantity(**quantity) for form, quantity in document["host_s"].items()}
    return KindMedians(int(document["kernels"]), float(document["eager_s"]), hosts)
