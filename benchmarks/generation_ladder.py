"""The ladder of generations as summary files, in the order in which a lease measures them.

    python benchmarks/generation_ladder.py FOLDER
    OPDB_DB=g.sqlite benchmarks/published_set.sh g.tgz cuda:0 1500 generation FOLDER/*.yml

A file is a rung: one length, static or dynamic, at the batch sizes that fit an H200. Its operators
are benched and its passes run as CUDA graphs before the next rung begins, so that a lease that is
cut off leaves whole workloads. What rungs have in common is measured once. First come the ends of
each ladder, then rungs between, then lengths that interpolation is held against (`left_out`).
Whole generations run by transformers' generate, eagerly.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

BATCHES = (1, 8, 64, 256)
MOST_POSITIONS = 2**19
"""At most so many positions of all sequences: keys and values of 8B models take 128 KiB each."""

LENGTHS = (512, 8192, 2048, 128, 32768)
LEFT_OUT = (1024, 4096, 16384)
PROMPTS = (128, 512, 2048, 8192)

MODELS = ("llama-3.1-8b", "llama-3.2-1b", "qwen3-8b", "mistral-7b-v0.3", "qwen3-30b-a3b")
WHOLE = ("llama-3.2-1b", "llama-3.1-8b", "qwen3-30b-a3b")


def _rung(model: str, phase: str, **said: object) -> tuple[str, str]:
    """Return the name and the text of a summary file."""
    name = "_".join(str(each) for each in (model, phase, *said.values()) if each is not None)
    lines = {"model": model, "source": "transformers", "dtype": "bfloat16", "phase": phase, **said}
    lines.pop("left_out", None)
    text = "".join(f"{key}: {value}\n" for key, value in lines.items() if value is not None)
    return "".join(c if c.isalnum() else "_" for c in name).strip("_"), text


def _batches(length: int) -> list[int]:
    return [batch for batch in BATCHES if batch * length <= MOST_POSITIONS]


def _steps(model: str, lengths: tuple[int, ...], **said: object) -> Iterator[tuple[str, str]]:
    for length in lengths:
        sizes = {"context": length - 1, "cache_length": length, "batch_sizes": _batches(length)}
        if said.get("cache") == "dynamic":
            del sizes["cache_length"]
        yield _rung(model, "decode", **said, **sizes)


def _prefills(model: str, **said: object) -> Iterator[tuple[str, str]]:
    for prompt in PROMPTS:
        batches = [batch for batch in BATCHES if batch * prompt <= 2**14]
        sizes = {"input_size": [prompt], "cache_length": prompt + 256, "batch_sizes": batches}
        yield _rung(model, "prefill", **said, **sizes)


def rungs() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each summary file, what matters most first."""
    first = MODELS[0]
    yield from _steps(first, LENGTHS)
    yield from _prefills(first)
    yield from _steps(first, LEFT_OUT, left_out="left_out")
    for model in WHOLE[:2]:
        for prompt in (128, 1024):
            sizes = {"input_size": [prompt], "max_new_tokens": 256, "batch_sizes": [1, 8]}
            yield _rung(model, "generate", **sizes)
    yield from _steps(first, LENGTHS[:3], quantize="fp8")
    yield from _steps(first, LENGTHS[:3], cache="dynamic")
    for model in MODELS[1:]:
        yield from _steps(model, LENGTHS[:3])
        yield from _prefills(model)
    yield from _steps(MODELS[-1], LENGTHS[:2], experts="grouped_mm")
    sizes = {"input_size": [128], "max_new_tokens": 256, "batch_sizes": [1, 8]}
    yield _rung(WHOLE[2], "generate", **sizes)


def main() -> None:
    """Write the files into the folder named, numbered in their order."""
    if len(sys.argv) != 2:
        sys.exit((__doc__ or "").strip())
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for number, (name, text) in enumerate(rungs()):
        (folder / f"{number:02}_{name[:80]}.yml").write_text(text)


if __name__ == "__main__":
    main()
