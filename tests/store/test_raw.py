from __future__ import annotations

import random

import pytest

from opdb.records import Stretch
from opdb.store.raw import decode_stretch, encode_stretch, upgraded
from opdb.store.sets import _STRETCH
from tests.store import samples


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
    assert back is not None
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
    assert encode_stretch(None) is None
    assert decode_stretch(None) is None
    assert decode_stretch(encode_stretch(samples.BARE_STRETCH)) == samples.BARE_STRETCH
    assert (
        encode_stretch(samples.BARE_STRETCH)
        == '{"b":1000000,"d":500000000,"f":2,"n":1,"t":[500000000]}'
    )


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{}",
        '{"f":3,"n":1,"d":1,"b":1}',
        '{"f":1,"n":1,"d":1}',
        '{"f":1,"n":1,"d":1,"b":1,"p":[1]}',
        '{"f":1,"n":1,"d":1,"b":1,"t":[1.5]}',
        '{"f":1,"n":1,"d":1,"b":1,"t":[true]}',
    ],
)
def test_what_is_no_stretch_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="raw samples"):
        decode_stretch(text)


def test_the_quick_check_of_an_import_knows_every_stretch() -> None:
    for seed in range(5):
        assert _STRETCH.fullmatch(encode_stretch(noisy_stretch(seed)) or "")
    assert _STRETCH.fullmatch(encode_stretch(samples.BARE_STRETCH) or "")


def test_the_first_encoding_is_read_and_written_anew() -> None:
    """It gives each event time whole; the second what each differs by from the one before."""
    first = '{"b":1000000,"d":9,"f":1,"n":1,"t":[500,510,490]}'
    second = '{"b":1000000,"d":9,"f":2,"n":1,"t":[500,10,-20]}'
    assert decode_stretch(first) == decode_stretch(second)
    assert upgraded(first) == upgraded(second) == second
    assert upgraded(f"[{first},{first}]") == f"[{second},{second}]"
    assert upgraded(None) is None
