"""`opdb generate`: whole generations from the published set, and what is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from tests import published
from tests.cli.conftest import Opdb

pytest.importorskip("transformers")

TINY = "tests.models.decoders:llama"
ASKED = ("generate", TINY, "--prompt", 20, "--tokens", 12, "-b", 2, "--dtype", "bf16")


@pytest.fixture
def h200(opdb: Opdb, tmp_path: Path) -> Path:
    """The database of `opdb`: the published set."""
    return published.copy_to(tmp_path / "opdb.sqlite")


def test_a_generation_is_its_prefill_and_a_step_for_each_further_token(
    opdb: Opdb, h200: Path
) -> None:
    ran = opdb(*ASKED, "--json")
    assert ran.status == 0, ran.err
    found = json.loads(ran.out)
    assert (found["prompt"], found["tokens"], found["cache"]) == (20, 12, "static")
    assert [row["mode"] for row in found["rows"]] == ["graph", "eager"]
    for row in found["rows"]:
        [step] = row["steps"]
        assert (step["context"], step["stands_for"]) == (20, 11)
        whole = row["time_to_first_token_s"] + 11 * row["time_per_output_token_s"]
        assert math.isclose(row["time_s"], whole)
        assert math.isclose(row["throughput_tokens_per_s"], 24 / row["time_s"])
        assert math.isclose(row["energy_per_request_j"], row["energy_j"] / 2)
        assert math.isclose(sum(row["time_shares"].values()), 1)
        # 2 layers, keys and values, batch 2, 2 heads, 32 positions of 16 numbers of 2 bytes
        assert row["cache_bytes"] == 2 * 2 * 2 * 2 * 32 * 16 * 2
    again = opdb(*ASKED, "--json", "--no-harvest")  # now it is stored
    assert json.loads(again.out) == found


def test_a_dynamic_cache_is_predicted_at_several_lengths(opdb: Opdb, h200: Path) -> None:
    ran = opdb(*ASKED, "--cache", "dynamic", "--mode", "graph", "--json")
    assert ran.status == 0, ran.err
    [row] = json.loads(ran.out)["rows"]
    assert [step["context"] for step in row["steps"]] == [20, 24, 30]
    assert math.isclose(sum(step["stands_for"] for step in row["steps"]), 11)


@pytest.mark.parametrize(
    ("cache", "contexts", "counts"),
    [("static", [10, 16], [6, 5]), ("dynamic", [10, 14, 15, 16, 20], None)],
)
def test_a_sliding_window_is_predicted_before_and_after_it_is_full(
    opdb: Opdb, h200: Path, cache: str, contexts: list[int], counts: list[int] | None
) -> None:
    windowed = "tests.models.decoders:windowed"
    asked = ("--prompt", 10, "--tokens", 12, "--cache", cache, "--mode", "graph", "--json")
    ran = opdb("generate", windowed, *asked)
    assert ran.status == 0, ran.err
    [row] = json.loads(ran.out)["rows"]
    assert [step["context"] for step in row["steps"]] == contexts
    assert counts in (None, [step["stands_for"] for step in row["steps"]])
    assert math.isclose(sum(step["stands_for"] for step in row["steps"]), 11)


def test_people_read_what_a_token_takes(opdb: Opdb, h200: Path) -> None:
    ran = opdb(*ASKED, "--mode", "graph")
    for text in ("time to first token", "energy, output token", "largest batch", "attention"):
        assert text in ran.out
    one = opdb("generate", TINY, "--prompt", 20, "--tokens", 1, "--mode", "graph")
    assert one.status == 0, one.err  # the prefill's token is the only one


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--prompt", 0, "--tokens", 4), "--prompt 0: give 1 token or more"),
        (("--prompt", 4, "--tokens", 0), "--tokens 0: give 1 token or more"),
        (("--prompt", 250, "--tokens", 10), "has 256 positions, not 260"),
        (("--prompt", 4, "--tokens", 4, "--cache", "paged"), "unknown --cache 'paged'"),
        (("--prompt", 4, "--tokens", 4, "--cache-length", 7), "prompt and tokens need 8"),
        (("--prompt", 4, "--tokens", 4, "--mode", "compile"), "cannot be predicted here"),
        (("--prompt", 4, "--tokens", 4, "-b", 400_000_000), "does not fit"),
    ],
)
def test_what_is_refused_has_one_message(
    opdb: Opdb, h200: Path, options: tuple[object, ...], message: str
) -> None:
    ran = opdb("generate", TINY, *options)
    assert ran.status == 2
    assert message in ran.err
    assert "Traceback" not in ran.err


def test_a_model_that_is_no_decoder_is_refused(opdb: Opdb, h200: Path) -> None:
    for name in ("resnet18", "bert", "t5-small"):
        ran = opdb("generate", name, "--prompt", 4, "--tokens", 4)
        assert ran.status == 2
        assert "no causal decoder" in ran.err


def test_a_step_is_run_as_a_whole_model(opdb: Opdb) -> None:
    """Eager passes on the CPU, hundreds of them, at one context of a cache of 32 positions."""
    step = ("--phase", "decode", "--context", 20, "--cache-length", 32, "-b", 2)
    ran = opdb("measure", TINY, *step, "--device", "cpu", "--repeats", 1, "--json")
    assert ran.status == 0, ran.err
    [run] = json.loads(ran.out)
    assert (run["outcome"], run["context"], run["cache_length"]) == ("ok", 20, 32)
