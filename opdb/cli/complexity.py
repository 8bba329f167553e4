"""`opdb complexity`: what models hold and do, counted: parameters, activations, FLOPs, bytes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from opdb.cli import options
from opdb.cli.console import note, print_json, print_table, progress, raise_all
from opdb.cli.files import check_writable, csv_text, write_file
from opdb.cli.selection import (
    IDENTITY,
    batch_sizes_among,
    describe,
    identity,
    request_for,
    requests_in,
    summary_files,
)
from opdb.errors import OpdbError
from opdb.records import Json
from opdb.units import counted, show

if TYPE_CHECKING:
    from opdb.models import ModelRequest
    from opdb.studies.complexity import Complexity, Count

_COUNTS = (
    *("calls", "weight_bytes", "activation_bytes", "flops", "forward_flops", "backward_flops"),
    *("bytes_moved", "forward_bytes", "backward_bytes"),
)
_FIELDS = (*IDENTITY, "kind", "configuration", *_COUNTS, "parameters", "parameter_bytes")


def run(
    models: Annotated[
        list[str],
        typer.Argument(metavar="MODEL", help="Summary files, folders of them, or model names."),
    ],
    batch_sizes: options.BatchSizes = None,
    input_size: options.InputSize = None,
    dtype: options.Dtype = None,
    memory_format: options.MemoryFormat = None,
    phase: options.PhaseName = None,
    csv_file: Annotated[
        Path | None,
        typer.Option(
            "--csv",
            metavar="FILE",
            help="Write a row for each configuration, and one of kind 'all' for each workload.",
        ),
    ] = None,
    db: Annotated[
        str | None,
        typer.Option("--db", metavar="URL", help="Nothing is read from it: models are counted."),
    ] = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Count what models hold and do: parameters, activation bytes, FLOPs, bytes moved.

    Nothing is measured, and neither weights nor a GPU are needed. FLOPs count a multiply-add as
    2. Bytes are those that must move at least: each input and weight of a call read once, each
    output written once. Activations are the outputs that room is made for.

    Training is the forward and the backward pass. The backward pass of a convolution or a matrix
    product costs two forwards (one where its input needs no gradient, as an image), that of a norm
    two, that of anything else that computes one. Adding up gradients where a tensor is used more
    than once is not counted, nor is the optimizer.
    """
    names, sizes = batch_sizes_among(models, batch_sizes)
    said = options.model_options(None, input_size, dtype, memory_format, phase)
    requests = [request for name in names for request in _requests(name, sizes, said)]
    if csv_file is not None:
        check_writable(csv_file)
    found, errors = _count(requests, quiet=quiet)
    if csv_file is not None:
        rows = [row for each in found for row in _rows(each)]
        write_file(csv_file, csv_text(_FIELDS, rows).encode())
        note(f"written: {csv_file}", quiet=quiet or as_json)
    if as_json:
        print_json([_document(each) for each in found])
    else:
        _print(found)
    raise_all(errors, "shown")


def _count(
    requests: list[ModelRequest], *, quiet: bool
) -> tuple[list[Complexity], list[OpdbError]]:
    """Count every workload; what is wrong with one is kept for the end."""
    from opdb.studies.complexity import complexity

    found: list[Complexity] = []
    errors: list[OpdbError] = []
    with progress(len(requests), "count", quiet=quiet) as shown:
        for request in requests:
            shown.doing(f"{request.name} {describe(request)}")
            try:
                found.append(complexity(request))
            except OpdbError as error:
                errors.append(error)
            shown.done()
    return found, errors


def _requests(name: str, sizes: list[int], said: options.ModelOptions) -> list[ModelRequest]:
    wanted = [replace(said, batch_size=size) for size in sizes] or [said]
    files = summary_files(name)
    if files:
        requests = [each for file in files for one in wanted for each in requests_in(file, one)]
    else:
        requests = [request_for(name, one) for one in wanted]
    return [request.checked() for request in requests]


def _rows(found: Complexity) -> list[dict[str, Json]]:
    workload = identity(found.workload)
    workload["input_size"] = "x".join(map(str, workload["input_size"] or ()))
    rows = [
        {**workload, "kind": c.kind, "configuration": c.json, **_counts(count)}
        for c, count in found.operators.items()
    ]
    total = {"kind": "all", **_counts(found.total), **_parameters(found)}
    return [*rows, {**workload, **total}]


def _counts(count: Count) -> dict[str, Json]:
    return {name: getattr(count, name) for name in _COUNTS}


def _parameters(found: Complexity) -> dict[str, Json]:
    return {"parameters": found.parameters, "parameter_bytes": found.parameter_bytes}


def _document(found: Complexity) -> Json:
    return {
        **identity(found.workload),
        **_parameters(found),
        **_counts(found.total),
        "by_kind": {kind: _counts(count) for kind, count in found.by_kind().items()},
        "operators": [
            {"configuration": json.loads(c.json), **_counts(count)}
            for c, count in found.operators.items()
        ],
        "unsupported": dict(found.workload.unsupported),
    }


def _print(found: list[Complexity]) -> None:
    for each in found:
        workload = each.workload
        print(f"{workload.name}, {describe(workload)}: {each.parameters:,} parameters")
        rows = [
            (kind, _configurations(each, kind), *_shown(c)) for kind, c in each.by_kind().items()
        ]
        header = ("kind", "configurations", "calls", "weights", "activations", "FLOPs", "bytes")
        print_table(header, [*rows, ("all", len(each.operators), *_shown(each.total))])
        for name, count in workload.unsupported.items():
            print(f"not counted: {name} ({counted(count, 'call')})")
        print()
    if len(found) > 1:
        header = ("model", "workload", "parameters", "weights", "activations", "FLOPs", "bytes")
        print_table(
            header,
            [
                (
                    each.workload.name,
                    describe(each.workload),
                    show(each.parameters, "").rstrip(),
                    *_shown(each.total)[1:],
                )
                for each in found
            ],
        )


def _configurations(found: Complexity, kind: str) -> int:
    return sum(configuration.kind == kind for configuration in found.operators)


def _shown(count: Count) -> tuple[object, ...]:
    return (
        count.calls,
        show(count.weight_bytes, "B"),
        show(count.activation_bytes, "B"),
        show(count.flops, "FLOP"),
        show(count.bytes_moved, "B"),
    )
