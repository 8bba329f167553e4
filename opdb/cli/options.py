"""The options that commands share: one name, one help text, one way to read a value everywhere."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, make_dataclass
from typing import Annotated, Any, TypeAlias, get_args

import typer

from opdb.cli import console
from opdb.errors import InputError
from opdb.records import Mode
from opdb.spec import COMMAND_LINE, OF_GENERATION, OF_STEP, ModelSpec, Option, parse_mode
from opdb.tables import Report


class Without:
    """In the annotation of a record of options: the fields that a command does not have."""

    def __init__(self, *names: str) -> None:
        self.names = names


def models(text: str) -> Any:
    """Return the argument of a command that takes models' names."""
    return typer.Argument(metavar="MODEL", help=text)


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
    bool, typer.Option("--quiet", "-q", help="Show no progress and no messages.")
]
Debug: TypeAlias = Annotated[bool, typer.Option("--debug", help="Show a traceback on errors.")]

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
_TYPES: dict[str, Any] = {"count": int | None, "number": float | None, "switch": bool}


def _typed(option: Option) -> Any:
    return typer.Option(
        *filter(None, (option.flag, option.short)),
        metavar=option.metavar or None,
        min={"count": 1, "number": 0}.get(option.kind),
        help=option.help,
    )


AllowCode: TypeAlias = Annotated[bool, _typed(COMMAND_LINE["allow_code"])]
NoHarvest: TypeAlias = Annotated[
    bool, typer.Option("--no-harvest", help="Refuse a model that is not in the database yet.")
]
ModeName: TypeAlias = Annotated[
    str, typer.Option("--mode", metavar="MODE", help="How work is issued: eager or graph.")
]
PredictedMode: TypeAlias = Annotated[
    str,
    typer.Option(
        "--mode",
        metavar="MODE",
        help="How work is issued: eager, graph, compile or compile:reduce-overhead.",
    ),
]
DeviceName: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="DEVICE",
        help="A device, such as nvidia-h200, 'NVIDIA H200' or h200.  [default: this machine's GPU, "
        "else the published device]",
    ),
]
BoardOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--board",
        metavar="UUID",
        help="Predict for this board; the beginning of its UUID will do.  [default: the one "
        "that measured the model, else the one that covers it best; by a forced algorithm the "
        "latter]",
    ),
]
EstimatesOption: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--estimates/--no-estimates", help="Estimate what was never measured, or leave it out."
    ),
]
EveryDevice: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="DEVICE",
        help="A device, such as nvidia-h200, 'NVIDIA H200' or h200.  [default: all]",
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
MeasuredDevice: TypeAlias = Annotated[
    str | None,
    typer.Option("--device", metavar="DEVICE", help="cuda, cuda:N or cpu.  [default: cuda]"),
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


_ARGUMENTS = make_dataclass(
    "ModelArguments",
    [
        (
            name,
            Annotated[_TYPES.get(option.kind, str | None), _typed(option)],
            False if option.kind == "switch" else None,
        )
        for name, option in COMMAND_LINE.items()
    ],
)


class OfModel(Without):
    """In the annotation of a `ModelSpec`: the command has its options, but for those named."""

    record = _ARGUMENTS

    @staticmethod
    def make(**given: Any) -> ModelSpec:
        return ModelSpec.parse(**given)


_OF_STEP = (*OF_STEP, *OF_GENERATION)

Model: TypeAlias = Annotated[ModelSpec, OfModel()]
ModelAtSizes: TypeAlias = Annotated[ModelSpec, OfModel("batch_size")]
"""For commands that take several batch sizes, as all whose names end so."""
PhaseModel: TypeAlias = Annotated[ModelSpec, OfModel(*_OF_STEP)]
PhaseModelAtSizes: TypeAlias = Annotated[ModelSpec, OfModel("batch_size", *_OF_STEP)]
InferenceModel: TypeAlias = Annotated[ModelSpec, OfModel("phase", *_OF_STEP)]
InferenceModelAtSizes: TypeAlias = Annotated[ModelSpec, OfModel("batch_size", "phase", *_OF_STEP)]
ModelFormat: TypeAlias = Annotated[
    ModelSpec, OfModel("batch_size", "input_size", "phase", *_OF_STEP)
]
"""For commands that choose sizes themselves: dtype, memory format, whether code may run."""


@dataclass(frozen=True)
class Output:
    """Which database a command uses, and how it says what it found."""

    db: Db = None
    as_json: AsJson = False
    quiet: Quiet = False
    debug: Debug = False

    def note(self, text: str) -> None:
        console.note(text, quiet=self.quiet)

    def answer(self, found: Report) -> None:
        """Print an answer; then raise what of it failed, or why its check does not hold."""
        console.show(found, as_json=self.as_json)
        found.check()


def parse_sizes(given: Sequence[str] | None, option: str = "--batch-sizes") -> list[int]:
    """Read sizes, each option's separated by commas; none where none is given."""
    sizes = []
    for text in split(given):
        if not re.fullmatch(r"0*[1-9][0-9]{0,9}", text):
            raise InputError(
                f"{option} {text!r}: give whole numbers of 1 or more, with 10 digits at most"
            )
        sizes.append(int(text))
    return list(dict.fromkeys(sizes))


def parse_modes(given: list[str] | None) -> tuple[Mode, ...]:
    """Read modes, each option's separated by commas; none where none is given."""
    return tuple(dict.fromkeys(map(parse_mode, split(given))))


def split(given: Sequence[str] | None, following: Sequence[str] = ()) -> list[str]:
    """Return the values of an option that takes several, separated by commas or given again."""
    return [text.strip() for each in (*(given or ()), *following) for text in each.split(",")]


def batch_sizes_among(
    models: Sequence[str], given: Sequence[str] | None, *, needed: bool = True
) -> tuple[list[str], list[int]]:
    """Return models and batch sizes: numbers among the models follow a first batch size."""
    sizes = [each for each in models if given and NUMBERS.fullmatch(each)]
    names = [each for each in models if each not in sizes]
    if needed and not names:
        raise InputError("no model is named")
    return names, parse_sizes([*(given or ()), *sizes])


NUMBERS = re.compile(r"[+-]?[\d.,]+")


def words_among(
    given: Sequence[str], modes: Sequence[str] | None, batch_sizes: Sequence[str] | None
) -> tuple[list[str], list[str], list[int]]:
    """Return models, modes and batch sizes: such words among the models follow a first one."""
    following = [each for each in given if modes and each in get_args(Mode)]
    left = [m for m in given if m not in following]
    named, sizes = batch_sizes_among(left, batch_sizes)
    return named, split(modes, following), sizes
