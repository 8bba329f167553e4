"""Do calls and the Python around them add up to eager passes on a CPU?

    python -m benchmarks.python_around --seconds 400
    python -m benchmarks.python_around generations --seconds 200

Needs no GPU. Named groups of models alone are taken, else all: passes of transformers and of
torchvision, and generations of a few tokens by transformers' `generate`. The models are tiny, so
that their passes are the host's work and not computing. Rounds of all calls in the model's order
and passes alternate, one of each at a time, all models in turn. Of each model's pairs the tenth
with the lowest totals counts: on a machine that others share, both are then from the same quiet
moments. Printed is the sum of the calls and of what is around them, over the pass: `before`, a
number of containers; `after`, the Python around the calls, timed on meta (`opdb.bench.around`)
before the pairs.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch

from benchmarks.quiet_host import ERRORS, Errors
from opdb.bench.around import around
from opdb.bench.calibrate import container_time_s
from opdb.bench.host import Timed, built_on, round_of
from opdb.derive.quiet import quietest
from opdb.garbage import gc_paused
from opdb.harvest import harvest
from opdb.models import ModelRequest, load
from opdb.records import Workload
from opdb.tables import RATIO, Column, Table

SECONDS = 400.0
PAIRS = 3
"""Pairs of a model before the next has its turn."""

_SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "vocab_size": 100,
}
_GPT2 = {"n_embd": 32, "n_layer": 4, "n_head": 4, "vocab_size": 100, "n_positions": 64}
_DISTILBERT = {"dim": 32, "n_layers": 4, "n_heads": 4, "hidden_dim": 64, "vocab_size": 100}
_T5 = {"d_model": 32, "d_ff": 64, "num_layers": 3, "num_heads": 4, "d_kv": 8, "vocab_size": 100}
TEXTS: dict[str, dict[str, Any]] = {
    "bert": _SIZES,
    "albert": {**_SIZES, "embedding_size": 32},
    "distilbert": _DISTILBERT,
    "mpnet": _SIZES,
    "gpt2": _GPT2,
    "opt": {**_SIZES, "ffn_dim": 64, "word_embed_proj_dim": 32, "max_position_embeddings": 64},
    "llama": {**_SIZES, "num_key_value_heads": 2},
    "bloom": {"hidden_size": 32, "n_layer": 4, "n_head": 4, "vocab_size": 100},
    "t5": _T5,
}
_DECODER = {**_SIZES, "num_hidden_layers": 1, "num_key_value_heads": 2, "head_dim": 8}
DECODERS: dict[str, dict[str, Any]] = {
    "llama": _DECODER,
    "qwen3": _DECODER,
    # its window, in every other layer, fills up among the steps
    "gemma2": {**_DECODER, "num_hidden_layers": 2, "sliding_window": 10},
}
PROMPT, TOKENS = 8, 5
"""Tokens of a generation's prompt, and new ones: few, for a short pass is seldom disturbed."""


def transformers() -> Any:
    """Return transformers, whose classes take what they like."""
    return importlib.import_module("transformers")


def text(kind: str) -> tuple[Any, ...]:
    """Return a tiny text model of transformers with eight tokens."""
    config = transformers().AutoConfig.for_model(kind, **TEXTS[kind])
    model = transformers().AutoModel.from_config(config)
    tokens = torch.randint(0, 100, (1, 8))
    more = {"decoder_input_ids": tokens.clone()} if config.is_encoder_decoder else {}
    return model.eval(), (tokens,), more


def decoder(kind: str) -> Any:
    """Return a tiny causal decoder of transformers."""
    config = transformers().AutoConfig.for_model(kind, **DECODERS[kind])
    return transformers().AutoModelForCausalLM.from_config(config).eval()


def align() -> tuple[Any, ...]:
    """Return a tiny text encoder of ALIGN."""
    model = transformers().AlignTextModel(transformers().AlignTextConfig(**_SIZES))
    return model.eval(), (torch.randint(0, 100, (1, 8)),)


def whisper() -> tuple[Any, ...]:
    """Return a tiny encoder of Whisper."""
    heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
    sizes = {"d_model": 32, "encoder_layers": 4, "encoder_ffn_dim": 64, "num_mel_bins": 8}
    config = transformers().WhisperConfig(**sizes, **heads, max_source_positions=16)
    model = transformers().WhisperModel(config)
    return model.encoder.eval(), (torch.randn(1, 8, 32),)


def vit() -> tuple[Any, ...]:
    """Return a tiny vision transformer of transformers."""
    config = transformers().ViTConfig(**_SIZES, image_size=32, patch_size=8)
    return transformers().ViTModel(config).eval(), (torch.randn(1, 3, 32, 32),)


def torchvision(name: str) -> tuple[Any, ...]:
    """Return a tiny model of torchvision with an image of 32 x 32."""
    from torchvision import models
    from torchvision.models.convnext import CNBlockConfig, ConvNeXt
    from torchvision.models.regnet import BlockParams, RegNet

    makes: dict[str, Callable[[], Any]] = {
        "convnext": lambda: ConvNeXt([CNBlockConfig(16, 32, 2), CNBlockConfig(32, None, 3)]),
        "densenet": lambda: models.DenseNet(4, (3, 3, 3, 3), 8, num_classes=10),
        "mnasnet": lambda: models.MNASNet(0.1, 10),
        "mobilenet_v2": lambda: models.mobilenet_v2(weights=None, width_mult=0.1, num_classes=10),
        "regnet": lambda: RegNet(BlockParams.from_init_params(8, 8, 8.0, 2.0, 8, 0.25)),
        "swin": lambda: models.SwinTransformer([4, 4], 32, [2, 2], [2, 4], [4, 4]),
        "vit_of_torchvision": lambda: models.VisionTransformer(32, 8, 4, 4, 32, 64),
    }
    return makes[name]().eval(), (torch.randn(1, 3, 32, 32),)


TRANSFORMERS = (*TEXTS, "align", "vit", "whisper")
TORCHVISION = (
    *("convnext", "densenet", "mnasnet", "mobilenet_v2", "regnet", "swin"),
    "vit_of_torchvision",
)
GENERATIONS = tuple(f"{kind}, {cache}" for kind in DECODERS for cache in ("static", "dynamic"))
GROUPS = {"transformers": TRANSFORMERS, "torchvision": TORCHVISION, "generations": GENERATIONS}


def asked(model: str) -> ModelRequest:
    """Return the request of a model: a pass, or a generation with a cache."""
    name, _, cache = model.partition(", ")
    if not cache:
        return ModelRequest(f"benchmarks.python_around:{name}", source="python").checked()
    return ModelRequest(
        f"benchmarks.python_around:decoder_{name}",
        source="python",
        phase="generate",
        input_size=(PROMPT,),
        max_new_tokens=TOKENS,
        cache=cache,
    ).checked()


def __getattr__(name: str) -> Callable[[], Any]:
    """Return what makes a model: requests name it as an attribute of this module."""
    if name.removeprefix("decoder_") in DECODERS and name.startswith("decoder_"):
        return partial(decoder, name.removeprefix("decoder_"))
    if name in TEXTS:
        return partial(text, name)
    if name in TORCHVISION:
        return partial(torchvision, name)
    raise AttributeError(name)


@dataclass
class Pairs:
    """A model with its rounds and passes, in seconds."""

    model: str
    workload: Workload
    one_round: Callable[[], list[float]]
    one_pass: Callable[[], Any]
    rounds_s: list[float] = field(default_factory=list)
    passes_s: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, model: str) -> Pairs:
        """Make a model.

        Raises:
            OpdbError: it cannot be harvested.
            ValueError: one of its calls cannot be built.
        """
        request = asked(model)
        workload = harvest(request)
        built = {call: built_on(call, "cpu") for call in dict.fromkeys(workload.calls)}
        timed = {call: Timed.of(each) for call, each in built.items() if each is not None}
        if len(timed) < len(built):
            raise ValueError(f"{model}: {len(built) - len(timed)} calls cannot be built")
        loaded = load(request, device="cpu")
        one_pass = partial(loaded.module, *loaded.args, **loaded.kwargs)
        one_round = round_of([timed[call] for call in workload.calls], on_gpu=False)
        workload = replace(workload, around=around(request, workload, {}))
        return cls(model, workload, one_round, one_pass)

    def take(self) -> None:
        """Take one pair, each the second of two."""
        with gc_paused():
            for _ in range(2):
                round_s = sum(self.one_round())
            for _ in range(2):
                start_s = time.perf_counter()
                self.one_pass()
                pass_s = time.perf_counter() - start_s
        self.rounds_s.append(round_s)
        self.passes_s.append(pass_s)

    def row(self, container_s: float) -> Row:
        """Add up the quietest pairs."""
        pairs = list(zip(self.rounds_s, self.passes_s, strict=True))
        quiet = [pairs[place] for place in quietest([sum(pair) for pair in pairs])]
        calls_s, pass_s = (statistics.fmean(times) for times in zip(*quiet, strict=True))
        worth = self.workload.containers, self.workload.containers_worth
        before, after = ((calls_s + count * container_s) / pass_s for count in worth)
        return Row(self.model, len(pairs), pass_s, calls_s / pass_s, before, after)


@dataclass(frozen=True)
class Row:
    """One model: its pass (seconds), and the ratios of the module's docstring."""

    model: str
    pairs: int
    pass_s: float
    calls: float
    before: float
    after: float


ROWS: Table[Row] = Table(
    Column("model", lambda row: row.model, title="model"),
    Column("pairs", lambda row: row.pairs, title="pairs"),
    Column("pass_s", lambda row: row.pass_s, title="pass", unit="s"),
    Column("calls", lambda row: row.calls, title="calls / pass", unit=RATIO),
    Column("before", lambda row: row.before, title="before", unit=RATIO),
    Column("after", lambda row: row.after, title="after", unit=RATIO),
)


def errors_of(rows: Sequence[Row], of: str) -> list[Errors]:
    """Sum up how far both sums are from the pass, over some models."""
    found = []
    for name in ("before", "after"):
        signed = [getattr(row, name) - 1 for row in rows]
        errors = sorted(map(abs, signed))
        cut = statistics.quantiles(errors, n=20, method="inclusive")[-1]
        middle, bias = statistics.median(errors), statistics.median(signed)
        found.append(Errors(f"{of}: {name}", middle, cut, errors[-1], bias))
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("groups", nargs="*", help=f"of models: {', '.join(GROUPS)} (all)")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of pairs")
    given = parser.parse_args(arguments)
    groups = {name: GROUPS[name] for name in given.groups or GROUPS}
    torch.set_num_threads(1)
    with torch.no_grad():
        made = [Pairs.of(model) for models in groups.values() for model in models]
        containers_s: list[float] = []
        end_s = time.monotonic() + given.seconds
        while not containers_s or time.monotonic() < end_s:
            containers_s.append(container_time_s())
            for pairs in made:
                for _ in range(PAIRS):
                    pairs.take()
    rows = [pairs.row(min(containers_s)) for pairs in made]
    print(*ROWS.lines(rows), "", sep="\n")
    errors = []
    for name, models in groups.items():
        errors += errors_of([row for row in rows if row.model in models], name)
    print(*ERRORS.lines(errors), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
