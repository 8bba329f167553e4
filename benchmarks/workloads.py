"""Which workload represents a model? Sums of operators under each against measured runs.

Run it where a database holds model runs as a CUDA graph and visits of other workloads:

    opdb bench --cache-state reused      # also: streamed, chain
    python benchmarks/workloads.py

Printed are, for each measured model and workload, the time and energy that its operators add up to
over what its run took (energy: base power times time and the operators' dynamic energy), the share
of that time whose operators were measured under the workload (the rest is filled in from visits
that find what a model's calls find), and the mean GPU utilization of operators and run, as
nvidia-smi shows it. `--db`, `--device` and models choose what is compared; `--json` prints one
JSON document.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import get_args

from opdb.compose import Prediction, PredictionInputs, compose
from opdb.derive.costs import Deriver
from opdb.derive.runs import RunCost, run_cost
from opdb.errors import OpdbError
from opdb.predict import choose_device
from opdb.records import Access, Calibration, Cost, Device, ModelRun, Stretch, Visit, Workload
from opdb.settings import DEFAULT_SETTINGS, relevant_setting
from opdb.store import Store, open_store

ACCESSES: tuple[Access, ...] = get_args(Access)


@dataclass(frozen=True)
class Row:
    """One model under one workload, operators over run; shares and utilization in 0 to 1.

    `own_calls` and `own_time` are the shares measured under this workload.
    """

    model: str
    batch_size: int
    dtype: str
    access: Access
    own_calls: float
    own_time: float
    time_s: float | None
    time_ratio: float | None
    energy_j: float | None
    energy_ratio: float | None
    utilization: float | None
    run_utilization: float | None


class Costs:
    """What a board's visits under one workload say of each configuration (key)."""

    def __init__(self, store: Store, board: str, visits: Sequence[Visit], access: Access) -> None:
        own = [v for v in visits if v.access == access]
        if access != "model":  # derived as if calls had found that inside a model
            own = [replace(v, access="model", weights="cold") for v in own]
        deriver = Deriver(store.campaigns(board=board), own)
        self._costs = {(c.configuration, c.setting): c for c in deriver.costs({}) if c.time_s}
        seen: dict[str, list[float]] = {}
        for visit in own:
            stretch = visit.stretch
            if visit.role == "measurement" and stretch and stretch.utilization is not None:
                seen.setdefault(visit.configuration, []).append(stretch.utilization)
        self.utilization = {key: statistics.fmean(shares) for key, shares in seen.items()}

    def of(self, workload: Workload) -> dict[str, Cost]:
        """Return the costs of a workload's configurations in the default settings."""
        wanted = {c.key: relevant_setting(c.kind, DEFAULT_SETTINGS) for c in workload.occurrences()}
        pairs = wanted.items()
        return {key: self._costs[key, s] for key, s in pairs if (key, s) in self._costs}


@dataclass(frozen=True)
class Measured:
    """A workload's runs as a CUDA graph on one board, and that board's base power."""

    workload: Workload
    device: Device
    board: str
    calibration: Calibration
    run: RunCost
    utilization: float | None


def row(measured: Measured, access: Access, costs: Costs, model: Costs) -> Row:
    """Compose a model under a workload and hold it against its run."""
    own, filled = costs.of(measured.workload), model.of(measured.workload)
    inputs = PredictionInputs(
        measured.device, measured.board, measured.calibration, {**filled, **own}
    )
    prediction = compose(measured.workload, "graph", inputs)
    calls = measured.workload.occurrences()
    times = {c.key: n * _time_s(inputs.costs, c.key) for c, n in calls.items()}
    total_s = math.fsum(times.values())
    run = measured.run
    return Row(
        model=measured.workload.name,
        batch_size=measured.workload.batch_size,
        dtype=measured.workload.dtype,
        access=access,
        own_calls=sum(n for c, n in calls.items() if c.key in own) / sum(calls.values()),
        own_time=math.fsum(times[key] for key in own) / total_s if total_s else 0.0,
        time_s=prediction.time_s,
        time_ratio=_ratio(prediction.time_s, run.time_s.mean, prediction),
        energy_j=prediction.energy_j,
        energy_ratio=_ratio(
            prediction.energy_j, run.energy_j.mean if run.energy_j else None, prediction
        ),
        utilization=weighted({k: times[k] for k in own}, costs.utilization),
        run_utilization=measured.utilization,
    )


def weighted(times: Mapping[str, float], shares: Mapping[str, float]) -> float | None:
    """Return the mean of shares weighted by times, over what has both; None where nothing has."""
    known = {key: time for key, time in times.items() if key in shares and time > 0}
    if not known:
        return None
    return statistics.fmean([shares[key] for key in known], list(known.values()))


def _time_s(costs: Mapping[str, Cost], key: str) -> float:
    cost = costs.get(key)
    return cost.time_s.mean if cost and cost.time_s else 0.0


def _ratio(ours: float | None, theirs: float | None, prediction: Prediction) -> float | None:
    """Return predicted over measured; None where an operator is missing under any workload."""
    complete = not prediction.missing
    return ours / theirs if ours is not None and theirs and complete else None


def compare(store: Store, device: Device, names: Collection[str] = ()) -> list[Row]:
    """Return a row for every measured model and each workload that any of its operators has."""
    boards = {found.key: found.board for found in store.measured(device.slug, "graph")}
    rows = []
    for board in sorted(set(boards.values())):
        visits = store.visits(board)
        costs = {access: Costs(store, board, visits, access) for access in ACCESSES}
        here = [key for key, where in boards.items() if where == board]
        workloads = [w for w in store.workloads_by_key(here) if not names or w.name in names]
        for workload in sorted(workloads, key=lambda w: (w.name, w.dtype, w.batch_size)):
            measured = _measured(store, device, board, workload)
            if measured is not None:
                found = (row(measured, a, costs[a], costs["model"]) for a in ACCESSES)
                rows += [r for r in found if r.own_calls]
    return rows


def _measured(store: Store, device: Device, board: str, workload: Workload) -> Measured | None:
    campaigns = {c.id: c for c in store.campaigns(board=board)}
    powered = [c for c in campaigns.values() if c.calibration.base_power_w is not None]
    runs = store.model_runs(workload.key, device=device.slug, mode="graph")
    runs = [run for run in runs if run.campaign in campaigns]
    cost = run_cost(runs)
    if cost is None or not powered:
        return None
    calibration = powered[-1].calibration
    return Measured(workload, device, board, calibration, cost, _utilization(runs))


def _utilization(runs: Iterable[ModelRun]) -> float | None:
    repeats: list[Stretch] = [repeat for run in runs for repeat in run.repeats]
    shares = [r.utilization for r in repeats if r.utilization is not None]
    return statistics.fmean(shares) if shares else None


def medians(rows: Sequence[Row]) -> dict[Access, dict[str, float | None]]:
    """Return, for each workload, the median absolute error of time and of energy."""

    def error(ratios: list[float]) -> float | None:
        return statistics.median(abs(ratio - 1) for ratio in ratios) if ratios else None

    return {
        access: {
            "time": error([r.time_ratio for r in rows if r.access == access and r.time_ratio]),
            "energy": error(
                [r.energy_ratio for r in rows if r.access == access and r.energy_ratio]
            ),
        }
        for access in ACCESSES
        if any(r.access == access for r in rows)
    }


def show(rows: Sequence[Row]) -> None:
    """Print the rows and the median errors."""
    print(
        f"{'model':22} {'batch':>5} {'dtype':9} {'workload':9} {'own calls':>9} {'own time':>9} "
        f"{'time':>6} {'energy':>6} {'util.':>6} {'of run':>6}"
    )
    for r in rows:
        print(
            f"{r.model:22} {r.batch_size:5} {r.dtype:9} {r.access:9} {_percent(r.own_calls):>9} "
            f"{_percent(r.own_time):>9} {_three(r.time_ratio):>6} {_three(r.energy_ratio):>6} "
            f"{_percent(r.utilization):>6} {_percent(r.run_utilization):>6}"
        )
    for access, errors in medians(rows).items():
        told = ", ".join(f"{what} {_percent(error)}" for what, error in errors.items())
        print(f"{access}: median error, {told}")


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f}%"


def _three(ratio: float | None) -> str:
    return "–" if ratio is None else f"{ratio:.3f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--db", metavar="URL")
    parser.add_argument("--device", metavar="SLUG")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    try:
        with open_store(options.db, create=False) as store:
            rows = compare(store, choose_device(store, options.device), options.models)
    except OpdbError as error:
        print(f"workloads: {error}", file=sys.stderr)
        return error.exit_status
    if not rows:
        print("workloads: no model was measured with --mode graph", file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps({"rows": [asdict(r) for r in rows], "median_errors": medians(rows)}))
    else:
        show(rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
