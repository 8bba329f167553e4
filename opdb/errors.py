"""Every error a user can meet, in one place.

An error carries one message: what went wrong, which object, the value found, what to try.
Only the command line catches these, once, and turns them into an exit status.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches

EXPLANATION = "Explanation:"
"""How the line begins by which torch's compiler explains what it raises."""


def shown(value: object) -> str:
    """Return a value for a message, cut short."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


class OpdbError(Exception):
    """A failure that is explained to the user in one message; exit status 2."""

    exit_status = 2


class InputError(OpdbError):
    """What the user gave cannot be used: a name, a file, a value, a database."""


class UnknownNameError(InputError):
    """A name is not among the valid ones; the message offers the nearest."""

    def __init__(self, what: str, name: str, valid: Iterable[str], *, hint: str = "") -> None:
        names = sorted(valid)
        near = get_close_matches(name, names, n=3, cutoff=0.6)
        if near:
            advice = "did you mean " + " or ".join(repr(n) for n in near) + "?"
        elif not names:
            advice = "there are none"
        elif len(names) <= 20:
            advice = "valid: " + ", ".join(names)
        else:
            advice = f"{len(names)} names are valid"
        super().__init__(f"unknown {what} {name!r}; {advice}" + (f" {hint}" if hint else ""))


class NothingMeasuredError(InputError):
    """Nothing of what is asked about was measured on the device in question."""


class DatabaseError(InputError):
    """The database cannot be read: foreign, truncated, newer, or out of reach."""


class NoDatabaseError(DatabaseError):
    """There is no database of the name, and none is to be made."""


class SamplesLeftOutError(InputError):
    """Raw samples are needed of visits that came without them: those that a wheel carries."""

    def __init__(self) -> None:
        super().__init__(
            "raw samples are needed, and the published sets that come with an installed opdb have "
            "costs alone; a clone of opdb has the samples: opdb import CLONE/db/nvidia-h200 --db "
            "FILE, then name this FILE with --db"
        )


class ClaimLostError(OpdbError):
    """Another worker took over what this one was measuring."""


class UnsupportedError(OpdbError):
    """No registered operator describes or rebuilds this call."""


class RefusedError(UnsupportedError):
    """An algorithm cannot run a convolution."""


class NotCompiledError(OpdbError):
    """A mode that compiles left a whole model as it was: what would run is eager."""


class CannotMeasureError(OpdbError):
    """This machine lacks what a measurement needs (device, driver, meter); exit status 3."""

    exit_status = 3


class CheckError(OpdbError):
    """The check that the user asked for does not hold; exit status 1."""

    exit_status = 1


def said_by(error: BaseException) -> str:
    """Return what an exception says, in one line: its first, and the one that explains it.

    What torch's compiler raises has a title, and its cause below: "  Explanation: …".
    """
    lines = [line.strip() for line in str(error).strip().splitlines()] or [""]
    explained = (line for line in lines[1:] if line.startswith(EXPLANATION))
    return ": ".join([lines[0], *(line.removeprefix(EXPLANATION).strip() for line in explained)])


def unforeseen(error: Exception) -> str:
    """Say in one line what nobody expected: a fault of opdb's own, or in a model's code."""
    [*_, last] = traceback.extract_tb(error.__traceback__)
    said = (str(error).splitlines() or ["nothing more is said"])[0]
    place = f"{last.filename}, line {last.lineno}"
    return f"unforeseen {type(error).__name__}: {said} ({place}); --debug shows how it came there"


@contextmanager
def kept(errors: list[OpdbError], name: str, *through: type[Exception]) -> Iterator[None]:
    """Keep what goes wrong with one of several models, foreseen or not, for the others' sake.

    What concerns all of them goes on: a closed pipe, a missing package, and errors of `through`.
    """
    try:
        yield
    except (BrokenPipeError, ModuleNotFoundError, *through):  # type: ignore[misc]
        raise
    except OpdbError as error:
        errors.append(error)
    except Exception as error:  # noqa: BLE001 - no traceback, whoever's code it was
        said = OpdbError(f"{name}: {unforeseen(error)}")
        errors.append(said.with_traceback(error.__traceback__))


def in_one(errors: Sequence[OpdbError], done: str = "") -> str:
    """Return one message that names every error; `done` says what became of the others."""
    lines = list(dict.fromkeys(map(str, errors)))
    if len(lines) == 1:
        return lines[0]
    return "\n".join([f"{len(errors)} models failed{done}", *(f"  {line}" for line in lines)])


def raise_all(errors: Sequence[OpdbError], done: str) -> None:
    """Raise what went wrong with some models, in one message; `done` says what the others are.

    Raises:
        OpdbError: something did: one error as it is, several as one that names them all.
    """
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise OpdbError(in_one(errors, f"; what was finished is {done}")) from ExceptionGroup(
            "of each", errors
        )
