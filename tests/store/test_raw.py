from __future__ import annotations

import random

import pytest

from opdb.records import Stretch
from opdb.store import raw
from opdb.store.packing import pack, unpack, unpacked
from opdb.store.raw import decode_stretch, encode_stretch
from opdb.store.raw_columns import RAW_COLUMNS
from tests.store import samples

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


def test_what_is_missing_stays_missing() -> None:
    text = encode_stretch(samples.BARE_STRETCH)
    assert decode_stretch(text) == samples.BARE_STRETCH
    whole = {"b": 1_000_000, "d": 500_000_000, "f": 3, "n": 1, "q": 500_000_000, "t": [1]}
    assert unpack(text) == whole


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
        '{"f":1,"n":1,"d":1}',
        '{"f":1,"n":1,"d":1,"b":1,"p":[1]}',
        '{"f":1,"n":1,"d":1,"b":1,"t":[1.5]}',
        '{"f":1,"n":1,"d":1,"b":1,"t":[true]}',
    ],
)
def test_what_is_no_stretch_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="raw samples"):
        decode_stretch(text)


def test_the_quick_check_knows_all_that_is_written() -> None:
    """What it does not know is read in full, which takes an import several times as long."""
    stretches = [samples.BARE_STRETCH, samples.STRETCH, *map(noisy_stretch, range(5))]
    written = {
        "stretch": [encode_stretch(stretch) for stretch in stretches],
        "repeats": [raw.encode_stretches(stretches)],
        "neighbours": [raw.encode_neighbours(samples.NEIGHBOURS)],
        "times": [raw.encode_times((1e-6, 2e-6))],
        "layers": [raw.encode_layers(LAYERS), raw.encode_layers({})],
    }
    for name, texts in written.items():
        for text in texts:
            assert RAW_COLUMNS[name].written.fullmatch(unpacked(text)), name


def test_older_encodings_are_read_and_written_anew() -> None:
    """The first gives each event time whole, the second what it differs by; both each clock."""
    first = '{"b":1000000,"c":[1980,1980,1965],"d":9,"f":1,"n":1,"t":[480,512,448]}'
    second = '{"b":1000000,"c":[1980,1980,1965],"d":9,"f":2,"n":1,"t":[480,32,-64]}'
    third = {"b": 1_000_000, "c": [1980, 2, 1965, 1], "d": 9, "f": 3, "n": 1}
    third |= {"q": 32, "t": [15, 1, -2]}
    assert decode_stretch(first) == decode_stretch(second) == decode_stretch(pack(third))
    stretch, repeats = RAW_COLUMNS["stretch"], RAW_COLUMNS["repeats"]
    assert stretch.upgraded(first) == stretch.upgraded(second) == pack(third)
    assert repeats.upgraded(f"[{first},{second}]") == pack([third, third])
    assert stretch.upgraded(pack(third)) == pack(third)
    neighbours = '{"a":[64,96],"n":3,"t":[320,384]}'
    same = {"a": [2, 1], "n": 3, "q": 32, "t": [10, 2]}
    assert RAW_COLUMNS["neighbours"].upgraded(neighbours) == pack(same)
    assert raw.decode_neighbours(neighbours) == raw.decode_neighbours(pack(same))
    assert raw.decode_times("[5,7]") == raw.decode_times(pack([5, 7])) == (5e-9, 7e-9)


def test_times_of_layers_come_back_within_half_a_nanosecond() -> None:
    text = raw.encode_layers(LAYERS)
    assert unpack(text) == {"features.0": 123457, "0": 0, "head": 61000, "blocks 1/2": 2500000000}
    back = raw.decode_layers(text)
    assert back == pytest.approx(LAYERS, rel=0, abs=0.5e-9)
    assert raw.encode_layers(back) == text


def test_names_of_layers_that_json_escapes_are_read_in_full() -> None:
    odd = {'a"b': 1e-6, "größe": 2e-6, "tab\t": 3e-6}
    text, column = raw.encode_layers(odd), RAW_COLUMNS["layers"]
    assert not column.written.fullmatch(unpacked(text))
    assert column.checked(text) == text
    assert raw.decode_layers(text) == odd


def test_older_times_of_layers_are_seconds_and_written_anew() -> None:
    column = RAW_COLUMNS["layers"]
    plain = '{"conv1":0.00012345678901,"fc":3}'
    assert raw.decode_layers(plain) == {"conv1": 0.00012345678901, "fc": 3.0}
    assert column.checked(plain) == plain
    assert column.upgraded(plain) == pack({"conv1": 123457, "fc": 3_000_000_000})
    assert column.upgraded(pack({"conv1": 123457})) == pack({"conv1": 123457})


@pytest.mark.parametrize(
    "text",
    [
        "[1]",
        '{"a":-1e-9}',
        '{"a":NaN}',
        '{"a":Infinity}',
        '{"a":"1"}',
        '{"a":true}',
        '{"a":null}',
        '{"a":{}}',
        '{"a":1' + "0" * 400 + "}",
        pack({"a": 1.5}),
        pack({"a": -1}),
        pack({"a": 10**18}),
        pack([["a", 1]]),
    ],
)
def test_what_are_no_times_of_layers_is_refused(text: str) -> None:
    for read in (raw.decode_layers, RAW_COLUMNS["layers"].checked):
        with pytest.raises(ValueError, match="times of layers"):
            read(text)


def test_a_short_text_that_unpacks_to_too_much_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = pack([0] * 100_000)
    assert len(text) < 1000
    monkeypatch.setattr("opdb.store.packing.MOST_BYTES", 10_000)
    with pytest.raises(ValueError, match="more than it may hold"):
        unpack(text)
