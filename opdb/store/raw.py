"""Raw samples as one compact text: JSON of integers.

A stretch is an object with these members; those that hold nothing are left out:

| member | holds |
|---|---|
| `f` | the encoding's number, 2 |
| `n` | calls per replay |
| `d` | duration, ns |
| `b` | busy share, millionths |
| `t` | event times of the replays, ns: the first, then each less the one before |
| `u` | utilization, ten-thousandths |
| `p` | power samples: µs since the sample before (the first: since the stretch began), mW, … |
| `e` | counter edges: µs since the edge before, µJ since the edge before, … |
| `c` | clock samples, MHz |
| `g` | eager event times of single calls, ns |
| `w` | temperature, tenths of a degree Celsius |

Reading back gives each value to within half its unit; encoding what was read gives the same text.
A missing temperature is left out, never 0. Encoding 1, still read, gives each event time whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import accumulate

from opdb.records import Json, Neighbours, Stretch, canonical_json

ENCODING = 2
READ_ENCODINGS = (1, 2)
_OLD = '"f":1,'


def encode_stretch(stretch: Stretch | None) -> str | None:
    """Return the text of a stretch, None for none."""
    return None if stretch is None else canonical_json(stretch_document(stretch))


def decode_stretch(text: str | None) -> Stretch | None:
    """Read a stretch back.

    Raises:
        ValueError: the text is not a stretch in an encoding that this version reads.
    """
    return None if text is None else stretch_from_document(json.loads(text))


def upgraded(text: str | None) -> str | None:
    """Return the text of a stretch, or of a list of them, in this version's encoding."""
    if text is None or _OLD not in text:
        return text
    document = json.loads(text)
    if isinstance(document, list):
        return canonical_json([stretch_document(stretch_from_document(each)) for each in document])
    return encode_stretch(stretch_from_document(document))


def stretch_document(stretch: Stretch) -> dict[str, Json]:
    """Return a stretch as integers, by the members named in this module's docstring."""
    document: dict[str, Json] = {
        "f": ENCODING,
        "n": stretch.calls_per_replay,
        "d": round(stretch.duration_s * 1e9),
        "b": round(stretch.busy_share * 1e6),
    }
    lists = {
        "t": _differences(integers(stretch.replay_times_s, 1e9)),
        "p": _interleave(
            _differences(integers((t for t, _ in stretch.power_samples), 1e6)),
            integers((w for _, w in stretch.power_samples), 1e3),
        ),
        "e": _interleave(
            _differences(integers((t for t, _ in stretch.counter_edges), 1e6)),
            _differences(integers((j for _, j in stretch.counter_edges), 1e6)),
        ),
        "c": integers(stretch.clock_samples_hz, 1e-6),
        "g": integers(stretch.eager_times_s, 1e9),
    }
    document.update({name: values for name, values in lists.items() if values})
    if stretch.temperature_c is not None:
        document["w"] = round(stretch.temperature_c * 10)
    if stretch.utilization is not None:
        document["u"] = round(stretch.utilization * 1e4)
    return document


def stretch_from_document(document: Json) -> Stretch:
    """Read a stretch from its integers.

    Raises:
        ValueError: not a stretch in an encoding that this version reads.
    """
    check_stretch(document)
    power, edges = document.get("p", []), document.get("e", [])
    times = document.get("t", [])
    if document["f"] > 1:
        times = accumulate(times)
    temperature, utilization = document.get("w"), document.get("u")
    return Stretch(
        calls_per_replay=document["n"],
        replay_times_s=scaled(times, 1e9),
        duration_s=document["d"] / 1e9,
        busy_share=document["b"] / 1e6,
        power_samples=tuple(
            zip(scaled(accumulate(power[::2]), 1e6), scaled(power[1::2], 1e3), strict=True)
        ),
        counter_edges=tuple(
            zip(
                scaled(accumulate(edges[::2]), 1e6),
                scaled(accumulate(edges[1::2]), 1e6),
                strict=True,
            )
        ),
        clock_samples_hz=tuple(megahertz * 1e6 for megahertz in document.get("c", [])),
        temperature_c=None if temperature is None else temperature / 10,
        eager_times_s=scaled(document.get("g", []), 1e9),
        utilization=None if utilization is None else utilization / 1e4,
    )


def check_stretch(document: Json) -> None:
    """Check that a document is a stretch's.

    Raises:
        ValueError: it is not, or its encoding is one that this version does not read.
    """
    if not isinstance(document, dict):
        raise ValueError("raw samples are not an object")
    if document.get("f") not in READ_ENCODINGS:
        raise ValueError(
            f"raw samples in encoding {document.get('f')!r}; this version reads "
            + " and ".join(map(str, READ_ENCODINGS))
        )
    for name in ("n", "d", "b"):
        if type(document.get(name)) is not int:
            raise ValueError(f"raw samples without a whole number {name!r}")
    for name in ("t", "p", "e", "c", "g"):
        check_integers(document.get(name, []), name)
    if len(document.get("p", [])) % 2 or len(document.get("e", [])) % 2:
        raise ValueError("raw samples with a time that has no value")
    for name, words in (("w", "a temperature"), ("u", "a utilization")):
        if type(document.get(name, 0)) is not int:
            raise ValueError(f"raw samples with {words} that is not a whole number")


def encode_neighbours(neighbours: Neighbours | None) -> str | None:
    """Return calls and event times (ns) with neighbours, `t`, and of these alone, `a`, as text."""
    if neighbours is None:
        return None
    return canonical_json(
        {
            "n": neighbours.calls,
            "t": integers(neighbours.times_s, 1e9),
            "a": integers(neighbours.alone_s, 1e9),
        }
    )


def decode_neighbours(text: str | None) -> Neighbours | None:
    """Read the times of a call among neighbours back.

    Raises:
        ValueError: the text holds none.
    """
    if text is None:
        return None
    document = json.loads(text)
    if not isinstance(document, dict) or sorted(document) != ["a", "n", "t"]:
        raise ValueError("not the times of a call among neighbours")
    if type(document["n"]) is not int or document["n"] < 1:
        raise ValueError("times among neighbours without a number of calls")
    for name in ("a", "t"):
        check_integers(document[name], name)
    return Neighbours(document["n"], scaled(document["t"], 1e9), scaled(document["a"], 1e9))


def check_integers(values: Json, name: str) -> None:
    """Check that a JSON value is a list of integers.

    Raises:
        ValueError: it is not.
    """
    if not isinstance(values, list) or not set(map(type, values)) <= {int}:
        raise ValueError(f"raw samples {name!r} are not a list of whole numbers")


def integers(values: Iterable[float], scale: float) -> list[int]:
    """Return values times scale, rounded."""
    return [round(value * scale) for value in values]


def scaled(values: Iterable[int], scale: float) -> tuple[float, ...]:
    """Return values divided by scale."""
    return tuple(value / scale for value in values)


def _differences(values: Sequence[int]) -> list[int]:
    return [value - before for before, value in zip([0, *values], values, strict=False)]


def _interleave(first: Sequence[int], second: Sequence[int]) -> list[int]:
    return [value for pair in zip(first, second, strict=True) for value in pair]
