"""What a sweep came to: where it stands, its rows, and what was verified; as data and as text."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from opdb.algorithms.names import ALGORITHMS, Algorithm
from opdb.errors import CheckError, InputError, OpdbError
from opdb.lookup.words import describe
from opdb.models import ModelRequest
from opdb.records import Json
from opdb.runs.table import State
from opdb.sweep.rows import OVERALL, Row
from opdb.sweep.specs import STATES, Group, SweepSpec
from opdb.tables import MISSING, Column, Report, Rows, Table
from opdb.units import plural, show_duration, show_share

if TYPE_CHECKING:
    from opdb.sweep.verify import Verification

MODELS = ("vgg16", "densenet121", "resnet50", "resnet152", "googlenet", "alexnet")
"""The models that are published; any other that takes images can be swept as well."""

FORCED: Table[Algorithm] = Table(
    Column("algorithm", lambda each: each.name, "algorithm"),
    Column(
        "cudnn_number",
        lambda each: each.number,
        "cuDNN's number",
        text=lambda each: "" if each.number is None else each.number,
    ),
    Column("what", lambda each: each.words, "what runs"),
)
"""The algorithms that convolutions can be forced to take."""


@dataclass(frozen=True, repr=False)
class SweepLists(Report):
    """The models that can be swept, the algorithms, or both."""

    models: bool
    algorithms: bool

    @property
    def _names(self) -> list[str]:
        from opdb.models import names

        return [*MODELS, *(name for name in names("torchvision") if name not in MODELS)]

    def to_dict(self) -> dict[str, Json]:
        """Return the lists that are asked for."""
        models = {"models": self._names} if self.models else {}
        if self.algorithms:
            return {**models, "algorithms": FORCED.documents(ALGORITHMS.values())}
        return dict(models)

    def blocks(self) -> Iterator[str | Rows[Any]]:
        """Yield the models, a line each, then the algorithms."""
        if self.models:
            yield from self._names
        if self.algorithms:
            yield Rows(FORCED, list(ALGORITHMS.values()))


@dataclass(frozen=True)
class GroupStanding:
    """How many sizes of a group are in each state, and what its runs took (seconds)."""

    device: str
    group: Group
    states: Counter[State]
    took_s: Sequence[float]

    @property
    def words(self) -> str:
        """What tells its workloads from others of the model."""
        group = self.group
        what = ModelRequest(
            group.model,
            batch_size=group.batch_size,
            dtype=group.dtype,
            memory_format=group.memory_format,
        )
        return describe(what)


def _of_group(name: str, title: str | None = None) -> Column[GroupStanding]:
    return Column(name, lambda each: getattr(each.group, name), title)


def _in_state(state: State) -> Column[GroupStanding]:
    return Column(state, lambda each: each.states[state], state)


STANDINGS: Table[GroupStanding] = Table(
    Column("device", lambda each: each.device),
    _of_group("model", "model"),
    Column(title="workload", text=lambda each: each.words),
    *map(_of_group, ("batch_size", "dtype", "memory_format")),
    _of_group("mode", "mode"),
    _of_group("algorithm", "algorithm"),
    Column(title="sizes", text=lambda each: each.states.total()),
    *map(_in_state, STATES),
    Column("took_s", lambda each: sum(each.took_s), "took", "s"),
)
"""Where each model and algorithm of a sweep stands."""


@dataclass(frozen=True, repr=False)
class SweepStanding(Report):
    """Where a sweep stands on a device (slug), at these sizes."""

    device: str
    sizes: Sequence[int]
    groups: Sequence[GroupStanding]

    def to_dict(self) -> list[Json]:
        """Return each group as data."""
        return STANDINGS.documents(self.groups)

    def blocks(self) -> Iterator[str | Rows[Any]]:
        """Yield the groups, and what a run took."""
        sizes = self.sizes
        between = f", sizes {min(sizes)} to {max(sizes)}" if sizes else ": no sweep yet"
        yield f"{self.device}{between}"
        yield Rows(STANDINGS, self.groups)
        if each := [seconds for group in self.groups for seconds in group.took_s]:
            yield (
                f"{plural(len(each), 'run')} took {sum(each):.0f} s: "
                f"{statistics.fmean(each):.2f} s each in the mean, "
                f"{statistics.median(each):.2f} s in the median"
            )


@dataclass(frozen=True)
class SweepPlan:
    """How many cells of a sweep are left on a device (slug), and what that is likely to take.

    `rests_on` is the number of runs that the seconds were learned from.
    """

    device: str
    cells: int
    left: int
    seconds: float
    rests_on: int

    def to_dict(self) -> dict[str, Json]:
        """Return what `opdb sweep --plan --json` prints."""
        return {
            "cells": self.cells,
            "left": self.left,
            "planned_s": self.seconds,
            "rests_on_runs": self.rests_on,
        }

    @property
    def words(self) -> str:
        """The plan in a sentence."""
        runs = plural(self.rests_on, "run")
        grounds = f"as {runs} here took" if self.rests_on else "as cells usually take"
        return (
            f"{self.device}: {self.left} of {plural(self.cells, 'cell')} to be "
            f"measured, about {show_duration(self.seconds)} "
            f"({plural(round(self.seconds), 'GPU-second')}, {grounds})"
        )


def named(cell: SweepSpec) -> str:
    """Name a cell in a message."""
    return f"{cell.request.name} {cell.algorithm.name} at {cell.size}"


def verdict(each: Verification) -> str:
    """Say in words what was verified."""
    if each.failure is not None:
        return each.failure
    if not each.cell.algorithm.is_forced:
        return "torch's own"
    said = "yes" if each.holds else f"no: {each.worst_layer} errs more than {each.tolerance:g}"
    if each.time_s and each.default_s:
        said += f", {each.time_s / each.default_s:.2f} of torch's time"
    if each.same_kernels_as:
        said += f", the kernels of {each.same_kernels_as}"
    return said


VERIFIED: Table[Verification] = Table(
    Column("model", lambda each: each.cell.request.name, "model"),
    Column("algorithm", lambda each: each.cell.algorithm.name, "algorithm"),
    Column("input_size", lambda each: each.cell.size, "size"),
    Column("convolutions", lambda each: each.convolutions),
    Column(
        "forced",
        lambda each: each.forced,
        "forced",
        text=lambda each: f"{each.forced} of {each.convolutions}",
    ),
    Column("refused", lambda each: each.refused),
    Column(
        "layer_error",
        lambda each: each.layer_error,
        "largest error",
        text=lambda each: MISSING if each.layer_error is None else f"{each.layer_error:.1e}",
    ),
    Column("worst_layer", lambda each: each.worst_layer),
    Column("output_error", lambda each: each.output_error),
    Column("tolerance", lambda each: each.tolerance),
    Column("time_s", lambda each: each.time_s, "time", "s"),
    Column("default_time_s", lambda each: each.default_s),
    Column("kernels", lambda each: each.kernels),
    Column("same_kernels_as", lambda each: each.same_kernels_as),
    Column("failure", lambda each: each.failure),
    Column("holds", lambda each: each.holds, "verified", text=verdict),
)
"""What proves of each algorithm that it ran."""


@dataclass(frozen=True, repr=False)
class SweepReport(Report):
    """The rows of a sweep, and what was verified.

    `errors` name the sizes at which a model cannot be run, `failures` the devices that failed.
    """

    cells: Sequence[Row]
    verified: Sequence[Verification] = ()
    errors: Sequence[OpdbError] = ()
    failures: Sequence[str] = ()

    def to_dict(self) -> dict[str, Json]:
        """Return what `opdb sweep --json` prints."""
        return {
            "rows": OVERALL.documents(self.cells),
            "composed": composed(self.cells),
            "verified": VERIFIED.documents(self.verified),
        }

    def blocks(self) -> Iterator[str | Rows[Any]]:
        """Yield the rows, what operators say of them, and what was verified."""
        if self.cells:
            yield Rows(OVERALL, self.cells)
        for quantity, errors in composed(self.cells).items():
            yield (
                f"{quantity} composed of operators against "
                f"{plural(round(errors['runs']), 'run')}: median error "
                f"{show_share(errors['median'])}, largest {show_share(errors['largest'])}"
            )
        if self.verified:
            yield ""
            yield Rows(VERIFIED, self.verified)

    def check(self) -> None:
        """Raise what went wrong, every part of it named; nothing when all went well.

        Raises:
            InputError: a model cannot be run at some size.
            CheckError: an output is not what torch computes.
        """
        if self.errors:
            raise InputError("\n".join(str(error) for error in self.errors))
        wrong = [f"{named(each.cell)}: {verdict(each)}" for each in self.verified if not each.holds]
        if wrong:
            raise CheckError("what ran is not verified:\n" + "\n".join(f"  {w}" for w in wrong))


def composed(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    """Hold what operators say of runs against these: errors (shares) of time and of energy."""
    found: dict[str, dict[str, float]] = {}
    told = OVERALL.documents(rows)
    for quantity, predicted, measured in (
        ("time", "predicted_ms", "mean_ms"),
        ("energy", "predicted_energy_j", "energy_per_inference_j"),
    ):
        errors = [
            abs(each[predicted] / each[measured] - 1)
            for each in told
            if each[predicted] is not None and each[measured] is not None
        ]
        if errors:
            found[quantity] = {
                "runs": len(errors),
                "median": statistics.median(errors),
                "largest": max(errors),
            }
    return found
