"""The options that commands share, as annotated types: one name, one help text everywhere."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

if TYPE_CHECKING:
    from opdb.algorithms.names import Algorithm
    from opdb.records import Mode

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
        help="Batch sizes, as in 16 32 64 or 16,32,64.  [default: the summary file's, else 1]",
    ),
]
InputSize: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--input-size", metavar="SIZE", help="One input without the batch, as in 3x224x224."
    ),
]
Dtype: TypeAlias = Annotated[
    str | None, typer.Option("--dtype", metavar="DTYPE", help="As in float32, bfloat16, float16.")
]
MemoryFormat: TypeAlias = Annotated[
    str | None,
    typer.Option("--memory-format", metavar="FORMAT", help="contiguous or channels_last."),
]
PhaseName: TypeAlias = Annotated[
    str | None, typer.Option("--phase", metavar="PHASE", help="inference or training.")
]
Autocast: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--autocast",
        metavar="DTYPE",
        help="As under autocast on a GPU: bfloat16 or float16.  [default: none]",
    ),
]
Optimizer: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--optimizer", metavar="NAME", help="Of a training step: sgd or adamw.  [default: sgd]"
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
ModeName: TypeAlias = Annotated[
    str, typer.Option("--mode", metavar="MODE", help="How work is issued: eager or graph.")
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

_ALIASES = {"fp32": "float32", "fp64": "float64", "fp16": "float16", "bf16": "bfloat16"}


@dataclass(frozen=True)
class ModelOptions:
    """What was said of a model on the command line; None where nothing was."""

    batch_size: int | None = None
    input_size: tuple[int, ...] | None = None
    dtype: str | None = None
    memory_format: str | None = None
    phase: str | None = None
    optimizer: str | None = None
    accumulation: int | None = None
    autocast: str | None = None


def one_of_devices(device: str | None, devices: str | None) -> None:
    """Check that one device is named, or several.

    Raises:
        InputError: both are.
    """
    from opdb.errors import InputError

    if device is not None and devices is not None:
        raise InputError(f"--device {device} and --devices {devices}: give one of them")


def model_options(
    batch_size: int | None,
    input_size: str | None,
    dtype: str | None,
    memory_format: str | None,
    phase: str | None,
    optimizer: str | None = None,
    accumulation: int | None = None,
    autocast: str | None = None,
) -> ModelOptions:
    """Check the options that concern a model.

    Raises:
        InputError: one of them has no such value; the message names the nearest.
    """
    from opdb.errors import UnknownNameError
    from opdb.models import AUTOCASTS, DTYPES, MEMORY_FORMATS, OPTIMIZERS, PHASES

    dtype = _ALIASES.get(dtype, dtype) if dtype else dtype
    autocast = _ALIASES.get(autocast, autocast) if autocast else autocast
    for option, value, valid in (
        ("--dtype", dtype, DTYPES),
        ("--memory-format", memory_format, MEMORY_FORMATS),
        ("--phase", phase, PHASES),
        ("--optimizer", optimizer, OPTIMIZERS),
        ("--autocast", autocast, AUTOCASTS),
    ):
        if value is not None and value not in valid:
            raise UnknownNameError(option, value, valid)
    size = parse_size(input_size)
    return ModelOptions(
        batch_size, size, dtype, memory_format, phase, optimizer, accumulation, autocast
    )


def parse_size(text: str | None) -> tuple[int, ...] | None:
    """Read an input size such as 3x224x224 or 3,224,224.

    Raises:
        InputError: the text is none.
    """
    from opdb.errors import InputError

    if text is None:
        return None
    parts = re.split(r"[x,]", text)
    if not all(re.fullmatch(r"[1-9][0-9]{0,9}", part) for part in parts):
        raise InputError(
            f"--input-size {text!r}: give sizes of 1 or more, with 10 digits at most, as in "
            "3x224x224"
        )
    return tuple(int(part) for part in parts)


def parse_algorithms(names: list[str] | None) -> list[Algorithm]:
    """Return the algorithms of these names; none where none is named.

    Raises:
        UnknownNameError: there is none of a name.
    """
    from opdb.algorithms.names import algorithms_named

    return algorithms_named(names or [])


def parse_workload(name: str) -> str:
    """Check what calls are to find in the caches.

    Raises:
        UnknownNameError: there is none of that name.
    """
    from typing import get_args

    from opdb.errors import UnknownNameError
    from opdb.records import Access

    if name not in get_args(Access):
        raise UnknownNameError("--workload", name, get_args(Access))
    return name


def parse_mode(name: str) -> str:
    """Check a mode's name.

    Raises:
        UnknownNameError: there is none of that name.
    """
    from typing import get_args

    from opdb.errors import UnknownNameError
    from opdb.records import Mode

    if name not in get_args(Mode):
        hint = f"(modes: {', '.join(get_args(Mode))})"
        raise UnknownNameError("--mode", name, get_args(Mode), hint=hint)
    return name


def parse_modes(given: list[str] | None) -> tuple[Mode, ...]:
    """Read modes, each option's separated by commas; none where none is given.

    Raises:
        UnknownNameError: there is none of that name; the message lists them.
    """
    from typing import cast

    texts = [text.strip() for each in given or () for text in each.split(",")]
    return tuple(dict.fromkeys(cast("Mode", parse_mode(text)) for text in texts))
