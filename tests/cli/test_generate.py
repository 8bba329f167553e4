"""`opdb generate`: whole generations from the published set, and what is refused."""

from __future__ import annotations

import json
import math
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests import published
from tests.cli.conftest import Opdb, read
from tests.paths import python_path

pytest.importorskip("transformers")

TINY = "tests.models.decoders:llama"
ASKED = ("generate", TINY, "--prompt", 20, "--tokens", 12, "-b", 2, "--dtype", "bf16")


@pytest.fixture
def generations(tmp_path: Path) -> Path:
    path = tmp_path / "opdb.sqlite"
    shutil.copy(published.database_of("nvidia-h200-generation"), path)
    return path


def test_a_generation_is_its_prefill_and_a_step_for_each_further_token(
    opdb: Opdb, h200: Path
) -> None:
    found = opdb.read(*ASKED)
    row = found["rows"][0]
    asked = (row["prompt_tokens_per_request"], row["new_tokens_per_request"], row["cache"])
    assert asked == (20, 12, "static")
    assert [row["mode"] for row in found["rows"]] == ["graph", "eager"]
    for row in found["rows"]:
        [step] = row["steps"]
        assert (step["context"], step["stands_for"]) == (20, 11)
        whole = row["time_to_first_token_s"] + 11 * row["time_per_output_token_s"]
        assert math.isclose(row["time_s"], whole)
        assert math.isclose(row["throughput_new_tokens_per_s"], 24 / row["time_s"])
        assert math.isclose(row["throughput_prompt_tokens_per_s"], 40 / row["time_s"])
        assert math.isclose(row["energy_per_request_j"], row["energy_j"] / 2)
        # 2 layers, keys and values, batch 2, 2 heads, 32 positions of 16 numbers of 2 bytes
        assert row["memory"]["cache_bytes"] == 2 * 2 * 2 * 2 * 32 * 16 * 2
    again = opdb(*ASKED, "--json", "--no-harvest")  # now it is stored
    assert read(again.out) == found


def test_a_dynamic_cache_is_predicted_at_several_lengths(opdb: Opdb, h200: Path) -> None:
    [row] = opdb.read(*ASKED, "--cache", "dynamic", "--mode", "graph")["rows"]
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
    asked = ("--prompt", 10, "--tokens", 12, "--cache", cache, "--mode", "graph")
    [row] = opdb.read("generate", windowed, *asked)["rows"]
    assert [step["context"] for step in row["steps"]] == contexts
    assert counts in (None, [step["stands_for"] for step in row["steps"]])
    assert math.isclose(sum(step["stands_for"] for step in row["steps"]), 11)


WITHOUT_TORCH = """
import json, sys
from opdb.commands.generate import generate
generate(sys.argv[1], dtype="bf16", db=sys.argv[2], **json.loads(sys.argv[3]))
assert not {"torch", "transformers", "scipy"} & set(sys.modules)
"""


def without_torch(model: str, path: Path, **sizes: int) -> None:
    """Predict a stored or published generation in a process that imports no torch."""
    given = [model, str(path), json.dumps(sizes)]
    command = [sys.executable, "-c", WITHOUT_TORCH, *given]
    subprocess.run(command, check=True, env={"PYTHONPATH": python_path()})


def test_a_published_model_is_answered_between_its_measured_lengths(
    opdb: Opdb, generations: Path
) -> None:
    """No harvest, no torch: rungs at 512, 2,048 and 8,192 positions, and batch 1, 8 and 64."""
    without_torch("llama-3.2-1b", generations, prompt=700, tokens=12)
    asked = ("--phase", "decode", "--dtype", "bf16", "--mode", "graph", "--no-harvest")

    def step_s(length: int, batch: int) -> Any:
        sizes = ("--context", length - 128, "--cache-length", length, "-b", batch)
        return opdb.read("predict", "llama-3.2-1b", *asked, *sizes)

    # what the L2 writes back, of caches it holds, is on no line: these are longer
    low, inside, high = (step_s(n, 8) for n in (2048, 5120, 8192))
    assert math.isclose(inside["time_s"], (low["time_s"] + high["time_s"]) / 2, rel_tol=0.002)
    assert (low["coverage"]["time"], high["coverage"]["time"]) == (1, 1)
    assert 0.2 < inside["coverage"]["time"] < 0.9
    assert step_s(512, 1)["time_s"] < step_s(512, 4)["time_s"] < step_s(512, 8)["time_s"]
    far = ("--context", 40_000, "--cache-length", 40_001, "-b", 8)
    ran = opdb("predict", "llama-3.2-1b", *asked, *far)
    assert "was not harvested" in ran.err  # farther beyond 8,192 than lines are followed


@pytest.mark.parametrize(
    "options", [("--board", "29c25d41"), ("--board", "29c25d41", "--no-estimates"), ()]
)
def test_a_step_measured_at_one_length_is_taken_at_any_context(
    opdb: Opdb, generations: Path, options: tuple[str, ...]
) -> None:
    """A board measured a step at 1,279 of 1,280 positions, and none of another length."""
    asked = ("--prompt", 1024, "--tokens", 256, "--dtype", "bf16", "--mode", "graph")
    [row] = opdb.read("generate", "llama-3.2-1b", *asked, "--no-harvest", *options)["rows"]
    [step] = row["steps"]
    assert (step["context"], step["stands_for"]) == (1279, 255)
    assert row["coverage"] == {"time": 1, "energy": 1}
    assert row["board"].startswith("GPU-29c25d41"), "the one that measured both passes"


OF_8B = ("llama-3.1-8b", "--dtype", "bf16", "--mode", "graph", "--no-harvest")
STEP = ("--phase", "decode", "--context", 2047, "--cache-length", 2048)


def test_every_command_states_the_same_largest_batch(opdb: Opdb, generations: Path) -> None:
    """(150.1 - 16.1 GB) / (268 MB of keys and values + 33.6 MB), whichever batch is asked for.

    A batch of 800 does not fit, and what would is said all the same.
    """
    for batch in (1, 8, 64, 100, 800):
        found = opdb.read("predict", *OF_8B, *STEP, "-b", batch)
        memory = found["memory"]
        assert memory["largest_batch"] == pytest.approx(443, abs=2)
        assert memory["weight_bytes"] == pytest.approx(16.06e9, rel=0.001)
        assert memory["cache_bytes"] == pytest.approx(batch * 268.4e6, rel=0.001)
        assert found["fits"] == (batch < 443)
    prefill = ("--phase", "prefill", "--input-size", 1024, "--cache-length", 2048)
    lengths = ("--prompt", 1024, "--tokens", 1024)
    read = opdb.read("predict", *OF_8B, *prefill, "-b", 8)["memory"]
    assert read["weight_bytes"] == pytest.approx(16.06e9, rel=0.001), "measured with other caches"
    assert read["cache_bytes"] == pytest.approx(8 * 268.4e6, rel=0.001)
    [row] = opdb.read("generate", *OF_8B, *lengths, "-b", 8)["rows"]
    least = min(read["largest_batch"], 443)
    assert row["memory"]["largest_batch"] == pytest.approx(least, abs=2)
    with closing(sqlite3.connect(generations)) as connection, connection:
        connection.execute("UPDATE device SET memory_bytes = 18000000000")
    read = opdb.read("predict", *OF_8B, *prefill, "-b", 8)["memory"]
    refused = opdb("generate", *OF_8B, *lengths, "-b", 8)
    assert refused.status == 2 and 0 < read["largest_batch"] < 8
    assert f"; largest batch about {read['largest_batch']}" in refused.err


def test_a_step_says_that_serving_engines_differ(opdb: Opdb, generations: Path) -> None:
    prefill = ("--phase", "prefill", "--input-size", 1024, "--cache-length", 1280)
    said = "these are transformers' kernels, serving engines have others"
    for words in (
        ("predict", *OF_8B, *STEP, "-b", 64),
        ("predict", *OF_8B, *STEP, "-b", 8, 64),
        ("generate", *OF_8B, "--prompt", 1024, "--tokens", 1024),
        ("generate", *OF_8B, "--prompt", 1024, "--tokens", 1024, "-b", 1, 8),
    ):
        assert any(line.startswith(said) for line in opdb(*words).out.splitlines()[:3])
    assert said not in opdb("predict", *OF_8B, *prefill).out


def test_several_batch_sizes_and_prompts_come_in_one_table(
    opdb: Opdb, h200: Path, tmp_path: Path
) -> None:
    curve = tmp_path / "curve.csv"
    asked = ("generate", TINY, "--tokens", 12, "--dtype", "bf16", "--mode", "graph")
    rows = opdb.read(*asked, "--prompt", "20,40", "-b", "1,2", "--csv", curve)["rows"]
    sizes = [(row["prompt_tokens_per_request"], row["batch_size"]) for row in rows]
    assert sizes == [(20, 1), (20, 2), (40, 1), (40, 2)]
    assert len({row["board"] for row in rows}) == 1
    one = opdb.read(*ASKED, "--mode", "graph", "--board", rows[0]["board"])
    for name in ("time_s", "energy_per_output_token_j", "memory"):
        assert rows[1][name] == one["rows"][0][name]
    [header, *lines] = curve.read_text().splitlines()
    assert len(lines) == 4
    assert "time_per_output_token_s,time_per_output_token_s_low" in header


def test_a_point_without_an_answer_does_not_stop_the_others(opdb: Opdb, h200: Path) -> None:
    ran = opdb("generate", TINY, "--prompt", "20,250", "--tokens", 10, "--mode", "graph")
    assert ran.status == 2
    assert "has 256 positions, not 260" in ran.err
    assert len([line for line in ran.out.splitlines() if " 20  graph" in line]) == 1


def test_a_whole_generation_is_run_as_a_model(opdb: Opdb) -> None:
    """By transformers' generate, on the CPU; stored as a workload of its own."""
    asked = ("--phase", "generate", "--input-size", 8, "--max-new-tokens", 3)
    [run] = opdb.read("measure", TINY, *asked, "--device", "cpu", "--repeats", 1)
    assert (run["outcome"], run["phase"], run["max_new_tokens"]) == ("ok", "generate", 3)
