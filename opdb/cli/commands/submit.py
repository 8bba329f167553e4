"""`opdb submit`: any command as jobs of a cluster."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from opdb.cli.support import options
from opdb.cli.support.console import print_json, print_rows
from opdb.cli.support.selection import NUMBERS
from opdb.errors import InputError, UnknownNameError
from opdb.tables import Column, Table

if TYPE_CHECKING:
    from opdb.cluster.job import Job
    from opdb.cluster.slurm import Resources

CLUSTERS = ("slurm",)

SUBMITTED: Table[tuple[Job, str | None]] = Table(
    Column("name", lambda each: each[0].name, "name"),
    Column("job", lambda each: each[1], "job", text=lambda each: each[1] or "not submitted"),
    Column(
        "command",
        lambda each: list(each[0].command),
        "command",
        text=lambda each: f"opdb {shlex.join(each[0].command)}",
    ),
)
"""A job, and its number where it was submitted."""


@dataclass(frozen=True)
class ResourceArguments:
    """What each job needs, as `Resources` has it."""

    partition: Annotated[
        str | None,
        typer.Option("--partition", metavar="NAME", help="The partition of nodes to run on."),
    ] = None
    constraint: Annotated[
        str | None,
        typer.Option(
            "--constraint", metavar="TEXT", help="Features that a node must have, as in gpul40s."
        ),
    ] = None
    gres: Annotated[
        str | None,
        typer.Option("--gres", metavar="TEXT", help="Generic resources of a job, as in gpu:1."),
    ] = None
    mem: Annotated[
        str | None, typer.Option("--mem", metavar="SIZE", help="Memory of a job, as in 16G.")
    ] = None
    cpus: Annotated[
        int | None, typer.Option("--cpus", metavar="N", min=1, help="CPUs of a job.")
    ] = None
    time: Annotated[
        str, typer.Option("--time", metavar="TIME", help="Time of a job: minutes or H:M:S.")
    ] = "4:00:00"
    account: Annotated[
        str | None, typer.Option("--account", metavar="NAME", help="The account that is charged.")
    ] = None
    qos: Annotated[
        str | None, typer.Option("--qos", metavar="NAME", help="The quality of service to ask for.")
    ] = None
    setup: Annotated[
        list[str] | None,
        typer.Option("--setup", metavar="LINE", help="Shell line run first; may be repeated."),
    ] = None
    requeues: Annotated[
        int,
        typer.Option("--requeues", metavar="N", min=0, help="Times a job may run out of time."),
    ] = 20
    at_once: Annotated[
        int, typer.Option("--at-once", metavar="N", min=1, help="Jobs of an array at a time.")
    ] = 256

    @property
    def resources(self) -> Resources:
        """What each job needs.

        Raises:
            InputError: the time is none.
        """
        from opdb.cluster.slurm import Resources, minutes

        said: dict[str, Any] = dict(vars(self))
        limit = minutes(said.pop("time"))
        return Resources(limit, **{**said, "setup": tuple(self.setup or ())})


def run(
    cluster: Annotated[str, typer.Argument(metavar="slurm", help="The cluster: slurm.")],
    command: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND", help="An opdb command, after --.")
    ],
    wanted: ResourceArguments = ResourceArguments(),
    folder: Annotated[
        Path, typer.Option("--folder", metavar="FOLDER", help="For states, logs and shards.")
    ] = Path("slurm"),
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say which jobs it comes to; submit none.")
    ] = False,
    out: options.Output = options.Output(),
) -> None:
    """Run an opdb command as jobs of a cluster: opdb submit slurm --gres gpu:1 -- sweep vgg16.

    A command that names several models or algorithms becomes an array, one job each. A job that is
    preempted or runs out of time is requeued and goes on where it was. With a PostgreSQL URL all
    jobs write that database; else each writes a shard of its own in the folder, which begins as a
    copy of this database and comes back with opdb import. opdb status --jobs FOLDER follows them.
    """
    if cluster not in CLUSTERS:
        raise UnknownNameError("cluster", cluster, CLUSTERS)
    from opdb.cluster.slurm import check_slurm, submit

    resources = wanted.resources
    each = parts_of(command)
    if not dry_run:
        check_slurm()  # before anything is written
    jobs = _jobs(each, folder.absolute(), out.db, make=not dry_run)
    ids = [None] * len(jobs) if dry_run else submit(jobs, resources, f"opdb-{command[0]}")
    submitted = list(zip(jobs, ids, strict=True))
    if out.as_json:
        print_json(SUBMITTED.documents(submitted))
        return
    print_rows(SUBMITTED, submitted)
    if not dry_run:
        _print_place(folder, jobs)


def _print_place(folder: Path, jobs: Sequence[Job]) -> None:
    """Say how jobs are followed, and how their measurements are joined."""
    place = shlex.quote(str(folder))
    print(f"opdb status --jobs {place} follows them; logs: {place}/NAME.log")
    if (jobs[0].database or "").startswith("sqlite"):
        print(f"when they are done: opdb import {place}/*.sqlite")


def _jobs(each: list[tuple[str, ...]], folder: Path, db: str | None, *, make: bool) -> list[Job]:
    """Return a job for each command, with its database; `make` says to make what they need.

    Raises:
        InputError: two of them would have one name, or the folder cannot be made.
    """
    from opdb.cluster.job import Files, Job, name_of
    from opdb.cluster.slurm import snapshot
    from opdb.store.database import as_url, default_url, file_of

    url = as_url(db) if db else default_url()
    file, base = file_of(url), None
    names = [name_of(command) for command in each]
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
        for name, command in zip(names, each, strict=True)
    ]


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--folder {folder}: {error.strerror}") from error


def parts_of(command: list[str]) -> list[tuple[str, ...]]:
    """Return the commands that one comes to: one for each model and each algorithm it names.

    Raises:
        InputError: it is no opdb command, or names a database of its own.
    """
    from opdb.cli import COMMANDS

    name, *rest = command
    if name not in COMMANDS or name == "submit":
        raise UnknownNameError("command", name, set(COMMANDS) - {"submit"})
    parsed = _Parsed(name, rest)
    if parsed.has("--db"):
        raise InputError("give --db to opdb submit, before --, not to the command")
    models: list[str | None] = [*dict.fromkeys(parsed.models)] or [None]
    algorithms: list[str | None] = [*dict.fromkeys(parsed.algorithms)] or [None]
    return [
        (
            name,
            *([] if model is None else [model]),
            *([] if algorithm is None else ["--algorithm", algorithm]),
            *parsed.others,
        )
        for model in models
        for algorithm in algorithms
    ]


class _Parsed:
    """A command's arguments told apart: models, algorithms, and all others as they stand."""

    def __init__(self, name: str, arguments: list[str]) -> None:
        from opdb.cli import command_named

        command = command_named(name)
        # It is read as it will be on the node: what is wrong with it is told now.
        command.make_context(f"opdb {name}", list(arguments))
        self._options = {o: p for p in command.params for o in (*p.opts, *p.secondary_opts)}
        self._of_models = any(
            parameter.name == "models" and parameter.nargs == -1 for parameter in command.params
        )
        self._of_sizes = any(parameter.name == "batch_sizes" for parameter in command.params)
        self.models: list[str] = []
        self.algorithms: list[str] = []
        self.others: list[str] = []
        self._said: set[str] = set()
        self._read(arguments)

    def has(self, option: str) -> bool:
        """Return whether an option was given."""
        return option in self._said

    def _read(self, arguments: list[str]) -> None:
        waiting = list(arguments)
        while waiting:
            given = waiting.pop(0)
            option, value = self._option(given)
            parameter = self._options.get(option) if given.startswith("-") else None
            if parameter is None:
                # Numbers among the models are further batch sizes.
                of_models = self._of_models and not (self._of_sizes and NUMBERS.fullmatch(given))
                (self.models if of_models else self.others).append(given)
                continue
            self._said |= set(parameter.opts)
            takes_value = not (parameter.is_flag or parameter.count)
            if not takes_value and value:  # short options written as one: -qb 4
                waiting.insert(0, f"-{value}")
                given = option
            if not takes_value:
                self.others.append(given)
                continue
            value = waiting.pop(0) if value is None else value
            if parameter.name == "algorithms":
                self.algorithms += self._named(value)
            else:
                self.others += [option, value]

    def _option(self, given: str) -> tuple[str, str | None]:
        """Return an option and its value where both are one word: --stage=full, or -b4."""
        option, equals, value = given.partition("=")
        if given[:2] in self._options and len(given) > 2:
            return given[:2], given[2:]
        return option, value if equals else None

    def _named(self, algorithm: str) -> list[str]:
        from opdb.cli.support.options import parse_algorithms

        return [each.name for each in parse_algorithms([algorithm])]
