"""Which traits of models go with what modes save: as data, as CSV, and as text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from opdb.errors import InputError, UnknownNameError
from opdb.lookup.words import IDENTITY, describe, identity, workload_columns
from opdb.predict import choose_device
from opdb.records import Device, Json, Mode
from opdb.store import Store
from opdb.studies.accuracy import MEASURES, Measure
from opdb.studies.gains import (
    FEWEST,
    FEWEST_MODELS,
    TRAITS,
    Correlation,
    Gains,
    Trait,
    correlations,
    gains,
    sentence,
)
from opdb.tables import Column, Report, Rows, Table
from opdb.units import plural, show_share

CORRELATIONS: Table[Correlation] = Table(
    Column("mode", lambda found: found.mode),
    Column("what", lambda found: found.what),
    Column("trait", lambda found: found.trait),
    Column("rho", lambda found: found.rho),
    Column("workloads", lambda found: found.workloads),
    Column("models", lambda found: found.models),
    Column("told", lambda found: found.is_told),
)
"""How a trait goes with a mode's saving."""

_GAINED: tuple[Column[Gains], ...] = (
    *workload_columns(lambda gained: gained.workload),
    Column("board", lambda gained: gained.board),
    Column("torch", lambda gained: gained.torch),
    Column("eager_time_s", lambda gained: gained.eager.time_s.mean),
    Column(
        "eager_energy_j",
        lambda gained: gained.eager.energy_j.mean if gained.eager.energy_j else None,
    ),
)

WORKLOADS: Table[Gains] = Table(
    *_GAINED,
    Column("traits", lambda gained: dict(gained.traits)),
    Column("saves", lambda gained: {mode: _savings(gained, mode) for mode in gained.saves}),
    Column("refused", lambda gained: dict(gained.refused)),
)
"""A workload, its traits, and what each mode saves of eager."""


def _savings(gained: Gains, mode: Mode) -> Json:
    if mode not in gained.saves:
        return None
    saves = gained.saves[mode]
    return {
        "saving_time": saves.time,
        "saving_energy": saves.energy,
        "board": gained.boards[mode],
    }


def _saved(mode: Mode, measure: Measure) -> Callable[[Gains], str]:
    def cell(gained: Gains) -> str:
        if mode in gained.refused:
            return "refused"
        return show_share(getattr(gained.saves[mode], measure)) if mode in gained.saves else "–"

    return cell


def _trait(trait: Trait) -> Column[Gains]:
    """Return the column of a trait for people; its unit is in the title."""
    return Column(
        title=trait.short,
        text=lambda gained: trait.show(gained.traits[trait.name]).removesuffix(f" {trait.short}"),
    )


def _flat_trait(name: str) -> Column[Gains]:
    return Column(name, lambda gained: gained.traits.get(name))


def _flat_saving(mode: Mode, member: str) -> Column[Gains]:
    return Column(f"{mode} {member}", lambda gained: (_savings(gained, mode) or {}).get(member))


def _rho(found: Correlation) -> str:
    if found.rho is None or found.workloads < FEWEST:
        return "–"
    return f"{found.rho:+.2f}" if found.is_told else f"({found.rho:+.2f})"


@dataclass(frozen=True)
class GainsReport(Report):
    """What modes saved of all workloads measured; `chosen` are those explained in sentences."""

    device: Device
    found: Sequence[Gains]
    chosen: Sequence[Gains]

    @cached_property
    def correlations(self) -> list[Correlation]:
        """How each trait goes with what each mode saves of time, then of energy."""
        return [*correlations(self.found, "time"), *correlations(self.found, "energy")]

    @property
    def modes(self) -> list[Mode]:
        """The modes that any workload was measured in, besides eager."""
        return list(dict.fromkeys(mode for each in self.found for mode in each.saves))

    def csv(self) -> str:
        """Return a row for each workload, with the savings of each mode in columns of their own."""
        traits = dict.fromkeys(name for each in self.found for name in each.traits)
        members = ("saving_time", "saving_energy", "board")
        told = "; ".join
        table: Table[Gains] = Table(
            *_GAINED,
            Column("refused", lambda each: told(f"{m}: {why}" for m, why in each.refused.items())),
            *(_flat_trait(name) for name in traits if name not in IDENTITY),
            *(_flat_saving(mode, member) for mode in self.modes for member in members),
        )
        return table.csv(self.found)

    def to_dict(self) -> Json:
        """Return the workloads, the correlations, and a sentence for each chosen one and mode."""
        return {
            "device": self.device.slug,
            "workloads": WORKLOADS.documents(self.found),
            "correlations": CORRELATIONS.documents(self.correlations),
            "sentences": [
                {**identity(each.workload), "mode": mode, "sentence": told}
                for each in self.chosen
                for mode, told in self._sentences(each)
            ],
        }

    def _sentences(self, gained: Gains) -> list[tuple[Mode, str]]:
        times = [each for each in self.correlations if each.what == "time"]
        modes = dict.fromkeys((*gained.saves, *gained.refused))
        return [(mode, sentence(self.found, gained, mode, times)) for mode in modes]

    def blocks(self) -> Iterator[str | Rows[Any]]:
        """Yield the workloads where none is chosen, the correlations, and the sentences."""
        if not self.chosen:
            yield Rows(self._workloads(), self.found)
            yield ""
        models = len({each.workload.name for each in self.found})
        yield (
            f"{plural(len(self.found), 'workload')} of {plural(models, 'model')} on "
            f"{self.device.name}: what goes with savings"
        )
        yield Rows(self._traits(), TRAITS)
        yield (
            "rank correlations (Spearman); in brackets what chance alone would often give, or what "
            f"fewer than {FEWEST_MODELS} models tell;\n– where fewer than {FEWEST} workloads tell; "
            "batch sizes of one model are no independent witnesses"
        )
        for each in self.chosen:
            for _, told in self._sentences(each):
                yield f"{each.workload.name} {describe(each.workload)}: {told}"

    def _workloads(self) -> Table[Gains]:
        unknown = all(each.traits["launches_per_s"] is None for each in self.found)
        hidden = ("batch_size", "launches_per_s" if unknown else "calls_per_s")
        return Table(
            *_GAINED,
            *(_trait(trait) for trait in TRAITS if trait.name not in hidden),
            *(
                Column[Gains](title=f"{mode}: {measure}", text=_saved(mode, measure))
                for mode in self.modes
                for measure in MEASURES
            ),
        )

    def _traits(self) -> Table[Trait]:
        known = {(c.mode, c.what, c.trait): c for c in self.correlations}

        def rho(mode: Mode, measure: Measure) -> Column[Trait]:
            return Column(
                title=f"{mode}: {measure}",
                text=lambda trait: _rho(known[mode, measure, trait.name]),
            )

        return Table(
            Column(title="trait", text=lambda trait: trait.words),
            *(rho(mode, measure) for mode in self.modes for measure in MEASURES),
        )


@dataclass(frozen=True)
class Wanted:
    """The workloads to explain, the modes and the device; no models or modes: all of them."""

    models: Sequence[str] = ()
    batch_sizes: Sequence[int] = ()
    modes: Sequence[Mode] = ()
    device: str | None = None


def explain_gains(store: Store, wanted: Wanted = Wanted()) -> GainsReport:
    """Find which traits of models go with what modes save, from all that was measured.

    Raises:
        UnknownNameError: a model is not among those measured.
        InputError: no workload was measured in eager and in another mode, or not at a batch size.
    """
    device = choose_device(store, wanted.device)
    found = [_of_modes(each, wanted.modes) for each in gains(store, device)]
    found = [each for each in found if each.saves or each.refused]
    if not found:
        raise InputError(
            f"no model was measured in eager and in {' or '.join(wanted.modes) or 'another mode'} "
            f"on {device.slug}; opdb modes MODEL measures them"
        )
    return GainsReport(device, found, _chosen(found, wanted))


def _of_modes(gained: Gains, modes: Sequence[Mode]) -> Gains:
    """Return what some modes gave alone; all of it where none is named."""
    if not modes:
        return gained
    return replace(
        gained,
        saves={mode: saves for mode, saves in gained.saves.items() if mode in modes},
        refused={mode: why for mode, why in gained.refused.items() if mode in modes},
    )


def _chosen(found: Sequence[Gains], wanted: Wanted) -> list[Gains]:
    """Return the workloads that are named.

    Raises:
        UnknownNameError: a model is not among those measured.
        InputError: it is, and not at the batch size that is asked for.
    """
    names = {each.workload.name for each in found}
    for model in wanted.models:
        if model not in names:
            raise UnknownNameError("model", model, names, hint="(of those measured in its modes)")
    sizes = wanted.batch_sizes
    chosen = [
        each
        for each in found
        if each.workload.name in wanted.models and (not sizes or each.workload.batch_size in sizes)
    ]
    if wanted.models and not chosen:
        listed = ", ".join(map(str, sizes))
        raise InputError(f"{', '.join(wanted.models)}: not measured at batch size {listed}")
    return chosen
