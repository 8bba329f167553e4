"""`opdb sweep`: convolution algorithms × input sizes, whole models, resumable."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from opdb.algorithms.names import ALGORITHMS, DEFAULT
from opdb.cli import options
from opdb.cli.console import note, print_json, print_table, progress
from opdb.cli.sweeping import (
    Asked,
    Results,
    cells_of,
    draw_all,
    harvested_cells,
    image_request,
    known_workloads,
    write_results,
)
from opdb.errors import CheckError, InputError
from opdb.records import Json, Mode
from opdb.sweep.cells import STATES, Cell, Standing
from opdb.sweep.rows import Row
from opdb.sweep.stages import parse_sizes, sizes_of
from opdb.units import MILLI, show, show_duration, show_share

if TYPE_CHECKING:
    from opdb.bench.platform import Platform
    from opdb.bench.verify import Verification
    from opdb.store import Store

MODES = ("graph", "eager")
MODELS = ("vgg16", "densenet121", "resnet50", "resnet152", "googlenet", "alexnet")
"""The models that are published; any other that takes images can be swept as well."""


def run(
    models: Annotated[
        list[str] | None, typer.Argument(metavar="MODEL...", help="Models that take images.")
    ] = None,
    algorithms: options.Algorithms = None,
    stage: Annotated[
        str,
        typer.Option(
            "--stage", metavar="NAME", help="sanity (1 size, verified), quick (10), full (100)."
        ),
    ] = "sanity",
    num_sizes: Annotated[
        int | None, typer.Option("--num-sizes", metavar="N", help="So many sizes, 224 to 512.")
    ] = None,
    sizes: Annotated[
        str | None, typer.Option("--sizes", metavar="LIST", help="These sizes, as in 224,256.")
    ] = None,
    batch_size: Annotated[
        int, typer.Option("--batch-size", "-b", metavar="N", min=1, help="Batch size.")
    ] = 1,
    warm_up: Annotated[
        int, typer.Option("--warmup", metavar="N", min=1, help="Passes before measuring.")
    ] = 10,
    measure: Annotated[
        int, typer.Option("--measure", metavar="N", min=2, help="Passes measured, at least.")
    ] = 20,
    output_dir: Annotated[
        Path, typer.Option("--output-dir", metavar="FOLDER", help="Where files are written.")
    ] = Path("results"),
    mode: Annotated[
        str | None,
        typer.Option(
            "--mode", metavar="MODE", help="graph or eager.  [default: graph on a GPU, else eager]"
        ),
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Prove what ran: outputs, kernels, time.")
    ] = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="Say what is left and its seconds; measure nothing.")
    ] = False,
    status: Annotated[
        bool,
        typer.Option("--status", help="Say what is done, running, failed, left; measure nothing."),
    ] = False,
    retry: Annotated[
        bool, typer.Option("--retry", help="Try again what failed (errors, out of memory).")
    ] = False,
    list_models: Annotated[
        bool, typer.Option("--list-models", help="List models that can be swept.")
    ] = False,
    list_algorithms: Annotated[
        bool, typer.Option("--list-algorithms", help="List the algorithms.")
    ] = False,
    dtype: options.Dtype = None,
    memory_format: options.MemoryFormat = None,
    device: options.MeasuredDevice = None,
    db: options.Db = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Run whole models at many input sizes, their convolutions forced to take named algorithms.

    About a second a size: time with its distribution, power, energy, every layer's time in place.
    Each run is stored as soon as it is done; a stage reuses what an earlier one measured. What an
    algorithm cannot run is stored as unsupported; a model in which it cannot run some layer is
    partial. Files for pandas are written under results/STAGE/.
    """
    if list_models or list_algorithms:
        _list(list_models, list_algorithms, as_json=as_json)
        return
    if not models:
        raise InputError("give models, as in: opdb sweep resnet50 --algorithm all --stage quick")
    found_sizes = sizes_of(stage, num_sizes, None if sizes is None else parse_sizes(sizes))
    forced = options.parse_algorithms(algorithms or [DEFAULT])
    said = options.model_options(batch_size, None, dtype, memory_format, None)
    from opdb.bench.forced import check_algorithms
    from opdb.bench.measure import check_modes
    from opdb.bench.platform import detect
    from opdb.store import open_store

    platform = detect(device)
    default_mode = "graph" if platform.device.type == "cuda" else "eager"
    chosen = cast(Mode, options.parse_mode(mode or default_mode))
    if chosen not in MODES:
        raise InputError(f"--mode {chosen}: sweeps run in {' or '.join(MODES)}")
    measuring = not (plan or status)
    if measuring:  # what cannot be measured here is told before anything is harvested
        check_modes([chosen], device)
        check_algorithms(forced, platform)
    named = dict.fromkeys(models)
    requests = tuple(image_request(name, said) for name in named)
    asked = Asked(requests, tuple(found_sizes), tuple(forced), chosen, stage)
    with open_store(db) as store:
        if status:
            _status(store, asked, platform.device.slug, as_json=as_json)
            return
        sweeping = _Sweeping(store, asked, platform, quiet=quiet)
        sweeping.plan(retry=retry, as_json=as_json and plan)
        if plan:
            return
        sweeping.measure(device, warm_up, measure)
        rows = sweeping.write(output_dir)
        verified = sweeping.verify() if verify or stage == "sanity" else []
    if as_json:
        print_json(_document(rows, verified))
    else:
        _print(rows, verified)
    sweeping.finish(verified)


class _Sweeping:
    """One sweep under way: its cells, what is left of them, and what went wrong."""

    def __init__(self, store: Store, asked: Asked, platform: Platform, *, quiet: bool) -> None:
        self._store, self._asked, self._platform = store, asked, platform
        self._quiet = quiet
        self._cells, self._errors = harvested_cells(store, asked, quiet=quiet)
        self._left: list[Cell] = []
        self._retry = False

    @property
    def _slug(self) -> str:
        return self._platform.device.slug

    def plan(self, *, retry: bool, as_json: bool) -> None:
        """Say which cells are to be measured and what that is likely to take."""
        from opdb.bench.sweep import planned_seconds

        standing = Standing(self._store.algorithm_runs(self._slug))
        self._left, self._retry = standing.pending(self._cells, retry=retry), retry
        seconds, rests_on = planned_seconds(self._store, self._left, self._slug)
        if as_json:
            print_json(
                {
                    "cells": len(self._cells),
                    "left": len(self._left),
                    "planned_s": seconds,
                    "rests_on_runs": rests_on,
                }
            )
            return
        grounds = f"as {rests_on} runs here took" if rests_on else "as cells usually take"
        note(
            f"{self._slug}: {len(self._left)} of {len(self._cells)} cells are to be measured, "
            f"about {show_duration(seconds)} ({seconds:.0f} GPU-seconds, {grounds})",
            quiet=self._quiet,
        )

    def measure(self, device: str | None, warm_up: int, measure: int) -> None:
        """Measure what is left."""
        from opdb.bench.sweep import SweepOptions, sweep

        options_of_all = SweepOptions(warm_up, measure, retry=self._retry)
        with progress(len(self._left), "sweep", quiet=self._quiet) as shown:
            for cell, made in sweep(self._store, self._left, options_of_all, device=device):
                shown.doing(f"{cell.request.name} {cell.algorithm.name} {cell.size}")
                if made.outcome not in ("ok", "unsupported"):
                    shown.note(f"{_named(cell)}: {made.outcome}: {made.reason}")
                shown.done()

    def write(self, output: Path) -> list[Row]:
        """Write files and figures of all that was ever run of the sweep; return its rows."""
        from opdb.bench.settings import current_settings
        from opdb.bench.sweep import convolution_layers

        results = Results(self._store, self._slug, current_settings())
        found: list[Row] = []
        for name in dict.fromkeys(cell.request.name for cell in self._cells):
            cells = [cell for cell in self._cells if cell.request.name == name]
            layers, calls = convolution_layers(cells[0])
            rows = results.rows(cells, calls)
            written = write_results(self._asked, rows, layers, self._slug, output)
            if rows:
                written += draw_all(self._asked, rows, self._slug, output)
            note("\n".join(f"written: {path}" for path in written), quiet=self._quiet)
            found += rows
        return found

    def verify(self) -> list[Verification]:
        """Verify every algorithm at the first size of each model."""
        from opdb.bench.verify import unmetered, verify

        session = unmetered(self._platform)
        found: list[Verification] = []
        for name in dict.fromkeys(cell.request.name for cell in self._cells):
            of_model = [cell for cell in self._cells if cell.request.name == name]
            first = [cell for cell in of_model if cell.size == of_model[0].size]
            note(f"verifying {name} at {first[0].size} pixels", quiet=self._quiet)
            [workload] = self._store.workloads_by_key([first[0].workload])
            found += verify(session, first, workload)
        return found

    def finish(self, verified: Sequence[Verification]) -> None:
        """Raise what went wrong, every part of it named; nothing when all went well.

        Raises:
            InputError: the model cannot be run at some size.
            CheckError: an output is not what torch computes.
        """
        if self._errors:
            raise InputError("\n".join(str(error) for error in self._errors))
        wrong = [f"{_named(each.cell)}: {_judged(each)}" for each in verified if not each.holds]
        if wrong:
            raise CheckError("what ran is not verified:\n" + "\n".join(f"  {w}" for w in wrong))


def _named(cell: Cell) -> str:
    return f"{cell.request.name} {cell.algorithm.name} at {cell.size}"


def _list(models: bool, algorithms: bool, *, as_json: bool) -> None:
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


def _status(store: Store, asked: Asked, device: str, *, as_json: bool) -> None:
    """Say of every model and algorithm how many sizes are in which state."""
    from opdb.bench.sweep import claims_scope
    from opdb.store.claims import bury, held

    bury(store)
    scope = claims_scope(device)
    claimed = {each.task for each in held(store) if each.scope == scope and each.left_s > 0}
    cells = cells_of(asked, known_workloads(store))
    counts = Standing(store.algorithm_runs(device), claimed).counts(cells)
    if as_json:
        print_json(
            [
                {"device": device, "model": model, "algorithm": algorithm, "stage": asked.stage}
                | {state: states[state] for state in STATES}
                for (model, algorithm), states in counts.items()
            ]
        )
        return
    print(f"{device}, {asked.mode}, sizes {asked.sizes[0]} to {asked.sizes[-1]}")
    print_table(
        ("model", "algorithm", "sizes", *STATES),
        [
            (model, algorithm, states.total(), *(states[state] for state in STATES))
            for (model, algorithm), states in counts.items()
        ],
    )


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


def _document(rows: Sequence[Row], verified: Sequence[Verification]) -> Json:
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


def _print(rows: Sequence[Row], verified: Sequence[Verification]) -> None:
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
            f"{quantity} composed of operators against {errors['runs']:.0f} runs: median error "
            f"{show_share(errors['median'])}, largest {show_share(errors['largest'])}"
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
                    _judged(each),
                )
                for each in verified
            ],
        )


def _judged(each: Verification) -> str:
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
