"""What `opdb sweep` tells: lists, where a sweep stands, its rows, and what was verified."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from opdb.algorithms.names import ALGORITHMS
from opdb.cli.console import note, print_json, print_table
from opdb.cli.sweeping import Asked, cells_of, known_workloads, write_all
from opdb.errors import InputError
from opdb.models import ModelRequest
from opdb.records import ALGORITHM_SETTING, Json
from opdb.sweep.cells import STATES, Cell, Standing
from opdb.sweep.rows import Row
from opdb.units import MILLI, counted, show, show_share

if TYPE_CHECKING:
    from opdb.bench.verify import Verification
    from opdb.store import RunState, Store

MODELS = ("vgg16", "densenet121", "resnet50", "resnet152", "googlenet", "alexnet")
"""The models that are published; any other that takes images can be swept as well."""


def named(cell: Cell) -> str:
    """Name a cell in a message."""
    return f"{cell.request.name} {cell.algorithm.name} at {cell.size}"


def print_lists(models: bool, algorithms: bool, *, as_json: bool) -> None:
    """Print the models that can be swept, the algorithms, or both."""
    from opdb.models import names

    document: dict[str, Json] = {}
    if models:
        others = [name for name in names("torchvision") if name not in MODELS]
        document["models"] = [*MODELS, *others]
    if algorithms:
        document["algorithms"] = [
            {"algorithm": each.name, "cudnn_number": each.number, "what": each.words}
            for each in ALGORITHMS.values()
        ]
    if as_json:
        print_json(document)
        return
    for name in document.get("models", []):
        print(name)
    if models:
        note("and any other model that opdb harvests and that takes a batch of images")
    if algorithms:
        rows = [
            (a.name, "" if a.number is None else a.number, a.words) for a in ALGORITHMS.values()
        ]
        print_table(("algorithm", "cuDNN's number", "what runs"), rows)


def swept_device(store: Store, here: str) -> str:
    """Return the device (slug) whose sweeps are told: this machine's, else one that has any."""
    swept = [device.slug for device in store.devices() if store.algorithm_runs(device.slug)]
    return here if here in swept or not swept else swept[0]


def print_status(store: Store, asked: Asked, device: str, *, as_json: bool) -> None:
    """Say of every model and algorithm how many sizes are in which state.

    Where no model is named, of all that was ever swept on the device (slug), at its own sizes.
    """
    from opdb.bench.sweep import claims_scope
    from opdb.store.claims import bury, held

    bury(store)
    scope = claims_scope(device)
    claimed = {each.task for each in held(store) if each.scope == scope and each.left_s > 0}
    runs = store.algorithm_runs(device)
    cells = (
        _asked_cells(store, asked, device) if asked.requests else _swept_cells(store, asked, runs)
    )
    standing = Standing(runs, claimed)
    counts, took = standing.counts(cells), standing.seconds(cells)
    if as_json:
        print_json(
            [
                {"device": device, "model": key[0], "algorithm": key[1]}
                | {state: states[state] for state in STATES}
                | {"took_s": sum(took[key])}
                for key, states in counts.items()
            ]
        )
        return
    sizes = [cell.size for cell in cells]
    print(f"{device}, sizes {min(sizes)} to {max(sizes)}" if sizes else f"{device}: no sweep yet")
    print_table(
        ("model", "algorithm", "sizes", *STATES, "took"),
        [
            (*key, states.total(), *map(states.__getitem__, STATES), show(sum(took[key]), "s"))
            for key, states in counts.items()
        ],
    )
    if each := [seconds for some in took.values() for seconds in some]:
        print(
            f"{counted(len(each), 'run')} took {sum(each):.0f} s: "
            f"{statistics.fmean(each):.2f} s each in the mean, "
            f"{statistics.median(each):.2f} s in the median"
        )


def write_stored(
    store: Store, asked: Asked, device: str, output: Path, *, quiet: bool
) -> list[Row]:
    """Write files and figures of what is stored of a device (slug); return the rows.

    Raises:
        InputError: nothing that is asked for is stored, or a file cannot be written.
    """
    asked = in_its_mode(store, asked, device)
    every = cells_of(asked, known_workloads(store))
    cells = [cell for cell in every if cell.workload]
    rows = write_all(store, asked, cells, device, output, quiet=quiet) if cells else []
    if not rows:
        names = ", ".join(request.name for request in asked.requests)
        raise InputError(
            f"nothing of {names} was swept on {device} in mode {asked.mode} at these sizes "
            f"({', '.join(map(str, asked.sizes))}): opdb sweep --status tells what was"
        )
    if lacking := len(every) - len(rows):
        note(f"not in these files: {counted(lacking, 'cell')} not measured")
    return rows


def _asked_cells(store: Store, asked: Asked, device: str) -> list[Cell]:
    """Return the cells of the models that are named, in the mode in which the device is swept."""
    asked = in_its_mode(store, asked, device)
    asked = replace(asked, algorithms=asked.algorithms or tuple(ALGORITHMS.values()))
    return cells_of(asked, known_workloads(store))


def in_its_mode(store: Store, asked: Asked, device: str) -> Asked:
    """Return the same in the mode in which the device (slug) is swept, where none is named."""
    on_gpu = any(each.slug == device and each.type == "cuda" for each in store.devices())
    return replace(asked, mode=asked.mode or ("graph" if on_gpu else "eager"))


def _swept_cells(store: Store, asked: Asked, runs: Sequence[RunState]) -> list[Cell]:
    """Return the cells of every workload that was swept, under all algorithms that were, too."""
    workloads = {head.workload.key: head.workload for head in store.heads()}
    used = {run.setting[ALGORITHM_SETTING] for run in runs}
    algorithms = asked.algorithms or [a for name, a in ALGORITHMS.items() if name in used]
    cells = []
    for key, mode in dict.fromkeys((run.workload, run.mode) for run in runs):
        if asked.mode in (None, mode):
            workload = workloads[key]
            size = workload.inputs["args"][0]["shape"][-1]
            request = ModelRequest(workload.name, batch_size=workload.batch_size)
            cells += [Cell(request, key, size, algorithm, mode) for algorithm in algorithms]
    return cells


def _composed(rows: Sequence[Row]) -> dict[str, dict[str, float]]:
    """Hold what operators say of runs against these: errors (shares) of time and of energy."""
    found: dict[str, dict[str, float]] = {}
    for quantity, predicted, measured in (
        ("time", "predicted_ms", "mean_ms"),
        ("energy", "predicted_energy_j", "energy_per_inference_j"),
    ):
        told = [row.overall() for row in rows]
        errors = [
            abs(each[predicted] / each[measured] - 1)
            for each in told
            if each[predicted] is not None and each[measured] is not None
        ]
        if errors:
            found[quantity] = {
                "runs": len(errors),
                "median": statistics.median(errors),
                "largest": max(errors),
            }
    return found


def document_of(rows: Sequence[Row], verified: Sequence[Verification]) -> Json:
    """Return the rows and what was verified as one document."""
    return {
        "rows": [row.overall() for row in rows],
        "composed": _composed(rows),
        "verified": [
            {
                "model": each.cell.request.name,
                "algorithm": each.cell.algorithm.name,
                "input_size": each.cell.size,
                "convolutions": each.convolutions,
                "forced": each.forced,
                "refused": each.refused,
                "layer_error": each.layer_error,
                "worst_layer": each.worst_layer,
                "output_error": each.output_error,
                "tolerance": each.tolerance,
                "time_s": each.time_s,
                "default_time_s": each.default_s,
                "kernels": each.kernels,
                "same_kernels_as": each.same_kernels_as,
                "failure": each.failure,
                "holds": each.holds,
            }
            for each in verified
        ],
    }


def print_rows(rows: Sequence[Row], verified: Sequence[Verification]) -> None:
    """Print the rows, and what was verified, as tables."""
    table = []
    for row in rows:
        told = row.overall()
        time, energy = told["mean_ms"], told["energy_per_inference_j"]
        share = told["share_elsewhere"]
        words = told["state"] + (f", {show_share(share)} elsewhere" if share else "")
        table.append(
            (
                told["model"],
                told["algorithm"],
                told["input_size"],
                show(None if time is None else time * MILLI, "s"),
                show(energy, "J"),
                words,
                told["same_kernels_as"] or "",
                told["reason"] or "",
            )
        )
    if table:
        print_table(
            ("model", "algorithm", "size", "time", "energy", "state", "same kernels as", "why"),
            table,
        )
    for quantity, errors in _composed(rows).items():
        print(
            f"{quantity} composed of operators against {counted(round(errors['runs']), 'run')}: "
            f"median error {show_share(errors['median'])}, largest {show_share(errors['largest'])}"
        )
    if verified:
        print()
        print_table(
            ("model", "algorithm", "size", "forced", "largest error", "time", "verified"),
            [
                (
                    each.cell.request.name,
                    each.cell.algorithm.name,
                    each.cell.size,
                    f"{each.forced} of {each.convolutions}",
                    "–" if each.layer_error is None else f"{each.layer_error:.1e}",
                    show(each.time_s, "s"),
                    judged(each),
                )
                for each in verified
            ],
        )


def judged(each: Verification) -> str:
    """Say in words what was verified."""
    if each.failure is not None:
        return each.failure
    if not each.cell.algorithm.is_forced:
        return "torch's own"
    said = "yes" if each.holds else f"no: {each.worst_layer} errs more than {each.tolerance:g}"
    if each.time_s and each.default_s and each.cell.algorithm.is_forced:
        said += f", {each.time_s / each.default_s:.2f} of torch's time"
    if each.same_kernels_as:
        said += f", the kernels of {each.same_kernels_as}"
    return said
