"""Does the factor between two hosts bring predictions of eager passes to this host?

Run it after the passes were measured on a machine whose GPU does nothing else, on a copy of a
database of published sets:

    opdb calibrate --db copy.sqlite
    python -m benchmarks.quiet_host measurements/resnet*.yml measurements/zoo/*.yml --json host.json
    python -m benchmarks.host_factor --db copy.sqlite --of nvidia-h200 --passes host.json

The last needs no GPU. Passes are predicted for every board whose costs and host times are of all of
a model's calls, where the pass waits for the host: as that board's host would issue it, and as the
calibrated host does, the host's part scaled by the factor between the two. Printed is predicted /
measured in quiet time, without and with the factor.

Fixed beforehand: the workloads, float32 at batch 1. The calls of those marked `timed` are among
those by which the host was calibrated. No pair of a model and a board is left out of the summary.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

from benchmarks import new_file
from opdb.derive.quiet import quiet_time_s
from opdb.errors import InputError, OpdbError
from opdb.lookup.options import ModelOptions
from opdb.lookup.requests import checked_request
from opdb.lookup.workloads import stored_workload
from opdb.predict import CalibratedHost, Predictor, predictor_for
from opdb.records import HostCalibration, Workload
from opdb.store import Store, open_store
from opdb.tables import RATIO, Column, Table


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
    """A model and a board: predicted / measured, without the factor and with it."""

    model: str
    board: str
    timed: bool
    measured_s: float
    factor: float
    without: float
    scaled: float


ROWS: Table[Row] = Table(
    Column("model", attrgetter("model"), title="model"),
    Column("board", attrgetter("board"), title="host of board"),
    Column("timed", attrgetter("timed"), title="timed", text=lambda row: "yes" * row.timed),
    Column("measured_s", attrgetter("measured_s"), title="measured", unit="s"),
    Column("factor", attrgetter("factor"), title="factor", unit=RATIO),
    Column("without", attrgetter("without"), title="predicted / measured", unit=RATIO),
    Column("scaled", attrgetter("scaled"), title="by the factor", unit=RATIO),
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
    found: Iterable[Predicted], measured_s: Mapping[str, float], timed: Collection[str]
) -> list[Row]:
    """Hold predictions against measured quiet times in seconds, by model."""
    rows = []
    for one in found:
        pass_s = measured_s[one.model]
        ratios = one.time_s / pass_s, one.on_host_s / pass_s
        rows.append(Row(one.model, one.board, one.model in timed, pass_s, one.factor, *ratios))
    return rows


def summary(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    """Return the median and the largest error (%), of all pairs and of models not timed."""
    found: dict[str, dict[str, float]] = {}
    for whose, some in (("all", rows), ("not timed", [row for row in rows if not row.timed])):
        for name in ("without", "scaled") if some else ():
            errors = [100 * math.expm1(abs(math.log(getattr(row, name)))) for row in some]
            found[f"{whose}, {name}"] = {
                "pairs": len(errors),
                "median_percent": statistics.median(errors),
                "largest_percent": max(errors),
            }
    return found


def quiet_passes_s(file: Path) -> dict[str, float]:
    """Return the quiet time of each model's pass (seconds), from what `quiet_host` wrote."""
    processes = json.loads(file.read_text())["processes"]
    blocks_ns: dict[str, list[float]] = defaultdict(list)
    for name, seen in (each for found in processes for each in found.items()):
        blocks_ns[name.partition(" ")[0]] += seen["passes_ns"]
    return {name: 1e-9 * quiet_time_s(blocks) for name, blocks in blocks_ns.items()}


def stored(store: Store, models: Iterable[str]) -> list[Workload]:
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


def latest(store: Store) -> HostCalibration:
    """Return the latest calibration of a host in a database.

    Raises:
        InputError: there is none.
    """
    hosts = {campaign.host.id for campaign in store.campaigns()}
    made = [each for each in map(store.host_calibration, sorted(hosts)) if each is not None]
    if not made:
        raise InputError("the database has no calibration of a host: opdb calibrate makes one")
    return max(made, key=attrgetter("measured_at"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--db", required=True, help="a database with a calibration of the host")
    parser.add_argument("--of", metavar="DEVICE", help="the device that is predicted for")
    parser.add_argument("--passes", type=Path, required=True, help="what quiet_host wrote there")
    parser.add_argument("--json", type=new_file, metavar="FILE", help="write the rows")
    given = parser.parse_args(arguments)
    try:
        passes_s = quiet_passes_s(given.passes)
        with open_store(given.db, create=False) as store:
            workloads, made = stored(store, passes_s), latest(store)
            timed = {each.name for each in store.workloads_by_key(made.workloads)}
            host = CalibratedHost(store, made)
            found = predicted(predictor_for(store, given.of), host, workloads)
    except OpdbError as error:
        print(f"host_factor: {error}", file=sys.stderr)
        return error.exit_status
    rows = rows_of(found.values(), passes_s, timed)
    errors = summary(rows)
    print(*ROWS.lines(rows), sep="\n")
    for what, each in errors.items():
        print(what, *(f"{name} {value:.1f}" for name, value in each.items()))
    if given.json is not None:
        document = {"rows": ROWS.documents(rows), "errors": errors}
        given.json.write_text(json.dumps(document, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
