"""What `opdb build` says: its plan, where every workload stands, and why a target is missed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from opdb.cli.console import print_table
from opdb.cli.selection import describe, identity
from opdb.errors import CheckError, OpdbError
from opdb.records import Json
from opdb.units import counted, show_duration, show_share

if TYPE_CHECKING:
    from opdb.build.loop import Built, Standing
    from opdb.build.planned import Planned, PlannedStep, PlannedWorkload
    from opdb.build.ranking import Step
    from opdb.build.survey import Coverage, Survey

_SHOWN = 20
_NEXT = 5


def plan_document(found: Planned, errors: Sequence[OpdbError]) -> Json:
    """Return a plan as JSON."""
    known = found.survey
    return {
        "device": known.device,
        "target": found.target,
        "models": len({workload.name for workload in known.workloads}),
        "workloads": [_planned_workload(each) for each in found.workloads],
        **_counts(known),
        "gpu_seconds": found.gpu_seconds,
        "gpu_seconds_of_all_pending": known.seconds(known.pending),
        "gpu_seconds_rest_on": _rests_on(known),
        "steps": [_step_document(known, each) for each in found.steps],
        "beyond": len(found.beyond),
        "gpu_seconds_beyond": sum(step.seconds for step in found.beyond),
        "unsized": known.unsized,
        "failed": dict(known.failed),
        "errors": [str(error) for error in errors],
    }


def _counts(known: Survey) -> dict[str, Json]:
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
    return {"calls": coverage.calls, "time": coverage.time, "energy": coverage.energy}


def _step_document(known: Survey, row: PlannedStep) -> Json:
    configuration = known.configurations[row.step.key]
    return {
        **_bare_step_document(known, row.step),
        "models": known.models_of[configuration.key],
        "until_gpu_seconds": row.until_s,
        "least_coverage": row.least,
        "mean_coverage": row.mean,
        "workloads_at_target": row.at_target,
    }


def _bare_step_document(known: Survey, step: Step) -> dict[str, Json]:
    from opdb.significance import in_words

    configuration = known.configurations[step.key]
    return {
        "configuration": step.key,
        "kind": configuration.kind,
        "what": in_words(configuration),
        "gain_per_gpu_second": step.gain,
        "gpu_seconds": step.seconds,
    }


def _rests_on(known: Survey) -> str:
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


def print_plan(found: Planned) -> None:
    """Print a plan: totals, the first steps, what every workload has then."""
    known = found.survey
    models = len({workload.name for workload in known.workloads})
    workloads = counted(len(known.workloads), "workload")
    print(f"{counted(models, 'model')}, {workloads}, on {known.device}")
    print(
        f"configurations: {len(known.configurations)}, of which {known.shared} in more than one "
        f"model; {len(known.costs)} measured, {len(known.pending)} pending"
        + (f", {len(known.failed)} failed" if known.failed else "")
    )
    total = found.gpu_seconds + sum(step.seconds for step in found.beyond)
    everything = known.seconds(known.pending)
    print(
        f"to the target {found.target:g}: {_cost(len(found.steps) + len(found.beyond), total)}; "
        f"everything pending: {counted(round(everything), 'GPU-second')}"
    )
    print(f"GPU-seconds rest on {_rests_on(known)}; calibration and model runs come on top")
    if known.unsized:
        unsized = counted(len(known.unsized), "configuration")
        print(f"first comes what cannot be sized: {unsized}")
    if found.steps:
        print()
        _print_steps(found)
    if found.beyond:
        beyond = sum(step.seconds for step in found.beyond)
        print(f"beyond the GPU-seconds given: {_cost(len(found.beyond), beyond)}")
    print()
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
    print_table((*header, "left then", "cost"), rows)


def _cost(configurations: int, seconds: float) -> str:
    """Say how many configurations are to be measured, and in how many GPU-seconds."""
    return f"{counted(configurations, 'configuration')}, {counted(round(seconds), 'GPU-second')}"


def _print_steps(found: Planned) -> None:
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
    print_table(header, rows)
    if len(steps) > _SHOWN + 1:
        print(f"(the first {_SHOWN} and the last of {len(steps)} steps; all with --json)")


def _covered(coverage: Coverage) -> tuple[str, str, str]:
    return show_share(coverage.calls), show_share(coverage.time), show_share(coverage.energy)


def built_document(built: Built, target: float, errors: Sequence[OpdbError]) -> Json:
    """Return what a build did, and where every workload stands, as JSON."""
    known = built.survey
    assert known is not None
    return {
        "device": built.device,
        "board": built.boards[0] if len(built.boards) == 1 else None,
        "boards": list(built.boards),
        "target": target,
        **_counts(known),
        "benched": built.benched,
        "visits": built.visits,
        "runs": built.runs,
        "elapsed_s": built.elapsed_s,
        "stopped": built.stopped,
        "gpu_seconds_rest_on": _rests_on(known),
        "next": [_bare_step_document(known, step) for step in built.next],
        "workloads": [_standing_document(each, target) for each in built.standings],
        "errors": [str(error) for error in errors],
    }


def _standing_document(standing: Standing, target: float) -> Json:
    answer = standing.answer
    prediction = answer.prediction if answer else None
    return {
        **identity(standing.workload),
        "target_met": standing.meets(target),
        "coverage": {
            "calls": prediction.coverage_calls if prediction else standing.calls,
            "time": prediction.coverage_time if prediction else 0.0,
            "energy": prediction.coverage_energy if prediction else None,
        },
        "run": standing.run,
        "reason": standing.reason,
        "attribution_time": answer.attribution_time if answer else None,
        "attribution_energy": answer.attribution_energy if answer else None,
        "left": len(standing.left),
        "left_gpu_seconds": standing.left_s,
        "to_target": len(standing.to_target),
        "to_target_gpu_seconds": sum(step.seconds for step in standing.to_target),
        "unsupported": dict(standing.workload.unsupported),
    }


def print_built(built: Built, target: float) -> None:
    """Print what a build did, and where every workload stands."""
    known = built.survey
    assert known is not None
    print(
        f"{built.device}: {counted(built.benched, 'configuration')} benched in "
        f"{counted(built.visits, 'visit')}, {counted(built.runs, 'model')} run; "
        f"{show_duration(built.elapsed_s)}"
    )
    rows = [_row(_standing_document(each, target), each) for each in built.standings]
    header = ("model", "workload", "calls", "time", "energy", "time p/m", "energy p/m", "left")
    print_table((*header, "cost", "target"), rows)
    print("p/m: predicted / measured (attribution); left: pending configurations, and their cost")
    if built.stopped:
        print(f"stopped early: {built.stopped}; run it again to go on")
    if built.next:
        total = sum(step.seconds for step in built.next)
        print(f"to the target: {_cost(len(built.next), total)}; first:")
        for step in built.next[:_NEXT]:
            said = _bare_step_document(known, step)
            print(f"  {said['kind']} {said['what']}, {step.seconds:.2f} s")


def _row(document: Mapping[str, Json], standing: Standing) -> tuple[object, ...]:
    coverage = document["coverage"]
    return (
        standing.workload.name,
        describe(standing.workload),
        *(show_share(coverage[name]) for name in ("calls", "time", "energy")),
        *(_ratio(document[f"attribution_{name}"]) for name in ("time", "energy")),
        document["left"],
        f"{document['left_gpu_seconds']:.0f} s",
        "met" if document["target_met"] else "missed" if standing.run == "ok" else "not run",
    )


def _ratio(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def check(built: Built, target: float, errors: Sequence[OpdbError]) -> None:
    """Raise where the target does not hold for every model, each of them named with the reason.

    Raises:
        CheckError: it does not.
    """
    lines = [str(error) for error in errors]
    lines += [
        f"{each.workload.name} {describe(each.workload)}: {_why(each, target)}"
        for each in built.standings
        if not each.meets(target)
    ]
    if lines:
        listed = "\n".join(f"  {line}" for line in dict.fromkeys(lines))
        missed = counted(len(lines), "workload")
        raise CheckError(f"target {target:g} does not hold for {missed}\n{listed}")


def _why(standing: Standing, target: float) -> str:
    """Say why a workload does not meet the target."""
    if standing.run is not None and standing.run != "ok":
        return f"{standing.run}: {standing.reason}"
    why = []
    if standing.workload.unsupported:
        why.append("it makes calls that no operator describes")
    document = _standing_document(standing, target)
    for name in ("time", "energy"):
        share, ratio = document["coverage"][name], document[f"attribution_{name}"]
        if share is not None and share < target:
            why.append(f"coverage of {name} is {share:.3f}")
        if ratio is not None and abs(ratio - 1) > 1 - target:
            why.append(f"attribution of {name} is {ratio:.3f}")
    if standing.run is None:
        why.append("the model was not run")
    if standing.to_target:
        seconds = document["to_target_gpu_seconds"]
        why.append(f"{_cost(len(standing.to_target), seconds)}, to go")
    return ", ".join(why)


def in_one(errors: Sequence[OpdbError]) -> str:
    """Return one message that names every error."""
    lines = list(dict.fromkeys(str(error) for error in errors))
    if len(lines) == 1:
        return lines[0]
    return "\n".join([f"{len(lines)} models failed", *(f"  {line}" for line in lines)])
