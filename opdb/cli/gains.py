"""What `opdb modes --explain` shows: traits of all models measured, and what goes with gains."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from opdb.cli.console import note, print_json, print_table
from opdb.cli.files import check_writable, csv_text, write_file
from opdb.cli.selection import describe, identity
from opdb.errors import InputError, UnknownNameError
from opdb.records import Json, Mode
from opdb.units import counted, show_share

if TYPE_CHECKING:
    from opdb.records import Device
    from opdb.studies.gains import Correlation, Gains

_FILES = ("--db", "--png", "--svg", "--csv")


@dataclass(frozen=True)
class Explained:
    """What was asked of the database: which models are told of, on which device, into which files.

    No models: all of them. No modes: all that were measured.
    """

    models: Sequence[str]
    batch_sizes: Sequence[int]
    modes: Sequence[Mode]
    device: str | None
    csv_file: Path | None = None
    png: Path | None = None
    svg: Path | None = None


def explain(asked: Explained, db: str | None, *, as_json: bool, quiet: bool) -> None:
    """Tell which traits of models go with what modes save, from all that was measured.

    Raises:
        InputError: no workload of the device was measured in eager and in another mode.
    """
    for path in (asked.csv_file, asked.png, asked.svg):
        if path is not None:
            check_writable(path)
    from opdb.predict import choose_device
    from opdb.store import open_store
    from opdb.studies.gains import correlations, gains

    with open_store(db, create=False) as store:
        device = choose_device(store, asked.device)
        found = [_of_modes(each, asked.modes) for each in gains(store, device)]
    found = [each for each in found if each.saves or each.refused]
    if not found:
        raise InputError(
            f"no model was measured in eager and in {' or '.join(asked.modes) or 'another mode'} "
            f"on {device.slug}; opdb modes MODEL measures them"
        )
    chosen = _chosen(found, asked)
    times, energies = correlations(found, "time"), correlations(found, "energy")
    for path, content in _files(asked, found, device).items():
        write_file(path, content)
        note(f"written: {path}", quiet=quiet or as_json)
    if as_json:
        print_json(_document(device, found, chosen, [*times, *energies]))
    else:
        _print(device, found, chosen, times, energies)


def _of_modes(gained: Gains, modes: Sequence[Mode]) -> Gains:
    """Return what some modes gave alone; all of it where none is named."""
    from dataclasses import replace

    if not modes:
        return gained
    return replace(
        gained,
        saves={mode: saves for mode, saves in gained.saves.items() if mode in modes},
        refused={mode: why for mode, why in gained.refused.items() if mode in modes},
    )


def _chosen(found: Sequence[Gains], asked: Explained) -> list[Gains]:
    """Return the workloads that are named.

    Raises:
        UnknownNameError: a model is not among those measured.
        InputError: it is, and not at the batch size that is asked for.
    """
    names = {each.workload.name for each in found}
    for model in asked.models:
        if model not in names:
            raise UnknownNameError("model", model, names, hint="(of those measured in its modes)")
    sizes = asked.batch_sizes
    chosen = [
        each
        for each in found
        if each.workload.name in asked.models and (not sizes or each.workload.batch_size in sizes)
    ]
    if asked.models and not chosen:
        wanted = ", ".join(map(str, sizes))
        raise InputError(f"{', '.join(asked.models)}: not measured at batch size {wanted}")
    return chosen


# Files


def _files(asked: Explained, found: Sequence[Gains], device: Device) -> dict[Path, bytes]:
    files: dict[Path, bytes] = {}
    if asked.csv_file is not None:
        rows = [_flat(each) for each in found]
        fields = dict.fromkeys(name for row in rows for name in row)
        files[asked.csv_file] = csv_text(list(fields), rows).encode()
    if asked.png is not None or asked.svg is not None:
        from opdb.studies.gains_figure import draw_gains

        title = f"What modes save, {counted(len(found), 'workload')} on {device.name}"
        drawn = draw_gains(found, title, _command())
        if asked.png is not None:
            files[asked.png] = drawn.png
        if asked.svg is not None:
            files[asked.svg] = drawn.svg.encode()
    return files


def _command() -> str:
    """Return the command line as it was typed, without where the files and the database are."""
    kept, arguments = [], iter(sys.argv[1:])
    for argument in arguments:
        if argument in _FILES:
            next(arguments, None)
        elif argument.split("=")[0] not in (*_FILES, "--json", "--quiet", "-q", "--debug"):
            kept.append(argument)
    return shlex.join(["opdb", *kept])


def _flat(gained: Gains) -> dict[str, Json]:
    """Return a workload as a row: traits, and the savings of each mode in columns of their own."""
    document = _gains_document(gained)
    saves, traits = document.pop("saves"), document.pop("traits")
    document |= {"input_size": "x".join(map(str, document["input_size"] or ())), **traits}
    document |= {
        f"{mode} {what}": value for mode, each in saves.items() for what, value in each.items()
    }
    document["refused"] = "; ".join(f"{m}: {why}" for m, why in document["refused"].items())
    return document


# JSON


def _document(
    device: Device,
    found: Sequence[Gains],
    chosen: Sequence[Gains],
    known: Sequence[Correlation],
) -> Json:
    return {
        "device": device.slug,
        "workloads": [_gains_document(each) for each in found],
        "correlations": [
            {
                "mode": c.mode,
                "what": c.what,
                "trait": c.trait,
                "rho": c.rho,
                "workloads": c.workloads,
                "models": c.models,
                "told": c.is_told,
            }
            for c in known
        ],
        "sentences": [
            {**identity(each.workload), "mode": mode, "sentence": told}
            for each in chosen
            for mode, told in _sentences(found, each, known)
        ],
    }


def _gains_document(gained: Gains) -> dict[str, Json]:
    return {
        **identity(gained.workload),
        "board": gained.board,
        "torch": gained.torch,
        "eager_time_s": gained.eager.time_s.mean,
        "eager_energy_j": gained.eager.energy_j.mean if gained.eager.energy_j else None,
        "traits": dict(gained.traits),
        "saves": {
            mode: {
                "saving_time": saves.time,
                "saving_energy": saves.energy,
                "board": gained.boards[mode],
            }
            for mode, saves in gained.saves.items()
        },
        "refused": dict(gained.refused),
    }


def _sentences(
    found: Sequence[Gains], gained: Gains, known: Sequence[Correlation]
) -> list[tuple[Mode, str]]:
    from opdb.studies.gains import sentence

    times = [c for c in known if c.what == "time"]
    modes = dict.fromkeys((*gained.saves, *gained.refused))
    return [(mode, sentence(found, gained, mode, times)) for mode in modes]


# What is shown


def _print(
    device: Device,
    found: Sequence[Gains],
    chosen: Sequence[Gains],
    times: Sequence[Correlation],
    energies: Sequence[Correlation],
) -> None:
    from opdb.studies.gains import FEWEST, FEWEST_MODELS, TRAITS

    modes = list(dict.fromkeys(mode for each in found for mode in each.saves))
    models = len({each.workload.name for each in found})
    if not chosen:
        _print_workloads(found, modes)
        print()
    print(
        f"{counted(len(found), 'workload')} of {counted(models, 'model')} on {device.name}: "
        "what goes with savings"
    )
    known = {(c.mode, c.what, c.trait): c for c in (*times, *energies)}
    rows = [
        (
            trait.words,
            *(_rho(known[mode, what, trait.name]) for mode in modes for what in ("time", "energy")),
        )
        for trait in TRAITS
    ]
    savings = (f"{mode}: {what}" for mode in modes for what in ("time", "energy"))
    print_table(("trait", *savings), rows)
    print(
        "rank correlations (Spearman); in brackets what chance alone would often give, or what "
        f"fewer than {FEWEST_MODELS} models tell;\n– where fewer than {FEWEST} workloads tell; "
        "batch sizes of one model are no independent witnesses"
    )
    for each in chosen:
        for _, told in _sentences(found, each, times):
            print(f"{each.workload.name} {describe(each.workload)}: {told}")


def _rho(found: Correlation) -> str:
    from opdb.studies.gains import FEWEST

    if found.rho is None or found.workloads < FEWEST:
        return "–"
    return f"{found.rho:+.2f}" if found.is_told else f"({found.rho:+.2f})"


def _print_workloads(found: Sequence[Gains], modes: Sequence[Mode]) -> None:
    from opdb.studies.gains import TRAITS

    shown = [t for t in TRAITS if t.name not in ("batch_size", "calls_per_s")]
    if all(each.traits["launches_per_s"] is None for each in found):
        shown = [t for t in TRAITS if t.name not in ("batch_size", "launches_per_s")]
    rows = [
        (
            each.workload.name,
            describe(each.workload),
            *(
                trait.show(each.traits[trait.name]).removesuffix(f" {trait.short}")
                for trait in shown
            ),
            *(_saved(each, mode, what) for mode in modes for what in ("time", "energy")),
        )
        for each in found
    ]
    savings = (f"{mode}: {what}" for mode in modes for what in ("time", "energy"))
    print_table(("model", "workload", *(t.short for t in shown), *savings), rows)


def _saved(gained: Gains, mode: Mode, what: str) -> str:
    if mode in gained.refused:
        return "refused"
    return show_share(getattr(gained.saves[mode], what)) if mode in gained.saves else "–"
