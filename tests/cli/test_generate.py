"""`opdb generate`: whole generations from the published set, and what is refused."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import published
from tests.cli.conftest import Opdb
from tests.paths import python_path

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


WITHOUT_TORCH = """
import sys
from opdb.api.generations import generate
generate(sys.argv[1], prompt=20, tokens=12, batch_size=2, dtype="bf16", db=sys.argv[2])
assert not {"torch", "transformers", "scipy", "alembic"} & set(sys.modules)
"""


def test_a_stored_generation_is_predicted_without_torch(opdb: Opdb, h200: Path) -> None:
    assert opdb(*ASKED).status == 0
    subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, TINY, str(h200)],
        check=True,
        env={"PYTHONPATH": python_path()},
    )


def test_a_published_model_is_answered_between_its_measured_lengths(
    opdb: Opdb, tmp_path: Path
) -> None:
    """No harvest, no torch: rungs at 512, 2,048 and 8,192 positions, and batch 1, 8 and 64."""
    path = tmp_path / "opdb.sqlite"
    path.write_bytes(published.database_of("nvidia-h200-generation").read_bytes())
    script = WITHOUT_TORCH.replace("prompt=20", "prompt=700").replace(
        "batch_size=2", "batch_size=1"
    )
    command = [sys.executable, "-c", script, "llama-3.2-1b", str(path)]
    subprocess.run(command, check=True, env={"PYTHONPATH": python_path()})
    asked = ("--phase", "decode", "--dtype", "bf16", "--mode", "graph", "--no-harvest", "--json")

    def step_s(length: int, batch: int) -> dict[str, Any]:
        sizes = ("--context", length - 128, "--cache-length", length, "-b", batch)
        ran = opdb("predict", "llama-3.2-1b", *asked, *sizes)
        assert ran.status == 0, ran.err
        found: dict[str, Any] = json.loads(ran.out)
        return found

    # what the L2 writes back, of caches it holds, is on no line: these are longer
    low, inside, high = (step_s(n, 8) for n in (2048, 5120, 8192))
    assert math.isclose(inside["time_s"], (low["time_s"] + high["time_s"]) / 2, rel_tol=0.002)
    assert (low["coverage"]["time"], high["coverage"]["time"]) == (1, 1)
    assert 0.2 < inside["coverage"]["time"] < 0.9
    assert step_s(512, 1)["time_s"] < step_s(512, 4)["time_s"] < step_s(512, 8)["time_s"]
    far = ("--context", 40_000, "--cache-length", 40_001, "-b", 8)
    ran = opdb("predict", "llama-3.2-1b", *asked, *far)
    assert "was not harvested" in ran.err  # farther beyond 8,192 than lines are followed


def test_what_is_measured_of_a_prefill_in_part_is_interpolated_and_the_rest_estimated(
    opdb: Opdb, tmp_path: Path
) -> None:
    """No harvest, no torch: of 8B's prefills of 512, 2,048 and 8,192 some calls were measured."""
    path = tmp_path / "opdb.sqlite"
    path.write_bytes(published.all_sets().read_bytes())
    script = WITHOUT_TORCH.replace("prompt=20", "prompt=3000").replace("tokens=12", "tokens=200")
    script = script.replace("batch_size=2", "batch_size=1")
    command = [sys.executable, "-c", script, "llama-3.1-8b", str(path)]
    subprocess.run(command, check=True, env={"PYTHONPATH": python_path()})
    sizes = ("--input-size", 3000, "--cache-length", 3200, "--dtype", "bf16", "--mode", "graph")
    ran = opdb("predict", "llama-3.1-8b", "--phase", "prefill", *sizes, "--no-harvest", "--json")
    assert ran.status == 0, ran.err
    found = json.loads(ran.out)
    assert found["complete"] and found["coverage"]["time"] < 0.1
    said = " ".join(found["notes"])
    assert "costs interpolated between measured sizes of the same calls" in said


@pytest.mark.parametrize(
    "options", [("--board", "29c25d41"), ("--board", "29c25d41", "--no-estimates"), ()]
)
def test_a_step_measured_at_one_length_is_taken_at_any_context(
    opdb: Opdb, tmp_path: Path, options: tuple[str, ...]
) -> None:
    """A board measured a step at 1,279 of 1,280 positions, and none of another length."""
    path = tmp_path / "opdb.sqlite"
    path.write_bytes(published.database_of("nvidia-h200-generation").read_bytes())
    asked = ("--prompt", 1024, "--tokens", 256, "--dtype", "bf16", "--mode", "graph", "--json")
    ran = opdb("generate", "llama-3.2-1b", *asked, "--no-harvest", *options)
    assert ran.status == 0, ran.err
    [row] = json.loads(ran.out)["rows"]
    [step] = row["steps"]
    assert (step["context"], step["stands_for"]) == (1279, 255)
    assert row["coverage"] == {"time": 1, "energy": 1}
    assert row["board"].startswith("GPU-29c25d41"), "the one that measured both passes"


def test_people_read_what_a_token_takes(opdb: Opdb, h200: Path) -> None:
    ran = opdb(*ASKED, "--mode", "graph")
    for text in ("time to first token", "energy, output token", "largest batch", "attention"):
        assert text in ran.out
    one = opdb("generate", TINY, "--prompt", 20, "--tokens", 1, "--mode", "graph")
    assert one.status == 0, one.err  # the prefill's token is the only one


@pytest.mark.parametrize(
    ("said", "told"), [((), True), (("--quiet",), False), (("--dtype", "float32"), False)]
)
def test_who_names_no_dtype_is_told_which_was_taken(
    opdb: Opdb, h200: Path, said: tuple[str, ...], told: bool
) -> None:
    ran = opdb("generate", TINY, "--prompt", 20, "--tokens", 12, "--mode", "graph", *said)
    assert ran.status == 0 and "float32, prompt 20" in ran.out
    assert ("this is float32, the default" in ran.err) == told


def test_several_batch_sizes_and_prompts_come_in_one_table(
    opdb: Opdb, h200: Path, tmp_path: Path
) -> None:
    files = {name: tmp_path / f"curve.{name}" for name in ("csv", "png", "svg")}
    asked = ("generate", TINY, "--tokens", 12, "--dtype", "bf16", "--mode", "graph")
    written = [word for name, path in files.items() for word in (f"--{name}", path)]
    ran = opdb(*asked, "--prompt", "20,40", "-b", "1,2", "--json", *written)
    assert ran.status == 0, ran.err
    rows = json.loads(ran.out)["rows"]
    assert [(r["prompt"], r["batch_size"]) for r in rows] == [(20, 1), (20, 2), (40, 1), (40, 2)]
    assert len({row["board"] for row in rows}) == 1
    one = json.loads(opdb(*ASKED, "--mode", "graph", "--board", rows[0]["board"], "--json").out)
    for name in ("time_s", "energy_per_output_token_j", "largest_batch"):
        assert rows[1][name] == one["rows"][0][name]
    [header, *lines] = files["csv"].read_text().splitlines()
    assert len(lines) == 4
    assert "time_per_output_token_s,time_per_output_token_interval_s_low" in header
    assert files["png"].read_bytes().startswith(b"\x89PNG")
    assert "prompt 40, graph" in files["svg"].read_text()


@pytest.mark.parametrize(("experts", "kind"), [(None, "bmm"), ("grouped_mm", "grouped_mm")])
def test_the_experts_that_a_step_uses_are_stated(
    opdb: Opdb, h200: Path, experts: str | None, kind: str
) -> None:
    """Two rows of a token for each of two sequences: 8 · (1 - (7/8)^4) = 3.31 of 8 experts."""
    mixture = ("generate", "tests.models.decoders:experts", *ASKED[2:], "--mode", "graph", "--json")
    chosen = () if experts is None else ("--experts", experts)
    ran = opdb(*mixture, *chosen)
    assert ran.status == 0, ran.err
    [row] = json.loads(ran.out)["rows"]
    assert row["experts"] == 8
    assert row["active_experts"] == pytest.approx(3.31, abs=0.01)
    assert kind in {each["kind"] for each in (*row["estimated"], *row["missing"])}


def test_a_point_without_an_answer_does_not_stop_the_others(opdb: Opdb, h200: Path) -> None:
    ran = opdb("generate", TINY, "--prompt", "20,250", "--tokens", 10, "--mode", "graph")
    assert ran.status == 2
    assert "1 of 2 generations failed" in ran.err
    assert "prompt 250, 10 tokens: " in ran.err
    assert "has 256 positions, not 260" in ran.err
    assert len([line for line in ran.out.splitlines() if " graph " in line]) == 1


def test_what_is_missing_makes_a_figure_a_bound(opdb: Opdb, h200: Path) -> None:
    """Of a batch that nobody measured nothing is known but what other models called."""
    ran = opdb(*ASKED, "--mode", "graph", "--no-estimates")
    assert ran.status == 0, ran.err
    found = {line.split("  ")[0]: line for line in ran.out.splitlines()}
    assert "≥" in found["time to first token"]
    assert "≤" in found["throughput"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--prompt", 0, "--tokens", 4), "--prompt 0: give 1 token or more"),
        (("--prompt", "4,0", "--tokens", 4), "--prompt 0: give 1 token or more"),
        (("--prompt", "long", "--tokens", 4), "--prompt 'long': give whole numbers"),
        (("--prompt", 4, "--tokens", 4, "-b", 0), "give whole numbers of 1 or more"),
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


def test_a_whole_generation_is_run_as_a_model(opdb: Opdb) -> None:
    """By transformers' generate, on the CPU; stored as a workload of its own."""
    asked = ("--phase", "generate", "--input-size", 8, "--max-new-tokens", 3)
    ran = opdb("measure", TINY, *asked, "--device", "cpu", "--repeats", 1, "--json")
    assert ran.status == 0, ran.err
    [run] = json.loads(ran.out)
    assert (run["outcome"], run["phase"], run["max_new_tokens"]) == ("ok", "generate", 3)
