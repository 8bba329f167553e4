"""`opdb predict`'s throughput, energy a sample, money and CO2, on the published set."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from opdb.commands._figures import figure_columns, lines
from opdb.predict.figures import Amount, Figures, Rates
from opdb.records import Json, Phase, Workload
from opdb.tables import Table
from tests import published
from tests.cli.conftest import Opdb, read

RESNET152 = ("predict", "resnet152", "--batch-size", 32)


def test_the_document_has_figures_with_units_in_their_names(opdb: Opdb, h200: Path) -> None:
    rates = ("--price", "2.5", "--electricity-price", 0.3, "--carbon", 380)
    ran = opdb(*RESNET152, *rates, "--json")
    found = read(ran.out)
    assert found["samples"] == 32 and found["input_tokens"] is None
    assert found["throughput_samples_per_s"] == pytest.approx(32 / found["time_s"])
    assert found["energy_per_sample_j"] == pytest.approx(found["energy_j"] / 32)
    kwh = found["energy_per_million_samples_kwh"]
    assert found["co2_per_million_samples_g"] == pytest.approx(380 * kwh)
    assert found["electricity_per_million_samples"] == pytest.approx(0.3 * kwh)
    hours = 1e6 / found["throughput_samples_per_s"] / 3600
    assert found["rent_per_million_samples"] == pytest.approx(2.5 * hours)
    assert opdb.read(*RESNET152)["rent_per_million_samples"] is None


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


RATES = Rates(price_per_gpu_hour=3.6, electricity_price_per_kwh=0.5, carbon_g_per_kwh=400)


def workload(batch_size: int, *args: Json, training: Json = None) -> Workload:
    inputs = {"args": list(args), "kwargs": {}}
    if training is not None:
        inputs["training"] = training
    return Workload("made", "builtin", "0", inputs, batch_size, "float32", "contiguous")


IMAGES = {"shape": [4, 3, 32, 32], "dtype": "float32"}
TOKENS = {"shape": [4, 128], "dtype": "int64", "values": {"range": [0, 30522]}}
FIGURES = Figures(
    workload(4, IMAGES), Amount(0.01, (0.008, 0.0125)), Amount(2.0, (1.8, 2.2)), RATES
)
DOCUMENTS: Table[Figures] = Table(*figure_columns(lambda figures: figures))


def test_throughput_and_its_interval_are_the_inverse_of_the_time() -> None:
    found = FIGURES.samples_per_s
    assert found is not None and found.value == 4 / 0.01
    assert found.interval == pytest.approx((4 / 0.0125, 4 / 0.008))
    assert FIGURES.tokens_per_s("input") is None and FIGURES.sample == "image"


def test_energy_is_of_a_sample_and_of_a_million_in_kwh() -> None:
    assert FIGURES.energy_per_sample_j == Amount(0.5, (1.8 / 4, 2.2 / 4))
    million = FIGURES.energy_per_million_samples_kwh
    assert million is not None and million.value == pytest.approx(0.5e6 / 3.6e6)


def test_money_and_co2_follow_the_time_and_the_energy() -> None:
    found = DOCUMENTS.flat(FIGURES)
    hours = 0.01 / 4 * 1e6 / 3600
    kwh = 0.5e6 / 3.6e6
    assert found["rent_per_million_samples"] == pytest.approx(3.6 * hours)
    assert found["rent_per_million_samples_low"] == pytest.approx(3.6 * hours * 0.8)
    assert found["rent_per_million_samples_high"] == pytest.approx(3.6 * hours * 1.25)
    assert found["electricity_per_million_samples"] == pytest.approx(0.5 * kwh)
    assert found["co2_per_million_samples_g"] == pytest.approx(400 * kwh)
    assert found["co2_per_million_samples_g_low"] == pytest.approx(400 * kwh * 0.9)
    assert found["co2_per_million_samples_g_high"] == pytest.approx(400 * kwh * 1.1)


def test_without_a_rate_nothing_is_invented() -> None:
    found = DOCUMENTS.flat(replace(FIGURES, rates=Rates()))
    for name in ("rent_per_million_samples", "electricity_per_million_samples"):
        assert found[name] is None and found[f"{name}_low"] is None
    assert found["co2_per_million_samples_g"] is None


def test_what_has_no_time_or_energy_has_no_figures() -> None:
    found = DOCUMENTS.document(Figures(FIGURES.workload, None, None, RATES))
    rates = {*vars(RATES), "samples"}
    assert {name for name, value in found.items() if value is not None} == rates
    assert Figures(FIGURES.workload, Amount(0.0), None).samples_per_s is None


def test_tokens_are_counted_where_the_first_input_is_of_them() -> None:
    found = replace(FIGURES, workload=workload(4, TOKENS))
    assert (found.tokens, found.sample) == ({"input": 512}, "sample")
    assert found.tokens_per_s("input") == Amount(512 / 0.01, (512 / 0.0125, 512 / 0.008))
    assert found.tokens_per_s("new") is None
    indices = {"shape": [4, 26], "dtype": "float32"}
    assert replace(FIGURES, workload=workload(4, indices, TOKENS)).tokens == {}


@pytest.mark.parametrize(
    ("phase", "given", "tokens"),
    [
        ("prefill", 128, {"prompt": 512}),
        ("decode", 1, {"new": 4}),
        ("generate", 128, {"prompt": 512, "new": 128}),
    ],
)
def test_of_a_decoder_prompt_and_new_tokens_are_told_apart(
    phase: Phase, given: int, tokens: dict[str, int]
) -> None:
    """A generation of 32 new tokens is not as fast as it reads its prompt of 128."""
    of_pass = workload(4, {**TOKENS, "shape": [4, given]})
    inputs = {**of_pass.inputs, "generation": {"max_new_tokens": 32}}
    found = replace(FIGURES, workload=replace(of_pass, phase=phase, inputs=inputs))
    assert found.tokens == tokens
    document = DOCUMENTS.flat(found)
    for what in ("prompt", "new", "input"):
        count = tokens.get(what)
        assert document[f"{what}_tokens"] == count
        rate = None if count is None else pytest.approx(count / 0.01)
        assert document[f"throughput_{what}_tokens_per_s"] == rate
    assert [unit for _, _, unit in lines(found) if "tokens" in unit] == [
        f"{what} tokens/s" for what in tokens
    ]


def test_a_training_step_takes_the_samples_of_all_its_batches() -> None:
    of_step = workload(4, TOKENS, training={"optimizer": "sgd", "accumulation": 3})
    found = replace(FIGURES, workload=of_step)
    assert (found.samples, found.tokens) == (12, {"input": 1536})


def test_images_in_a_list_are_images() -> None:
    listed = workload(2, [{"shape": [3, 800, 800], "dtype": "float32"}] * 2)
    assert replace(FIGURES, workload=listed).sample == "image"
    vector = workload(2, {"shape": [2, 784], "dtype": "float32"})
    assert replace(FIGURES, workload=vector).sample == "sample"
