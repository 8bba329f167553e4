"""Plan what to measure: which operators carry models' time and energy, and what that takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

from opdb.errors import InputError, OpdbError
from opdb.lookup.options import ModelOptions, ModelWords, parse_mode
from opdb.lookup.requests import requests_named
from opdb.lookup.words import describe, identity
from opdb.records import CAPTURED_MODE, Json, Mode
from opdb.tables import Report, Rows, of_cells
from opdb.units import plural, show_share

if TYPE_CHECKING:
    from opdb.models import ModelRequest
    from opdb.plan.planned import Planned, PlannedStep, PlannedWorkload
    from opdb.plan.ranking import Step
    from opdb.plan.survey import Coverage, Survey
    from opdb.records import Workload
    from opdb.store import Store

_SHOWN = 20


@dataclass(frozen=True, repr=False)
class MeasuringPlan(Report):
    """What to measure first: each step with its gain and cost; `errors` say what was left out."""

    planned: Planned
    errors: Sequence[OpdbError] = ()

    def rows(self) -> list[dict[str, Json]]:
        """Return each step as data, in order."""
        return [_planned_step(self.planned.survey, each) for each in self.planned.steps]

    def to_dict(self) -> dict[str, Json]:
        """Return what `opdb build --plan --json` prints."""
        found, known = self.planned, self.planned.survey
        return {
            "device": known.device,
            "target": found.target,
            "models": len({workload.name for workload in known.workloads}),
            "workloads": [_planned_workload(each) for each in found.workloads],
            **counts(known),
            "gpu_seconds": found.gpu_seconds,
            "gpu_seconds_of_all_pending": known.seconds(known.pending),
            "gpu_seconds_rest_on": rests_on(known),
            "steps": self.rows(),
            "beyond": len(found.beyond),
            "gpu_seconds_beyond": sum(step.seconds for step in found.beyond),
            "unsized": known.unsized,
            "failed": dict(known.failed),
            "errors": [str(error) for error in self.errors],
        }

    def blocks(self) -> Iterator[str | Rows[Any]]:
        """Yield what `opdb build --plan` prints: totals, the first steps, every workload."""
        return _plan_blocks(self.planned)


def plan(
    *models: str,
    mode: str = "eager",
    target: float = 0.95,
    gpu_seconds: float | None = None,
    device: str | None = None,
    db: str | None = None,
    **said: Unpack[ModelWords],
) -> MeasuringPlan:
    """Plan what to measure until operators that are measured explain the target's share of models.

    As `opdb build --plan`, it measures nothing. Models that are not stored are harvested and
    stored, which needs torch. `device` is one that the database has; without it, this machine's GPU
    or the device that was measured most.

    Raises:
        InputError: a model, mode or device is not known, or a model cannot be harvested.
    """
    from opdb.plan.planned import planned
    from opdb.plan.survey import survey
    from opdb.predict import PLAIN_MODES, check_mode, choose_device
    from opdb.settings import DEFAULT_SETTINGS
    from opdb.significance import Significance
    from opdb.store import open_store

    chosen, options = parse_mode(mode), ModelOptions.parse(**said)
    check_mode(chosen, PLAIN_MODES)
    if not 0 < target <= 1:
        raise InputError(f"target {target:g}: give a share above 0, up to 1, such as 0.95")
    requests = [request for name in models for request in requests_named(name, options)]
    if not requests:
        raise InputError("no model is named")
    with open_store(db, create=False) as store:
        called = _called(store, requests, chosen)
        known = survey(store, choose_device(store, device), called, DEFAULT_SETTINGS)
    return MeasuringPlan(planned(known, target, Significance(), gpu_seconds))


def _called(store: Store, requests: Sequence[ModelRequest], mode: Mode) -> list[Workload]:
    """Return what each request calls in a mode, each workload once: stored, else harvested now."""
    from opdb.lookup.workloads import workload_of

    called: dict[str, Workload] = {}
    for request in requests:
        found = workload_of(store, request).in_mode(mode)
        captured = store.captured(found) if mode == CAPTURED_MODE and not found.captured else None
        called[(captured or found).key] = captured or found
    return list(called.values())


def counts(known: Survey) -> dict[str, Json]:
    """Return how many configurations there are, and how many of them are measured."""
    return {
        "configurations": len(known.configurations),
        "shared": known.shared,
        "measured": len(known.costs),
        "pending": len(known.pending),
    }


def _planned_workload(each: PlannedWorkload) -> Json:
    return {
        **identity(each.workload),
        "coverage": _coverage_document(each.now),
        "coverage_then": _coverage_document(each.then),
        "left": each.left,
        "left_gpu_seconds": each.left_s,
        "unsupported": dict(each.workload.unsupported),
    }


def _coverage_document(coverage: Coverage) -> Json:
    """Return the shares of a workload that measured operators explain."""
    return {"calls": coverage.calls, "time": coverage.time, "energy": coverage.energy}


def _planned_step(known: Survey, row: PlannedStep) -> Json:
    configuration = known.configurations[row.step.key]
    return {
        **step_document(known, row.step),
        "models": known.models_of[configuration.key],
        "until_gpu_seconds": row.until_s,
        "least_coverage": row.least,
        "mean_coverage": row.mean,
        "workloads_at_target": row.at_target,
    }


def step_document(known: Survey, step: Step) -> dict[str, Json]:
    """Return a configuration to measure: what it gains, and the GPU-seconds that it takes."""
    from opdb.significance import in_words

    configuration = known.configurations[step.key]
    return {
        "configuration": step.key,
        "kind": configuration.kind,
        "what": in_words(configuration),
        "gain_per_gpu_second": step.gain,
        "gpu_seconds": step.seconds,
    }


def rests_on(known: Survey) -> str:
    """Return in words what the GPU-seconds of a plan rest on."""
    prices = known.prices
    if not prices.rests_on:
        return (
            f"nothing was visited on {known.device} yet: {prices.usual:g} s a configuration, the "
            "median on an H200"
        )
    return (
        f"the median of a configuration's visits on {known.device}, kind by kind where there are "
        f"enough: {prices.usual:.2f} s over all {prices.rests_on}"
    )


def _plan_blocks(found: Planned) -> Iterator[str | Rows[Any]]:
    known = found.survey
    models = len({workload.name for workload in known.workloads})
    workloads = plural(len(known.workloads), "workload")
    yield f"{plural(models, 'model')}, {workloads}, on {known.device}"
    yield (
        f"configurations: {len(known.configurations)}, of which {known.shared} in more than one "
        f"model; {len(known.costs)} measured, {len(known.pending)} pending"
        + (f", {len(known.failed)} failed" if known.failed else "")
    )
    total = found.gpu_seconds + sum(step.seconds for step in found.beyond)
    everything = known.seconds(known.pending)
    to_target = cost_words(len(found.steps) + len(found.beyond), total)
    yield (
        f"to the target {found.target:g}: {to_target}; "
        f"everything pending: {plural(round(everything), 'GPU-second')}"
    )
    yield f"GPU-seconds rest on {rests_on(known)}; calibration and model runs come on top"
    if known.unsized:
        unsized = plural(len(known.unsized), "configuration")
        yield f"first comes what cannot be sized: {unsized}"
    if found.steps:
        yield ""
        yield from _steps_blocks(found)
    if found.beyond:
        beyond = sum(step.seconds for step in found.beyond)
        yield f"beyond the GPU-seconds given: {cost_words(len(found.beyond), beyond)}"
    yield ""
    rows = [
        (
            each.workload.name,
            describe(each.workload),
            *_covered(each.now),
            *_covered(each.then)[1:],
            each.left,
            f"{each.left_s:.0f} s",
        )
        for each in found.workloads
    ]
    header = ("model", "workload", "calls", "time", "energy", "time then", "energy then")
    yield Rows(of_cells(*header, "left then", "cost"), rows)


def cost_words(configurations: int, seconds: float) -> str:
    """Say how many configurations are to be measured, and in how many GPU-seconds."""
    return f"{plural(configurations, 'configuration')}, {plural(round(seconds), 'GPU-second')}"


def _steps_blocks(found: Planned) -> Iterator[str | Rows[Any]]:
    from opdb.significance import in_words

    known, steps = found.survey, found.steps
    rows = []
    for number, row in enumerate(steps):
        if number >= _SHOWN and number != len(steps) - 1:
            continue
        configuration = known.configurations[row.step.key]
        rows.append(
            (
                number + 1,
                configuration.title,
                in_words(configuration),
                len(known.models_of[row.step.key]),
                f"{row.step.gain:.3f}",
                f"{row.until_s:.1f}",
                show_share(row.mean),
                show_share(row.least),
                row.at_target,
            )
        )
    header = ("step", "kind", "what", "models", "gain/s", "GPU-s", "mean", "least", "at target")
    yield Rows(of_cells(*header), rows)
    if len(steps) > _SHOWN + 1:
        yield f"(the first {_SHOWN} and the last of {len(steps)} steps; all with --json)"


def _covered(coverage: Coverage) -> tuple[str, str, str]:
    return show_share(coverage.calls), show_share(coverage.time), show_share(coverage.energy)
