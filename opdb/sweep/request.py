"""What a sweep asks for, and the runs that it comes to: harvested, or as they are stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from opdb.algorithms.names import Algorithm
from opdb.errors import InputError, OpdbError
from opdb.lookup.options import ModelOptions
from opdb.lookup.requests import checked_request
from opdb.models import ModelRequest
from opdb.records import Mode, Workload
from opdb.sweep.specs import SweepSpec
from opdb.sweep.stages import FIRST

if TYPE_CHECKING:
    from opdb.runs.progress import Progress
    from opdb.store import Store

IMAGE_AXES = 4
USUAL = (3, FIRST, FIRST)
"""Images where a model says nothing of its inputs."""


@dataclass(frozen=True)
class SweepRequest:
    """What is swept: models, sizes, algorithms, in a mode; `stage` names the folder of results."""

    requests: tuple[ModelRequest, ...]
    sizes: tuple[int, ...]
    algorithms: tuple[Algorithm, ...]
    mode: Mode
    stage: str

    def sized(self) -> list[tuple[ModelRequest, int]]:
        """Return each model's request at each size, those of one model side by side."""
        return [(_sized(request, size), size) for request in self.requests for size in self.sizes]

    def specs(self, keys: Mapping[str, str]) -> list[SweepSpec]:
        """Return the runs, those of one model and size side by side.

        `keys` are those of the workloads, by the `repr` of the requests; what was not harvested
        has an empty one.
        """
        return [
            SweepSpec(at, keys.get(repr(at), ""), size, algorithm, self.mode)
            for at, size in self.sized()
            for algorithm in self.algorithms
        ]


def image_request(name: str, options: ModelOptions) -> ModelRequest:
    """Return the request of a model that takes one batch of images, whatever their size.

    Raises:
        InputError: there is no such model, or it takes something else.
    """
    from opdb.models import load_to_look

    request = checked_request(name, options)
    try:
        first = load_to_look(request).inputs["args"][:1]
    except InputError:
        if request.input_size is not None or request.inputs is not None:
            raise
        # A callable that gives a module alone: only with inputs can it be told what it takes.
        request = replace(request, input_size=USUAL)
        first = load_to_look(request).inputs["args"][:1]
    shape = first[0].get("shape", []) if first and isinstance(first[0], Mapping) else []
    if len(shape) != IMAGE_AXES:
        raise InputError(
            f"{name} takes no batch of images, so there are no sizes to sweep: its input is "
            f"{shape or 'no tensor'}"
        )
    return replace(request, inputs=None, input_size=(shape[1], *shape[2:]))


def _sized(request: ModelRequest, size: int) -> ModelRequest:
    """Return a request with square images of so many pixels a side."""
    assert request.input_size is not None
    return replace(request, input_size=(request.input_size[0], size, size))


def stored_specs(store: Store, swept: SweepRequest) -> list[SweepSpec]:
    """Return the runs of a sweep for reading: whatever code harvested the stored workloads."""
    known = {}
    for head in store.heads():
        workload = head.workload
        args = workload.inputs.get("args") or []
        if len(args) == 1 and isinstance(args[0], Mapping) and "shape" in args[0]:
            known[_identity(workload, args[0]["shape"][1:])] = workload.key
    found = {repr(at): known.get(_identity(at, at.input_size or ()), "") for at, _ in swept.sized()}
    return swept.specs(found)


def _identity(what: Workload | ModelRequest, shape: Sequence[int]) -> Any:
    place = what.name, what.source, tuple(shape)
    return *place, what.batch_size, what.dtype, what.memory_format, what.phase


def harvested_specs(
    store: Store,
    swept: SweepRequest,
    errors: list[OpdbError],
    shown: Progress,
) -> list[SweepSpec]:
    """Return the runs of a sweep for measuring: harvested by today's code and packages.

    A size at which a model cannot be run has none; why is appended to `errors`.
    """
    from opdb.bench.harvests import harvest_each

    requests = [request for request, _ in swept.sized()]
    found = harvest_each(store, requests, shown, swept=True)
    keys: dict[str, str] = {}
    for request in requests:
        stored = found[repr(request)]
        if isinstance(stored, OpdbError):
            size = "x".join(map(str, request.input_size or ()))
            errors.append(InputError(f"{request.name} cannot be run at {size}: {stored}"))
        else:
            keys[repr(request)] = stored.workload.key
    return [spec for spec in swept.specs(keys) if spec.workload]
