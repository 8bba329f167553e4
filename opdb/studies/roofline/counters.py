"""Hardware counters: Nsight Compute, what its CSV holds, and operators as counted and as seen."""

from __future__ import annotations

import csv
import io
import os
import re
import shutil
import subprocess
import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

from opdb.errors import CannotMeasureError, InputError, UnknownNameError
from opdb.files import LARGEST_BYTES, parse_json, read_bytes, read_text
from opdb.kinds import KINDS
from opdb.kinds.registry import DEFAULT_SETTINGS, relevant_setting
from opdb.records import Board, Configuration, Json, KernelCounts, Profile, Workload
from opdb.store import Store
from opdb.tables import RATIO, Column, Report, Rows, Table
from opdb.units import plural, show, show_share

PERMISSION = (
    "write options nvidia NVreg_RestrictProfilingToAdminUsers=0 to a file in /etc/modprobe.d and "
    "reboot, or run as root (a container with --cap-add=SYS_ADMIN)"
)

_BASE_NAME = re.compile(r"[A-Za-z_]\w*__\w+")
_VERSION = re.compile(r"^Version (\S+)", re.MULTILINE)


@dataclass(frozen=True)
class Ncu:
    path: str
    version: str

    @property
    def name(self) -> str:
        return f"ncu {self.version}"

    def known_metrics(self) -> set[str]:
        """Return the metrics that it knows on this machine's GPUs, without their suffixes."""
        output = self._run(["--query-metrics", "--csv"])
        rows = csv.reader(line for line in output.splitlines() if not line.startswith("=="))
        found = {row[0] for row in rows if row and _BASE_NAME.fullmatch(row[0])}
        if not found:
            raise CannotMeasureError(f"{self.path} --query-metrics names no metric: {_why(output)}")
        return found

    def profile(self, program: Sequence[str], metrics: Sequence[str], report: Path) -> str:
        """Run a program under the profiler, keep the report, and return its raw page as CSV.

        What the program runs between cudaProfilerStart and Stop is profiled, kernel by kernel, the
        clocks left alone and the caches emptied before each.
        """
        options = [
            *("--clock-control", "none", "--cache-control", "all"),
            *("--profile-from-start", "off", "--nvtx"),
            *("--metrics", ",".join(metrics)),
            *("--force-overwrite", "--export", str(report).replace("%", "%%")),
        ]
        output = self._run([*options, *program])
        if not report.exists():
            raise CannotMeasureError(f"ncu wrote no report: {_why(output)}")
        return self._run(["--import", str(report), "--csv", "--page", "raw"], LC_ALL="C")

    def _run(self, arguments: Sequence[str], **variables: str) -> str:
        """Run it, with these environment variables; return all that it and its program print."""
        try:
            done = subprocess.run(
                [self.path, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                check=False,
                env={**os.environ, **variables},
            )
        except OSError as error:
            raise CannotMeasureError(f"{self.path} does not run: {error.strerror}") from error
        if "ERR_NVGPUCTRPERM" in done.stdout:
            raise CannotMeasureError(
                f"this user may not read the GPU's performance counters (ERR_NVGPUCTRPERM): "
                f"{PERMISSION}"
            )
        if done.returncode != 0:
            raise CannotMeasureError(f"ncu failed: {_why(done.stdout)}")
        return done.stdout


def find() -> Ncu:
    path = shutil.which("ncu")
    if path is None:
        raise CannotMeasureError(
            "no ncu on PATH to read hardware counters with: install Nsight Compute (apt install "
            "nsight-compute, or with the CUDA toolkit) and put it on PATH"
        )
    output = Ncu(path, "")._run(["--version"])
    version = _VERSION.search(output)
    return Ncu(path, version[1] if version else "of unknown version")


def _why(output: str) -> str:
    """Return what went wrong in one line: the program's last word, and the profiler's error."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    told = [line for line in lines if line.startswith(("==ERROR==", "==WARNING=="))]
    errors = [line.partition("== ")[2] for line in told]
    said = [line for line in lines if not line.startswith("==")][-1:]
    return "; ".join([*errors[:2], *said]) or "it says nothing"


Definition: TypeAlias = Mapping[str, Mapping[str, float]]
"""Quantity → metric → weight."""

UNITS = ("float32", "tf32", "float16", "bfloat16", "float64", "float64_vector")
MEMORY = "memory"
LEVELS = (MEMORY, "l2", "l1")
OTHER = "other"
"""Metrics that are in no quantity and are kept all the same."""

QUANTITIES = ("time_s", *(f"{n}_bytes" for n in LEVELS), *(f"{n}_flops" for n in UNITS), OTHER)

_THREADS = "sm__sass_thread_inst_executed_op_{}_pred_on.sum"
_TENSOR = "sm__ops_path_tensor_src_{}.sum"


def _threads(letter: str) -> dict[str, float]:
    """Count one operation an addition or product, two a fused one; of the threads that ran it."""
    weights = (("add", 1.0), ("mul", 1.0), ("fma", 2.0))
    return {_THREADS.format(letter + name): weight for name, weight in weights}


def _tensor(*names: str) -> dict[str, float]:
    """Take the operations of tensor cores, which the counters count already."""
    return {_TENSOR.format(name): 1.0 for name in names}


_USUAL: Mapping[str, tuple[Mapping[str, float], ...]] = {
    "time_s": ({"gpu__time_duration.sum": 1.0},),
    "memory_bytes": (
        {"dram__bytes.sum": 1.0},
        {"dram__bytes_read.sum": 1.0, "dram__bytes_write.sum": 1.0},
    ),
    "l2_bytes": ({"lts__t_bytes.sum": 1.0},),
    "l1_bytes": ({"l1tex__t_bytes.sum": 1.0},),
    "float32_flops": (_threads("f"),),
    "tf32_flops": (_tensor("tf32_dst_fp32"),),
    "float16_flops": (_tensor("fp16"), _tensor("fp16_dst_fp16", "fp16_dst_fp32")),
    "bfloat16_flops": (_tensor("bf16_dst_fp32"),),
    "float64_flops": (_tensor("fp64"),),
    "float64_vector_flops": (_threads("d"),),
    # how many operations one of these is depends on whether it works on pairs: in no sum
    OTHER: (_threads("h"),),
}
"""Each quantity's definitions, the first that a GPU has the metrics of is taken."""

_METRIC = re.compile(r"[A-Za-z_]\w*(\.\w+)+")


@dataclass(frozen=True)
class Counters:
    """What hardware counters saw of one call; None where a metric was missing.

    `bytes` are by memory level; `flops` by unit, those alone that this GPU has metrics of.
    `time_s` is the kernels' time under the profiler.
    """

    time_s: float | None
    bytes: Mapping[str, float | None]
    flops: Mapping[str, float | None]
    kernels: int

    @property
    def all_flops(self) -> float | None:
        """The operations on all units; None where those of one are missing."""
        known = [value for value in self.flops.values() if value is not None]
        return sum(known) if known and len(known) == len(self.flops) else None

    @property
    def unit(self) -> str | None:
        """The unit that did most of them; None where none did any."""
        most = max(((value or 0.0, unit) for unit, value in self.flops.items()), default=(0.0, ""))
        return most[1] if most[0] else None


def counters_of(profile: Profile) -> Counters:
    def of(quantity: str) -> float | None:
        weights = profile.definition.get(quantity)
        if not weights:
            return None
        total = 0.0
        for kernel in profile.kernels:
            for metric, weight in weights.items():
                value = kernel.values.get(metric)
                if value is None:
                    return None
                total += weight * value
        return total

    return Counters(
        of("time_s"),
        {level: of(f"{level}_bytes") for level in LEVELS},
        {unit: of(f"{unit}_flops") for unit in UNITS if f"{unit}_flops" in profile.definition},
        len(profile.kernels),
    )


def definition(known: Collection[str], own: Definition | None = None) -> Definition:
    """Choose each quantity's metrics among those that are known: full names, or without suffix.

    A user's own go first. A quantity of which none of the usual metrics is known is left out.
    """
    chosen: dict[str, Mapping[str, float]] = {}
    for quantity in QUANTITIES:
        if own is not None and quantity in own:
            for metric in own[quantity]:
                if not _is_known(metric, known):
                    hint = "(ncu --query-metrics lists what this ncu knows here)"
                    raise UnknownNameError("metric", metric, known, hint=hint)
            chosen[quantity] = own[quantity]
            continue
        fitting = (
            usual for usual in _USUAL[quantity] if all(_is_known(metric, known) for metric in usual)
        )
        if (first := next(fitting, None)) is not None:
            chosen[quantity] = first
    return chosen


def metrics_in(chosen: Definition) -> list[str]:
    return list(dict.fromkeys(metric for weights in chosen.values() for metric in weights))


def _is_known(metric: str, known: Collection[str]) -> bool:
    return metric in known or metric.partition(".")[0] in known


def read_metrics(path: Path) -> Definition:
    """Read a user's own metric names from a JSON file: quantities, each with its metrics.

    A quantity's value is a metric, a list of metrics to add up, or a mapping of metrics to weights.
    """
    document = parse_json(path, read_text(path, "a metrics file"))
    if not isinstance(document, dict) or not document:
        allowed = ", ".join(QUANTITIES)
        raise InputError(f"{path}: a metrics file is one mapping of quantities: {allowed}")
    found = {}
    for quantity, value in document.items():
        if quantity not in QUANTITIES:
            raise UnknownNameError("quantity", quantity, QUANTITIES, hint=f"(in {path})")
        weights = _weights(value)
        if weights is None:
            raise InputError(
                f"{path}: {quantity}: found {str(value)[:60]!r}; give a metric such as "
                "'dram__bytes.sum', a list of them, or a mapping of them to weights"
            )
        found[quantity] = weights
    return found


def _weights(value: Json) -> dict[str, float] | None:
    if isinstance(value, str):
        value = [value]
    if isinstance(value, list):
        value = dict.fromkeys(map(str, value), 1.0)
    if not isinstance(value, dict) or not value:
        return None
    names = all(_METRIC.fullmatch(name) for name in value)
    numbers = all(
        isinstance(n, int | float) and not isinstance(n, bool) and 0 < n < 1e12
        for n in value.values()
    )
    return {name: float(n) for name, n in value.items()} if names and numbers else None


_CALL = re.compile(r"opdb call ([0-9a-f]{64})")
_BOARD = re.compile(r"opdb board ([\w.-]+) ([a-z0-9][a-z0-9.-]*) (\d{4}-\d\d-\d\dT[\d:.]+\+00:00)")

_COUNTED = re.compile(r"\w+__\w+\.[\w.]+")
"""What is counted; attributes of the device or the launch, some of them words, have no suffix."""

_MISSING = frozenset(("", "n/a", "nan", "-nan", "(!) nan", "(!) n/a"))

_UNITS = {
    f"{prefix}{name}": ("time", scale)
    for prefix, scale in {"": 1.0, "m": 1e-3, "u": 1e-6, "µ": 1e-6, "μ": 1e-6, "n": 1e-9}.items()
    for name in ("s", "sec", "second", "seconds")
} | {
    f"{prefix}{name}": ("bytes", base**power)
    for base, infix in ((1000.0, ""), (1024.0, "i"))
    for power, prefix in enumerate(("", *(f"{letter}{infix}" for letter in "kmgt")))
    for name in ("b", "byte", "bytes")
}
"""Units in small letters: what they measure, and their size in seconds or bytes.

µ is there as the sign of micro (U+00B5) and as a letter (U+03BC).
"""

_NUMBER = re.compile(r"[-+]?(\d+|[1-9]\d{0,2}(,\d{3})+)(\.\d+)?([eE][-+]?\d+)?")
"""A number as ncu prints it in English, with or without commas between thousands."""


def call_range(configuration: str) -> str:
    """Return the name of the NVTX range around the call of a configuration (key)."""
    return f"opdb call {configuration}"


def board_range(board: Board, moment: str) -> str:
    """Return the name of the NVTX range around calls on a board, begun at a moment (ISO, UTC)."""
    return f"opdb board {board.uuid} {board.device} {moment}"


@dataclass
class CounterReport:
    """The kernels of each configuration (key) that was called, in order; on which board, when.

    `units` has the unit of each metric as it is printed, `source` names the text in messages.
    """

    source: str
    units: Mapping[str, str]
    board: Board | None = None
    measured_at: str = ""
    calls: dict[str, list[KernelCounts]] = field(default_factory=dict)

    def profiles(
        self,
        configurations: Iterable[Configuration],
        board: Board,
        definition: Definition,
        environment: Mapping[str, str | None],
        measured_at: str,
    ) -> list[Profile]:
        """Return a profile of each of the configurations that the report saw a kernel of.

        Backend settings are those of a fresh torch process, in which the calls were made.
        """
        for quantity, weights in definition.items():
            wanted = {"time_s": "time", OTHER: ""}.get(quantity, quantity.rpartition("_")[2])
            for metric, weight in weights.items():
                unit = self.units[metric]
                # what is counted, such as FLOPs, has no prefix; a weight makes bytes of sectors
                counted = "flops" if unit == unit.lower() else "unknown"
                measured, _ = _UNITS.get(unit.lower(), (counted, 1.0))
                weighted = measured == "flops" and wanted == "bytes" and weight != 1
                if wanted and measured != wanted and not weighted:
                    raise InputError(
                        f"{self.source}, column {metric}: unknown unit {unit!r} of {quantity}; "
                        "known are byte, Kbyte, MB, MiB … of bytes; s, ms, us, µs and ns of time"
                    )
        return [
            Profile(
                id=uuid.uuid4().hex,
                board=board,
                configuration=configuration.key,
                setting=relevant_setting(configuration.kind, DEFAULT_SETTINGS),
                measured_at=measured_at,
                environment=dict(environment),
                definition=definition,
                kernels=tuple(self.calls[configuration.key]),
            )
            for configuration in configurations
            if configuration.key in self.calls
        ]


def read_report(text: str, source: str) -> CounterReport:
    """Lines of the profiler around the CSV are skipped; `source` names the text in messages."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("==")]
    start = next((n for n, line in enumerate(lines) if line.startswith('"ID","')), len(lines))
    try:
        header, units, *rows = csv.reader(io.StringIO("\n".join(lines[start:])), strict=False)
        name_at = header.index("Kernel Name")
    except (csv.Error, ValueError) as error:
        raise InputError(
            f"{source}: no kernel in it; print a report's raw page: "
            "LC_ALL=C ncu --import REPORT --csv --page raw"
        ) from error
    for number, row in enumerate([units, *rows]):
        if len(row) != len(header):
            there = plural(len(row), "field")
            raise InputError(
                f"{source}, row {number}: {there}; expected {len(header)}; is it cut off?"
            )
    ranges = [n for n, name in enumerate(header) if "Range:" in name]
    columns = {
        name: n for n, name in enumerate(header) if n not in ranges and _COUNTED.fullmatch(name)
    }
    report = CounterReport(source, {name: units[n] for name, n in columns.items()})
    scales = {name: _UNITS.get(unit.lower(), ("", 1.0))[1] for name, unit in report.units.items()}
    for number, row in enumerate(rows):
        where, ranged = f"{source}, kernel {number}", " ".join(row[n] for n in ranges)
        called = _CALL.search(ranged)
        if called is None:
            continue
        if (on := _BOARD.search(ranged)) is not None:
            board = Board(on[1], on[2])
            if report.board not in (None, board):
                raise InputError(f"{where}: on {board.uuid}, others not; import one at a time")
            report.board, report.measured_at = board, report.measured_at or on[3]
        values = {
            name: _value(row[n], scales[name], f"{where}, {name}") for name, n in columns.items()
        }
        report.calls.setdefault(called[1], []).append(KernelCounts(row[name_at], values))
    if not report.calls:
        raise InputError(
            f"{source}: of {plural(len(rows), 'kernel')} none is in a range that names a call; "
            "opdb roofline --ncu sets them, and --ncu-report keeps them"
        )
    return report


def _value(field: str, scale: float, where: str) -> float | None:
    if field.strip().lower() in _MISSING:
        return None
    if not _NUMBER.fullmatch(field.strip()):
        raise InputError(
            f"{where}: {field[:40]!r} is no number; print it with LC_ALL=C and --print-units base"
        )
    return float(field.replace(",", "")) * scale


def names_of(kernels: Sequence[KernelCounts]) -> list[str]:
    """Return the kernels' names without their arguments, each once, in order."""
    return list(dict.fromkeys(kernel.name.partition("(")[0] for kernel in kernels))


@dataclass(frozen=True)
class CountedCall:
    configuration: Configuration
    count: int
    flops: int
    bytes_moved: int
    counters: Counters
    kernels: tuple[str, ...]

    @property
    def bytes_ratio(self) -> float | None:
        """Bytes that memory saw over those counted."""
        seen = self.counters.bytes.get(MEMORY)
        return None if seen is None or not self.bytes_moved else seen / self.bytes_moved

    @property
    def flops_ratio(self) -> float | None:
        """Operations that counters saw over those counted; None where none is counted."""
        seen = self.counters.all_flops
        return None if seen is None or not self.flops else seen / self.flops


def launching(workloads: Iterable[Workload]) -> dict[str, Configuration]:
    called = {c.key: c for workload in workloads for c in workload.occurrences()}
    return {k: c for k, c in called.items() if c.kind in KINDS and KINDS[c.kind].launches(c)}


def lacking(
    store: Store, workloads: Iterable[Workload], board: Board, chosen: Definition
) -> list[Configuration]:
    called = launching(workloads)
    known = {
        profile.configuration
        for profile in store.profiles(board.device, list(called))
        if profile.board == board and profile.definition == chosen
    }
    return [c for key, c in called.items() if key not in known]


def known_profiles(
    store: Store, workloads: Iterable[Workload], device: str, board: str | None = None
) -> dict[str, Profile]:
    """By key, the last of each; one of the board (UUID) goes before those of others of its kind."""
    called = launching(workloads)
    found = list(store.profiles(device, list(called)))
    found.sort(key=lambda profile: profile.board.uuid == board)
    return {profile.configuration: profile for profile in found}


def compare(workloads: Sequence[Workload], profiles: Mapping[str, Profile]) -> list[CountedCall]:
    """Hold what is counted against profiles, what takes the models longest under them first."""
    counts: Counter[Configuration] = Counter()
    for workload in workloads:
        counts.update(workload.occurrences())
    found = []
    for configuration, count in counts.items():
        if (profile := profiles.get(configuration.key)) is not None:
            kind = KINDS[configuration.kind]
            found.append(
                CountedCall(
                    configuration,
                    count,
                    kind.flops(configuration),
                    kind.bytes_moved(configuration),
                    counters_of(profile),
                    tuple(names_of(profile.kernels)),
                )
            )
    return sorted(found, key=_weight, reverse=True)


def _weight(each: CountedCall) -> tuple[float, int]:
    return each.count * (each.counters.time_s or 0.0), each.count * each.bytes_moved


def median_difference(compared: Iterable[CountedCall]) -> float | None:
    """Return the median of how far memory's bytes are from those counted, as a share of these."""
    known = [abs(ratio - 1) for each in compared if (ratio := each.bytes_ratio) is not None]
    return median(known) if known else None


def take_csv(store: Store, path: Path, own: Definition | None = None) -> tuple[Board, int, int]:
    """Store what a CSV file of Nsight Compute (its raw page) saw of calls that opdb made.

    What is stored already stays as it is. Returns the board, how many profiles are new, and how
    many calls nobody stored here.
    """
    content = read_bytes(path, "a CSV of Nsight Compute", LARGEST_BYTES)
    report = read_report(content.decode("utf-8", errors="replace"), str(path))
    if report.board is None:
        raise InputError(f"{path}: no range in it names the board")
    device = {d.slug: d for d in store.devices()}.get(report.board.device)
    if device is None:
        raise InputError(
            f"{path}: counted on {report.board.device}, of which nothing is stored here; import "
            "its set first"
        )
    by_key = {each.key: each for each in store.configurations_among(None, list(report.calls))}
    stored = [by_key[key] for key in report.calls if key in by_key]
    found = report.profiles(
        stored,
        report.board,
        definition(report.units, own),
        environment={"ncu": None},
        measured_at=report.measured_at,
    )
    before = [_content(p) for p in store.profiles(device.slug, [c.key for c in stored])]
    new = [profile for profile in found if _content(profile) not in before]
    store.save_board(device, report.board)
    store.save_profiles(new)
    return report.board, len(new), len(report.calls) - len(stored)


def _content(profile: Profile) -> Profile:
    """Return a profile without what says nothing of the call: the name, the versions."""
    return replace(profile, id="", environment={})


# What is shown

HEAVIEST = 20
"""Operators that people are shown, and that the median is of; `to_dict()` has all."""


def _megas(value: float | None, unit: str = "") -> str:
    return show(value, unit, digits=3).strip()


OPERATORS: Table[CountedCall] = Table(
    Column(title="operator", text=lambda each: each.configuration.title),
    Column("kind", lambda each: each.configuration.kind),
    Column("pass", lambda each: each.configuration.pass_name),
    Column("configuration", lambda each: each.configuration.key),
    Column("count", lambda each: each.count, title="calls"),
    Column(
        "counted_flops",
        lambda each: each.flops,
        title="FLOP counted",
        text=lambda each: _megas(each.flops),
    ),
    Column(
        "flops",
        lambda each: dict(each.counters.flops),
        title="seen",
        text=lambda each: _megas(each.counters.all_flops),
    ),
    Column("flops_ratio", lambda each: each.flops_ratio, title="ratio", unit=RATIO),
    Column(
        "counted_bytes",
        lambda each: each.bytes_moved,
        title="bytes counted",
        text=lambda each: _megas(each.bytes_moved, "B"),
    ),
    Column(
        "bytes",
        lambda each: dict(each.counters.bytes),
        title="memory saw",
        text=lambda each: _megas(each.counters.bytes["memory"], "B"),
    ),
    Column("bytes_ratio", lambda each: each.bytes_ratio, title="ratio", unit=RATIO),
    Column(title="L2 saw", text=lambda each: _megas(each.counters.bytes["l2"], "B")),
    Column(title="L1 saw", text=lambda each: _megas(each.counters.bytes["l1"], "B")),
    Column("time_s", lambda each: each.counters.time_s),
    Column(
        "kernels",
        lambda each: list(each.kernels),
        title="kernels",
        text=lambda each: each.counters.kernels,
    ),
)


@dataclass(frozen=True)
class CountersSeen(Report):
    """`missing` are the configurations (keys) that give the device work and have no profile."""

    device: str
    profiles: Mapping[str, Profile]
    compared: Sequence[CountedCall]
    missing: Sequence[str]

    @property
    def metrics(self) -> list[str]:
        of_all = (p.definition.values() for p in self.profiles.values())
        return list(dict.fromkeys(m for values in of_all for weights in values for m in weights))

    def to_dict(self) -> Json:
        return {
            "device": self.device,
            "metrics": self.metrics,
            "median_difference_bytes": median_difference(self.compared[:HEAVIEST]),
            "operators": OPERATORS.documents(self.compared),
            "missing": list(self.missing),
        }

    def blocks(self) -> Iterator[str | Rows[Any]]:
        yield f"a call as counted, and as hardware counters saw it ({self.device})"
        yield Rows(OPERATORS, self.compared[:HEAVIEST])
        if len(self.compared) > HEAVIEST:
            more = plural(len(self.compared) - HEAVIEST, "more configuration")
            yield f"… and {more} (all with --json)"
        if (difference := median_difference(self.compared[:HEAVIEST])) is not None:
            yield f"bytes: median difference {show_share(difference)} of those counted"
        if self.missing:
            missing = plural(len(self.missing), "more configuration")
            yield f"no counter saw anything of {missing}"
        yield f"metrics: {', '.join(self.metrics)}"


def seen_by_counters(
    store: Store, workloads: Sequence[Workload], device: str, board: str | None
) -> CountersSeen:
    profiles = known_profiles(store, workloads, device, board)
    if not profiles:
        names = ", ".join(dict.fromkeys(workload.name for workload in workloads))
        raise InputError(
            f"no hardware counter saw anything of {names} on {device}; --ncu counts on a machine "
            "with that GPU, --ncu-csv takes in what was counted there"
        )
    missing = [key for key in launching(workloads) if key not in profiles]
    return CountersSeen(device, profiles, compare(workloads, profiles), missing)
