"""The options that commands share, as annotated types: one name, one help text everywhere."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from opdb.cli.support import completing
from opdb.cli.support.completing import one_of, predicted_modes
from opdb.cli.support.records import Without
from opdb.errors import InputError
from opdb.lookup.options import ModelOptions, parse_mode
from opdb.models import (
    AUTOCASTS,
    CACHES,
    DTYPES,
    EXPERTS,
    MEMORY_FORMATS,
    OPTIMIZERS,
    PHASES,
    QUANTIZED,
)

if TYPE_CHECKING:
    from opdb.algorithms.names import Algorithm
    from opdb.records import Mode


def models(text: str) -> Any:
    """Return the argument of a command that takes models' names; shells complete those listed."""
    return typer.Argument(metavar="MODEL", autocompletion=completing.models, help=text)


Db: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--db",
        metavar="URL",
        help="Database: an SQLite file or a URL.  [default: OPDB_DB, else db/opdb.sqlite]",
    ),
]
AsJson: TypeAlias = Annotated[
    bool, typer.Option("--json", help="Print one JSON document and nothing else.")
]
Quiet: TypeAlias = Annotated[
    bool,
    typer.Option("--quiet", "-q", help="Show no progress, no messages, no warnings of libraries."),
]
Debug: TypeAlias = Annotated[bool, typer.Option("--debug", help="Show a traceback on errors.")]

BatchSize: TypeAlias = Annotated[
    int | None, typer.Option("--batch-size", "-b", metavar="N", min=1, help="Batch size.")
]
BatchSizes: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--batch-sizes",
        "--batch-size",
        "-b",
        metavar="N…",
        help="Batch size; several as in 1,32,64, may be repeated.  [default: the summary file's, "
        "else 1]",
    ),
]
"""For every command that several batch sizes make sense for; its parameter is `batch_sizes`."""
InputSize: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--input-size", metavar="SIZE", help="One input without the batch, as in 3x224x224."
    ),
]
Dtype: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--dtype",
        metavar="DTYPE",
        autocompletion=one_of(*DTYPES),
        help="As in float32, bfloat16, float16.",
    ),
]
MemoryFormat: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--memory-format",
        metavar="FORMAT",
        autocompletion=one_of(*MEMORY_FORMATS),
        help="contiguous or channels_last.",
    ),
]
PhaseName: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--phase",
        metavar="PHASE",
        autocompletion=one_of(*PHASES),
        help="inference, training, prefill or decode.",
    ),
]
Autocast: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--autocast",
        metavar="DTYPE",
        autocompletion=one_of(*AUTOCASTS),
        help="As under autocast on a GPU: bfloat16 or float16.  [default: none]",
    ),
]
Optimizer: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--optimizer",
        metavar="NAME",
        autocompletion=one_of(*OPTIMIZERS),
        help="Of a training step: sgd or adamw.  [default: sgd]",
    ),
]
Accumulation: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--grad-accum-steps",
        metavar="N",
        min=1,
        help="Batches whose gradients add up before the optimizer steps.  [default: 1]",
    ),
]
Context: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--context", metavar="N", min=1, help="Of --phase decode: positions that are filled."
    ),
]
NewTokens: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--max-new-tokens",
        metavar="N",
        min=1,
        help="Of --phase generate: new tokens of each sequence.  [default: 128]",
    ),
]
CacheLength: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--cache-length",
        metavar="N",
        min=1,
        help="Positions that a static cache has.  [default: as many as the pass needs]",
    ),
]
CacheName: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--cache",
        metavar="NAME",
        autocompletion=one_of(*CACHES),
        help="Of --phase prefill or decode: static or dynamic.  [default: static]",
    ),
]
Experts: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--experts",
        metavar="NAME",
        autocompletion=one_of(*EXPERTS),
        help="How a mixture's experts are multiplied: batched_mm or grouped_mm.  [default: as "
        "generate of transformers: grouped_mm in a prefill, batched_mm in a step]",
    ),
]
Imbalance: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--imbalance",
        metavar="S",
        min=0,
        help="How unevenly a router chooses experts: the i-th busiest as i to the minus S.  "
        "[default: 0, all as often]",
    ),
]
Quantize: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--quantize",
        metavar="NAME",
        autocompletion=one_of(*QUANTIZED),
        help="Of --phase prefill or decode: linear layers in fp8, the head left out.",
    ),
]
AllowCode: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--allow-code",
        help="Run the code of models that a file names by an import path.  [default: only what is "
        "named on the command line]",
    ),
]
NoHarvest: TypeAlias = Annotated[
    bool,
    typer.Option("--no-harvest", help="Refuse a model that is not in the database yet."),
]
ModeName: TypeAlias = Annotated[
    str,
    typer.Option(
        "--mode",
        metavar="MODE",
        autocompletion=one_of("eager", "graph"),
        help="How work is issued: eager or graph.",
    ),
]
PredictedMode: TypeAlias = Annotated[
    str,
    typer.Option(
        "--mode",
        metavar="MODE",
        autocompletion=predicted_modes,
        help="How work is issued: eager, graph, compile or compile:reduce-overhead.",
    ),
]
DeviceName: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="DEVICE",
        help="A device as opdb status names it.  [default: this machine's GPU, else the "
        "published device]",
    ),
]
Board: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--board",
        metavar="UUID",
        help="Predict for this board; the beginning of its UUID will do.  [default: the one "
        "that measured the model, else the one that covers it best; by a forced algorithm the "
        "latter]",
    ),
]
Estimates: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--estimates/--no-estimates",
        help="Estimate what was never measured, or leave it out.",
    ),
]
EveryDevice: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--device", metavar="DEVICE", help="A device as opdb status names it.  [default: all]"
    ),
]

Target: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--target",
        metavar="SHARE",
        help="Exit 1 unless coverage reaches this share and attribution lies within 1 ± (1 - it).",
    ),
]
Algorithms: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--algorithm",
        metavar="NAME",
        help="Force convolutions to take this algorithm (gemm, fft, winograd …); may be repeated, "
        "all names every one (opdb sweep --list-algorithms).",
    ),
]
OneAlgorithm: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--algorithm",
        metavar="NAME",
        help="Convolutions as they were benched by this algorithm (gemm, fft, winograd …; opdb "
        "sweep --list-algorithms).  [default: as torch chooses]",
    ),
]
MeasuredDevice: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="DEVICE",
        help="cuda, cuda:N or cpu.  [default: cuda]",
    ),
]
AnyDevice: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="DEVICE",
        help="cuda, cuda:N or cpu.  [default: cuda where there is one, else cpu]",
    ),
]
Devices: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--devices",
        metavar="LIST",
        help="Several GPUs of this host at once, one worker each: all, or as in 0,1,3.",
    ),
]


@dataclass(frozen=True)
class ModelArguments:
    """The options that say what model is meant; a command may have only some of them."""

    batch_size: BatchSize = None
    input_size: InputSize = None
    dtype: Dtype = None
    memory_format: MemoryFormat = None
    phase: PhaseName = None
    optimizer: Optimizer = None
    grad_accum_steps: Accumulation = None
    autocast: Autocast = None
    context: Context = None
    max_new_tokens: NewTokens = None
    cache_length: CacheLength = None
    cache: CacheName = None
    experts: Experts = None
    imbalance: Imbalance = None
    quantize: Quantize = None
    allow_code: AllowCode = False

    @property
    def options(self) -> ModelOptions:
        """What is said of the model, checked.

        Raises:
            InputError: an option has no such value.
        """
        said: dict[str, Any] = dict(vars(self))
        return ModelOptions.parse(accumulation=said.pop("grad_accum_steps"), **said)


_OF_CACHE = (
    "context",
    "max_new_tokens",
    "cache_length",
    "cache",
    "experts",
    "imbalance",
    "quantize",
)
_OF_STEP = ("optimizer", "grad_accum_steps", "autocast", *_OF_CACHE)

ModelAtSizes: TypeAlias = Annotated[ModelArguments, Without("batch_size")]
"""For commands that take several batch sizes, as all whose names end so."""
MeasuredModelAtSizes: TypeAlias = Annotated[ModelArguments, Without("batch_size", "autocast")]
PhaseModel: TypeAlias = Annotated[ModelArguments, Without(*_OF_STEP)]
PhaseModelAtSizes: TypeAlias = Annotated[ModelArguments, Without("batch_size", *_OF_STEP)]
InferenceModel: TypeAlias = Annotated[ModelArguments, Without("phase", *_OF_STEP)]
InferenceModelAtSizes: TypeAlias = Annotated[
    ModelArguments, Without("batch_size", "phase", *_OF_STEP)
]
ModelFormat: TypeAlias = Annotated[
    ModelArguments, Without("batch_size", "input_size", "phase", *_OF_STEP)
]
"""For commands that choose sizes themselves: dtype, memory format, whether code may run."""


@dataclass(frozen=True)
class Output:
    """Which database a command uses, and how it says what it found."""

    db: Db = None
    as_json: AsJson = False
    quiet: Quiet = False
    debug: Debug = False


def parse_algorithms(names: list[str] | None) -> list[Algorithm]:
    """Return the algorithms of these names; none where none is named.

    Raises:
        UnknownNameError: there is none of a name.
    """
    from opdb.algorithms.names import algorithms_named

    return algorithms_named(names or [])


def parse_batch_sizes(given: Sequence[str] | None) -> list[int]:
    """Read batch sizes, each option's separated by commas; none where none is given.

    Raises:
        InputError: one is no whole number of 1 or more.
    """
    if given is None:
        return []
    texts = [text.strip() for each in given for text in each.split(",")]
    sizes = []
    for text in list(filter(None, texts)) or [""]:
        if not re.fullmatch(r"0*[1-9][0-9]{0,9}", text):
            raise InputError(
                f"--batch-sizes {text!r}: give whole numbers of 1 or more, with 10 digits at most"
            )
        sizes.append(int(text))
    return list(dict.fromkeys(sizes))


def parse_modes(given: list[str] | None) -> tuple[Mode, ...]:
    """Read modes, each option's separated by commas; none where none is given.

    Raises:
        UnknownNameError: there is none of that name; the message lists them.
    """
    texts = [text.strip() for each in given or () for text in each.split(",")]
    return tuple(dict.fromkeys(parse_mode(text) for text in texts))
