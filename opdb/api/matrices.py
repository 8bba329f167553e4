"""Train what a matrix file asks for, and tabulate what came of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from opdb.errors import OpdbError, UnknownNameError
from opdb.lookup.words import note_harvest
from opdb.matrix.replaying import command_of, request_of
from opdb.matrix.report import MatrixReport
from opdb.matrix.rows import MatrixRun
from opdb.matrix.specs import BackendDevice, MatrixPolicy, TrainingSpec, cells_of, labelled
from opdb.records import Json
from opdb.runs.progress import Display, Progress
from opdb.runs.table import RunTable, State
from opdb.units import plural, show_duration

if TYPE_CHECKING:
    from opdb.matrix.alone import MatrixWork
    from opdb.matrix.combination import Combination
    from opdb.models import ModelRequest
    from opdb.store import Store


@dataclass(frozen=True)
class MatrixQuestion:
    """The runs of a matrix that are meant: of a file, those of some labels, or all.

    `device` (slug) is where stored runs were made; None: on this machine. With `retry` runs are
    made that failed before, with `again` even those that are done.
    """

    combinations: Sequence[Combination]
    labels: Sequence[str] = ()
    device: str | None = None
    retry: bool = False
    again: bool = False
    allow_code: bool = False


@dataclass(frozen=True)
class MatrixPlan:
    """The runs of a matrix that are to be made, and what they are likely to take (seconds).

    `states` counts all runs by state; `rests_on` is how many stored runs the seconds rest on.
    """

    runs: int
    left: Sequence[TrainingSpec]
    states: Counter[State]
    seconds: float | None
    rests_on: int

    def to_dict(self) -> dict[str, Json]:
        """Return what `opdb matrix --plan --json` prints."""
        return {
            "runs": self.runs,
            "left": [{"label": c.label, "command": command_of(c)} for c in self.left],
            "states": dict(self.states),
            "planned_s": self.seconds,
            "rests_on_runs": self.rests_on,
        }

    @property
    def commands(self) -> list[str]:
        """The command that makes each run."""
        return [command_of(cell) for cell in self.left]

    @property
    def words(self) -> str:
        """The plan in a sentence."""
        about = "" if self.seconds is None else f", about {show_duration(self.seconds)} of training"
        grounds = f" as {plural(self.rests_on, 'run')} took" if self.rests_on else ""
        return f"{len(self.left)} of {plural(self.runs, 'run')} to be made{about}{grounds}"


class Matrix:
    """The runs of a matrix, and what a database has of them."""

    def __init__(self, store: Store, asked: MatrixQuestion) -> None:
        """Find out where each run is made.

        Raises:
            UnknownNameError: there is no run of a label, or nothing was measured on the device.
        """
        self._store, self._asked = store, asked
        backends = {combination.backend for combination in asked.combinations}
        if asked.device is None:
            from opdb.matrix.alone import places

            of_backends = places(backends)
        else:
            of_backends = _stored_places(store, backends, asked.device)
        self._cells = labelled(cells_of(asked.combinations, of_backends), asked.labels)
        devices = [cell.place.device for cell in self._cells if cell.place.device]
        self._policy = MatrixPolicy(tuple(dict.fromkeys(devices)))
        self._request_of = partial(request_of, allow_code=asked.allow_code)

    def plan(self) -> MatrixPlan:
        """Return which runs are to be made, and what they are likely to take."""
        table = RunTable.read(self._store, self._policy)
        left = table.pending(self._cells, retry=self._asked.retry, again=self._asked.again)
        devices = {cell.place.device for cell in left}
        runs = self._policy.runs(self._store)
        took = [run.cost_s for run in runs if run.device in devices]
        seconds = len(left) * sum(took) / len(took) if took else None
        states = Counter(map(table.state, self._cells))
        return MatrixPlan(len(self._cells), left, states, seconds, len(took))

    def train(self, display: Display) -> list[str]:
        """Make what is to be made, place by place; return what could not be stored, and why.

        Raises:
            InputError: a run cannot be asked for; nothing was run.
        """
        works = [
            self._work(place, display) for place in dict.fromkeys(c.place for c in self._cells)
        ]
        left = [
            (work, work.pending(self._store, [c for c in self._cells if c.place == work.place]))
            for work in works
        ]
        for _, cells in left:
            for cell in cells:
                self._request_of(cell)  # what cannot be asked for is told before anything runs
        failures: list[str] = []
        with display.progress(sum(len(cells) for _, cells in left), "matrix") as shown:
            for work, cells in left:
                failures += self._made(work, cells, shown)
        return failures

    def _work(self, place: BackendDevice, display: Display) -> MatrixWork:
        from opdb.bench.measure import harvested
        from opdb.matrix.alone import MatrixWork

        def workload_of(request: ModelRequest) -> str:
            tell = partial(note_harvest, display.note)
            [workload] = harvested(self._store, [request], tell=tell).values()
            return workload.key

        return MatrixWork(
            self._policy,
            self._asked.retry,
            self._asked.again,
            place=place,
            request_of=self._request_of,
            workload_of=workload_of,
        )

    def _made(self, work: MatrixWork, cells: Sequence[TrainingSpec], shown: Progress) -> list[str]:
        """Make runs at one place; return what could not be stored, and why."""
        from opdb.runs.work import Here, execute

        failures = []
        here = Here(self._store, None)
        for _, name, came in execute(here, work, cells, shown, lambda cell: cell.label):
            if isinstance(came, OpdbError):
                failures.append(f"{name}: {came}")
                shown.note(failures[-1])
            elif came.outcome != "ok":
                shown.note(f"{name}: {came.outcome}: {came.reason}")
        return failures

    def report(self, failures: Sequence[str] = (), *, states: bool = False) -> MatrixReport:
        """Return every run of the matrix with what is stored of it."""
        table = RunTable.read(self._store, self._policy)
        campaigns = {campaign.id: campaign for campaign in self._store.campaigns()}
        found = []
        for cell in self._cells:
            run = self._stored(table, cell)
            campaign = None if run is None else campaigns[run.campaign]
            found.append(MatrixRun(cell, table.state(cell), run, campaign))
        return MatrixReport(found, failures, states)

    def _stored(self, table: RunTable[TrainingSpec], cell: TrainingSpec) -> Any:
        state = table.run(cell)
        if state is None:
            return None
        device, setting = cell.place.device, state.setting
        runs = self._store.model_runs(state.workload, device=device, setting=setting)
        return next(each for each in runs if each.id == state.id)


def _stored_places(store: Store, backends: set[str], device: str) -> dict[str, BackendDevice]:
    """Say of each backend whether its runs were made on a device (slug) that may be elsewhere.

    Raises:
        UnknownNameError: nothing was measured on such a device.
    """
    types = {each.slug: each.type for each in store.devices()}
    if device not in types:
        raise UnknownNameError("device", device, types)
    found = {}
    for name in backends:
        backend = types[device] if name == "auto" else name
        why = None if backend == types[device] else f"{device} is no {backend} device"
        found[name] = BackendDevice(backend, device if why is None else "", why_not=why)
    return found
