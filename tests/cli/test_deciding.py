"""`opdb predict`'s throughput, energy a sample, money and CO2, on the published set."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import published
from tests.cli.conftest import Opdb, read

RESNET152 = ("predict", "resnet152", "--batch-size", 32)


@pytest.fixture
def h200(opdb: Opdb, tmp_path: Path) -> Path:
    """The database of `opdb`: the published set."""
    return published.copy_to(tmp_path / "opdb.sqlite")


def test_the_document_has_figures_with_units_in_their_names(opdb: Opdb, h200: Path) -> None:
    rates = ("--price", "2.5", "--electricity-price", 0.3, "--carbon", 380)
    ran = opdb(*RESNET152, *rates, "--json")
    found = read(ran.out)
    assert found["samples"] == 32 and found["input_tokens"] is None
    assert found["throughput_samples_per_s"] == pytest.approx(32 / found["time_s"])
    low, high = found["time_s_low"], found["time_s_high"]
    assert [found[f"throughput_samples_per_s_{end}"] for end in ("low", "high")] == pytest.approx(
        [32 / high, 32 / low]
    )
    kwh = found["energy_j"] / 32 * 1e6 / 3.6e6
    assert found["energy_per_sample_j"] == pytest.approx(found["energy_j"] / 32)
    assert found["energy_per_million_samples_kwh"] == pytest.approx(kwh)
    assert found["co2_per_million_samples_g"] == pytest.approx(380 * kwh)
    assert found["electricity_per_million_samples"] == pytest.approx(0.3 * kwh)
    hours = 1e6 / found["throughput_samples_per_s"] / 3600
    assert found["rent_per_million_samples"] == pytest.approx(2.5 * hours)
    assert read(opdb(*RESNET152, "--json").out)["rent_per_million_samples"] is None


def test_people_are_shown_them_beside_what_was_measured(opdb: Opdb, h200: Path) -> None:
    shown = opdb(*RESNET152).out
    assert "images/s" in shown and "energy, 1M images" in shown and "kWh" in shown
    assert "rent" not in shown and "CO2" not in shown
    assert "rent, 1M images" in opdb(*RESNET152, "--price", 0).out
    assert "tokens/s" in opdb("predict", "bert_base", "--input-size", 512).out


def test_of_a_part_throughput_is_at_most_and_energy_at_least(opdb: Opdb, h200: Path) -> None:
    published.keep_kinds(h200, "conv2d")
    shown = opdb(*RESNET152, "--no-estimates").out.splitlines()
    rows = {line.split("  ")[0]: line for line in shown}
    assert "at most " in rows["throughput"]
    assert "at least " in rows["energy, 1 image"] and "at least " in rows["energy, 1M images"]


@pytest.mark.parametrize("option", ["--price", "--electricity-price", "--carbon"])
@pytest.mark.parametrize("value", ["-1", "nan", "inf", "cheap", ""])
def test_a_rate_that_is_none_is_one_message(option: str, value: str, opdb: Opdb) -> None:
    ran = opdb(*RESNET152, f"{option}={value}")
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith(f"opdb: {option} {value!r}: give a number of 0 or more")
    assert ran.err.count("\n") == 1
