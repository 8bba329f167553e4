"""`opdb submit`: any command as jobs of a cluster."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperOption

from opdb.algorithms.names import algorithms_named
from opdb.cli import options
from opdb.cli.options import NUMBERS
from opdb.commands import _lazy as lazy
from opdb.errors import InputError, UnknownNameError
from opdb.tables import Column, Listing, Rows, Table

PANEL = "measure"

CLUSTERS = ("slurm",)

SUBMITTED: Table[tuple[lazy.workers.Job, str | None]] = Table(
    Column("name", lambda each: each[0].name, "name"),
    Column("job", lambda each: each[1], "job", text=lambda each: each[1] or "not submitted"),
    Column(
        "command",
        lambda each: list(each[0].command),
        "command",
        text=lambda each: f"opdb {shlex.join(each[0].command)}",
    ),
)


@dataclass(frozen=True)
class ResourceArguments:
    """What is asked of Slurm for each job; None leaves it to the cluster."""

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

    def parameters(self, name: str) -> dict[str, object]:
        """Return submitit's parameters of jobs with this name."""
        asked = {
            "job_name": name,
            "time": lazy.workers.minutes(self.time),
            "partition": self.partition,
            "constraint": self.constraint,
            "gres": self.gres,
            "mem": self.mem,
            "cpus_per_task": self.cpus,
            "setup": self.setup or None,
            "signal_delay_s": lazy.workers.WARNED_S,
            "array_parallelism": self.at_once,
        }
        return {key: value for key, value in asked.items() if value is not None}


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
    copy of this database and comes back with opdb import. opdb show jobs FOLDER follows them.
    """
    if cluster not in CLUSTERS:
        raise UnknownNameError("cluster", cluster, CLUSTERS)

    parameters = wanted.parameters(f"opdb-{command[0]}")
    each = parts_of(command)
    if not dry_run:
        lazy.workers.check_slurm()  # before anything is written
    jobs = lazy.workers.jobs_of(each, folder.absolute(), out.db, make=not dry_run)
    ids = [None] * len(jobs) if dry_run else lazy.workers.submit(jobs, parameters, wanted.requeues)
    submitted = list(zip(jobs, ids, strict=True))
    parts: list[str | Rows[Any]] = [Rows(SUBMITTED, submitted)]
    if not dry_run:
        place = shlex.quote(str(folder))
        parts.append(f"opdb show jobs {place} follows them; logs: {place}/NAME.log")
        if (jobs[0].database or "").startswith("sqlite"):
            parts.append(f"when they are done: opdb import {place}/*.sqlite")
    out.answer(Listing(SUBMITTED.documents(submitted), parts))


def parts_of(command: list[str]) -> list[tuple[str, ...]]:
    """Return the commands that one comes to: one for each model and each algorithm it names."""
    from opdb.cli.console import COMMANDS, command_named

    name, *rest = command
    if name not in COMMANDS or name == "submit":
        raise UnknownNameError("command", name, set(COMMANDS) - {"submit"})
    parsed = command_named(name)
    # It is read as it will be on the node: what is wrong with it is told now.
    context = parsed.make_context(f"opdb {name}", list(rest))
    given, _, order = parsed.make_parser(context).parse_args(args=list(rest))
    values = {key: iter(v if isinstance(v, list) else [v]) for key, v in given.items()}
    models: dict[str, None] = {}
    algorithms: dict[str, None] = {}
    others: list[str] = []
    for each in order:
        if not isinstance(each, TyperOption):
            words = given[each.name] or ()  # none where it may be left out
            for word in [words] if isinstance(words, str) else words:
                # Numbers among the models are further batch sizes.
                is_size = "batch_sizes" in given and NUMBERS.fullmatch(word)
                if each.name == "models" and each.nargs == -1 and not is_size:
                    models[word] = None
                else:
                    others.append(word)
            continue
        value = next(values[each.name])
        if each.name == "db":
            raise InputError("give --db to opdb submit, before --, not to the command")
        if each.name == "algorithms":
            algorithms |= dict.fromkeys(one.name for one in algorithms_named([value]))
        elif each.is_flag:
            others += (each.opts if value else each.secondary_opts)[:1]
        else:
            others += [each.opts[0], str(value)]
    return [
        (name, *model, *algorithm, *others)
        for model in [[model] for model in models] or [[]]
        for algorithm in [["--algorithm", algorithm] for algorithm in algorithms] or [[]]
    ]
