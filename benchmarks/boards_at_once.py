"""Several boards of one host: how much faster they are together, and whether each still says so.

    python -m benchmarks.boards_at_once measurements/resnet50.yml --devices 0,1 --folder boards

Each board benches the models' operators for itself, first alone and then with all the others at
work; then all share one list. It prints, for each board, how its costs together stand to its costs
alone beside how far two measurements of one configuration lie apart anyway (blind duplicates), and
how many configurations a second the boards measure together and one alone. A board is calibrated
three times, a minute each; `--calibrated` names a database in which `opdb calibrate` did it before.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opdb.records import Cost
from opdb.store import open_store

QUANTITIES = ("time_s", "energy_j", "host_time_s")


@dataclass(frozen=True)
class Moved:
    """Costs together / alone of one board, over the configurations that have both."""

    configurations: int
    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return (
            f"{self.median:.4f} (90 % of {self.configurations} between {self.low:.3f} and "
            f"{self.high:.3f})"
        )


def value_of(cost: Cost, quantity: str) -> float | None:
    """Return the mean of a quantity, None where it is missing; of host times, the longest form."""
    if quantity == "host_time_s":
        return max((each.mean for each in cost.host_time_s.values()), default=None)
    found = getattr(cost, quantity)
    return None if found is None else found.mean


def moved(
    alone: Mapping[str, Sequence[Cost]], together: Mapping[str, Sequence[Cost]], quantity: str
) -> Moved | None:
    """Return how a board's costs moved, None where nothing has the quantity in both."""
    ratios = []
    for key in alone.keys() & together.keys():
        before, after = value_of(alone[key][-1], quantity), value_of(together[key][-1], quantity)
        if before and after:
            ratios.append(after / before)
    if len(ratios) < 2:
        return None
    cuts = statistics.quantiles(ratios, n=20)
    return Moved(len(ratios), statistics.median(ratios), cuts[0], cuts[-1])


def opdb(*arguments: str, required: bool = True) -> Any:
    """Run a command and return what it prints as JSON; None where it failed and may."""
    command = [sys.executable, "-m", "opdb", *arguments, "--json"]
    print(" ".join(command[2:]), file=sys.stderr, flush=True)
    done = subprocess.run(command, stdout=subprocess.PIPE, check=required, text=True)
    return json.loads(done.stdout) if done.returncode == 0 else None


def costs_in(database: Path) -> dict[str, dict[str, list[Cost]]]:
    """Return the costs of each board (UUID) by configuration."""
    with open_store(str(database), create=False) as store:
        return {board.uuid: store.costs(board.uuid) for board in store.boards()}


def rate(results: Sequence[Mapping[str, Any]]) -> tuple[int, float]:
    """Return how many configurations were measured, and in how many seconds."""
    return sum(each["configurations"] for each in results), max(r["elapsed_s"] for r in results)


def main() -> None:
    """Measure, and print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--devices", required=True, help="as in 0,1")
    parser.add_argument("--folder", type=Path, required=True, help="for the databases")
    parser.add_argument("--calibrated", type=Path, help="a database with the boards' calibrations")
    parser.add_argument("--rounds", type=int, help="visits of each configuration, see opdb bench")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    if any(asked.folder.iterdir()):
        parser.error(f"--folder {asked.folder}: not empty; what is measured already has no rate")
    alone, together, shared = (
        asked.folder / f"{n}.sqlite" for n in ("alone", "together", "shared")
    )
    bench = ["bench", *([] if asked.rounds is None else ["--rounds", str(asked.rounds)])]
    for database in (alone, together, shared):
        if asked.calibrated is not None:
            shutil.copy(asked.calibrated, database)
        opdb("harvest", *asked.models, "--db", str(database))
    devices = asked.devices.split(",")
    single = [
        opdb(*bench, "--this-board", "--devices", each, "--db", str(alone))["boards"][0]
        for each in devices
    ]
    opdb(*bench, "--this-board", "--devices", asked.devices, "--db", str(together))
    all_of_it = opdb(*bench, "--devices", asked.devices, "--db", str(shared))["boards"]

    one, others = costs_in(alone), costs_in(together)
    for board in one:
        for quantity in QUANTITIES:
            print(
                f"{board} {quantity}, together / alone:",
                moved(one[board], others[board], quantity),
            )
    for database in (alone, together):
        # With few configurations none was measured twice over.
        found = opdb("validate", "--duplicates", "--db", str(database), required=False)
        said = json.dumps(found["duplicates"]) if found else "none"
        print(f"blind duplicates, {database.stem}: {said}")
    for name, (count, seconds) in (
        *((f"one board ({each['board']})", rate([each])) for each in single),
        (f"{len(devices)} boards", rate(all_of_it)),
    ):
        print(f"{name}: {count} configurations in {seconds:.1f} s, {count / seconds:.2f} a second")


if __name__ == "__main__":
    main()
