"""Measure operators of AIConfigurator's published table with opdb, and compare times and energies.

Run it on a machine with an NVIDIA H200 that does nothing else:

    python -m benchmarks.aiconfigurator --db aic.sqlite --json aic.json

A sample of the table's rows (benchmarks/aiconfigurator_h200/) is written as a grid file and
measured by `opdb bench --grid`, one visit each, in random order. Rows lie below the board's power
limit or at it; a row at the limit in both is compared with opdb's visit at the limit, because the
clock is lowered in both. The table's matrix products are the ones that the bars are about: vLLM
and torch both call cuBLAS. Its attention is vLLM's FlashAttention, torch runs a kernel of its own,
so times may differ there.

Energies differ, because the table's power is read every 100 ms while only some of the time is the
operator's. Loads of known duty, read both ways (benchmarks/square_waves.py), show by how much.
`--part` chooses one half (`waves` needs the database of the other); `--dry-run` prints the grid
file and needs no GPU.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
import statistics
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import yaml

from benchmarks import new_file, square_waves
from opdb.api.benches import BenchOptions, bench
from opdb.bench.platform import Platform, detect
from opdb.errors import CannotMeasureError, InputError, OpdbError
from opdb.grid import expand, load_grids
from opdb.records import Calibration, Cost
from opdb.store import Store, open_store
from opdb.store.deriving import costs_of
from opdb.units import MILLI

DATA = Path(__file__).with_name("aiconfigurator_h200")
SECONDS = 95.0
SEED = 26
SAMPLE = {"below": 60, "limit": 24, "attention": 20}
"""Rows of each class that are measured: products below the power limit, at it, and attention."""

AT_LIMIT = 0.97
"""A power of more than this share of the limit says that the row was at it."""

SHORT_S = 20e-6
BARS = {"below": 0.05, "limit": 0.07}
"""How far the median ratio of times may lie from 1."""


@dataclass(frozen=True)
class Row:
    """One operator of the table: the grid that calls it, and what was published of it.

    `power_limit_w` is the table's; attention was published without one, so its board's is taken.
    """

    name: str
    grid: Mapping[str, Any]
    time_s: float
    power_w: float
    power_limit_w: float = 700.0
    attention: bool = False

    @property
    def group(self) -> str:
        """The group of the row: below, limit or attention."""
        if self.attention:
            return "attention"
        return "limit" if self.power_w > AT_LIMIT * self.power_limit_w else "below"


@dataclass(frozen=True)
class Compared:
    """A row beside opdb's figures, both for one call: seconds, joules (gross) and watts."""

    name: str
    regime: str
    table_s: float
    opdb_s: float
    time_ratio: float
    table_j: float
    opdb_j: float | None
    energy_ratio: float | None
    table_w: float
    opdb_w: float | None


@dataclass(frozen=True)
class Summary:
    """Ratios opdb / table of one regime: median, least and largest; the bar its median must keep.

    `kept` is None where there is no bar.
    """

    regime: str
    rows: int
    time: tuple[float, float, float]
    energy: tuple[float, float, float] | None
    bar: float | None
    kept: bool | None

    def __str__(self) -> str:
        told = f"{self.regime:28} {self.rows:4}  time {_three(self.time)}"
        told += f"  energy {_three(self.energy)}" if self.energy else ""
        if self.bar is None:
            return told
        return f"{told}  within {100 * self.bar:.0f} %: {'yes' if self.kept else 'no'}"


def _three(found: tuple[float, float, float]) -> str:
    return "{:.3f} [{:.2f}, {:.2f}]".format(*found)


# the table


def read_rows(folder: Path) -> list[Row]:
    """Return the rows of both files of a folder.

    Raises:
        InputError: a file is not there, or lacks a column.
    """
    rows = []
    for file, made in (("gemm.csv", product), ("decode_attention.csv", attention)):
        path = folder / file
        try:
            with path.open(newline="") as lines:
                rows += [made(fields) for fields in csv.DictReader(lines)]
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}") from error
        except KeyError as error:
            raise InputError(f"{path}: there is no column {error}") from error
        except (TypeError, ValueError) as error:
            raise InputError(f"{path}: a field is not a number ({error})") from error
    return rows


def product(fields: Mapping[str, str]) -> Row:
    """Return a matrix product: (m, k) times the weights (k, n) of a linear layer without bias."""
    m, n, k = (int(fields[name]) for name in "mnk")
    grid = {
        "operator": "nn.Linear",
        "arguments": {"in_features": k, "out_features": n, "bias": False},
        "inputs": {"input": [m, k]},
    }
    return Row(f"{m} x {k} x {n}", grid, *_published(fields), float(fields["power_limit"]))


def attention(fields: Mapping[str, str]) -> Row:
    """Return the attention of one new token to a cache of `isl` + `step` keys and values."""
    batch, heads, groups, width = (
        int(fields[name]) for name in ("batch_size", "num_heads", "num_key_value_heads", "head_dim")
    )
    tokens = int(fields["isl"]) + int(fields["step"])
    kept = [batch, groups, tokens, width]
    grid = {
        "operator": "F.scaled_dot_product_attention",
        "arguments": {"enable_gqa": True},
        "inputs": {"query": [batch, heads, 1, width], "key": kept, "value": kept},
    }
    name = f"attention {batch} x {tokens}"
    return Row(name, grid, *_published(fields), attention=True)


def _published(fields: Mapping[str, str]) -> tuple[float, float]:
    """Return the published time (s) and power (W)."""
    return float(fields["latency"]) * MILLI, float(fields["power"])


def sampled(rows: Sequence[Row], sizes: Mapping[str, int], seed: int) -> list[Row]:
    """Return so many rows of each class (all where there are fewer), in random order."""
    lot = random.Random(seed)
    found = []
    for group, size in sizes.items():
        those = [row for row in rows if row.group == group]
        found += lot.sample(those, min(size, len(those)))
    lot.shuffle(found)  # or a bench whose time is up would lack one class
    return found


def grid_text(rows: Sequence[Row]) -> str:
    """Return the grid file that asks for these rows, each a variant, in bfloat16."""
    first, *others = rows
    document = {**first.grid, "dtype": "bfloat16", "variants": [dict(row.grid) for row in others]}
    return yaml.dump(document, Dumper=_Plain, sort_keys=False, default_flow_style=None)


class _Plain(yaml.SafeDumper):
    """Writes equal lists out instead of naming the first: a grid file holds no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def keys_of(path: Path, rows: Sequence[Row]) -> list[str]:
    """Return the configuration key of each row, from the grid file that asks for them.

    Raises:
        InputError: torch refuses one of them.
    """
    keys = []
    for row, grid in zip(rows, load_grids(path), strict=True):
        found = expand([grid])
        if not found.calls:
            raise InputError(f"{row.name}: {found.dropped[0].reason}")
        keys.append(found.calls[0].configuration.key)
    return keys


# beside opdb


def compared(row: Row, cost: Cost, base_power_w: float | None) -> Compared | None:
    """Hold a row against opdb's cost of it; None where opdb has no time.

    Where both were at the power limit, opdb's visits there count, else those at full clock.
    """
    limited = cost.limited
    at_both = limited is not None and row.power_w > AT_LIMIT * row.power_limit_w
    energy_j = None
    if at_both and limited is not None:
        time_s, dynamic_j = limited.time_s, limited.dynamic_energy_j
        if dynamic_j is not None and base_power_w is not None:
            energy_j = dynamic_j + base_power_w * time_s
    elif cost.time_s is not None:
        time_s = cost.time_s.mean
        energy_j = cost.energy_j.mean if cost.energy_j else None
    else:
        return None
    table_j = row.time_s * row.power_w
    return Compared(
        name=row.name,
        regime=regime(row, limited=limited is not None),
        table_s=row.time_s,
        opdb_s=time_s,
        time_ratio=time_s / row.time_s,
        table_j=table_j,
        opdb_j=energy_j,
        energy_ratio=None if energy_j is None else energy_j / table_j,
        table_w=row.power_w,
        opdb_w=None if energy_j is None else energy_j / time_s,
    )


def regime(row: Row, *, limited: bool) -> str:
    """Return in words where a row lies; `limited` says that opdb met the power limit."""
    if row.attention:
        return "attention, other kernels"
    if limited != (row.group == "limit"):
        return "at the limit in one alone"
    if limited:
        return "at the limit"
    return f"below it, {'<' if row.time_s < SHORT_S else '≥'} 20 µs"


def summaries(found: Sequence[Compared]) -> list[Summary]:
    """Sum up each regime, and all rows below the limit, with the bars."""
    below = [each for each in found if each.regime.startswith("below it")]
    parts: dict[str, tuple[list[Compared], float | None]] = {
        "below the limit": (below, BARS["below"]),
    }
    for name in sorted({each.regime for each in found}):
        those = [each for each in found if each.regime == name]
        parts[name] = (those, BARS["limit"] if name == "at the limit" else None)
    return [_summary(name, those, bar) for name, (those, bar) in parts.items() if those]


def _summary(name: str, those: Sequence[Compared], bar: float | None) -> Summary:
    time = spread(each.time_ratio for each in those)
    energies = [each.energy_ratio for each in those if each.energy_ratio is not None]
    kept = None if bar is None else abs(time[0] - 1) <= bar
    return Summary(name, len(those), time, spread(energies) if energies else None, bar, kept)


def spread(ratios: Iterable[float]) -> tuple[float, float, float]:
    """Return the median, the least and the largest."""
    known = list(ratios)
    return statistics.median(known), min(known), max(known)


def measured(
    rows: Sequence[Row], db: str | None, platform: Platform, seconds: float
) -> list[Compared]:
    """Bench the rows for so many seconds and return those that have a cost then."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.yml"
        path.write_text(grid_text(rows))
        keys = keys_of(path, rows)
        asked = BenchOptions(
            grid=path,
            device=platform.torch_device,
            this_board=True,
            max_seconds=seconds,
            rounds=1,
            duplicates=0.0,
        )
        print(bench(options=asked, db=db), file=sys.stderr)
    with open_store(db, create=False) as store:
        return beside(rows, keys, store, platform.board.uuid)


def beside(rows: Sequence[Row], keys: Sequence[str], store: Store, board: str) -> list[Compared]:
    """Return the rows that a board has costs of, beside these."""
    costs = {cost.configuration: cost for cost in costs_of(store, board) if cost.visits}
    base_power_w = calibration_of(store, board).base_power_w
    pairs = [(row, costs[key]) for row, key in zip(rows, keys, strict=True) if key in costs]
    found = [compared(row, cost, base_power_w) for row, cost in pairs]
    return [each for each in found if each is not None]


def calibration_of(store: Store, board: str) -> Calibration:
    """Return what the board's latest campaign found, of those with a base power if there is one.

    Raises:
        CannotMeasureError: the board has no campaign.
    """
    found = [c.calibration for c in store.campaigns(board=board)]
    if not found:
        raise CannotMeasureError(f"{store.location} has no campaign of {board}; run --part both")
    return max(reversed(found), key=lambda each: each.base_power_w is not None)


def show(found: Sequence[Compared]) -> None:
    """Print the summaries."""
    print(f"{'opdb / table':28} {'rows':>4}  median [least, largest]")
    for each in summaries(found):
        print(each)


def options_of(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--db", metavar="URL", help="measure into it  [OPDB_DB]")
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help="of the bench  [%(default)s]"
    )
    parser.add_argument("--part", choices=["table", "waves", "both"], default="both")
    for group, size in SAMPLE.items():
        parser.add_argument(f"--{group}", type=int, default=size, metavar="N", help="[%(default)s]")
    parser.add_argument("--json", type=new_file, metavar="FILE", help="write all figures")
    parser.add_argument("--dry-run", action="store_true", help="print the grid file")
    options = parser.parse_args(arguments)
    sizes = [getattr(options, group) for group in SAMPLE]
    if min(sizes) < 0 or sum(sizes) == 0 or options.seconds <= 0:
        parser.error("give rows of 0 or more, at least one in all, and seconds above 0")
    return options


def run(options: argparse.Namespace) -> int:
    """Measure and compare."""
    sizes = {group: getattr(options, group) for group in SAMPLE}
    rows = sampled(read_rows(DATA), sizes, SEED)
    if options.dry_run:
        print(grid_text(rows), end="")
        return 0
    platform = detect("cuda:0")
    document: dict[str, Any] = {
        "device": platform.device.name,
        "board": platform.board.uuid,
        "environment": platform.environment,
    }
    if options.part != "waves":
        with torch.no_grad():
            found = measured(rows, options.db, platform, options.seconds)
        show(found)
        document["asked"] = len(rows)
        document["summaries"] = [asdict(each) for each in summaries(found)]
        document["rows"] = [asdict(each) for each in found]
        _write(options.json, document)  # what follows may fail
    if options.part != "table":
        with open_store(options.db, create=False) as store:
            calibration = calibration_of(store, platform.board.uuid)
        waves = square_waves.measure(platform, calibration)
        square_waves.show(waves)
        document["waves"] = [asdict(each) for each in waves]
        _write(options.json, document)
    return 0


def _write(path: Path | None, document: Mapping[str, Any]) -> None:
    if path is not None:
        path.write_text(json.dumps(document, indent=1) + "\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    options = options_of(arguments)
    try:
        return run(options)
    except OpdbError as error:
        print(f"aiconfigurator: {error}", file=sys.stderr)
        return error.exit_status


if __name__ == "__main__":
    sys.exit(main())
