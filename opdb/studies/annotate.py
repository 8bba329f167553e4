"""`opdb annotate`: a profile of torch's profiler, with the energy of its operators."""

from __future__ import annotations

import gzip
import io
import json
import math
import zlib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from opdb.cli import console, options
from opdb.cli.console import save
from opdb.errors import InputError, NothingMeasuredError, UnsupportedError
from opdb.files import LARGEST_BYTES, check_writable, parse_json, read_bytes
from opdb.records import Configuration, Cost, Json, Quantity, canonical_json
from opdb.tables import SHARE, Column, Report, Rows, Table, quantity
from opdb.units import MICRO, show, show_share

if TYPE_CHECKING:
    from opdb.store import Store

PANEL = "studies"

DEVICE_WORK = frozenset(["kernel", "gpu_memcpy", "gpu_memset"])
RUNTIME = frozenset(["cuda_runtime", "cuda_driver"])

ProfileEvent = dict[str, Any]


@dataclass
class ProfileNode:
    event: ProfileEvent
    children: list[ProfileNode] = field(default_factory=list)
    work: list[ProfileEvent] = field(default_factory=list)

    def all_work(self) -> Iterator[ProfileEvent]:
        yield from self.work
        for child in self.children:
            yield from child.all_work()


@dataclass(frozen=True)
class TorchProfile:
    """A profile: the whole document, operators nobody calls, all device work by start.

    `gpus` has the GPUs that worked, by number, each with its name; None where the profile has none.
    """

    document: dict[str, Json]
    roots: Sequence[ProfileNode]
    work: Sequence[ProfileEvent]
    gpus: Mapping[str, str | None]
    has_shapes: bool


def read_profile(path: Path) -> TorchProfile:
    document = parse_json(path, _text(path), strict=False)  # torch leaves control characters
    try:
        events = [e for e in document["traceEvents"] if e.get("ph") == "X"]
        roots, work = _joined(events)
        named = {str(e.get("id")): e.get("name") for e in document.get("deviceProperties") or ()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path}: no trace of torch's profiler in Chrome's JSON: {error}"
        ) from error
    if not work:
        raise InputError(
            f"{path}: holds no work of a GPU; profile with ProfilerActivity.CUDA beside CPU"
        )
    names = {gpu_of(e): str(named[gpu_of(e)]) if named.get(gpu_of(e)) else None for e in work}
    has_shapes = any("Input Dims" in e["args"] for e in events if e.get("cat") == "cpu_op")
    return TorchProfile(document, roots, work, names, has_shapes)


def _text(path: Path) -> str:
    content = read_bytes(path, "a profile", LARGEST_BYTES)
    try:
        if content[:2] == b"\x1f\x8b":
            content = gzip.GzipFile(fileobj=io.BytesIO(content)).read(LARGEST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: damaged, or cut off: {error}") from error
    if len(content) > LARGEST_BYTES:
        raise InputError(f"{path}: a profile has at most {LARGEST_BYTES} bytes, decompressed")
    return content.decode(json.detect_encoding(content), errors="replace")


def gpu_of(work: ProfileEvent) -> str:
    """Return the number of the GPU that device work ran on: events of a GPU have it as process."""
    return str(work["args"].get("device", work.get("pid")))


def end_us(event: ProfileEvent) -> float:
    return float(event["ts"] + event["dur"])


def _joined(events: Sequence[ProfileEvent]) -> tuple[list[ProfileNode], list[ProfileEvent]]:
    operators = [ProfileNode(e) for e in events if e.get("cat") == "cpu_op"]
    for node in operators:
        node.event.setdefault("args", {})
        _check(node.event, -(2**53))
    by_id = {node.event["args"].get("External id"): node for node in operators}
    launches: Mapping[Any, Any] = {
        e["args"].get("correlation"): e["args"].get("External id")
        for e in events
        if e.get("cat") in RUNTIME and "args" in e
    }
    work = sorted((e for e in events if e.get("cat") in DEVICE_WORK), key=lambda e: e["ts"])
    for event in work:
        args = event.setdefault("args", {})
        _check(event, 0)
        by = args.get("External id") or launches.get(args.get("correlation"))
        if by is not None and by in by_id:
            by_id[by].work.append(event)
    return _trees(operators), work


def _check(event: ProfileEvent, least_us: int) -> None:
    times, name = (event["ts"], event["dur"]), str(event["name"])[:60]
    numbers = all(type(each) in (int, float) and abs(each) <= 2**53 for each in times)
    if not numbers or event["dur"] < least_us:
        raise ValueError(f"event {name!r}: ts and dur are {times}; expected microseconds")
    if not isinstance(event["name"], str) or not isinstance(event["args"], dict):
        raise ValueError(f"event {name!r}: expected a name that is text, and args with names")


def _trees(operators: Sequence[ProfileNode]) -> list[ProfileNode]:
    threads: dict[Any, list[ProfileNode]] = defaultdict(list)
    for node in operators:
        threads[node.event["pid"], node.event["tid"]].append(node)
    roots: list[ProfileNode] = []
    for nodes in threads.values():
        open_: list[ProfileNode] = []
        for node in sorted(nodes, key=lambda n: (n.event["ts"], -n.event["dur"])):
            while open_ and end_us(open_[-1].event) <= node.event["ts"]:
                open_.pop()
            (open_[-1].children if open_ else roots).append(node)
            open_.append(node)
    return roots


MOST_APART = 2.0
"""Kernels of one name whose times differ by a larger factor are not compared."""

NEAREST = 3
"""Configurations that a match rests on: those whose time is nearest."""

Kernels = frozenset[tuple[str, int]]


@dataclass(frozen=True)
class Match:
    """The configurations (keys) that launch the same kernels, and their energy for a time.

    `dynamic_j` is the mean of theirs at their dynamic power; its interval spans all of theirs.
    """

    configurations: tuple[str, ...]
    dynamic_j: Quantity


class KernelIndex:
    def __init__(self, kernels: Mapping[str, Mapping[str, int]], costs: Mapping[str, Cost]) -> None:
        self._by: dict[Kernels, list[tuple[str, float, Quantity]]] = defaultdict(list)
        for key, counts in kernels.items():
            cost = costs.get(key)
            if not counts or cost is None or cost.time_s is None or cost.dynamic_energy_j is None:
                continue
            if cost.time_s.mean > 0:
                entry = (key, cost.time_s.mean, cost.dynamic_energy_j)
                self._by[frozenset(counts.items())].append(entry)

    def find(self, names: Collection[str], time_s: float) -> Match | None:
        """Return what launches exactly these kernels in about this time (s); None where nothing."""
        if time_s <= 0:
            return None
        found = self._by.get(frozenset(Counter(names).items()), [])
        near = [(abs(math.log(own_s / time_s)), key, own_s, j) for key, own_s, j in found]
        near = sorted(each for each in near if each[0] <= math.log(MOST_APART))[:NEAREST]
        if not near:
            return None
        keys = tuple(key for _, key, _, _ in near)
        return Match(keys, mean_of_all([(time_s / own_s, j) for _, _, own_s, j in near]))


def mean_of_all(scaled: Sequence[tuple[float, Quantity]]) -> Quantity:
    """Return the mean of energies, each times a factor, with an interval that spans all of them."""
    mean = math.fsum(by * j.mean for by, j in scaled) / len(scaled)
    lows = [by * j.low for by, j in scaled if j.low is not None]
    highs = [by * j.high for by, j in scaled if j.high is not None]
    whole = len(lows) == len(highs) == len(scaled)
    low, high = (min(lows), max(highs)) if whole else (None, None)
    return Quantity(mean, mean, low, high, len(scaled))


_UNSEEN = ("values", "role", "gradient")
"""What a configuration says of a tensor and a profile does not."""


By = Literal["call", "kernels"]
"""How device work was found: by its operator's call, or by the names of its kernels."""


@dataclass(frozen=True)
class KnownWork:
    """Device work that the database knows, and the operator that launched it, if one did.

    `configurations` are those that it may be, in which a profile does not tell the difference. Its
    dynamic energy (J) is the mean of theirs. `time_s` is its device time in the profile, `energy_j`
    has base power over it, too; of a moment at which other work runs, its part.
    """

    name: str
    event: ProfileEvent | None
    work: Sequence[ProfileEvent]
    configurations: Sequence[str]
    dynamic_j: Quantity
    energy_j: Quantity
    time_s: float
    by: By = "call"

    def shares(self) -> Iterator[tuple[ProfileEvent, float]]:
        """Yield each piece of the work with its share of the time."""
        for each in self.work:
            share = each["dur"] * MICRO / self.time_s if self.time_s else 1 / len(self.work)
            yield each, share


@dataclass(frozen=True)
class GpuSpan:
    """One GPU of a profile (its number, and its name if known), from its first work to its last.

    `idle_s` is time in which it has none. `energy_j` is base power all the time, and the dynamic
    energies of known work; `complete` says that all work is known.
    """

    gpu: str
    name: str | None
    span_s: float
    idle_s: float
    energy_j: float
    complete: bool


@dataclass(frozen=True)
class Annotation:
    """What a database knows of a profile.

    `unknown` has the device time (s) of what it does not know, by operator's or kernel's name;
    `device_s` is that of all work, `idle_s` the time without any on a GPU.
    """

    known: Sequence[KnownWork]
    unknown: Mapping[str, float]
    device_s: float
    idle_s: float
    stretches: Sequence[GpuSpan]

    def share(self, *by: By) -> float:
        return math.fsum(each.time_s for each in self.known if each.by in by) / self.device_s


class Index:
    def __init__(self, configurations: Collection[Configuration], costs: Mapping[str, Cost]):
        self._costs = costs
        self._by: dict[str, list[Configuration]] = defaultdict(list)
        for each in configurations:
            cost = costs.get(each.key)
            if cost is None or cost.dynamic_energy_j is None or each.pass_name != "forward":
                continue
            if each.autocast is None:
                self._by[_told(each)].append(each)

    def find(self, name: str, args: Mapping[str, Json]) -> list[tuple[Configuration, Cost]]:
        """Return what an event may be, with costs; nothing where the database does not know it."""
        from opdb.operators.describe import describe_profiled

        try:
            called, unknown = describe_profiled(name, args)
        except UnsupportedError:
            return []
        wanted = _without(called.parameters, unknown)
        every = self._by.get(_told(called), ())
        fitting = [c for c in every if _without(c.parameters, unknown) == wanted]
        return [(each, self._costs[each.key]) for each in fitting]


def find_energies(
    profile: TorchProfile, index: Index, by_kernels: KernelIndex, base_w: float
) -> Annotation:
    """Find what a database knows of a profile: of each tree of calls the outermost operators.

    Work of an operator that is not known by its call, and work without an operator, may be known
    by its kernels. `base_w` is the base power (W) of each GPU.
    """
    work_of = {gpu: [e for e in profile.work if gpu_of(e) == gpu] for gpu in profile.gpus}
    shared = {gpu: _shared(work) for gpu, work in work_of.items()}
    base_j = {e: base_w * time_s for given, _ in shared.values() for e, time_s in given.items()}
    finder = _Finder(index, by_kernels, base_j)
    for root in profile.roots:
        finder.visit(root)
    for each in profile.work:
        if id(each) not in finder.given:
            finder.take_work(each["name"], None, [each])
    known_j = {id(e): share * k.energy_j.mean for k in finder.known for e, share in k.shares()}
    whole_j = base_j | known_j
    stretches = [
        GpuSpan(
            gpu,
            profile.gpus[gpu],
            (max(map(end_us, work)) - work[0]["ts"]) * MICRO,
            shared[gpu][1],
            math.fsum(whole_j[id(e)] for e in work) + base_w * shared[gpu][1],
            all(id(e) in known_j for e in work),
        )
        for gpu, work in work_of.items()
    ]
    idle_s = math.fsum(each.idle_s for each in stretches)
    whole_s = _seconds(profile.work)
    return Annotation(finder.known, dict(finder.unknown), whole_s, idle_s, stretches)


def _shared(work: Sequence[ProfileEvent]) -> tuple[dict[int, float], float]:
    """Return how long (s) each piece of a GPU's work has it, by identity, and how long none does.

    A moment at which several run is divided among them in equal parts.
    """
    steps: Counter[float] = Counter()
    for each in work:
        steps[each["ts"]] += 1
        steps[end_us(each)] -= 1
    passed: dict[float, float] = {}
    running, idle_us, given_us, before = 0, 0.0, 0.0, work[0]["ts"]
    for moment, change in sorted(steps.items()):
        idle_us += 0.0 if running else moment - before
        given_us += (moment - before) / running if running else 0.0
        passed[moment] = given_us
        running, before = running + change, moment
    given = {id(each): (passed[end_us(each)] - passed[each["ts"]]) * MICRO for each in work}
    return given, idle_us * MICRO


class _Finder:
    def __init__(self, index: Index, by_kernels: KernelIndex, base_j: Mapping[int, float]) -> None:
        self._index, self._by_kernels, self._base_j = index, by_kernels, base_j
        self._found: dict[str, list[tuple[Configuration, Cost]]] = {}
        self.known: list[KnownWork] = []
        self.unknown: dict[str, float] = defaultdict(float)
        self.given: set[int] = set()

    def visit(self, node: ProfileNode) -> None:
        work = list(node.all_work())
        if not work:
            return
        event = node.event
        if found := self._of_call(event):
            self.given.update(map(id, work))
            keys = tuple(configuration.key for configuration, _ in found)
            energies = [(1.0, j) for _, cost in found if (j := cost.dynamic_energy_j) is not None]
            self._know(event["name"], event, work, Match(keys, mean_of_all(energies)))
            return
        for child in node.children:
            self.visit(child)
        if node.work:
            self.take_work(event["name"], event, node.work)

    def take_work(
        self, name: str, event: ProfileEvent | None, work: Sequence[ProfileEvent]
    ) -> None:
        self.given.update(map(id, work))
        if match := self._by_kernels.find([each["name"] for each in work], _seconds(work)):
            self._know(name, event, work, match, by="kernels")
        elif len(work) > 1:
            for each in work:
                self.take_work(name, None, [each])
        else:
            self.unknown[name] += _seconds(work)

    def _know(
        self,
        name: str,
        event: ProfileEvent | None,
        work: Sequence[ProfileEvent],
        match: Match,
        by: By = "call",
    ) -> None:
        energy = match.dynamic_j.moved(math.fsum(self._base_j[id(each)] for each in work))
        found = match.configurations, match.dynamic_j, energy, _seconds(work), by
        self.known.append(KnownWork(name, event, work, *found))

    def _of_call(self, event: ProfileEvent) -> list[tuple[Configuration, Cost]]:
        args = event["args"]
        told = ("Input type", "Input Dims", "Input Strides", "Concrete Inputs")
        call = json.dumps([event["name"], *map(args.get, told)])
        if call not in self._found:
            self._found[call] = self._index.find(event["name"], args)
        return self._found[call]


def annotated_trace(profile: TorchProfile, found: Annotation, about: Json) -> Json:
    """With `opdb_…` arguments; a kernel has its operator's energy by its share of the time."""
    for each in found.known:
        about_it = {"opdb_configurations": list(each.configurations), "opdb_by": each.by}
        if each.event is not None:
            each.event["args"] |= {**about_it, **_arguments(each.energy_j)}
        for event, share in each.shares():
            event["args"] |= {"opdb_by": each.by, **_arguments(each.energy_j, share)}
    return {**profile.document, "opdb": about}


def _arguments(energy: Quantity, share: float = 1.0) -> dict[str, Json]:
    ends = [energy.low, energy.high]
    interval = None if None in ends else [share * end for end in ends if end is not None]
    return {"opdb_energy_j": share * energy.mean, "opdb_energy_interval_j": interval}


def _told(configuration: Configuration) -> str:
    return f"{configuration.kind} {canonical_json(_seen(dict(configuration.inputs)))}"


def _seen(value: Json) -> Json:
    if isinstance(value, Mapping):
        return {name: _seen(each) for name, each in value.items() if name not in _UNSEEN}
    return [_seen(each) for each in value] if isinstance(value, list) else value


def _without(parameters: Mapping[str, Json], names: Collection[str]) -> dict[str, Json]:
    return {name: value for name, value in parameters.items() if name not in names}


def _seconds(work: Sequence[Any]) -> float:
    return float(sum(each["dur"] for each in work)) * MICRO


@dataclass(frozen=True)
class Operator:
    """All calls of one name: their device time (s) and share of it, their energy where known.

    `by` says how they were found: by the call, or by the names of the kernels.
    """

    name: str
    by: str | None
    calls: int | None
    time_s: float
    share: float
    energy_j: Quantity | None


OPERATORS: Table[Operator] = Table(
    Column("operator", lambda row: row.name, title="operator"),
    Column("by", lambda row: row.by, title="known by"),
    Column("calls", lambda row: row.calls, title="calls"),
    Column("time_s", lambda row: row.time_s, title="time", unit="s"),
    Column("share_time", lambda row: row.share, title="of time", unit=SHARE),
    quantity("energy_j", "J", lambda row: row.energy_j, title="energy"),
)

GPUS: Table[GpuSpan] = Table(
    Column("gpu", lambda row: row.gpu, title="GPU"),
    Column("name", lambda row: row.name, title="name"),
    Column("span_s", lambda row: row.span_s, title="first kernel to last", unit="s"),
    Column("idle_s", lambda row: row.idle_s, title="idle", unit="s"),
    Column("energy_j", lambda row: row.energy_j, title="energy", unit="J"),
    Column(
        "complete",
        lambda r: r.complete,
        title="known",
        text=lambda r: "all" if r.complete else "a part",
    ),
)


@dataclass(frozen=True, repr=False)
class AnnotatedProfile(Report):
    """A profile annotated; printed, its operators with the longest first.

    `energy_j` is that of each GPU from its first device work to its last, all added up: base power
    over the whole of that time, and the dynamic energy of known operators. It is a lower bound
    where `share` is below 1, unless the profile names another device than the one whose costs
    these are (`is_own_device`). `notes` say so, and that operators have no shapes.
    """

    profile: TorchProfile
    annotation: Annotation
    device: str
    board: str
    is_own_device: bool
    notes: tuple[str, ...]

    @property
    def share(self) -> float:
        """The share of the device time that was given an energy."""
        return self.annotation.share("call", "kernels")

    @property
    def known_energy_j(self) -> float:
        return math.fsum(row.energy_j.mean for row in self.operators if row.energy_j is not None)

    @property
    def energy_j(self) -> float:
        """The energy of all GPUs, each from its first device work to its last, in joules."""
        return math.fsum(each.energy_j for each in self.annotation.stretches)

    @cached_property
    def operators(self) -> list[Operator]:
        whole_s, known = self.annotation.device_s, self.annotation.known
        rows = []
        for name, by in dict.fromkeys((each.name, each.by) for each in known):
            own = [each for each in known if (each.name, each.by) == (name, by)]
            time_s = math.fsum(each.time_s for each in own)
            energy = _sum([each.energy_j for each in own])
            rows.append(Operator(name, by, len(own), time_s, time_s / whole_s, energy))
        for name, time_s in self.annotation.unknown.items():
            rows.append(Operator(name, None, None, time_s, time_s / whole_s, None))
        return sorted(rows, key=lambda row: row.time_s, reverse=True)

    def trace(self) -> Json:
        about = {n: v for n, v in self.to_dict().items() if n != "operators"}
        return annotated_trace(self.profile, self.annotation, about)

    def to_bytes(self, *, compressed: bool = False) -> bytes:
        from opdb.commands.trace import as_bytes

        return as_bytes(self.trace(), compressed=compressed)

    def to_dict(self) -> dict[str, Json]:
        return {
            "device": self.device,
            "board": self.board,
            "device_time_s": self.annotation.device_s,
            "idle_s": self.annotation.idle_s,
            "known_share": self.share,
            "known_share_by_call": self.annotation.share("call"),
            "known_share_by_kernels": self.annotation.share("kernels"),
            "known_energy_j": self.known_energy_j,
            "energy_j": self.energy_j,
            "gpus": GPUS.documents(self.annotation.stretches),
            "notes": list(self.notes),
            "operators": OPERATORS.documents(self.operators),
        }

    def blocks(self) -> Iterator[str | Rows[Any]]:
        found = self.annotation
        yield f"on {self.device} ({self.board})"
        yield Rows(OPERATORS, self.operators)
        yield (
            f"{show_share(self.share)} of {show(found.device_s, 's')} of device time is of "
            f"operators that the database knows: {show(self.known_energy_j, 'J')}"
        )
        bound = "at least " if self.is_own_device else "without what is not known "
        yield (
            f"from the first kernel to the last, {show(found.idle_s, 's')} idle: "
            f"{bound if found.unknown else ''}{show(self.energy_j, 'J')}"
        )
        if len(found.stretches) > 1:
            yield Rows(GPUS, found.stretches)
        if by_kernels := found.share("kernels"):
            yield (
                f"{show_share(by_kernels)} of device time is known by kernel names alone: at the "
                "power of operators that launch the same kernels for about as long"
            )
        yield from (f"note: {note}" for note in self.notes)


def annotate(
    profile: str | Path,
    *,
    device: str | None = None,
    board: str | None = None,
    db: str | None = None,
) -> AnnotatedProfile:
    """Give the operators of a profile their energy, as `opdb annotate` does; this needs torch.

    `profile` is a trace that torch's profiler exported, with record_shapes=True and a GPU's
    activity. Costs are those of the device that it names, unless `device` (a slug) says otherwise.
    """
    from opdb.predict.predictor import predictor_for
    from opdb.store import open_store

    read = read_profile(Path(profile))
    with open_store(db, create=False) as store:
        predictor = predictor_for(store, device or _device_of(store, read, str(profile)))
        chosen = predictor.most_measured() if board is None else predictor.board(board)
        base_w = predictor.base_power_w(chosen)
        slug = predictor.device.slug
        if base_w is None:
            raise NothingMeasuredError(f"{slug!r}: no base power was measured on {chosen}")
        every = store.configurations()
        costs = predictor.costs_on(chosen, every)
        launched = {key: seen for on in predictor.boards for key, seen in store.kernels(on).items()}
        found = find_energies(read, Index(every, costs), KernelIndex(launched, costs), base_w)
    names = {*read.gpus.values()}
    notes = []
    if names != {predictor.device.name}:
        made_on = " and ".join(sorted(each or "a GPU that it does not name" for each in names))
        notes.append(
            f"the profile was made on {made_on}; costs and base power are those of "
            f"{predictor.device.name}"
        )
    if not read.has_shapes:
        notes.append(
            "the profile holds no shapes: operators are known by the names of their kernels alone; "
            "profile with record_shapes=True"
        )
    return AnnotatedProfile(
        read, found, slug, chosen, names <= {predictor.device.name, None}, tuple(notes)
    )


def _device_of(store: Store, profile: TorchProfile, source: str) -> str | None:
    from opdb.store import published_devices

    names = {each for each in profile.gpus.values() if each is not None}
    known = published_devices() | {each.slug: each.name for each in store.devices()}
    if not names or not known:
        return None
    fitting = [slug for slug, name in known.items() if names == {name}]
    if len(fitting) != 1:
        made_on = " and ".join(sorted(names))
        raise InputError(
            f"{source}: made on {made_on}; {'several devices are' if fitting else 'no device is'} "
            f"that; --device says whose costs to take: {', '.join(fitting or known)}"
        )
    return fitting[0]


def _sum(found: list[Quantity]) -> Quantity:
    """Return the sum of calls of one name; errors of equal operators are taken to be equal."""
    mean = math.fsum(each.mean for each in found)
    widths = [each.half_width for each in found]
    known = [width for width in widths if width is not None]
    half_width = math.fsum(known) if len(known) == len(widths) else None
    return Quantity.around(mean, mean, half_width, len(found))


def run(
    profile: Annotated[
        Path, typer.Argument(metavar="PROFILE", help="A trace of torch's profiler; also .gz.")
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="The annotated trace, or in .gz."),
    ] = None,
    device: options.DeviceName = None,
    board: options.BoardOption = None,
    out: options.Output = options.Output(),
) -> None:
    """Give the operators of a profile the energy that the database knows.

    The profile is made by torch.profiler with record_shapes=True on a GPU, and exported as Chrome
    trace JSON. Costs are those of the device that it names, unless --device names another.
    Operators are found by name, shapes, dtypes and constants, else by the names of their kernels.
    The answer says what share of the device time is known, by which way, and the energy of it and
    of the whole, of each GPU.
    """
    check_writable(output)
    found = annotate(profile, device=device, board=board, db=out.db)
    if output is not None:
        save(output, found.to_bytes(compressed=output.suffix == ".gz"), quiet=out.quiet)
    console.show(found, as_json=out.as_json)
