"""`opdb submit`: any command as jobs of a cluster."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperOption

from opdb.cli.support import options
from opdb.cli.support.console import print_json, print_rows
from opdb.cli.support.selection import NUMBERS
from opdb.errors import UnknownNameError
from opdb.tables import Column, Table

if TYPE_CHECKING:
    from opdb.cluster.job import Job
    from opdb.cluster.slurm import Resources
    from opdb.cluster.submitting import CommandSyntax

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
    from opdb.cluster.submitting import jobs_of

    resources = wanted.resources
    each = parts_of(command)
    if not dry_run:
        check_slurm()  # before anything is written
    jobs = jobs_of(each, folder.absolute(), out.db, make=not dry_run)
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


def parts_of(command: list[str]) -> list[tuple[str, ...]]:
    """Return the commands that one comes to: one for each model and each algorithm it names.

    Raises:
        InputError: it is no opdb command, or names a database of its own.
    """
    from opdb.cli import COMMANDS, command_named
    from opdb.cluster import submitting

    name, *rest = command
    if name not in COMMANDS or name == "submit":
        raise UnknownNameError("command", name, set(COMMANDS) - {"submit"})
    parsed = command_named(name)
    # It is read as it will be on the node: what is wrong with it is told now.
    parsed.make_context(f"opdb {name}", list(rest))
    return submitting.parts_of(name, rest, _syntax(parsed.params))


def _syntax(parameters: Sequence[Any]) -> CommandSyntax:
    """Return how the arguments of a command with these parameters are read."""
    from opdb.cluster.submitting import CommandSyntax

    of_models = any(each.name == "models" and each.nargs == -1 for each in parameters)
    of_sizes = any(each.name == "batch_sizes" for each in parameters)
    takes_value: dict[str, bool] = {}
    algorithms: set[str] = set()
    for each in parameters:
        names = [*each.opts, *each.secondary_opts]
        valued = isinstance(each, TyperOption) and not (each.is_flag or each.count)
        takes_value |= dict.fromkeys(names, valued)
        if each.name == "algorithms":
            algorithms |= set(names)

    def names_model(given: str) -> bool:
        # Numbers among the models are further batch sizes.
        return of_models and not (of_sizes and NUMBERS.fullmatch(given))

    return CommandSyntax(takes_value, algorithms, names_model)
