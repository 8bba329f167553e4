"""Does the factor between two hosts bring predictions of eager passes to this host?

Run it on a machine whose GPU does nothing else, on a copy of a database of published sets:

    python -m benchmarks.host_factor --db copy.sqlite --of nvidia-h200 --json factor.json

The host is calibrated as `opdb calibrate` does it. Then passes are predicted for every board whose
costs and host times are of all of a model's calls, where the pass waits for the host: as that
board's host would issue it, and as this one does, the host's part scaled by the factor between the
two. Then the models are measured here by `opdb measure`, in eager mode, and the host is calibrated
once more. Printed is predicted / measured in quiet time, without the factor, and with that of
before and of after.

Fixed beforehand: models, float32 at batch 1. The calls of those marked `timed` are among those by
which the host was calibrated. No pair of a model and a board is left out of the summary.

On a CPU, passes are measured that no prediction for a GPU is about: there it shows that the script
works, no more.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from benchmarks import new_file
from opdb.api.calibrations import HostFound, calibrate_host_in
from opdb.api.measures import MeasureOptions, measure_all
from opdb.bench.platform import detect, open_meter
from opdb.bench.session import open_session
from opdb.errors import OpdbError
from opdb.lookup.options import ModelOptions
from opdb.lookup.requests import checked_request
from opdb.lookup.workloads import stored_workload
from opdb.predict import CalibratedHost, Predictor, predictor_for
from opdb.records import Json, Workload
from opdb.store import Store, open_store
from opdb.tables import RATIO, Column, Table

MODELS = (
    "resnet18",
    "resnet50",
    "mobilenet_v3_large",
    "efficientnet_b0",
    "densenet121",
    "googlenet",
    "convnext_tiny",
    "vit_b_16",
    "swin_t",
    "regnet_x_3_2gf",
    "bert_base",
    "gpt2",
    "distilbert",
)


@dataclass(frozen=True)
class Predicted:
    """A model's eager pass (seconds) for a board: with its host, and with this one."""

    model: str
    board: str
    factor: float
    time_s: float
    on_host_s: float


@dataclass(frozen=True)
class Row:
    """A model and a board: predicted / measured, without a factor, and with two of them."""

    model: str
    board: str
    timed: bool
    measured_s: float
    slower: float | None
    factor: float
    factor_after: float
    without: float
    before: float
    after: float


ROWS: Table[Row] = Table(
    Column("model", attrgetter("model"), title="model"),
    Column("board", attrgetter("board"), title="host of board"),
    Column("timed", attrgetter("timed"), title="timed", text=lambda row: "yes" * row.timed),
    Column("measured_s", attrgetter("measured_s"), title="measured", unit="s"),
    Column("host_slowdown", attrgetter("slower"), title="slower", unit=RATIO),
    Column("factor", attrgetter("factor"), title="factor before", unit=RATIO),
    Column("factor_after", attrgetter("factor_after"), title="after", unit=RATIO),
    Column("without", attrgetter("without"), title="predicted / measured", unit=RATIO),
    Column("before", attrgetter("before"), title="by factor before", unit=RATIO),
    Column("after", attrgetter("after"), title="by factor after", unit=RATIO),
)


def predicted(
    predictor: Predictor, host: CalibratedHost, workloads: Sequence[Workload]
) -> dict[tuple[str, str], Predicted]:
    """Predict passes for every board that measured all of their calls, where they wait for a host.

    By model and board.
    """
    found = {}
    for workload in workloads:
        for board in predictor.boards:
            answer = predictor.answer(workload, "eager", board)
            prediction = answer.prediction
            own = predictor.costs_on(board, list(workload.occurrences()))
            whole = not answer.brought and all(
                (cost := own.get(call.configuration.key)) is not None
                and call.form in cost.host_time_s
                for call in workload.calls
            )
            on_host = predictor.on_host(prediction, host) if whole else None
            if on_host is not None and prediction.time_s is not None and prediction.host_bound:
                found[workload.name, board] = Predicted(
                    workload.name,
                    board,
                    on_host.factor.factor,
                    prediction.time_s,
                    on_host.time_s,
                )
    return found


def rows_of(
    before: Mapping[tuple[str, str], Predicted],
    after: Mapping[tuple[str, str], Predicted],
    measured: Mapping[str, tuple[float, float | None]],
    timed: Sequence[str],
) -> list[Row]:
    """Hold predictions against measured quiet times (seconds, and how slow the host was)."""
    rows = []
    for place, one in before.items():
        other = after.get(place)
        if other is None or one.model not in measured:
            continue
        measured_s, slower = measured[one.model]
        ratios = (each / measured_s for each in (one.time_s, one.on_host_s, other.on_host_s))
        rows.append(
            Row(
                one.model,
                one.board,
                one.model in timed,
                measured_s,
                slower,
                one.factor,
                other.factor,
                *ratios,
            )
        )
    return rows


def summary(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    """Return the median and the largest error (%), of all pairs and of models not timed."""
    found: dict[str, dict[str, float]] = {}
    for whose, some in (("all", rows), ("not timed", [row for row in rows if not row.timed])):
        for name in ("without", "before", "after") if some else ():
            errors = [100 * math.expm1(abs(math.log(getattr(row, name)))) for row in some]
            found[f"{whose}, {name}"] = {
                "pairs": len(errors),
                "median_percent": statistics.median(errors),
                "largest_percent": max(errors),
            }
    return found


def stored(store: Store, models: Sequence[str]) -> list[Workload]:
    """Return the stored workloads of models, in float32 at batch 1; print what is not there."""
    found = []
    for name in models:
        try:
            workload = stored_workload(store, checked_request(name, ModelOptions()))
        except OpdbError as error:
            print(f"left out: {name}: {error}", flush=True)
            continue
        if workload is None:
            print(f"left out: {name}: it is not stored", flush=True)
        else:
            found.append(workload)
    return found


def calibrated(store: Store, device: str | None) -> tuple[HostFound, CalibratedHost]:
    """Calibrate the host once; return what was found, and the host held against others."""
    platform = detect(device)
    meter = open_meter(platform)
    try:
        store.save_board(platform.device, platform.board)
        found = calibrate_host_in(store, open_session(platform, meter), print)
    finally:
        meter.close()
    made = store.host_calibration(platform.host.id)
    if made is None:
        raise OpdbError("no board of the database has host times of a small model")
    return found, CalibratedHost(store, made)


def measured(
    models: Sequence[str], device: str | None, db: str
) -> dict[str, tuple[float, float | None]]:
    """Measure models' eager passes: quiet time in seconds, how slow the host was at the median."""
    requests = [checked_request(name, ModelOptions()) for name in models]
    found = measure_all(requests, MeasureOptions(device=device), db=db)
    for error in found.errors:
        print(f"not measured: {error}", flush=True)
    return {
        each.workload.name: (
            each.cost.time_s.mean,
            None if each.cost.slowdown is None else each.cost.slowdown.median,
        )
        for each in found.runs
        if each.cost is not None
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("models", nargs="*", default=list(MODELS))
    parser.add_argument("--db", required=True, help="a copy: it is written to")
    parser.add_argument("--device", help="cuda, cuda:N or cpu, where passes are measured")
    parser.add_argument("--of", metavar="DEVICE", help="the device that is predicted for")
    parser.add_argument("--json", type=new_file, metavar="FILE", help="write rows and factors")
    given = parser.parse_args(arguments)
    try:
        with open_store(given.db, create=False) as store:
            workloads = stored(store, given.models)
            first, host = calibrated(store, given.device)
            before = predicted(predictor_for(store, given.of), host, workloads)
            models = list(dict.fromkeys(each.model for each in before.values()))
            passes = measured(models, given.device, given.db)
            last, host = calibrated(store, given.device)
            after = predicted(predictor_for(store, given.of), host, workloads)
    except OpdbError as error:
        print(f"host_factor: {error}", file=sys.stderr)
        return error.exit_status
    rows = rows_of(before, after, passes, first.models)
    errors = summary(rows)
    print(*ROWS.lines(rows), sep="\n")
    for what, each in errors.items():
        print(what, *(f"{name} {value:.1f}" for name, value in each.items()))
    if given.json is not None:
        document: dict[str, Json] = {
            "rows": ROWS.documents(rows),
            "errors": errors,
            "before": first.to_dict(),
            "after": last.to_dict(),
        }
        given.json.write_text(json.dumps(document, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
