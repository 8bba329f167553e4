from __future__ import annotations

import random
import zlib
from binascii import b2a_base64
from dataclasses import replace
from typing import Any

import pytest

from opdb.records import Neighbours, Stretch
from opdb.store import fields
from opdb.store.database import DAMAGE
from opdb.store.fields import Field, pack, unpack
from tests.store import samples

decode_stretch, encode_stretch = fields.STRETCH.decode, fields.STRETCH.encode

LAYERS = {"features.0": 1.2345678901e-4, "0": 0.0, "head": 6.1e-5, "blocks 1/2": 2.5}


def noisy_stretch(seed: int) -> Stretch:
    draw = random.Random(seed)
    times = sorted(draw.uniform(0, 0.4) for _ in range(20))
    energies = sorted(draw.uniform(0, 300) for _ in range(20))
    return Stretch(
        calls_per_replay=draw.randint(1, 5000),
        replay_times_s=tuple(draw.uniform(1e-6, 0.1) for _ in range(30)),
        duration_s=draw.uniform(0.1, 5),
        busy_share=draw.uniform(0.1, 1),
        power_samples=tuple((t, draw.uniform(70, 700)) for t in times),
        counter_edges=tuple(zip(times, energies, strict=True)),
        clock_samples_hz=tuple(draw.uniform(3e8, 2e9) for _ in range(9)),
        temperature_c=draw.uniform(20, 90),
        eager_times_s=tuple(draw.uniform(1e-6, 0.1) for _ in range(5)),
    )


@pytest.mark.parametrize("seed", range(5))
def test_values_come_back_within_half_a_unit(seed: int) -> None:
    stretch = noisy_stretch(seed)
    text = encode_stretch(stretch)
    back = decode_stretch(text)
    assert back.calls_per_replay == stretch.calls_per_replay
    assert back.replay_times_s == pytest.approx(stretch.replay_times_s, abs=0.51e-9)
    assert back.duration_s == pytest.approx(stretch.duration_s, abs=0.51e-9)
    assert back.busy_share == pytest.approx(stretch.busy_share, abs=0.51e-6)
    assert back.eager_times_s == pytest.approx(stretch.eager_times_s, abs=0.51e-9)
    assert back.clock_samples_hz == pytest.approx(stretch.clock_samples_hz, abs=0.51e6)
    assert back.temperature_c == pytest.approx(stretch.temperature_c, abs=0.051)
    pairs = ((stretch.power_samples, back.power_samples, 0.51e-3),)
    for before, after, unit in (*pairs, (stretch.counter_edges, back.counter_edges, 0.51e-6)):
        assert [t for t, _ in after] == pytest.approx([t for t, _ in before], abs=0.51e-6)
        assert [v for _, v in after] == pytest.approx([v for _, v in before], abs=unit)
    assert encode_stretch(back) == text


def test_event_times_are_kept_in_the_units_they_tick_in() -> None:
    """An H200's events tick every 32 ns; one that does not leaves the unit at 1 ns."""
    ticks = [2_773_440, 2_774_656, 2_772_640]
    stretch = Stretch(67, tuple(t / 1e9 for t in ticks), 0.2, 1.0, clock_samples_hz=(1.98e9,) * 21)
    document = unpack(encode_stretch(stretch))
    assert (document["q"], document["t"]) == (32, [86_670, 38, -63])
    assert document["c"] == [1980, 21]
    assert decode_stretch(encode_stretch(stretch)) == stretch
    odd = Stretch(67, (*stretch.replay_times_s, 1e-9), 0.2, 1.0)
    assert unpack(encode_stretch(odd))["q"] == 1
    assert decode_stretch(encode_stretch(odd)) == odd


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{}",
        '{"f":4,"n":1,"d":1,"b":1}',
        '{"f":3,"n":1,"d":1,"b":1,"c":[1980]}',
        '{"f":3,"n":1,"d":1,"b":1,"c":[1980,9000000000]}',
        '{"f":3,"n":1,"d":1}',
        '{"f":3,"n":1,"d":1,"b":1,"p":[1]}',
        '{"f":3,"n":1,"d":1,"b":1,"t":[1.5]}',
        '{"f":3,"n":1,"d":1,"b":1,"t":[NaN]}',
        '{"f":3,"n":1,"d":1,"b":1,"t":["1"]}',
        '{"f":3,"n":1,"d":1,"b":1,"t":[1' + "0" * 400 + "]}",
    ],
)
def test_what_is_no_stretch_is_refused(text: str) -> None:
    with pytest.raises(DAMAGE):
        decode_stretch(packed(text))
    with pytest.raises(ValueError, match="damaged"):
        decode_stretch(text)


def checked(field: Field, value: Any) -> Any:
    """Return what is read of a record that was written, and is checked as an import does."""
    found = field.decode(field.encode(value))
    assert field.verify is not None
    field.verify(found)
    return found


IMPOSSIBLE = [
    ("stretch", {"replay_times_s": ()}, "without a single time"),
    ("stretch", {"replay_times_s": (0.001, -0.001)}, "replay_times_s out of range"),
    ("stretch", {"calls_per_replay": 0}, "calls_per_replay out of range"),
    ("stretch", {"busy_share": 0.0}, "busy_share out of range"),
    ("stretch", {"duration_s": -1.0}, "duration_s out of range"),
    ("stretch", {"power_samples": ((0.1, -5.0),)}, "power_samples out of range"),
    ("stretch", {"counter_edges": ((-0.5, 5.0),)}, "counter_edges out of range"),
    ("stretch", {"clock_samples_hz": (-1e6,)}, "clock_samples_hz out of range"),
    ("stretch", {"temperature_c": 1e6}, "temperature_c out of range"),
    ("stretch", {"utilization": 7.0}, "utilization out of range"),
    ("neighbours", {"times_s": (), "alone_s": ()}, "without as many"),
    ("neighbours", {"times_s": (1e-3,), "alone_s": (1e-3, 1e-3)}, "without as many"),
    (
        "neighbours",
        {"after": {"itself": Neighbours(1, (), ()), "code": Neighbours(1, (), ())}},
        "without as many",
    ),
    ("neighbours", {"after": {"code": Neighbours(1, (1e-3,), (1e-3,))}}, "not after the call"),
    ("neighbours", {"after": {"lunch": Neighbours(1, (1e-3,), (1e-3,))}}, "something unknown"),
]


@pytest.mark.parametrize(("column", "changes", "said"), IMPOSSIBLE)
def test_what_nothing_could_have_measured_is_refused(
    column: str, changes: dict[str, Any], said: str
) -> None:
    made: Any = samples.STRETCH if column == "stretch" else samples.NEIGHBOURS
    field = fields.STRETCH if column == "stretch" else fields.NEIGHBOURS
    with pytest.raises(ValueError, match=said):
        checked(field, replace(made, **changes))


def test_times_of_layers_come_back_within_half_a_nanosecond() -> None:
    text = fields.LAYERS.encode(LAYERS)
    assert unpack(text) == {"features.0": 123457, "0": 0, "head": 61000, "blocks 1/2": 2500000000}
    back = fields.LAYERS.decode(text)
    assert back == pytest.approx(LAYERS, rel=0, abs=0.5e-9)
    assert fields.LAYERS.encode(back) == text


def packed(text: str) -> str:
    """Pack a JSON text as it is: NaN, which `pack` refuses, too."""
    return b2a_base64(zlib.compress(text.encode()), newline=False).decode()


def test_a_short_text_that_unpacks_to_too_much_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = pack([0] * 100_000)
    assert len(text) < 1000
    monkeypatch.setattr("opdb.store.fields.MOST_BYTES", 10_000)
    with pytest.raises(ValueError, match="more than it may hold"):
        unpack(text)
