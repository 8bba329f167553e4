"""`opdb complexity`: what models hold and do, counted: parameters, activations, FLOPs, bytes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any

import typer

from opdb.cli import console, options
from opdb.cli.console import Terminal, save
from opdb.cli.options import batch_sizes_among
from opdb.errors import OpdbError, kept, raise_all
from opdb.files import check_writable
from opdb.kinds import KINDS
from opdb.models import load_to_look
from opdb.records import Configuration, Json, Workload
from opdb.spec import ModelSpec, describe, title, workload_columns
from opdb.summary_files import requests_named
from opdb.tables import Column, Report, Row, Rows, Table
from opdb.units import plural, show

PANEL = "studies"

_ENGINES = frozenset(("add", "clone", "contiguous", "copy", "new_zeros"))
"""What autograd's engine runs itself, between the backward passes of calls."""


@dataclass(frozen=True)
class Count:
    """What some calls of one pass come to, all together; `forward_…` and `backward_…` add up.

    `weight_bytes` are the weights read, once a call. `activation_bytes` are the outputs that room
    is made for; those of views and of calls in place are not.
    """

    calls: int = 0
    weight_bytes: int = 0
    activation_bytes: int = 0
    forward_flops: int = 0
    backward_flops: int = 0
    forward_bytes: int = 0
    backward_bytes: int = 0

    @property
    def flops(self) -> int:
        """The floating point operations of the pass; a multiply-add counts 2."""
        return self.forward_flops + self.backward_flops

    @property
    def bytes_moved(self) -> int:
        """The bytes of the pass: each call's inputs, weights and outputs once."""
        return self.forward_bytes + self.backward_bytes

    def __add__(self, other: Count) -> Count:
        pairs = ((getattr(self, f.name), getattr(other, f.name)) for f in fields(self))
        return Count(*(one + another for one, another in pairs))


@dataclass(frozen=True)
class Complexity:
    workload: Workload
    parameters: int
    parameter_bytes: int
    operators: dict[Configuration, Count]

    @property
    def total(self) -> Count:
        return sum(self.operators.values(), Count())

    def by_kind(self) -> dict[str, Count]:
        kinds: dict[str, Count] = {}
        for configuration, count in self.operators.items():
            kinds[configuration.kind] = kinds.get(configuration.kind, Count()) + count
        ranked = sorted(kinds.items(), key=lambda item: (-item[1].flops, -item[1].bytes_moved))
        return dict(ranked)


def complexity(request: ModelSpec) -> Complexity:
    from opdb.harvest.passes import harvest

    workload = harvest(request)
    parameters, parameter_bytes = parameters_of(request)
    return Complexity(workload, parameters, parameter_bytes, counted(workload))


def counted(workload: Workload) -> dict[Configuration, Count]:
    """Count every configuration of a workload, its backward pass with it where it has one.

    Of a training step neither the sums and copies of gradients nor the optimizer's step are
    counted: they are no part of a call. What a backward pass of the model's own calls is counted.
    """
    counts: dict[Configuration, Count] = {}
    known: dict[Configuration, Count] = {}
    after = False
    for call in workload.calls:
        configuration, of = call.configuration, call.configuration.forward
        after = after or configuration.pass_name == "backward"
        if configuration.pass_name == "update" or (after and _is_engines(configuration)):
            continue
        if configuration not in known:
            known[configuration] = _of_call(configuration)
        counts[of] = counts.get(of, Count()) + known[configuration]
    return counts


def _is_engines(configuration: Configuration) -> bool:
    plain = configuration.pass_name == "forward" and not configuration.gradient
    return plain and configuration.kind in _ENGINES


def _of_call(configuration: Configuration) -> Count:
    kind = KINDS[configuration.kind]
    flops, (moved, weights) = kind.flops(configuration), kind.traffic(configuration)
    if configuration.pass_name == "backward":
        return Count(backward_flops=flops, backward_bytes=moved)
    return Count(
        calls=1,
        weight_bytes=weights,
        activation_bytes=kind.activation_bytes(configuration),
        forward_flops=flops,
        forward_bytes=moved,
    )


def parameters_of(request: ModelSpec) -> tuple[int, int]:
    from opdb.models.construction import bytes_of

    held = list(load_to_look(request).module.parameters())
    return sum(p.numel() for p in held), bytes_of(held)


# What is shown

_COUNTS: dict[str, tuple[str | None, str | None]] = {
    "calls": ("calls", None),
    "weight_bytes": ("weights read", "B"),
    "activation_bytes": ("activations", "B"),
    "flops": ("FLOPs", "FLOP"),
    "forward_flops": (None, None),
    "backward_flops": (None, None),
    "bytes_moved": ("bytes", "B"),
    "forward_bytes": (None, None),
    "backward_bytes": (None, None),
}
"""What is counted, with its title and unit for people."""


def _count_columns(of: Callable[[Row], Count]) -> tuple[Column[Row], ...]:
    def counted(name: str, title: str | None, unit: str | None) -> Column[Row]:
        return Column(name, lambda row: getattr(of(row), name), title=title, unit=unit)

    return tuple(counted(name, *shown) for name, shown in _COUNTS.items())


COUNTS: Table[Count] = Table(*_count_columns(lambda count: count))

KINDS_COUNTED: Table[tuple[str, int, Count]] = Table(
    Column("kind", lambda row: row[0], title="kind"),
    Column("configurations", lambda row: row[1], title="configurations"),
    *_count_columns(lambda row: row[2]),
)

WORKLOADS: Table[Complexity] = Table(
    *workload_columns(lambda found: found.workload),
    Column(
        "parameters",
        lambda found: found.parameters,
        title="parameters",
        text=lambda found: show(found.parameters, "").rstrip(),
    ),
    Column("parameter_bytes", lambda found: found.parameter_bytes),
    *_count_columns(lambda found: found.total),
)


@dataclass(frozen=True)
class _Line:
    of: Complexity
    count: Count
    configuration: Configuration | None = None


_LINES: Table[_Line] = Table(
    *workload_columns(lambda line: line.of.workload),
    Column("kind", lambda line: line.configuration.kind if line.configuration else "all"),
    Column("configuration", lambda line: line.configuration.json if line.configuration else None),
    *_count_columns(lambda line: line.count),
    Column("parameters", lambda line: None if line.configuration else line.of.parameters),
    Column("parameter_bytes", lambda line: None if line.configuration else line.of.parameter_bytes),
)


@dataclass(frozen=True)
class Complexities(Report):
    workloads: Sequence[Complexity]

    def csv(self) -> str:
        lines = []
        for each in self.workloads:
            lines += [_Line(each, count, c) for c, count in each.operators.items()]
            lines.append(_Line(each, each.total))
        return _LINES.csv(lines)

    def to_dict(self) -> Json:
        return [
            {
                **WORKLOADS.document(each),
                "by_kind": {kind: COUNTS.document(c) for kind, c in each.by_kind().items()},
                "operators": [
                    {"configuration": json.loads(c.json), **COUNTS.document(count)}
                    for c, count in each.operators.items()
                ],
                "unsupported": dict(each.workload.unsupported),
            }
            for each in self.workloads
        ]

    def blocks(self) -> Iterator[str | Rows[Any]]:
        for each in self.workloads:
            workload = each.workload
            held = f"{each.parameters:,} parameters, {show(each.parameter_bytes, 'B')}"
            yield f"{title(workload)}: {held}"
            kinds = [
                (kind, sum(c.kind == kind for c in each.operators), count)
                for kind, count in each.by_kind().items()
            ]
            yield Rows(KINDS_COUNTED, [*kinds, ("all", len(each.operators), each.total)])
            for name, calls in workload.unsupported.items():
                yield f"not counted: {name} ({plural(calls, 'call')})"
            yield ""
        if len(self.workloads) > 1:
            yield Rows(WORKLOADS.without("calls"), self.workloads)


def run(
    models: Annotated[
        list[str],
        options.models("Summary files, folders of them, or model names."),
    ],
    batch_sizes: options.BatchSizes = None,
    said: options.PhaseModelAtSizes = ModelSpec(),
    csv_file: Annotated[
        Path | None,
        typer.Option(
            "--csv",
            metavar="FILE",
            help="Write a row for each configuration, and one of kind 'all' for each workload.",
        ),
    ] = None,
    db: Annotated[
        str | None,
        typer.Option("--db", metavar="URL", help="Nothing is read from it: models are counted."),
    ] = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Count what models hold and do: parameters, activation bytes, FLOPs, bytes moved.

    Nothing is measured, and neither weights nor a GPU are needed. FLOPs count a multiply-add as
    2. Bytes are those that must move at least: each input and weight of a call read once, each
    output written once. Activations are the outputs that room is made for.

    Training is the forward and the backward pass. The backward pass of a convolution or a matrix
    product costs two forwards (one where its input needs no gradient, as an image), that of a norm
    two, that of anything else that computes one. Adding up gradients where a tensor is used more
    than once is not counted, nor is the optimizer.
    """
    names, sizes = batch_sizes_among(models, batch_sizes)
    wanted = said.at_sizes(sizes)
    requests = [each for name in names for one in wanted for each in requests_named(name, one)]
    check_writable(csv_file)
    found, errors = _count(requests, quiet=quiet)
    if csv_file is not None:
        save(csv_file, found.csv(), quiet=quiet or as_json)
    console.show(found, as_json=as_json)
    raise_all(errors, "shown")


def _count(requests: list[ModelSpec], *, quiet: bool) -> tuple[Complexities, list[OpdbError]]:
    found = []
    errors: list[OpdbError] = []
    with Terminal(quiet=quiet).progress(len(requests), "count") as shown:
        for request in requests:
            shown.doing(f"{request.name} {describe(request)}")
            with kept(errors, request.name):
                found.append(complexity(request))
            shown.done()
    return Complexities(found), errors
