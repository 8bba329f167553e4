"""A configuration as numbers, and the roofline that its time is held against. Pure: no torch."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import TypeAlias

from opdb.kinds import Kind, get_kind
from opdb.kinds.view import View, item_bytes, numel, walk
from opdb.records import GRADIENTS, Configuration, Json

# A configuration as numbers. Pure: no torch, no numpy.


OperatorFamily: TypeAlias = str
"""Operators that are learned together: convolutions, matrix products, and all that mostly moves
memory; forward and backward passes are separate."""

PASSES = ("forward", "backward")

RECTIFIED_ZEROS = 0.5
"""Share of zeros among normal values whose negative ones were cut."""

KIND = "kind="
"""The beginning of the name of a feature that is 1 for one kind and 0 for the others."""

MULTIPROCESSORS = 132
"""Those of an H100 SXM and an H200: as many tiles of a product are worked on at once."""

TILES = ((128, 128), (128, 256), (64, 64))
"""The tiles of a product (rows, columns) that libraries' kernels usually work on."""

TILE_COLUMNS, TILE_DEPTH = 64, 32
"""Columns and depth that kernels of products work on at least: fewer are padded."""

GATHERS, ROW = ("embedding", "getitem", "index_select"), 5.0
"""Kinds that copy by index. Where each index stands for a row of so many elements (a logarithm),
they count as one kind, for rows are read in order, as in a copy; single elements are not."""

STATES = ("training", "autocast")
"""Features that are 1 for calls unlike those with 0: what was learned from the latter alone says
nothing of the former."""


@dataclass(frozen=True)
class Features:
    """A configuration as numbers; sizes are logarithms to base 2.

    `kind` names a pass other than the forward one as well, and is one for all gathers of rows;
    `dtype` is what is computed in.
    `flops` and `moved_bytes` are of one call, whose `steps` run one after the other
    (`Kind.steps_rule`). `launches` is False for a call that gives the device no work. `biased` are
    the elements of a convolution's output that a kernel of its own adds a bias to, as torch does
    after cuDNN's (aten/src/ATen/native/Convolution.cpp); 0 without one.
    """

    kind: str
    family: OperatorFamily
    dtype: str
    flops: float
    moved_bytes: float
    launches: bool
    numbers: Mapping[str, float]
    steps: int = 1
    biased: float = 0.0

    def number(self, name: str) -> float:
        """Return one number by its name; of a kind's name whether it is this one."""
        if name.startswith(KIND):
            return float(name == KIND + self.kind)
        return self.numbers[name]


@cache
def features(configuration: Configuration) -> Features:
    """Return a forward or backward pass as numbers; its sizes are those of the forward pass."""
    kind = get_kind(configuration.kind)
    view = kind.view(configuration.forward)
    forward_flops = float(view.flops())
    flops = float(kind.flops(configuration))
    moved_bytes = float(kind.bytes_moved(configuration))
    data = [t for t in view.unique if t.get("role") != "weight"] or view.unique
    first = data[0] if data else {"shape": [], "dtype": "float32"}
    works = units(kind)
    casts = configuration.autocast is not None and works != "memory"
    steps = kind.steps_rule(view)
    is_backward = configuration.pass_name == "backward"
    adds_bias = works == "convolution" and _has(view, "bias") and view["bias"] is not None
    return Features(
        kind=_kind(configuration, view),
        family=f"{works} backward" if is_backward else works,
        dtype=str(configuration.autocast if casts else first["dtype"]),
        flops=flops,
        moved_bytes=moved_bytes,
        steps=steps,
        biased=float(view.output_elements) if adds_bias and not is_backward else 0.0,
        launches=kind.launches(configuration),
        numbers={
            "flops": _log(flops),
            "bytes": _log(moved_bytes),
            "intensity": _log(flops) - _log(moved_bytes),
            "steps": _log(steps),
            **_product(view, forward_flops, works),
            **_layout(first),
            **_state(view, data, adds_bias),
            "window": _log(_window(view)),
            "stride": _log(_argument(view, "stride")),
            "dilation": _log(_argument(view, "dilation")),
            "groups": _log(_argument(view, "groups")),
            "training": _argument(view, "training") if _has(view, "training") else 0.0,
            "gradient": float(configuration.gradient),
            "steps_apart": float(any(map(_steps_apart, data))),
            "autocast": float(configuration.autocast is not None),
            "gradient_zeros": _gradient_zeros(configuration),
            "together": _together(view),
        },
    )


def units(kind: Kind) -> str:
    """Return what a kind mostly works, by the settings that its time depends on."""
    if "tf32_matmul" in kind.settings:
        return "matrix"
    return "convolution" if "tf32_convolution" in kind.settings else "memory"


def _log(value: float) -> float:
    return math.log2(max(value, 1.0))


def _product(view: View, flops: float, works: str) -> dict[str, float]:
    """Return the sizes of the matrix product that a call comes down to.

    Depth is half its operations for each output, columns are the outputs that one row of the input
    gives, as its weights tell, rows the rest.
    """
    written = view.output_elements
    weights = [t for t in view.unique if t.get("role") == "weight"]
    weight = max((numel(t["shape"]) for t in weights), default=1)
    depth = flops / (2 * written) if written else 0.0
    columns = max(weight / depth, 1.0) if depth >= 1 else 1.0
    rows = written / columns
    read = sum(numel(t["shape"]) for t in view.unique) - sum(numel(t["shape"]) for t in weights)
    return {
        "read": _log(read),
        "written": _log(written),
        "weights": _log(weight),
        "rows": _log(rows),
        "columns": _log(columns),
        "depth": _log(depth),
        "tiles": _log(_tiles(rows, columns, (128, 128))),
        **_fill(view, (rows, columns, depth) if works != "memory" else (0.0, 0.0, 0.0)),
    }


def _fill(view: View, product: tuple[float, float, float]) -> dict[str, float]:
    """Return how a product (rows, columns, depth) fills the device; zeros where there is none.

    `waste` is by how much the last wave of tiles, which fills only some of the multiprocessors,
    makes a product longer; `aligned` the largest power of two, up to 16, that divides a size: what
    vector loads and tensor cores need; `padding` by how much whole tiles exceed a size. Groups are
    uneven whose channels are no power of two: on an H200 they take other, slower kernels.
    """
    rows, columns, depth = product
    groups = _argument(view, "groups")
    channels = depth / _window(view)
    wide = [_tiles(rows, columns, tile) * groups / MULTIPROCESSORS for tile in TILES]
    return {
        **{
            f"waste {tall}x{broad}": _log(math.ceil(waves) / waves) if waves else 0.0
            for (tall, broad), waves in zip(TILES, wide, strict=True)
        },
        "aligned rows": _twos(rows),
        "aligned columns": _twos(columns),
        "aligned depth": _twos(channels),
        "padding columns": _padding(columns, TILE_COLUMNS),
        "padding depth": _padding(channels, TILE_DEPTH),
        "channels": _log(channels),
        "grouped": float(groups > 1),
        "uneven groups": float(groups > 1 and _log(channels) % 1 > 0),
        "depthwise": float(groups > 1 and 0 < channels < 2),
    }


def _tiles(rows: float, columns: float, tile: tuple[int, int]) -> int:
    return math.ceil(rows / tile[0]) * math.ceil(columns / tile[1])


def _twos(size: float) -> float:
    """Return the logarithm of the largest power of two that divides a size, at most that of 16."""
    whole = round(size)
    return math.log2(math.gcd(whole, 16)) if whole else 0.0


def _padding(size: float, tile: int) -> float:
    """Return the logarithm of the tiles' size over the size that they cover; 0 where it is 0."""
    whole = round(size)
    return _log(math.ceil(whole / tile) * tile / whole) if whole else 0.0


def _steps_apart(spec: Mapping[str, Json]) -> bool:
    layout = spec.get("layout")
    return isinstance(layout, list) and bool(layout) and layout[-1] != 1


def _layout(first: Mapping[str, Json]) -> dict[str, float]:
    shape = list(first["shape"])
    return {
        "first": _log(shape[0] if shape else 1),
        "second": _log(shape[1] if len(shape) > 1 else 1),
        "positions": _log(numel(shape[2:])),
        "last": _log(shape[-1] if shape else 1),
        "item_bytes": math.log2(item_bytes(str(first["dtype"]))),
    }


def _state(view: View, data: list[dict[str, Json]], adds_bias: bool) -> dict[str, float]:
    layouts = [t.get("layout") for t in data]
    shapes = {tuple(t["shape"]) for t in data}
    return {
        "tensors": float(len(view.unique) - adds_bias),
        "channels_last": float("channels_last" in layouts),
        "strided": float(any(isinstance(layout, list) for layout in layouts)),
        "inplace": float(view.inplace),
        "zeros": max((_zeros(t.get("values")) for t in data), default=0.0),
        "broadcast": float(len(shapes) > 1),
    }


def _kind(configuration: Configuration, view: View) -> str:
    copies_rows = configuration.title in GATHERS and _together(view) >= ROW
    return "gather of rows" if copies_rows else configuration.title


def _together(view: View) -> float:
    """Return how many elements of the output each index stands for; 0, one, where none is given.

    A call that gathers whole rows reads them in order; one that gathers elements does not.
    """
    indices = [numel(t["shape"]) for t in view.unique if t["dtype"] == "int64"]
    return _log(view.output_elements / max(indices)) if any(indices) else 0.0


def _zeros(values: Json) -> float:
    if values == "rectified":
        return RECTIFIED_ZEROS
    share = values.get("zeros") if isinstance(values, dict) else None
    return float(share) if isinstance(share, (int, float)) else 0.0


def _gradient_zeros(configuration: Configuration) -> float:
    given = configuration.inputs.get(GRADIENTS) or []
    return max((_zeros(t.get("values")) for t in given if t is not None), default=0.0)


def _has(view: View, name: str) -> bool:
    return name in view.signature.parameters


def _argument(view: View, name: str) -> float:
    """Return a numeric argument, the largest of several; 1 where the kind has none."""
    value = view[name] if _has(view, name) else None
    numbers = value if isinstance(value, list) else [value]
    return max((float(n) for n in numbers if isinstance(n, (int, float))), default=1.0)


def _window(view: View) -> float:
    if _has(view, "kernel_size"):
        return _argument(view, "kernel_size") ** 2
    weight = view["weight"] if _has(view, "weight") else None
    found = next((t for t in walk(weight) if "shape" in t), None)
    return float(numel(found["shape"][2:])) if found else 1.0


# The roofline that achieved utilisation is measured against, as the measured operators show it.


REACHED = 0.99
"""The quantile of achieved rates that counts as what the device can do."""

USUAL = 0.75
"""The quantile of rates that counts as what kernels of one sort do when they are long enough."""

SHORTEST = 0.01
"""The quantile of times below which no operator that launches a kernel comes."""

MOST_APART = 0.7
"""The share of a convolution's time that its bias takes at most: some kernels add it themselves."""

BROADCASTING = ("add", "mul")
LEAST_BROADCAST = 2**20
"""Kinds that show how fast broadcasting kernels are, where they write so many elements."""

READ_AND_WRITTEN = 8
"""Bytes of an element in float32, where none shows it."""

HALVES = frozenset({"float16", "bfloat16"})

EIGHT_BITS = frozenset({"float8_e4m3fn", "float8_e5m2"})


@dataclass(frozen=True)
class Roofline:
    """The best rates of operators: FLOP/s by family and dtype, byte/s, and the shortest time.

    `broadcast_per_s` are the elements that a kernel writes in a second which broadcasts what it
    adds, in any dtype: such kernels wait for neither FLOPs nor bytes.

    The rates of a family and dtype are those of the units that it runs on (a convolution in fp32
    on tensor cores, a linear layer in fp32 not), whatever a data sheet calls them.
    """

    flops_per_s: Mapping[str, float]
    bytes_per_s: float
    shortest_s: float
    broadcast_per_s: float

    def slower(self, of: Features, time_s: float) -> float:
        """Return the logarithm of a measured time (seconds) over the roofline's.

        The kernel that adds a bias is set apart, though at most as `MOST_APART` of the time.
        """
        own_s = max(time_s - self.bias_s(of), (1 - MOST_APART) * time_s)
        return math.log(own_s / self.time_s(of))

    def seconds(self, of: Features, slower: float) -> float:
        """Return the time (seconds) that is so much slower, a logarithm, than the roofline's."""
        return self.time_s(of) * math.exp(slower) + self.bias_s(of)

    def bias_s(self, of: Features) -> float:
        """Return the time of the kernel that adds a convolution's bias; 0 where there is none."""
        return self.shortest_s + of.biased / self.broadcast_per_s if of.biased else 0.0

    def time_s(self, of: Features) -> float:
        """Return each step's shortest time plus the larger of FLOPs and bytes over their rates."""
        rate = self._rate(of)
        computing_s = of.flops / rate if rate else 0.0
        return self.shortest_s * of.steps + max(computing_s, of.moved_bytes / self.bytes_per_s)

    def _rate(self, of: Features) -> float | None:
        """Return the rate of a configuration's units; of some never measured, the nearest's.

        Halves have one rate, and so have all dtypes of what mostly moves memory: its few and short
        operators of some dtypes show none. Eight bits have at least that of halves, others the
        least in the family, else in that of forward passes.
        """
        if of.family.startswith("memory"):
            rates = [r for u, r in self.flops_per_s.items() if _family(u) == of.family]
            return max(rates, default=None)  # without one, bytes alone tell
        known = self.flops_per_s.get(_units(of.family, of.dtype))
        if of.dtype in HALVES or (known is None and of.dtype in EIGHT_BITS):
            known = self._of_halves(of.family)
        if known is not None:
            return known
        for family in (of.family, of.family.removesuffix(" backward")):
            if found := [r for u, r in self.flops_per_s.items() if r and _family(u) == family]:
                return min(found)
        return None

    def _of_halves(self, family: str) -> float | None:
        rates = [self.flops_per_s.get(_units(family, half)) for half in HALVES]
        return max((rate for rate in rates if rate is not None), default=None)

    def shown_by(self, seen: Iterable[Features]) -> Roofline:
        """Return it without rates of units that no operator showed, for memory held all back.

        So it is where all would wait for memory at the rate that stands in for units never
        measured, too: products of one row say nothing of how fast large ones are.
        """
        operators: dict[str, list[Features]] = defaultdict(list)
        for of in seen:
            if of.dtype in HALVES | EIGHT_BITS and not of.family.startswith("memory"):
                operators[_units(of.family, of.dtype)].append(of)
        kept = dict(self.flops_per_s)
        for units, found in operators.items():
            others = replace(self, flops_per_s={k: r for k, r in kept.items() if k != units})
            rate = others._of_halves(_family(units))
            if rate and all(o.flops / rate < o.moved_bytes / self.bytes_per_s for o in found):
                del kept[units]
        return replace(self, flops_per_s=kept)


def roofline(measured: Iterable[tuple[Features, float]]) -> Roofline:
    """Return the roofline under which measured times (seconds) lie; there must be one at least."""
    flops: dict[str, list[float]] = defaultdict(list)
    moved: list[float] = []
    times: list[float] = []
    broadcast: list[float] = []
    seen = list(measured)
    for of, time_s in seen:
        flops[_units(of.family, of.dtype)].append(of.flops / time_s)
        moved.append(of.moved_bytes / time_s)
        times.append(time_s)
        if of.kind in BROADCASTING and of.numbers["broadcast"]:
            written = 2 ** of.numbers["written"]
            if written >= LEAST_BROADCAST:
                broadcast.append(written / time_s)
    bytes_per_s = _quantile(moved, REACHED)
    found = Roofline(
        {units: _quantile(rates, REACHED) for units, rates in flops.items()},
        bytes_per_s,
        _quantile(times, SHORTEST),
        _quantile(broadcast, USUAL) if broadcast else bytes_per_s / READ_AND_WRITTEN,
    )
    return found.shown_by(of for of, _ in seen)


def _units(family: str, dtype: str) -> str:
    return f"{family} {dtype}"


def _family(units: str) -> str:
    return units.rpartition(" ")[0]


def _quantile(values: list[float], share: float) -> float:
    """Return a quantile (share < 1), without interpolation: the value at that place in order."""
    ordered = sorted(values)
    return ordered[math.floor(share * len(ordered))]
