"""Sweep convolution algorithms over input sizes: measure, verify, and read what is stored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, cast

from opdb.algorithms.names import ALGORITHMS, Algorithm
from opdb.api.places import chosen_places
from opdb.errors import CannotMeasureError, InputError, OpdbError
from opdb.files import make_folder
from opdb.lookup.options import ModelOptions
from opdb.models import ModelRequest
from opdb.records import ALGORITHM_SETTING, Mode
from opdb.runs.progress import Display
from opdb.runs.table import RunTable
from opdb.sweep.files import write_all
from opdb.sweep.report import GroupStanding, SweepPlan, SweepReport, SweepStanding, named
from opdb.sweep.request import SweepRequest, harvested_specs, image_request, stored_specs
from opdb.sweep.specs import SweepPolicy, SweepSpec, by_group
from opdb.units import plural

if TYPE_CHECKING:
    from opdb.bench.platform import Platform
    from opdb.cluster.crew import Crew
    from opdb.cluster.devices import WorkerDevice
    from opdb.runs.work import Maker
    from opdb.store import RunState, Store
    from opdb.sweep.measuring import SweepOptions
    from opdb.sweep.rows import Row
    from opdb.sweep.verify import Verification


@dataclass(frozen=True)
class SweepQuestion:
    """What is swept, and where: models × sizes × algorithms, in a mode (None: the device's own).

    `stage` names the folder of results. `device` is cuda, cuda:N or cpu; `devices` several, as in
    "0,1". `options` hold for all models. With `retry` what failed before is measured again, with
    `verify` each algorithm is verified at one size of each model, as it is in the stage "sanity".
    """

    models: Sequence[str]
    sizes: tuple[int, ...]
    algorithms: tuple[Algorithm, ...]
    mode: Mode | None = None
    stage: str = "sanity"
    options: ModelOptions = field(default_factory=ModelOptions)
    device: str | None = None
    devices: str | None = None
    retry: bool = False
    verify: bool = False

    @cached_property
    def places(self) -> list[WorkerDevice]:
        """The devices of several workers; none where this process measures on one."""
        return chosen_places(self.device, self.devices)

    @cached_property
    def request(self) -> SweepRequest:
        """What is swept, in the mode that is named, if any.

        Raises:
            InputError: there is no such model, or it takes no images.
        """
        requests = tuple(image_request(name, self.options) for name in dict.fromkeys(self.models))
        mode = cast("Mode", self.mode)
        return SweepRequest(requests, self.sizes, self.algorithms, mode, self.stage)

    def platform(self) -> Platform:
        """Return the platform that is measured first, or was.

        Raises:
            CannotMeasureError: it is not here.
        """
        from opdb.bench.platform import detect

        return detect(self.places[0].device if self.places else self.device)

    def checked(self, platform: Platform) -> Platform:
        """Return a platform on which the algorithms can be forced.

        Raises:
            CannotMeasureError: one cannot.
        """
        from opdb.bench.forced import check_algorithms

        check_algorithms(list(self.algorithms), platform)
        return platform

    def mode_on(self, platform: Platform) -> Mode:
        """Return the mode that is asked for, else the platform's own.

        Raises:
            CannotMeasureError: the platform has no such mode.
        """
        on_gpu = platform.device.type == "cuda"
        if self.mode == "graph" and not on_gpu:
            raise CannotMeasureError(
                f"mode 'graph' needs a CUDA device; {platform.device.name} is none: use --mode "
                "eager"
            )
        return self.mode or ("graph" if on_gpu else "eager")


# What is stored


def sweep_standing(asked: SweepQuestion, *, db: str | None = None) -> SweepStanding:
    """Say of every model and algorithm how many sizes are in which state; measure nothing.

    Where no model is named, of all that was ever swept on the device, at its own sizes.

    Raises:
        InputError: a model takes no images, or there is no such database.
    """
    from opdb.store import open_store

    swept, here = asked.request, asked.platform().device.slug
    with open_store(db, create=db is None, sweeps=True) as store:
        device = _swept_device(store, asked, here)
        policy = SweepPolicy((device,))
        table = RunTable.read(store, policy)
        if asked.models:
            swept = _in_its_mode(store, swept, device)
            algorithms = swept.algorithms or tuple(ALGORITHMS.values())
            cells = stored_specs(store, replace(swept, algorithms=algorithms))
        else:
            cells = _swept_cells(store, swept, policy.runs(store))
    groups = [
        GroupStanding(
            device,
            group,
            Counter(map(table.state, some)),
            [run.cost_s for run in map(table.run, some) if run],
        )
        for group, some in by_group(cells).items()
    ]
    return SweepStanding(device, [cell.size for cell in cells], groups)


def stored_sweep(
    asked: SweepQuestion, output: Path, *, db: str | None = None, display: Display | None = None
) -> SweepReport:
    """Write files and figures of what is stored of a device; measure nothing.

    Raises:
        InputError: nothing that is asked for is stored, or a file cannot be written.
    """
    from opdb.store import open_store

    display = display or Display()
    swept, here = asked.request, asked.platform().device.slug
    with open_store(db, create=db is None, sweeps=True) as store:
        device = _swept_device(store, asked, here)
        swept = _in_its_mode(store, swept, device)
        every = stored_specs(store, swept)
        cells = [cell for cell in every if cell.workload]
        rows = write_all(store, swept, cells, device, output, display.note) if cells else []
    if not rows:
        names = ", ".join(request.name for request in swept.requests)
        raise InputError(
            f"nothing of {names} was swept on {device} in mode {swept.mode} at these sizes "
            f"({', '.join(map(str, swept.sizes))}): opdb sweep --status tells what was"
        )
    if lacking := len(every) - len(rows):
        display.note(f"not in these files: {plural(lacking, 'cell')} not measured")
    return SweepReport(rows)


def _swept_device(store: Store, asked: SweepQuestion, here: str) -> str:
    """Return the device (slug) that is asked about: named, this machine's, or one with sweeps."""
    if asked.device or asked.places:
        return here
    swept = [device.slug for device in store.devices() if SweepPolicy((device.slug,)).runs(store)]
    return here if here in swept or not swept else swept[0]


def _in_its_mode(store: Store, swept: SweepRequest, device: str) -> SweepRequest:
    """Return the same in the mode in which the device (slug) is swept, where none is named."""
    on_gpu = any(each.slug == device and each.type == "cuda" for each in store.devices())
    return replace(swept, mode=swept.mode or ("graph" if on_gpu else "eager"))


def _swept_cells(store: Store, swept: SweepRequest, runs: Sequence[RunState]) -> list[SweepSpec]:
    """Return the cells of every workload that was swept, under all algorithms that were, too."""
    workloads = {head.workload.key: head.workload for head in store.heads()}
    used = {run.setting[ALGORITHM_SETTING] for run in runs}
    algorithms = swept.algorithms or [a for name, a in ALGORITHMS.items() if name in used]
    cells = []
    for key, mode in dict.fromkeys((run.workload, run.mode) for run in runs):
        if swept.mode in (None, mode):
            workload = workloads[key]
            size = workload.inputs["args"][0]["shape"][-1]
            request = ModelRequest(
                workload.name,
                batch_size=workload.batch_size,
                dtype=workload.dtype,
                memory_format=workload.memory_format,
                named_in=store.location,
            )
            cells += [SweepSpec(request, key, size, algorithm, mode) for algorithm in algorithms]
    return cells


# What is measured


def sweep_plan(
    asked: SweepQuestion,
    *,
    db: str | None = None,
    display: Display | None = None,
) -> SweepPlan:
    """Harvest the models, and say what is left to measure and what that is likely to take.

    Raises:
        InputError: a model takes no images.
        CannotMeasureError: the device lacks the mode.
    """
    from opdb.store import open_store

    platform, swept = asked.platform(), asked.request
    with open_store(db, sweeps=True) as store:
        return _Sweep(store, asked, swept, platform, display or Display()).plan()


def sweep_all(
    asked: SweepQuestion,
    how: SweepOptions,
    output: Path,
    *,
    db: str | None = None,
    display: Display | None = None,
) -> SweepReport:
    """Measure what is left of a sweep, write files and figures, and verify what ran.

    Raises:
        InputError: a model takes no images, or a file cannot be written.
        CannotMeasureError: there is no such device, or it lacks a mode or an algorithm.
    """
    from opdb.bench.measure import here
    from opdb.cluster.crew import Crew
    from opdb.store import open_store

    display = display or Display()
    # What cannot be measured here is told before a database is opened.
    alone = None if asked.places else asked.checked(asked.platform())
    swept = asked.request
    make_folder(output / asked.stage)  # ahead of the work
    with (
        open_store(db, sweeps=True) as store,
        Crew(asked.places, store.url) if asked.places else nullcontext() as crew,
    ):
        platform = alone or asked.checked(_first_of(crew))
        sweep = _Sweep(store, asked, swept, platform, display)
        display.note(sweep.plan().words)
        failures = sweep.measure(crew or here(store, asked.device), how)
        rows = sweep.write(output)
    verified = []
    if asked.verify or asked.stage == "sanity":
        with open_store(db) as store:  # the workers have ended and left their devices
            verified = sweep.verify(store)
    return SweepReport(rows, verified, sweep.errors, failures)


def _first_of(crew: Crew | None) -> Platform:
    assert crew is not None
    return crew.platforms[0]


class _Sweep:
    """A sweep under way: its cells, what is left of them, and what went wrong."""

    def __init__(
        self,
        store: Store,
        asked: SweepQuestion,
        swept: SweepRequest,
        platform: Platform,
        display: Display,
    ) -> None:
        self._store, self._asked, self._display = store, asked, display
        self._swept = replace(swept, mode=asked.mode_on(platform))
        self._device = platform.device.slug
        self._policy = SweepPolicy((self._device,))
        self.errors: list[OpdbError] = []
        self._cells = self._harvested()

    def _harvested(self) -> list[SweepSpec]:
        with self._display.progress(len(self._swept.sized()), "harvest") as shown:
            return harvested_specs(self._store, self._swept, self.errors, shown)

    def plan(self) -> SweepPlan:
        """Return which cells are to be measured and what that is likely to take."""
        from opdb.sweep.measuring import planned_seconds

        table = RunTable(self._policy, self._policy.runs(self._store))
        left = table.pending(self._cells, retry=self._asked.retry)
        seconds, rests_on = planned_seconds(self._store, left, self._device)
        return SweepPlan(self._device, len(self._cells), len(left), seconds, rests_on)

    def measure(self, on: Maker, options: SweepOptions) -> list[str]:
        """Measure what is left, on one device or by workers; return why some of these failed."""
        from opdb.runs.work import execute
        from opdb.sweep.measuring import SweepWork

        work = SweepWork(self._policy, self._asked.retry, options=options)
        left = work.pending(self._store, self._cells)
        with self._display.progress(len(left), "sweep") as shown:
            for _, name, run in execute(on, work, left, shown, named):
                if run.outcome not in ("ok", "unsupported"):
                    shown.note(f"{name}: {run.outcome}: {run.reason}")
        return list(on.failures)

    def write(self, output: Path) -> list[Row]:
        """Write files and figures of all that was ever run of the sweep; return its rows."""
        note = self._display.note
        found = write_all(self._store, self._swept, self._cells, self._device, output, note)
        if lacking := len(self._cells) - len(found):
            note(
                f"not in these files: {plural(lacking, 'cell')}, which others measure or nobody "
                "could"
            )
        return found

    def verify(self, store: Store) -> list[Verification]:
        """Verify every algorithm at the first size of each model."""
        from opdb.bench.platform import detect
        from opdb.sweep.verify import unmetered, verify

        places = self._asked.places
        session = unmetered(detect(places[0].name if places else self._asked.device))
        found: list[Verification] = []
        for name in dict.fromkeys(cell.request.name for cell in self._cells):
            of_model = [cell for cell in self._cells if cell.request.name == name]
            first = [cell for cell in of_model if cell.size == of_model[0].size]
            self._display.note(f"verifying {name} at {first[0].size} pixels")
            [workload] = store.workloads_by_key([first[0].workload])
            found += verify(session, first, workload)
        return found
