"""What a build is asked for: models, files, folders and patterns, and their significance lists."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from opdb.errors import InputError, OpdbError
from opdb.lookup.options import ModelOptions, parse_mode
from opdb.lookup.requests import checked_request, mark, requests_in, summary_files
from opdb.records import Mode, Stored, Workload

if TYPE_CHECKING:
    from opdb.models import ModelRequest
    from opdb.plan.survey import Survey
    from opdb.significance import Significance


@dataclass(frozen=True)
class BuildOptions:
    """Until when operators and models are measured, how, and where.

    `target` is a share of each model's time and of its energy; None is that of significant.yml,
    else 0.95. `gpu_seconds` bounds the measuring, calibration included; None is without bound.
    `batch_sizes` go before those of summary files. `device` is cuda, cuda:N or cpu; of a plan also
    a device of the database. `devices` are several, as in "0,1". With `retry` what failed before
    is tried again. `runs` is how many of the models are run, drawn by lot; None is all. `write`
    says whether significant.yml is written as proposed.
    """

    target: float | None = None
    gpu_seconds: float | None = None
    mode: str = "eager"
    batch_sizes: Sequence[int] = ()
    device: str | None = None
    devices: str | None = None
    retry: bool = False
    runs: int | None = None
    write: bool = True

    def check(self) -> Mode:
        """Check the options, and return the mode.

        Raises:
            InputError: an option has no such value.
        """
        from opdb.predict import PLAIN_MODES, check_mode

        mode = parse_mode(self.mode)
        check_mode(mode, PLAIN_MODES)
        if self.target is not None and not 0 < self.target <= 1:
            raise InputError(
                f"--target {self.target:g}: give a share above 0, up to 1, such as 0.95"
            )
        if self.gpu_seconds is not None and not self.gpu_seconds >= 0:
            raise InputError(f"--gpu-seconds {self.gpu_seconds:g}: give seconds, 0 or more")
        if self.runs is not None and self.runs < 0:
            raise InputError(f"--runs {self.runs}: give a number of models, 0 or more")
        return mode


@dataclass(frozen=True)
class SignificanceList:
    """A list of significant operators that concerns a build, and whether the build is all of it."""

    path: Path
    whole: bool


@dataclass(frozen=True)
class BuildSource:
    """A summary file (None for a model's name), and its requests."""

    file: Path | None
    requests: Sequence[ModelRequest]


@dataclass(frozen=True)
class BuildQuestion:
    """What a build or its plan is asked: models, a mode, a target, and what is significant.

    `errors` say what cannot be built of what was asked for, and why.
    """

    mode: Mode
    target: float
    sources: Sequence[BuildSource]
    lists: Sequence[SignificanceList | None]
    significance: Significance
    errors: list[OpdbError] = field(default_factory=list)

    @classmethod
    def of(cls, paths: Sequence[str], asked: BuildOptions, said: ModelOptions) -> BuildQuestion:
        """Read what the arguments ask for; what is wrong with one of them is kept in `errors`.

        Raises:
            InputError: an option or a list is not valid, a folder holds no summary file, a pattern
                matches nothing, or nothing is left to build.
        """
        mode = asked.check()
        if not paths:
            raise InputError("no model is named")
        lists = [list_beside(path) for path in paths]
        significance = joined_significance(lists)
        errors: list[OpdbError] = []
        at_sizes = said.at_sizes(list(dict.fromkeys(asked.batch_sizes)))
        sources = build_sources(paths, at_sizes, errors)
        if not sources:
            raise InputError(in_one(errors))
        target = asked.target or significance.target
        written = [*dict.fromkeys(lists)] if asked.write else []
        return cls(mode, target, sources, written, significance, errors)

    @property
    def requests(self) -> list[ModelRequest]:
        """The requests of all sources, each once."""
        return distinct([request for source in self.sources for request in source.requests])

    def called(
        self, stored: Mapping[str, Stored | OpdbError]
    ) -> list[tuple[ModelRequest, Workload]]:
        """Return each request with what it calls in the mode, each workload once.

        `stored` has what became of each request by its `repr`; failures are added to `errors`.

        Raises:
            InputError: nothing is left to build; the message names every error.
        """
        called: dict[str, tuple[ModelRequest, Workload]] = {}
        for request in self.requests:
            found = stored[repr(request)]
            if isinstance(found, OpdbError):
                self.errors.append(found)
            else:
                workload = found.in_mode(self.mode)
                called.setdefault(workload.key, (request, workload))
        if not called:
            raise InputError(in_one(self.errors))
        return list(called.values())

    def mark(self, stored: Mapping[str, Stored | OpdbError], note: Callable[[str], None]) -> None:
        """Mark the summary files of which every request is stored as processed."""
        for source in self.sources:
            found = [stored[repr(request)] for request in source.requests]
            if source.file is not None and all(isinstance(each, Stored) for each in found):
                mark(source.file, note)

    def propose(self, known: Survey, note: Callable[[str], None]) -> None:
        """Write the proposal into the list of a folder that is built whole; say so if it changed.

        Of a part of a folder, or of several projects, no list of one project can be made.
        """
        from opdb.plan.proposal import proposal
        from opdb.significance import propose

        only = self.lists[0] if len(self.lists) == 1 else None
        if only is None or not only.whole:
            return
        try:
            changed = propose(only.path, proposal(known, self.significance, self.target))
        except InputError as error:
            note(f"the list of significant operators was left alone: {error}")
            return
        if changed:
            note(f"{only.path}: the significant operators, as proposed now")


def in_one(errors: Sequence[OpdbError]) -> str:
    """Return one message that names every error."""
    lines = list(dict.fromkeys(str(error) for error in errors))
    if len(lines) == 1:
        return lines[0]
    return "\n".join([f"{len(lines)} models failed", *(f"  {line}" for line in lines)])


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
