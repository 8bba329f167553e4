"""What models hold and do, counted and not measured: parameters, activations, FLOPs, bytes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields

from opdb.harvest import harvest
from opdb.kinds import KINDS
from opdb.models import ModelRequest, load
from opdb.models.construction import ModelFailureError
from opdb.records import Configuration, Workload

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
        return _sum(self.operators.values())

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


def _sum(counts: Iterable[Count]) -> Count:
    total = Count()
    for count in counts:
        total += count
    return total
