"""From a command to jobs: one for each model and each algorithm that it names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from opdb.algorithms.names import algorithms_named
from opdb.cluster.job import Files, Job, name_of
from opdb.cluster.slurm import snapshot
from opdb.errors import InputError
from opdb.store.database import as_url, default_url, file_of

_DATABASE = "--db"
_ALGORITHM = "--algorithm"


@dataclass(frozen=True)
class CommandSyntax:
    """How the arguments of a command are read.

    `takes_value` says of each option, by every name it has, whether a value follows it.
    `algorithms` are the names of the option of which each value is a job of its own.
    `names_model` says of an argument that is no option whether it is a model's name.
    """

    takes_value: Mapping[str, bool]
    algorithms: Collection[str]
    names_model: Callable[[str], bool]


@dataclass
class _Parts:
    """A command's arguments told apart: models, algorithms, and all others as they stand."""

    syntax: CommandSyntax
    models: dict[str, None]
    algorithms: dict[str, None]
    others: list[str]

    def read(self, arguments: Sequence[str]) -> None:
        """Tell arguments apart.

        Raises:
            InputError: they name a database of their own, or an algorithm that is not known.
        """
        waiting = list(arguments)
        while waiting:
            given = waiting.pop(0)
            option, value = self._option(given)
            if not given.startswith("-") or option not in self.syntax.takes_value:
                if self.syntax.names_model(given):
                    self.models[given] = None
                else:
                    self.others.append(given)
            elif not self.syntax.takes_value[option]:
                if value:  # short options written as one: -qb 4
                    waiting.insert(0, f"-{value}")
                    given = option
                self.others.append(given)
            else:
                self._keep(option, waiting.pop(0) if value is None else value)

    def _option(self, given: str) -> tuple[str, str | None]:
        """Return an option and its value where both are one word: --stage=full, or -b4."""
        option, equals, value = given.partition("=")
        if given[:2] in self.syntax.takes_value and len(given) > 2:
            return given[:2], given[2:]
        return option, value if equals else None

    def _keep(self, option: str, value: str) -> None:
        if option == _DATABASE:
            raise InputError("give --db to opdb submit, before --, not to the command")
        if option in self.syntax.algorithms:
            self.algorithms |= dict.fromkeys(each.name for each in algorithms_named([value]))
        else:
            self.others += [option, value]


def parts_of(name: str, arguments: Sequence[str], syntax: CommandSyntax) -> list[tuple[str, ...]]:
    """Return the commands that one comes to: one for each model and each algorithm it names.

    Raises:
        InputError: it names a database of its own, or an algorithm that is not known.
    """
    parts = _Parts(syntax, {}, {}, [])
    parts.read(arguments)
    models = [[model] for model in parts.models] or [[]]
    algorithms = [[_ALGORITHM, algorithm] for algorithm in parts.algorithms] or [[]]
    return [
        (name, *model, *algorithm, *parts.others) for model in models for algorithm in algorithms
    ]


def jobs_of(
    commands: Sequence[tuple[str, ...]], folder: Path, db: str | None, *, make: bool
) -> list[Job]:
    """Return a job for each command, with its database; `make` says to make what they need.

    Raises:
        InputError: two of them would have one name, or the folder cannot be made.
    """
    url = as_url(db) if db else default_url()
    file, base = file_of(url), None
    names = [name_of(command) for command in commands]
    if len(set(names)) < len(names):
        raise InputError(
            "two jobs would have one name; submit them one by one, each to a --folder of its own"
        )
    if make:
        _make(folder)
        base = None if file is None else snapshot(file, folder)
    return [
        Job(
            name,
            command,
            str(folder),
            (url if db else None) if file is None else as_url(str(Files(folder, name).shard)),
            None if base is None else str(base),
        )
        for name, command in zip(names, commands, strict=True)
    ]


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--folder {folder}: {error.strerror}") from error
