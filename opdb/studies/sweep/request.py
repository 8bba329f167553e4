"""The runs of a sweep: stages and sizes, models, algorithms, and which stored runs answer them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from opdb.algorithms.names import Algorithm
from opdb.errors import InputError, OpdbError, UnknownNameError
from opdb.models.catalogue import catalogue
from opdb.records import ALGORITHM_SETTING, ELSEWHERE, Json, Mode, ModelRun, Workload
from opdb.runs import Policy, RunTable, State
from opdb.spec import ModelSpec
from opdb.summary_files import checked_request

if TYPE_CHECKING:
    from opdb.progress import Progress
    from opdb.store import RunState, Store

FIRST, LAST = 224, 512
"""The smallest and the largest input size (pixels a side) of a stage."""

STAGES = {"sanity": 1, "quick": 10, "full": 100}
"""How many sizes each stage has. Each stage's sizes are among those of the next."""


def spread_sizes(count: int) -> list[int]:
    """Return so many sizes from `FIRST` to `LAST`: 224 + int(i·288 / (count - 1))."""
    most = LAST - FIRST + 1
    if not 1 <= count <= most:
        raise InputError(
            f"--num-sizes {count}: from {FIRST} to {LAST} pixels there are 1 to {most} sizes"
        )
    return [FIRST + int(i * (LAST - FIRST) / max(count - 1, 1)) for i in range(count)]


def parse_sizes(text: str) -> list[int]:
    """Read sizes such as 224,256,288: each once, in the order given."""
    found = []
    for part in text.split(","):
        size = part.strip()
        if not size.isdecimal() or not 0 < int(size) < 2**20:
            raise InputError(f"--sizes {text!r}: {size!r} is no size; give pixels, as in 224,256")
        found.append(int(size))
    return list(dict.fromkeys(found))


def sizes_of(stage: str, count: int | None, sizes: Sequence[int] | None) -> list[int]:
    if stage not in STAGES:
        raise UnknownNameError("--stage", stage, STAGES)
    if count is not None and sizes is not None:
        raise InputError("--num-sizes and --sizes: give one of them")
    if sizes is not None:
        return list(sizes)
    return spread_sizes(STAGES[stage] if count is None else count)


STATES: tuple[State, ...] = ("full", "partial", "unsupported", "failed", "running", "left")
"""`partial`: a convolution of the model ran otherwise. `failed`: an error, or out of memory."""


@dataclass(frozen=True)
class SweepSpec:
    why_not: ClassVar[None] = None

    request: ModelSpec
    workload: str
    size: int
    algorithm: Algorithm
    mode: Mode

    @property
    def key(self) -> str:
        return f"sweep {self.mode} {self.algorithm.slug} {self.workload}"

    @property
    def label(self) -> str:
        return f"{self.request.name} {self.algorithm.name} at {self.size}"

    @property
    def setting(self) -> Mapping[str, Json]:
        """The setting of the stored run; torch's own choice of algorithms has a name here, too."""
        return {ALGORITHM_SETTING: self.algorithm.name}


def state_of(outcome: str, facts: Mapping[str, Json]) -> State:
    if outcome == "ok":
        return "partial" if facts.get(ELSEWHERE) else "full"
    return "unsupported" if outcome == "unsupported" else "failed"


@dataclass(frozen=True)
class SweepPolicy(Policy[SweepSpec]):
    """A sweep counts the runs of its device under a named algorithm, whichever board made them."""

    retry = ("failed",)

    def runs(self, store: Store) -> list[RunState]:
        each = [store.run_states(device=device, setting=None) for device in self.devices]
        return [run for some in each for run in some if ALGORITHM_SETTING in run.setting]

    def scope(self, device: str) -> str:
        return f"sweep {device}"

    def identity(self, spec: SweepSpec) -> Hashable:
        return spec.workload, spec.algorithm.name, spec.mode

    def run_identity(self, run: RunState) -> Hashable:
        return run.workload, run.setting.get(ALGORITHM_SETTING), run.mode

    def ended(self, run: RunState) -> State:
        return state_of(run.outcome, run.facts)


def stored_run(store: Store, table: RunTable[Any], spec: Any, device: str) -> ModelRun | None:
    state = table.run(spec)
    if state is None:
        return None
    runs = store.model_runs(state.workload, device=device, setting=state.setting)
    return next(run for run in runs if run.id == state.id)


USUAL = (3, FIRST, FIRST)
"""Images of torchvision's classifiers, and where a model says nothing of its inputs."""


@dataclass(frozen=True)
class SweepRequest:
    """What is swept: models, sizes, algorithms, in a mode; `stage` names the folder of results."""

    requests: tuple[ModelSpec, ...]
    sizes: tuple[int, ...]
    algorithms: tuple[Algorithm, ...]
    mode: Mode
    stage: str

    def sized(self) -> list[tuple[ModelSpec, int]]:
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


def image_request(name: str, options: ModelSpec) -> ModelSpec:
    """Return the request of a model that takes one batch of images, whatever their size."""
    from opdb.models import load_to_look

    request = checked_request(name, options)
    given = request.input_size or request.inputs
    classifiers = {each.name for each in catalogue() if each.what == "classification"}
    if request.source == "torchvision" and request.name in classifiers and not given:
        return replace(request, input_size=USUAL)  # `opdb.models` would load it to find that
    try:
        loaded = load_to_look(request)
    except InputError:
        if request.input_size is not None or request.inputs is not None:
            raise
        # A callable that gives a module alone: only with inputs can it be told what it takes.
        request = replace(request, input_size=USUAL)
        loaded = load_to_look(request)
    first = loaded.inputs["args"][:1]
    shape = first[0].get("shape", []) if first and isinstance(first[0], Mapping) else []
    if len(shape) != 1 + len(USUAL):
        raise InputError(
            f"{name} takes no batch of images, so there are no sizes to sweep: its input is "
            f"{shape or 'no tensor'}"
        )
    return replace(
        request,
        inputs=None,
        input_size=(shape[1], *shape[2:]),
        dtype=loaded.dtype,
        memory_format=loaded.memory_format,
    )


def _sized(request: ModelSpec, size: int) -> ModelSpec:
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


def _identity(what: Workload | ModelSpec, shape: Sequence[int]) -> Any:
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
    from opdb.bench.harvests import measuring
    from opdb.harvest.finding import find_or_harvest

    requests = [request for request, _ in swept.sized()]
    found = find_or_harvest(store, requests, measuring(swept=True), shown)
    keys: dict[str, str] = {}
    for request in requests:
        stored = found[repr(request)]
        if isinstance(stored, OpdbError):
            size = "x".join(map(str, request.input_size or ()))
            errors.append(InputError(f"{request.name} cannot be run at {size}: {stored}"))
        else:
            keys[repr(request)] = stored.workload.key
    return [spec for spec in swept.specs(keys) if spec.workload]
