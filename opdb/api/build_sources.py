"""What a build is asked for: models, files, folders and patterns, and their significance lists."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from opdb.errors import InputError, OpdbError
from opdb.lookup.options import ModelOptions
from opdb.lookup.requests import checked_request, requests_in, summary_files

if TYPE_CHECKING:
    from opdb.models import ModelRequest
    from opdb.plan.gather import Harvested
    from opdb.significance import Significance


@dataclass(frozen=True)
class SignificanceList:
    """A list of significant operators that concerns a build, and whether the build is all of it."""

    path: Path
    whole: bool


@dataclass
class BuildSource:
    """A summary file (None for a model's name), its requests, and the workloads found."""

    file: Path | None
    requests: list[ModelRequest]
    found: list[Harvested] = field(default_factory=list)


def build_sources(
    paths: Sequence[str], said: Sequence[ModelOptions], errors: list[OpdbError]
) -> list[BuildSource]:
    """Return what the arguments ask for; what is wrong with one file or name is kept for the end.

    Raises:
        InputError: a folder holds no summary file, or a pattern matches nothing.
    """
    wanted = []
    for path in paths:
        if _is_pattern(path):
            wanted += [BuildSource(None, _requests([request], said)) for request in _matching(path)]
            continue
        files = summary_files(path)
        for file in files:
            with _kept(errors):
                found = [r for each in said for r in requests_in(file, each)]
                wanted.append(BuildSource(file, [r.checked() for r in distinct(found)]))
        if not files:
            with _kept(errors):
                found = [checked_request(path, each) for each in said]
                wanted.append(BuildSource(None, distinct(found)))
    return wanted


@contextmanager
def _kept(errors: list[OpdbError]) -> Iterator[None]:
    """Keep an error of the block for the end."""
    try:
        yield
    except OpdbError as error:
        errors.append(error)


def distinct(requests: Sequence[ModelRequest]) -> list[ModelRequest]:
    """Return the requests, each once."""
    return list({repr(request): request for request in requests}.values())


def _requests(requests: Sequence[ModelRequest], said: Sequence[ModelOptions]) -> list[ModelRequest]:
    """Return requests changed to what the options say."""
    return [replace(each, **one.given()).checked() for each in requests for one in said]


def _is_pattern(argument: str) -> bool:
    return any(sign in argument for sign in "*?[") and not Path(argument).exists()


def _matching(pattern: str) -> list[ModelRequest]:
    """Return requests for the models of a source that a pattern matches: `torchvision:resnet*`.

    Without a source all are looked through; `torchvision.classification:` is one family.

    Raises:
        InputError: it matches nothing.
    """
    from opdb.models import ModelRequest, names

    source, colon, rest = pattern.rpartition(":")
    source, _, family = source.partition(".")
    valid = _family(source, family) if family else names(source if colon else None)
    found = [name for name in valid if fnmatchcase(name, rest)]
    if not found:
        raise InputError(f"no model's name matches {pattern!r}")
    return [ModelRequest(name, source=source if colon else None) for name in found]


def _family(source: str, family: str) -> Sequence[str]:
    from opdb.errors import UnknownNameError
    from opdb.models.torchvision import family_names

    families = ("classification", "segmentation", "video", "detection", "optical_flow")
    if source != "torchvision" or family not in families:
        valid = [f"torchvision.{each}" for each in families]
        raise UnknownNameError("family", f"{source}.{family}", valid)
    return family_names(family)


def list_beside(argument: str) -> SignificanceList | None:
    """Return the list beside what an argument names: in the folder, beside the file, else here."""
    from opdb.significance import place_of

    path = Path(argument)
    if _is_pattern(argument) or not (path.is_dir() or path.suffix in (".yml", ".yaml")):
        here = place_of(Path("measurements"))
        return SignificanceList(here, whole=False) if here.exists() else None
    return SignificanceList(place_of(path if path.is_dir() else path.parent), whole=path.is_dir())


def joined_significance(lists: Sequence[SignificanceList | None]) -> Significance:
    """Return what the lists say, pins of all together; the first one's thresholds.

    Raises:
        InputError: one of them has mistakes.
    """
    from opdb.significance import Significance, load_significance

    paths = dict.fromkeys(each.path for each in lists if each is not None and each.path.exists())
    found = [load_significance(path) for path in paths]
    if not found:
        return Significance()
    return found[0].model_copy(
        update={
            "always": tuple(dict.fromkeys(pin for each in found for pin in each.always)),
            "never": tuple(dict.fromkeys(pin for each in found for pin in each.never)),
        }
    )
