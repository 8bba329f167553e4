"""An estimator as one JSON value: numbers and names alone, so reading one runs no code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from opdb.errors import InputError
from opdb.estimates.estimator import Estimator, Learned, Reach, Usual
from opdb.estimates.process import Kernel, Process
from opdb.estimates.roofline import Roofline
from opdb.records import Json, Quantity

FORMAT = 1


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
        )
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise InputError(f"damaged estimates: {error}; opdb learn makes them anew") from error


def _family(learned: Learned) -> Json:
    return {
        "columns": list(learned.columns),
        "centre": list(learned.centre),
        "scale": list(learned.scale),
        "levels": dict(learned.levels),
        "dtypes": sorted(learned.dtypes),
        "points": [list(point) for point in learned.time.points],
        "time": _process(learned.time),
        "power": None if learned.power is None else _metered(learned.power, learned.time),
        "reach": asdict(learned.reach),
    }


def _process(process: Process) -> Json:
    kernel = asdict(process.kernel)
    return {"kernel": kernel, "mean": process.mean, "values": list(process.values)}


def _metered(power: Process, time: Process) -> Json:
    """Return the power's process; `rows` are the points that were metered, in their order."""
    rows: list[int] = []
    for point in power.points:
        rows.append(time.points.index(point, rows[-1] + 1 if rows else 0))
    return {**_process(power), "rows": rows}


def _learned(document: Mapping[str, Json]) -> Learned:
    points = tuple(tuple(float(v) for v in point) for point in document["points"])
    power = document["power"]
    return Learned(
        columns=tuple(document["columns"]),
        centre=tuple(document["centre"]),
        scale=tuple(document["scale"]),
        levels={kind: float(level) for kind, level in document["levels"].items()},
        dtypes=frozenset(document["dtypes"]),
        time=_process_of(document["time"], points),
        power=None
        if power is None
        else _process_of(power, tuple(points[row] for row in power["rows"])),
        reach=Reach(**document["reach"]),
    )


def _process_of(document: Mapping[str, Json], points: tuple[tuple[float, ...], ...]) -> Process:
    kernel = document["kernel"]
    values = tuple(float(v) for v in document["values"])
    if len(values) != len(points):
        raise ValueError(f"{len(values)} values at {len(points)} points")
    return Process(
        Kernel(float(kernel["variance"]), tuple(kernel["lengths"]), float(kernel["noise"])),
        float(document["mean"]),
        points,
        values,
    )


def _usual(document: Mapping[str, Json]) -> Usual:
    hosts = {form: Quantity(**quantity) for form, quantity in document["host_s"].items()}
    return Usual(int(document["kernels"]), float(document["eager_s"]), hosts)
