"""From a model's name, or a summary file, and options to the requests that are meant."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from opdb.errors import InputError, UnknownModelError
from opdb.lookup.options import ModelOptions
from opdb.models import ModelRequest

FOLDER = "measurements"

_ENDINGS = (".yml", ".yaml")
_OWN_FILE = re.compile(r"(?:.*/)?([^/]+)\.py:(.+)")
"""A Python file and a name in it, which is not how a model is named."""


def summary_files(argument: str) -> list[Path]:
    """Return the summary files that an argument names, a folder's all; none for a model's name.

    What ends as summary files do is one. A folder may have a model's name by chance: with a slash
    at its end it is meant.

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
    if path.is_dir():
        from opdb.models.catalogue import is_known
        from opdb.summary import summaries_in

        if "/" not in argument and is_known(argument):
            return []
        found = summaries_in(path)
        if not found:
            raise InputError(f"folder {path}: no summary file (*.yml) in it")
        return found
    if path.suffix in _ENDINGS or ("/" in argument and path.exists()):
        return [path]
    return []


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


def mark(path: Path, note: Callable[[str], None]) -> None:
    """Mark a summary file as processed: all that it asks for is stored.

    The marker is for people; where it cannot be written, as in a checkout of somebody else's, that
    is a note.
    """
    from opdb.summary import mark_processed

    try:
        mark_processed(path)
    except InputError as error:
        note(f"not marked as processed, though all of it is stored: {error}")


def requests_named(name: str, options: ModelOptions) -> list[ModelRequest]:
    """Return all that a name and the options mean, checked: of a file or folder every request.

    Raises:
        InputError: a file is not a summary file, or a request is not valid.
    """
    files = summary_files(name)
    found = [request for path in files for request in requests_in(path, options)]
    return [request.checked() for request in found] if files else [checked_request(name, options)]


def request_for(name: str, options: ModelOptions) -> ModelRequest:
    """Return the one request that a model's name (or summary file) and the options mean.

    A name means plain defaults, and what the options say otherwise: batch 1 in float32, contiguous,
    inference, on the model's own inputs. A summary file means its first request that agrees with
    the options; where none does, the first, changed to what the options say.

    Raises:
        InputError: the summary file is not one, there are several, or the options contradict each
            other.
    """
    files = summary_files(name)
    if len(files) > 1:
        raise InputError(f"folder {name} holds {len(files)} summary files; name one of them")
    found = _first_in(files[0], options) if files else _with_options(ModelRequest(name), options)
    _check_step([found], options)
    return found


def checked_request(name: str, options: ModelOptions) -> ModelRequest:
    """Return the request of a name (or summary file) with its source found, all of it valid.

    A name that no source knows, but a summary file in `measurements/` has, is short for the model
    that the file names.

    Raises:
        InputError: as `request_for`, or no source knows the model.
    """
    request = request_for(name, options)
    try:
        return request.checked()
    except UnknownModelError:
        if (meant := short_for(request, options)) is None:
            raise
        return meant.checked()


def short_for(request: ModelRequest, options: ModelOptions) -> ModelRequest | None:
    """Return the request of the model that a name is short for; None where it is for none.

    The file of that name in `measurements/` says which model, of which source, on what inputs; not
    its batch, dtype, layout or phase.
    """
    path = summary_of(request.name)
    if path is None:
        return None
    from opdb.summary import load_summary

    first = load_summary(path).requests()[0]
    plain = ModelRequest(
        first.name,
        source=first.source,
        weights=first.weights,
        input_size=first.input_size,
        inputs=first.inputs,
        named_in=first.named_in,
    )
    return None if plain.name == request.name else _with_options(plain, options)


def _first_in(path: Path, options: ModelOptions) -> ModelRequest:
    from opdb.summary import load_summary

    requests = load_summary(path).requests()
    agreeing = [request for request in requests if _with_options(request, options) == request]
    return _with_options((agreeing or requests)[0], options)


def _check_step(requests: Sequence[ModelRequest], options: ModelOptions) -> None:
    """Check that what is said of a training step is asked for of training steps alone.

    Raises:
        InputError: it is not, and a request is of inference.
    """
    said = {"--optimizer": options.optimizer, "--grad-accum-steps": options.accumulation}
    given = [name for name, value in said.items() if value is not None]
    if given and any(request.training is None for request in requests):
        raise InputError(f"{given[0]} is of a training step: add --phase training")


def _with_options(request: ModelRequest, options: ModelOptions) -> ModelRequest:
    said = options.given()
    if "input_size" in said:
        said["inputs"] = None  # a size given by hand takes the place of the file's inputs
    if options.allow_code:
        said["named_in"] = None
    return replace(request, **said)
