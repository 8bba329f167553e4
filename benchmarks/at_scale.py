"""Ask a database of a million configurations what the published set is asked, and time both.

Nothing in that database was measured but the published set: its ten million other visits are rows
made up here, to find out how long commands take, never what anything costs. They say so: devices,
boards, hosts, campaigns, workloads and the ids of visits begin with "synthetic", and no row stands
under a real board. Run it in a checkout with opdb installed, on a machine that does little else:

    python benchmarks/at_scale.py

It builds both databases (some three minutes and 6 GB of disk) in a folder of its own that is
removed afterwards; `--keep FOLDER` keeps them and takes them up again when they are there.
`--configurations` and `--visits` make it smaller. Then, by turns, in both databases: cold
`opdb predict` of ResNet-152 and cold `opdb status`, each a process of its own, and the planning of
a bench on a board of the published set. Printed are median wall times and their ratios to the same
on the published set alone. The bars: `predict` at most 1.5 times as long, all of it within 2 s.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from opdb.bench.plan import DUPLICATE_SHARE
from opdb.derive.costs import ESTIMATOR
from opdb.derive.rejection import REJECTED
from opdb.kinds import KINDS
from opdb.records import Configuration, Workload, canonical_json
from opdb.settings import DEFAULT_SETTINGS, relevant_setting
from opdb.store import open_store
from opdb.store.exchange import import_set
from opdb.store.packing import pack
from opdb.store.rows import WORKLOAD

ROOT = Path(__file__).resolve().parents[1]
DEVICE = "nvidia-h200"
OTHER_DEVICE = "synthetic-device"
PREDICT_BAR = 1.5
INTERACTIVE_S = 2.0
ROUNDS = 5

CONFIGURATIONS_A_CAMPAIGN = 2000
CONFIGURATIONS_A_WORKLOAD = 50
CALLS_OF_EACH = 4
WORKLOAD_EVERY = 250
"""One workload for so many configurations: a fifth of these are called, the rest are of grids."""

SMALL_EVERY = 40
"""One workload of so many is of small tensors, so that its weights stay in the L2."""

MEASURED_WORKLOAD_EVERY = 4
PENDING_EVERY = 40
FAILED_EVERY = 1009
REJECTED_EVERY = 211
VISITS_AN_ANCHOR = 60

DEVICES = {DEVICE: 3, OTHER_DEVICE: 2}
"""Synthetic boards of each device, the published one and one that is all synthetic."""

_SAMPLES = {"b": 1000000, "d": 1000000, "f": 3, "n": 10, "p": [1000, 300000], "q": 100000}
_STRETCH = pack({**_SAMPLES, "t": [1, 0, 0]})
_REPEATS = pack([{**_SAMPLES, "t": [1, 0, 0]}])
_CALIBRATION = canonical_json(
    {
        "base_power_w": 120.0,
        "base_power_interval_w": [119.0, 121.0],
        "container_time_s": 1e-6,
        "sample_period_s": 0.02,
        "sample_lag_s": 0.01,
        "counter_period_s": 0.1,
        "transition_s": 1e-7,
        "notes": ["synthetic: nothing was measured"],
    }
)


@dataclass(frozen=True)
class Size:
    """How large a database is to be, in rows beside the published set's."""

    configurations: int
    visits: int

    @property
    def repeats(self) -> int:
        """Visits of one configuration on one device."""
        return max(1, round(self.visits / self.configurations / len(DEVICES)))


def configurations(count: int) -> Iterator[Configuration]:
    """Yield so many different configurations of five kinds; shapes that no model would have."""
    for number in range(count):
        rest, which = divmod(number, 5)
        rest, width = divmod(rest, 128)
        batch, height = divmod(rest, 97)
        small = number // WORKLOAD_EVERY % SMALL_EVERY == 0
        yield _configuration(
            which, [batch + 1 if small else batch + 128, 67, height + 32, width + 64]
        )


def _configuration(which: int, shape: list[int]) -> Configuration:
    image = {"shape": shape, "dtype": "float32"}
    if which == 0:
        weight = {"shape": [8, shape[1], 3, 3], "dtype": "float32", "role": "weight"}
        return Configuration("conv2d", inputs={"input": image, "weight": weight})
    if which == 1:
        weight = {"shape": [16, shape[3]], "dtype": "float32", "role": "weight"}
        return Configuration("linear", inputs={"input": image, "weight": weight})
    if which == 2:
        return Configuration("relu", {"inplace": True}, {"input": image})
    if which == 3:
        return Configuration("add", inputs={"input": image, "other": image})
    return Configuration("mul", inputs={"input": image, "other": image})


def build_published(path: Path) -> None:
    """Build a database that holds the published set alone."""
    with open_store(str(path)) as store:
        import_set(store, ROOT / "db" / DEVICE)


def build_large(path: Path, published: Path, size: Size) -> None:
    """Build a database that holds those rows of the published one, and synthetic ones."""
    shutil.copy(published, path)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("PRAGMA journal_mode = OFF")
    connection.execute("PRAGMA cache_size = -500000")
    connection.execute("PRAGMA temp_store = FILE")
    indices = connection.execute(
        "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL"
    ).fetchall()
    for name, _ in indices:
        connection.execute(f"DROP INDEX {name}")
    connection.execute("BEGIN")
    first = _add_configurations(connection, size)
    _add_campaigns(connection, size, first)
    _add_workloads(connection, size, first)
    _add_measurements(connection, size)
    connection.execute("COMMIT")
    for _, statement in indices:
        connection.execute(statement)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.close()


def _add_configurations(connection: sqlite3.Connection, size: Size) -> int:
    """Insert the configurations; return the row number of the first."""
    [(last,)] = connection.execute("SELECT max(id) FROM configuration")
    connection.executemany(
        "INSERT INTO configuration (id, key, kind, json) VALUES (?, ?, ?, ?)",
        (
            (number, each.key, each.kind, each.json)
            for number, each in enumerate(configurations(size.configurations), last + 1)
        ),
    )
    connection.execute("CREATE TEMP TABLE setting (kind TEXT PRIMARY KEY, setting TEXT)")
    settings = [(kind, relevant_setting(kind, DEFAULT_SETTINGS)) for kind in KINDS]
    connection.executemany("INSERT INTO setting VALUES (?, ?)", settings)
    return int(last) + 1


def _add_campaigns(connection: sqlite3.Connection, size: Size, first: int) -> None:
    """Insert devices, boards and campaigns, and say which configuration each campaign visits."""
    connection.execute(
        "INSERT INTO device SELECT ?, 'synthetic', type, power_limit_w, memory_bytes, l2_bytes, "
        "max_clock_hz FROM device WHERE slug = ?",
        (OTHER_DEVICE, DEVICE),
    )
    connection.execute("INSERT INTO host VALUES ('synthetic-host', 'synthetic', 1, 'synthetic')")
    connection.execute("CREATE TEMP TABLE stretch_of (campaign, board, device, low, high)")
    environment = canonical_json({"opdb": "synthetic"})
    for device, boards in DEVICES.items():
        names = [f"synthetic-board-{device}-{number}" for number in range(boards)]
        connection.executemany("INSERT INTO board VALUES (?, ?)", [(n, device) for n in names])
        starts = range(first, first + size.configurations, CONFIGURATIONS_A_CAMPAIGN)
        for number, low in enumerate(starts):
            name, board = f"synthetic-{device}-{number:05}", names[number % boards]
            high = min(low + CONFIGURATIONS_A_CAMPAIGN, first + size.configurations)
            connection.execute(
                "INSERT INTO campaign (id, board, device, host, started_at, environment, settings,"
                " calibration) VALUES (?, ?, ?, 'synthetic-host', ?, ?, ?, ?)",
                (name, board, device, _moment(number), environment, "{}", _CALIBRATION),
            )
            connection.execute(
                "INSERT INTO stretch_of VALUES (?, ?, ?, ?, ?)", (name, board, device, low, high)
            )


def _moment(number: int) -> str:
    """Return a moment long before the published set's."""
    day, hour = divmod(number, 24)
    return f"2001-{1 + day // 28 % 12:02}-{1 + day % 28:02}T{hour:02}:00:00.000+00:00"


def _add_workloads(connection: sqlite3.Connection, size: Size, first: int) -> None:
    """Insert workloads with their calls; of some of them, runs on the published device."""
    campaigns = connection.execute(
        "SELECT campaign, low, high FROM stretch_of WHERE device = ?", (DEVICE,)
    ).fetchall()
    [(number,)] = connection.execute("SELECT max(id) FROM workload")
    for low in range(first, first + size.configurations, WORKLOAD_EVERY):
        number += 1
        high = min(low + CONFIGURATIONS_A_WORKLOAD, first + size.configurations)
        called = range(low, high)
        sequence = " ".join(str(each) for each in range(len(called)) for _ in range(CALLS_OF_EACH))
        row = {**WORKLOAD.row(_workload(number)), "sequence": sequence}
        connection.execute(
            f"INSERT INTO workload (id, {', '.join(row)}) VALUES (?{', ?' * len(row)})",
            (number, *row.values()),
        )
        connection.executemany(
            "INSERT INTO call (workload_id, number, configuration_id, form, calls)"
            f" VALUES (?, ?, ?, 'module', {CALLS_OF_EACH})",
            ((number, operator, each) for operator, each in enumerate(called)),
        )
        if number % MEASURED_WORKLOAD_EVERY == 0:
            campaign = next(name for name, from_, to in campaigns if from_ <= low < to)
            _add_runs(connection, number, campaign)


def _workload(number: int) -> Workload:
    batch_size = 2 ** (number % 8)
    image = {"shape": [batch_size, 3, number + 1, 7], "dtype": "float32"}
    return Workload(
        name=f"synthetic_{number % 500}",
        source="synthetic",
        source_version="0",
        inputs={"args": [image], "kwargs": {}},
        batch_size=batch_size,
        dtype="float32",
        memory_format="contiguous",
        containers=10,
    )


def _add_runs(connection: sqlite3.Connection, workload: int, campaign: str) -> None:
    connection.executemany(
        "INSERT INTO model_run (id, campaign, workload_id, mode, outcome, started_at, cost_s,"
        " repeats, flags) VALUES (?, ?, ?, ?, 'ok', ?, 1.0, ?, '[]')",
        [
            (f"synthetic-{workload}-{mode}", campaign, workload, mode, _moment(0), _REPEATS)
            for mode in ("eager", "graph")
        ],
    )


_MADE = """
CREATE TEMP TABLE made AS
SELECT c.id AS configuration_id, s.campaign, s.board, t.setting, s.device,
    (c.id % {failed} = 0) AS failed, (c.key < '{duplicated}') AS is_duplicated
FROM stretch_of s
JOIN configuration c ON c.id >= s.low AND c.id < s.high
JOIN setting t ON t.kind = c.kind
WHERE c.id % {pending} > 0 OR s.device <> '{device}'
"""

_TALLY = """
INSERT INTO tally
SELECT c.device, v.configuration_id, c.board, v.setting, v.role, v.access, v.weights, v.outcome,
    CASE WHEN v.flags = '[]' THEN '' ELSE 'synthetic' END, count(*)
FROM visit v JOIN campaign c ON c.id = v.campaign
WHERE c.board LIKE 'synthetic%' GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9
"""

_VISITS = """
INSERT INTO visit (id, campaign, configuration_id, setting, role, outcome, reason, started_at,
    cost_s, issue, weights, copies, stretch, flags, access)
SELECT printf('synthetic-%s-%d-%d', substr(m.device, 1, 1), m.configuration_id, n.value),
    m.campaign, m.configuration_id, m.setting,
    CASE WHEN n.value >= 2 AND m.is_duplicated THEN 'duplicate' ELSE 'measurement' END,
    CASE WHEN m.failed THEN 'out_of_memory' ELSE 'ok' END,
    CASE WHEN m.failed THEN 'synthetic' END,
    printf('2001-01-01T00:00:%02d.000+00:00', n.value), 1.0, 'graph', 'cold', 2,
    CASE WHEN m.failed THEN NULL ELSE :stretch END,
    CASE WHEN n.value = 0 AND m.configuration_id % :rejected = 0 THEN :flags ELSE '[]' END,
    'model'
FROM made m JOIN repeat n
WHERE NOT m.failed OR n.value = 0
"""

_ANCHORS = """
INSERT INTO visit (id, campaign, configuration_id, setting, role, outcome, started_at,
    cost_s, issue, weights, copies, stretch, flags, access)
SELECT printf('synthetic-anchor-%s-%d', s.campaign, n.value), s.campaign, a.configuration_id,
    a.setting, 'anchor', 'ok', printf('2001-01-01T00:%02d:%02d.000+00:00', n.value / 60,
    n.value % 60), 1.0, 'graph', 'cold', 2, :stretch, '[]', 'model'
FROM stretch_of s JOIN anchor_repeat n JOIN anchor a ON a.number = n.value % :anchors
"""

_HOST_VISITS = """
INSERT INTO host_visit (id, campaign, configuration_id, form, started_at, times, flags)
SELECT printf('synthetic-%s-%d', substr(device, 1, 1), configuration_id), campaign,
    configuration_id, 'module', '2001-01-01T00:01:00.000+00:00', :times, '[]'
FROM made WHERE NOT failed AND configuration_id % 2
"""

_COSTS = """
INSERT INTO cost (board, configuration_id, setting, estimator, visits, kernels, {quantities},
    host_time_s, clock_hz, reasons, flags)
SELECT board, configuration_id, setting, :estimator, :repeats, 1, {values}, :host, 1.98e9,
    '{{}}', '[]'
FROM made WHERE NOT failed
"""

_QUANTITIES = {
    "time_s": 1e-5,
    "eager_time_s": 1.1e-5,
    "power_w": 300.0,
    "energy_j": 3e-3,
    "dynamic_energy_j": 1.8e-3,
}


def _made() -> str:
    duplicated = f"{int(DUPLICATE_SHARE * 2**32):08x}"
    return _MADE.format(
        failed=FAILED_EVERY, pending=PENDING_EVERY, device=DEVICE, duplicated=duplicated
    )


def _add_measurements(connection: sqlite3.Connection, size: Size) -> None:
    """Insert visits, anchors, host visits and costs: what is in `stretch_of`, a row each."""
    connection.execute(_made())
    _count_to(connection, "repeat", size.repeats)
    flags = canonical_json([f"{REJECTED}synthetic"])
    said = {"repeats": size.repeats, "rejected": REJECTED_EVERY}
    connection.execute(_VISITS, {**said, "stretch": _STRETCH, "flags": flags})
    per_campaign = min(size.configurations, CONFIGURATIONS_A_CAMPAIGN) * size.repeats
    _count_to(connection, "anchor_repeat", per_campaign // VISITS_AN_ANCHOR)
    connection.execute("CREATE TEMP TABLE anchor (number, configuration_id, setting)")
    anchors = connection.execute(
        "SELECT DISTINCT configuration_id, setting FROM visit WHERE role = 'anchor'"
    ).fetchall()
    connection.executemany(
        "INSERT INTO anchor VALUES (?, ?, ?)", [(i, *each) for i, each in enumerate(anchors)]
    )
    connection.execute(_ANCHORS, {"stretch": _STRETCH, "anchors": len(anchors)})
    connection.execute(_HOST_VISITS, {"times": pack([10000, 10100, 9900])})
    connection.execute(_TALLY)
    _add_costs(connection, size)


def _add_costs(connection: sqlite3.Connection, size: Size) -> None:
    parts = {"median": 1.0, "mean": 1.0, "low": 0.99, "high": 1.01}
    columns = {
        f"{name}_{part}": repr(value * factor)
        for name, value in _QUANTITIES.items()
        for part, factor in parts.items()
    } | {f"{name}_count": "16" for name in _QUANTITIES}
    host = canonical_json(
        {"module": {"median": 1e-5, "mean": 1e-5, "low": 9e-6, "high": 1.1e-5, "count": 3}}
    )
    statement = _COSTS.format(quantities=", ".join(columns), values=", ".join(columns.values()))
    connection.execute(statement, {"estimator": ESTIMATOR, "repeats": size.repeats, "host": host})


def _count_to(connection: sqlite3.Connection, table: str, count: int) -> None:
    connection.execute(f"CREATE TEMP TABLE {table} (value INTEGER)")
    connection.executemany(f"INSERT INTO {table} VALUES (?)", [(n,) for n in range(count)])


COMMANDS = {
    "predict": ("predict", "resnet152", "--batch-size", "32", "--device", DEVICE),
    "predict, device not named": ("predict", "resnet152", "--batch-size", "32"),
    "status": ("status",),
}
PLANNING = """
import sys, time
from opdb.bench.plan import PlanRequest, plan
from opdb.footprint import resident_bytes
from opdb.settings import DEFAULT_SETTINGS
from opdb.store import open_store
with open_store(sys.argv[1]) as store:
    [device] = [each for each in store.devices() if each.slug == sys.argv[2]]
    board = store.boards(device.slug)[0]
    request = PlanRequest(resident_bytes=resident_bytes(device))
    start = time.monotonic()
    plan(store, board, DEFAULT_SETTINGS, request)
    print(time.monotonic() - start)
"""


def wall_s(arguments: tuple[str, ...]) -> float:
    """Run opdb with these arguments; returns the seconds it took.

    Raises:
        SystemExit: it fails; its message is shown.
    """
    start = time.monotonic()
    _python("-m", "opdb", *arguments)
    return time.monotonic() - start


def planning_s(database: Path) -> float:
    """Return the seconds that planning a bench takes, the start of Python apart."""
    return float(_python("-c", PLANNING, str(database), DEVICE))


def _python(*arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(arguments[:6])}: exit status {done.returncode}\n{done.stderr}")
    return done.stdout


def measure(published: Path, large: Path, rounds: int) -> dict[str, tuple[float, float]]:
    """Let the databases take turns; returns the median seconds of each question in both."""
    times: dict[str, tuple[list[float], list[float]]] = {}
    for turn in range(rounds + 1):
        for which, database in enumerate((published, large)):
            asked = {
                name: wall_s((*command, "--db", str(database)))
                for name, command in COMMANDS.items()
            }
            asked["planning"] = planning_s(database)
            for name, seconds in asked.items():
                # The first turn brings files into the page cache, and what is known of workloads.
                if turn:
                    times.setdefault(name, ([], []))[which].append(seconds)
    return {
        name: (statistics.median(small), statistics.median(large))
        for name, (small, large) in times.items()
    }


def run(folder: Path, size: Size, rounds: int) -> dict[str, tuple[float, float]]:
    """Build what is not there yet, and measure."""
    published, large = folder / "published.sqlite", folder / "synthetic.sqlite"
    if not published.exists():
        build_published(published)
    if not large.exists():
        start, aside = time.monotonic(), folder / "unfinished.sqlite"
        aside.unlink(missing_ok=True)
        build_large(aside, published, size)
        aside.replace(large)
        said = f"{large.stat().st_size / 1e9:.2f} GB in {time.monotonic() - start:.0f} s"
        print(
            f"{size.configurations} configurations, {size.visits} visits: {said}", file=sys.stderr
        )
    return measure(published, large, rounds)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--configurations", type=int, default=1_000_000, metavar="N")
    parser.add_argument("--visits", type=int, default=10_000_000, metavar="N")
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N")
    parser.add_argument("--keep", type=Path, metavar="FOLDER")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    size = Size(options.configurations, options.visits)
    with tempfile.TemporaryDirectory(prefix="opdb-at-scale-") as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        found = run(folder, size, options.rounds)
    met = {
        name: large_s <= INTERACTIVE_S and (name != "predict" or large_s <= PREDICT_BAR * small_s)
        for name, (small_s, large_s) in found.items()
    }
    if options.json:
        rows = {
            name: {"published_s": small_s, "large_s": large_s, "ratio": large_s / small_s}
            for name, (small_s, large_s) in found.items()
        }
        print(json.dumps({**rows, "bars_met": met}))
        return 0 if all(met.values()) else 1
    print(f"{'':26} {'published':>10} {'large':>10} {'ratio':>7}")
    for name, (small_s, large_s) in found.items():
        ratio = f"{large_s / small_s:7.2f}"
        print(
            f"{name:26} {small_s:8.3f} s {large_s:8.3f} s {ratio} {'' if met[name] else 'missed'}"
        )
    return 0 if all(met.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
