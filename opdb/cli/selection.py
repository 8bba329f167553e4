"""From what a user names to what is meant: summary files, models, workloads in the database."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from opdb.cli.console import note
from opdb.cli.options import ModelOptions
from opdb.errors import InputError, UnknownNameError
from opdb.models import ModelRequest
from opdb.records import Json, Workload

if TYPE_CHECKING:
    from opdb.store import Store

FOLDER = "measurements"
NUMBERS = re.compile(r"[+-]?[\d.,]+")
IDENTITY = (
    *("model", "source", "batch_size", "dtype", "memory_format", "input_size", "phase"),
    *("autocast", "optimizer", "accumulation"),
)
"""The names under which every command's JSON and CSV tell workloads apart."""

_ENDINGS = (".yml", ".yaml")
_OWN_FILE = re.compile(r"(?:.*/)?([^/]+)\.py:(.+)")
"""A Python file and a name in it, which is not how a model is named."""

USUAL_SIZE = (3, 224, 224)
"""The input of most models of images, which goes without saying."""


def summary_files(argument: str) -> list[Path]:
    """Return the summary files that an argument names, a folder's all; none for a model's name.

    Raises:
        InputError: a folder without a summary file, an empty text, or a Python file.
    """
    if not argument:
        raise InputError("the name of a model is empty")
    if own := _OWN_FILE.fullmatch(argument):
        raise InputError(
            f"{argument}: a model of your own is named by its import path, {own[1]}:{own[2]}, "
            "in the folder that holds the file"
        )
    path = Path(argument)
    if path.suffix in _ENDINGS and not path.is_dir():
        return [path]
    if path.is_dir() and ("/" in argument or summary_of(argument) is None):
        from opdb.summary import summaries_in

        found = summaries_in(path)
        if not found:
            raise InputError(f"folder {path}: no summary file (*.yml) in it")
        return found
    return [path] if "/" in argument and not path.is_dir() else []


def summary_of(name: str) -> Path | None:
    """Return a model's summary file, here or in the checkout; None where it has none."""
    for parent in (Path.cwd(), Path(__file__).resolve().parents[2]):
        path = parent / FOLDER / f"{name}.yml"
        if "/" not in name and path.is_file():
            return path
    return None


def requests_in(path: Path, options: ModelOptions) -> list[ModelRequest]:
    """Return every request of a summary file, with what the command line says otherwise.

    Raises:
        InputError: the file is not a summary file, or the options contradict what it asks for.
    """
    from opdb.summary import load_summary

    changed = [_with_options(request, options) for request in load_summary(path).requests()]
    _check_step(changed, options)
    return [request for number, request in enumerate(changed) if request not in changed[:number]]


def request_for(name: str, options: ModelOptions) -> ModelRequest:
    """Return the one request that a model's name (or summary file) and the options mean.

    It is the first of the model's summary file that agrees with the options; where none does, the
    first, changed to what the options say; without a summary file, batch 1 in float32.

    Raises:
        InputError: the summary file is not one, or the options contradict each other.
    """
    named = summary_files(name)
    path = named[0] if len(named) == 1 else summary_of(name)
    requests = [ModelRequest(name)]
    if path is not None:
        from opdb.summary import load_summary

        requests = load_summary(path).requests()
    agreeing = [request for request in requests if _with_options(request, options) == request]
    found = (agreeing or [_with_options(requests[0], options)])[0]
    _check_step([found], options)
    return found


def _check_step(requests: Sequence[ModelRequest], options: ModelOptions) -> None:
    """Check that what is said of a training step is asked for of training steps alone.

    Raises:
        InputError: it is not, and a request is of inference.
    """
    said = {"--optimizer": options.optimizer, "--grad-accum-steps": options.accumulation}
    given = [name for name, value in said.items() if value is not None]
    if given and any(request.training is None for request in requests):
        raise InputError(f"{given[0]} is of a training step: add --phase training")


def batch_sizes_among(
    models: Sequence[str], given: Sequence[str] | None, *, needed: bool = True
) -> tuple[list[str], list[int]]:
    """Return models and batch sizes: numbers among the models follow a first batch size.

    Raises:
        InputError: a batch size is no whole number of 1 or more, or a needed model is missing.
    """
    if needed and not models:
        raise InputError("no model is named")
    if given is None:
        return list(models), []
    names = [name for name in models if not NUMBERS.fullmatch(name)]
    texts = [t for each in (*given, *models) if each not in names for t in each.split(",") if t]
    sizes = []
    for text in texts or [""]:
        if not re.fullmatch(r"0*[1-9][0-9]{0,9}", text):
            raise InputError(
                f"--batch-sizes {text!r}: give whole numbers of 1 or more, with 10 digits at most"
            )
        sizes.append(int(text))
    if needed and not names:
        raise InputError("no model is named, only batch sizes")
    return names, list(dict.fromkeys(sizes))


def find_workload(store: Store, request: ModelRequest, options: ModelOptions) -> Workload:
    """Return the harvested workload that a request means.

    A model without a summary file is meant by as little as tells its workloads apart: its own
    example inputs may decide about batch and size.

    Raises:
        InputError: it was not harvested, or several were that differ in their input size.
    """
    found = store.workloads(request.name)
    if not found:
        raise UnknownNameError(
            "model",
            request.name,
            store.workload_names(),
            hint=f"(of those in {store.location}; to add it: opdb harvest {request.name})",
        )
    meant = [workload for workload in found if _agrees(workload, request)]
    if not meant and summary_of(request.name) is None:
        meant = _as_far_as_said(found, request, options)
    if not meant:
        has = "; ".join(dict.fromkeys(_with_size(workload) for workload in found[:8]))
        raise InputError(
            f"{request.name} was not harvested for {_with_size(request)}, only for: {has}; "
            f"to add it: opdb harvest {request.name} {_as_options(request, options)}"
        )
    if len(meant) > 1:
        sizes = ", ".join(_times(_size(workload) or ()) for workload in meant)
        raise InputError(
            f"{request.name} was harvested for several inputs ({sizes}); choose with --input-size"
        )
    return meant[0]


def describe(what: Workload | ModelRequest) -> str:
    """Return what tells a model's workloads apart, in words; of an image's size what is unusual."""
    words = [f"batch {what.batch_size}", what.dtype]
    if what.memory_format != "contiguous":
        words.append(what.memory_format)
    if what.autocast is not None:
        words.append(f"autocast {what.autocast}")
    if what.phase != "inference":
        words += _of_training(_training(what))
    size = _size(what)
    if size is not None and len(size) == 1:
        words.append(f"size {size[0]}")
    elif size and size != USUAL_SIZE:
        words.append(_times(size))
    return " ".join(words)


def note_harvest(
    workload: Workload, failure: str | None, estranged: int = 0, *, quiet: bool
) -> None:
    """Say what is odd about a workload just harvested.

    It asks whether it is captured, and why it is not known what it calls then; or so many runs of
    it, now `estranged`, were measured when it called something else.
    """
    name = f"{workload.name} {describe(workload)}"
    if failure is not None:
        note(
            f"{name} asks whether it is being captured in a CUDA graph, and what it calls then is "
            "not known, so that mode graph is predicted from what it calls in eager: "
            f"{failure}",
            quiet=quiet,
        )
    if estranged:
        note(
            f"{name} calls something else in {workload.source} {workload.source_version} than when "
            f"runs of it were measured ({estranged}): they are held against these calls now",
            quiet=quiet,
        )


def identity(workload: Workload) -> dict[str, Json]:
    """Return what tells workloads apart, under `IDENTITY`'s names."""
    training = _training(workload) or {}
    return {
        "model": workload.name,
        "source": workload.source,
        "batch_size": workload.batch_size,
        "dtype": workload.dtype,
        "memory_format": workload.memory_format,
        "input_size": None if (size := _size(workload)) is None else list(size),
        "phase": workload.phase,
        "autocast": workload.autocast,
        "optimizer": training.get("optimizer"),
        "accumulation": training.get("accumulation"),
    }


def _with_options(request: ModelRequest, options: ModelOptions) -> ModelRequest:
    said = {
        field.name: getattr(options, field.name)
        for field in fields(options)
        if getattr(options, field.name) is not None
    }
    if "input_size" in said:
        said["inputs"] = None  # a size given by hand takes the place of the file's inputs
    return replace(request, **said)


def _as_far_as_said(
    workloads: Sequence[Workload], request: ModelRequest, options: ModelOptions
) -> list[Workload]:
    """Return the one workload that contradicts no option that was given; none where several do not.

    Of several it is the one that is all else as requested, its batch size apart.
    """
    possible = [each for each in workloads if not _contradicts(each, options)]
    if len(possible) > 1:
        of_batch = ((each, replace(request, batch_size=each.batch_size)) for each in possible)
        possible = [each for each, wanted in of_batch if _agrees(each, wanted)]
    return possible if len(possible) == 1 else []


def _contradicts(workload: Workload, options: ModelOptions) -> bool:
    has = {field.name: getattr(workload, field.name, None) for field in fields(options)}
    has["input_size"] = _size(workload)
    has |= _training(workload) or {}
    said = {name: getattr(options, name) for name in has if getattr(options, name) is not None}
    return any(has[name] != value for name, value in said.items())


def _with_size(what: Workload | ModelRequest) -> str:
    """Describe a workload, the usual size of an image, too."""
    return describe(what) + (f" {_times(USUAL_SIZE)}" if _size(what) == USUAL_SIZE else "")


def _agrees(workload: Workload, request: ModelRequest) -> bool:
    return (
        (request.source is None or workload.source == request.source)
        and workload.batch_size == request.batch_size
        and workload.dtype == request.dtype
        and workload.memory_format == request.memory_format
        and workload.phase == request.phase
        and _training(workload) == request.training
        and workload.autocast == request.autocast
        and (request.input_size is None or _size(workload) == tuple(request.input_size))
    )


def _training(what: Workload | ModelRequest) -> Json | None:
    """Return how a training step is made, as data; None of an inference."""
    return what.training if isinstance(what, ModelRequest) else what.inputs.get("training")


def _of_training(training: Json) -> list[str]:
    """Return in words how a training step is made."""
    words = ["training", str(training["optimizer"])]
    if training["accumulation"] > 1:
        words.append(f"{training['accumulation']} batches a step")
    return words


def _size(what: Workload | ModelRequest) -> tuple[int, ...] | None:
    """Return the shape of the first input without its batch; None where none is known."""
    if isinstance(what, ModelRequest):
        return None if what.input_size is None else tuple(what.input_size)
    arguments = cast(Sequence[Json], what.inputs.get("args") or [None])
    first = arguments[0]
    shape = first.get("shape") if isinstance(first, dict) else None
    return tuple(shape[1:]) if isinstance(shape, list) else None


def _times(size: Sequence[int]) -> str:
    return "x".join(map(str, size))


def _as_options(request: ModelRequest, options: ModelOptions) -> str:
    """Return a request as options; a batch size that nobody gave is left to the model's inputs."""
    said = [f"--dtype {request.dtype}"]
    if options.batch_size is not None or summary_of(request.name) is not None:
        said.insert(0, f"--batch-size {request.batch_size}")
    if request.memory_format != "contiguous":
        said.append(f"--memory-format {request.memory_format}")
    if request.phase != "inference":
        said.append(f"--phase {request.phase} --optimizer {request.optimizer}")
    if request.accumulation > 1:
        said.append(f"--grad-accum-steps {request.accumulation}")
    if request.autocast is not None:
        said.append(f"--autocast {request.autocast}")
    if request.input_size is not None:
        said.append(f"--input-size {_times(request.input_size)}")
    return " ".join(said)
