"""Which traits of models correlate with what a mode saves: traits and rank correlations."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, TypeVar, get_args

from opdb.derive.runs import RunCost, run_cost
from opdb.kinds import KINDS
from opdb.kinds.registry import Kernels
from opdb.records import Campaign, Device, Mode, ModelRun, Workload
from opdb.store import Store
from opdb.studies.modes import Saving, by_mode, saving
from opdb.units import MILLI, plural, rounded, show_share

What: TypeAlias = Literal["time", "energy"]
Value = TypeVar("Value")


LEFT_TO_LIBRARIES: Mapping[Kernels, frozenset[str]] = {
    made: frozenset(name for name, kind in KINDS.items() if kind.kernels == made)
    for made in get_args(Kernels)
    if made != "generated"
}
"""Kinds whose kernels inductor usually takes from a library; it generates all others."""

FEWEST = 5
"""With fewer workloads no correlation is shown."""

FEWEST_MODELS = 3
"""With two models, every trait in which they differ correlates with the saving."""

UNLIKELY = 1.96
"""Without any correlation, the rank correlation times √(n - 1) exceeds this in 5 % of cases."""


@dataclass(frozen=True)
class Trait:
    """A property that may correlate with a mode's saving; shown as `scale` times its value."""

    name: str
    words: str
    short: str
    scale: float = 1.0
    unit: str = ""

    def show(self, value: float | None) -> str:
        """Return a value as it is shown, with its unit."""
        if value is None:
            return "–"
        if self.unit == "%":
            return show_share(value)
        shown = rounded(self.scale * value, 3)
        return f"{shown} {self.unit}" if self.unit else shown


TRAITS: tuple[Trait, ...] = (
    Trait("batch_size", "batch size", "batch"),
    Trait("launches_per_s", "launches a millisecond in eager", "launches/ms", MILLI),
    Trait("calls_per_s", "operator calls a millisecond in eager", "calls/ms", MILLI),
    Trait("intensity", "arithmetic intensity", "FLOP/byte", unit="FLOP/byte"),
    Trait("fusible_share", "bytes moved by fusible operators", "fusible", 100, "%"),
    Trait("convolution_share", "bytes moved by convolutions", "convolutions", 100, "%"),
    Trait("product_share", "bytes moved by matrix products", "products", 100, "%"),
    Trait("attention_share", "bytes moved by attention", "attention", 100, "%"),
    Trait("graph_breaks", "graph breaks", "breaks"),
)


@dataclass(frozen=True)
class Gains:
    """A workload on one board: its traits (None where not known) and what each mode saves of eager.

    `refused` are modes that gave no figures, with the reason. Modes that the board did
    not run come from another board, with its own eager run; `boards` names the board of each mode.
    """

    workload: Workload
    board: str
    torch: str | None
    traits: Mapping[str, float | None]
    eager: RunCost
    saves: dict[Mode, Saving]
    refused: dict[Mode, str]
    boards: dict[Mode, str]


@dataclass(frozen=True)
class Correlation:
    """The rank correlation of a trait with a mode's saving, over how many workloads and models.

    `rho` is Spearman's, None where a trait or the saving is the same everywhere.
    """

    mode: Mode
    what: What
    trait: str
    rho: float | None
    workloads: int
    models: int

    @property
    def is_told(self) -> bool:
        """Whether it is stronger than chance would often make it for independent workloads.

        It never is with too few models.
        """
        if self.rho is None or self.workloads < FEWEST or self.models < FEWEST_MODELS:
            return False
        return abs(self.rho) * math.sqrt(self.workloads - 1) > UNLIKELY


def gains(store: Store, device: Device) -> list[Gains]:
    """Return every workload of inference that a board ran in eager and in another mode.

    Of a workload's boards, and of their versions of torch, the one counts that ran it in most
    modes, of several the last; what it did not run comes from the others of its version of torch.
    """
    campaigns = {c.id: c for c in store.campaigns(device.slug)}
    groups: dict[str, dict[tuple[str, str | None], list[ModelRun]]] = {}
    for run in store.model_runs(device=device.slug):
        group = groups.setdefault(run.workload, {})
        group.setdefault(_place(campaigns[run.campaign]), []).append(run)
    found = []
    for workload in store.workloads():
        if workload.phase != "inference":
            continue
        known = [
            gained
            for (board, torch), runs in groups.get(workload.key, {}).items()
            if (gained := _gains(workload, board, torch, runs)) is not None
        ]
        if known:
            found.append(_together(known))
    return found


def _together(known: Sequence[Gains]) -> Gains:
    best = max(reversed(known), key=lambda each: len(each.saves))
    for other in reversed(known):
        if other.torch == best.torch:
            best = replace(
                best,
                saves=best.saves | _but(other.saves, best.boards),
                refused=best.refused | _but(other.refused, best.boards),
                boards=best.boards | _but(other.boards, best.boards),
            )
    return best


def _but(values: Mapping[Mode, Value], left_out: Collection[Mode]) -> dict[Mode, Value]:
    return {mode: value for mode, value in values.items() if mode not in left_out}


def _place(campaign: Campaign) -> tuple[str, str | None]:
    return campaign.board.uuid, campaign.environment.get("torch")


def _gains(
    workload: Workload, board: str, torch: str | None, runs: Sequence[ModelRun]
) -> Gains | None:
    """Return what the modes gave of one board's runs; None without eager or without another."""
    chosen = by_mode(runs)
    costs = {mode: run_cost([run]) for mode, run in chosen.items()}
    eager = costs.get("eager")
    if eager is None or len(chosen) < 2:
        return None
    others = {mode: cost for mode, cost in costs.items() if mode != "eager"}
    return Gains(
        workload,
        board,
        torch,
        traits_of(workload, chosen, eager),
        eager,
        {mode: saving(cost, eager) for mode, cost in others.items() if cost is not None},
        {mode: str(chosen[mode].reason) for mode, cost in others.items() if cost is None},
        dict.fromkeys(others, board),
    )


def traits_of(
    workload: Workload, runs: Mapping[Mode, ModelRun], eager: RunCost
) -> dict[str, float | None]:
    """Return a workload's traits: counted from its calls, or as its eager run showed them."""
    counts = workload.occurrences()
    moved = {c: n * KINDS[c.kind].bytes_moved(c) for c, n in counts.items() if c.kind in KINDS}
    flops = sum(n * KINDS[c.kind].flops(c) for c, n in counts.items() if c.kind in KINDS)
    total = sum(moved.values())
    kernels = runs["eager"].kernels
    breaks = [
        counted
        for mode, run in runs.items()
        if mode != "trace" and (counted := run.facts.get("graph_breaks")) is not None
    ]  # a trace never breaks

    def share(of: Callable[[str], bool]) -> float | None:
        return sum(size for c, size in moved.items() if of(c.kind)) / total if total else None

    groups = {
        name: share(kinds.__contains__)
        for name, kinds in LEFT_TO_LIBRARIES.items()
        if name not in ("recurrent", "other")
    }
    return {
        "batch_size": workload.batch_size,
        "launches_per_s": None if kernels is None else sum(kernels.values()) / eager.time_s.mean,
        "calls_per_s": len(workload.calls) / eager.time_s.mean,
        "intensity": flops / total if total else None,
        "fusible_share": share(is_fusible),
        **{f"{name}_share": value for name, value in groups.items()},
        "graph_breaks": max(breaks) if breaks else None,
    }


def is_fusible(kind: str) -> bool:
    """Return whether inductor makes this kind's kernels itself, and may fuse them."""
    return kind not in KINDS or KINDS[kind].kernels == "generated"


def correlations(found: Sequence[Gains], what: What) -> list[Correlation]:
    """Return the rank correlation of every trait with every mode's saving of time or energy."""
    modes = dict.fromkeys(mode for each in found for mode in each.saves)
    return [_correlation(found, mode, what, trait.name) for mode in modes for trait in TRAITS]


def _correlation(found: Iterable[Gains], mode: Mode, what: What, trait: str) -> Correlation:
    pairs = [
        (value, saved, each.workload.name)
        for each in found
        if mode in each.saves
        and (value := each.traits[trait]) is not None
        and (saved := getattr(each.saves[mode], what)) is not None
    ]
    rho = rank_correlation([value for value, _, _ in pairs], [saved for _, saved, _ in pairs])
    return Correlation(mode, what, trait, rho, len(pairs), len({name for *_, name in pairs}))


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Return Spearman's rank correlation, ties at their mean rank; None where it has no meaning."""
    if len(first) < 2:
        return None
    a, b = _ranks(first), _ranks(second)
    middle = (len(first) + 1) / 2
    over = sum((x - middle) * (y - middle) for x, y in zip(a, b, strict=True))
    spread = math.sqrt(sum((x - middle) ** 2 for x in a) * sum((y - middle) ** 2 for y in b))
    return over / spread if spread else None


def _ranks(values: Sequence[float]) -> list[float]:
    ordered = sorted(values)
    first = {value: place for place, value in reversed(list(enumerate(ordered, 1)))}
    return [first[value] + (ordered.count(value) - 1) / 2 for value in values]


def below(values: Iterable[float | None], value: float) -> float:
    """Return the share of the known values that lie below one, ties counted half."""
    known = [v for v in values if v is not None]
    return sum((v < value) + (v == value) / 2 for v in known) / len(known)


def strongest(known: Sequence[Correlation], mode: Mode, gained: Gains) -> Correlation | None:
    """Return the trait of a workload that correlates most with a mode's saving; None if none."""
    told = [c for c in known if c.mode == mode and c.is_told and gained.traits[c.trait] is not None]
    return max(told, key=lambda c: abs(c.rho or 0), default=None)


def sentence(
    found: Sequence[Gains], gained: Gains, mode: Mode, known: Sequence[Correlation]
) -> str:
    """Say in plain sentences what a mode saves of a workload, and which trait correlates with it.

    `known` are the correlations with savings of time.
    """
    if mode in gained.refused:
        return f"{mode} gave no figures: {gained.refused[mode]}."
    saves = gained.saves[mode]
    told = f"{mode} {_saves(saves)}"
    best = strongest(known, mode, gained)
    if best is None or best.rho is None or saves.time is None:
        most = max(((c.workloads, c.models) for c in known if c.mode == mode), default=(0, 0))
        over = f"{plural(most[0], 'workload')} of {plural(most[1], 'model')}"
        return f"{told}. Over {over} nothing goes clearly with what it saves."
    trait = next(t for t in TRAITS if t.name == best.trait)
    value = gained.traits[trait.name]
    assert value is not None
    others = [each for each in found if mode in each.saves]
    higher = below((each.traits[trait.name] for each in others), value)
    times = [each.saves[mode].time for each in others if each.saves[mode].time is not None]
    larger = below(times, saves.time)
    return (
        f"{told}, in time more than it saves of {_share(larger)} of {len(times)} workloads. "
        f"What goes with that most clearly: {trait.words}, {trait.show(value)} here, more than "
        f"{_share(higher)} of them have; the more, the {'larger' if best.rho > 0 else 'smaller'} "
        f"the saving (rank correlation {best.rho:+.2f}, {plural(best.models, 'model')})."
    )


def _saves(saves: Saving) -> str:
    both = (("time", saves.time), ("energy", saves.energy))
    known = [(what, value) for what, value in both if value is not None]
    saved = [f"{100 * value:.1f} % of the {what}" for what, value in known if value >= 0]
    more = [f"{-100 * value:.1f} % more {what}" for what, value in known if value < 0]
    told = (("saves", saved), ("takes", more))
    return " and ".join(f"{verb} {' and '.join(parts)}" for verb, parts in told if parts)


def _share(value: float) -> str:
    return f"{100 * value:.0f} %"
