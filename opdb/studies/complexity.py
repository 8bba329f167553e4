"""What models hold and do, counted and not measured: parameters, activations, FLOPs, bytes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

from opdb.harvest import harvest
from opdb.kinds import KINDS
from opdb.lookup.words import describe, workload_columns
from opdb.models import ModelRequest, load
from opdb.models.construction import ModelFailureError
from opdb.records import Configuration, Json, Workload
from opdb.tables import Column, Report, Row, Rows, Table
from opdb.units import plural, show

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
    """A workload counted: every configuration that it calls, and its model's parameters."""

    workload: Workload
    parameters: int
    parameter_bytes: int
    operators: dict[Configuration, Count]

    @property
    def total(self) -> Count:
        """All calls together."""
        return sum(self.operators.values(), Count())

    def by_kind(self) -> dict[str, Count]:
        """Return each kind's calls together, the most FLOPs first, then the most bytes."""
        kinds: dict[str, Count] = {}
        for configuration, count in self.operators.items():
            kinds[configuration.kind] = kinds.get(configuration.kind, Count()) + count
        ranked = sorted(kinds.items(), key=lambda item: (-item[1].flops, -item[1].bytes_moved))
        return dict(ranked)


def complexity(request: ModelRequest) -> Complexity:
    """Harvest a model and count what its pass comes to.

    Raises:
        InputError: the model cannot be built or run.
    """
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
    """Return whether autograd's engine may have run this between two calls' backward passes."""
    plain = configuration.pass_name == "forward" and not configuration.gradient
    return plain and configuration.kind in _ENGINES


def _of_call(configuration: Configuration) -> Count:
    kind = KINDS[configuration.kind]
    flops, moved = kind.flops(configuration), kind.bytes_moved(configuration)
    if configuration.pass_name == "backward":
        return Count(backward_flops=flops, backward_bytes=moved)
    return Count(
        calls=1,
        weight_bytes=kind.weight_bytes(configuration),
        activation_bytes=kind.activation_bytes(configuration),
        forward_flops=flops,
        forward_bytes=moved,
    )


def parameters_of(request: ModelRequest) -> tuple[int, int]:
    """Return how many parameters a model has, each once, and their bytes.

    Raises:
        InputError: the model cannot be built.
    """
    try:
        loaded = load(request, device="meta")
    except ModelFailureError:  # it computes with values as it is built
        loaded = load(request, device="cpu")
    module = loaded.module
    if any(hasattr(parameter, "materialize") for parameter in module.parameters()):
        module(*loaded.args, **loaded.kwargs)  # lazy modules have theirs after the first pass
    held = list(module.parameters())
    return sum(p.numel() for p in held), sum(p.nbytes for p in held)


# What is shown

_COUNTS: dict[str, tuple[str | None, str | None]] = {
    "calls": ("calls", None),
    "weight_bytes": ("weights", "B"),
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
    """Return the columns of a count."""

    def counted(name: str, title: str | None, unit: str | None) -> Column[Row]:
        return Column(name, lambda row: getattr(of(row), name), title=title, unit=unit)

    return tuple(counted(name, *shown) for name, shown in _COUNTS.items())


COUNTS: Table[Count] = Table(*_count_columns(lambda count: count))
"""A count alone."""

KINDS_COUNTED: Table[tuple[str, int, Count]] = Table(
    Column("kind", lambda row: row[0], title="kind"),
    Column("configurations", lambda row: row[1], title="configurations"),
    *_count_columns(lambda row: row[2]),
)
"""A kind, how many configurations of it a workload calls, and what they come to."""

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
"""A workload and what its pass comes to."""


@dataclass(frozen=True)
class _Line:
    """A row of the CSV file: one configuration of a workload, or all of them."""

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
    """Some workloads, each counted."""

    workloads: Sequence[Complexity]

    def csv(self) -> str:
        """Return a row for each configuration, and one of kind 'all' for each workload."""
        lines = []
        for each in self.workloads:
            lines += [_Line(each, count, c) for c, count in each.operators.items()]
            lines.append(_Line(each, each.total))
        return _LINES.csv(lines)

    def to_dict(self) -> Json:
        """Return each workload's counts: all together, by kind, and by configuration."""
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
        """Yield the kinds of each workload, and several workloads beside each other."""
        for each in self.workloads:
            workload = each.workload
            yield f"{workload.name}, {describe(workload)}: {each.parameters:,} parameters"
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
