"""From a run of a matrix to the request and the very command of `opdb measure`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from opdb.lookup.options import ModelOptions
from opdb.lookup.requests import request_for

if TYPE_CHECKING:
    from opdb.bench.options import DriverOptions
    from opdb.matrix.specs import TrainingSpec
    from opdb.models import ModelRequest


def request_of(cell: TrainingSpec, *, allow_code: bool) -> ModelRequest:
    """Return the model and workload that a run trains.

    That the matrix may name its model was checked as it was read; a summary file of that name may
    name code only where that is allowed.

    Raises:
        InputError: a value is not among the allowed.
    """
    from opdb.bench.driver import AMP_DTYPE

    one = cell.combination
    said = ModelOptions(
        batch_size=one.batch_size,
        input_size=one.input_size,
        dtype=one.dtype,
        memory_format=_memory_format(cell),
        phase="training",
        optimizer=one.optimizer,
        accumulation=one.grad_accum_steps,
        allow_code=allow_code,
    )
    request = request_for(one.model, said)
    if one.precision == "amp":
        request = replace(request, autocast=AMP_DTYPE)
    return request.checked()


def command_of(cell: TrainingSpec) -> str:
    """Return the command that repeats a run under its label."""
    return shlex.join(["opdb", "measure", *_arguments(cell)])


def _arguments(cell: TrainingSpec) -> Iterator[str]:
    """Yield the arguments; what tells workloads apart is all said: a summary file says it, too."""
    one = cell.combination
    yield from (one.model, "--phase", "training", "--batch-size", str(one.batch_size))
    if one.input_size is not None:
        yield from ("--input-size", "x".join(map(str, one.input_size)))
    yield from ("--dtype", one.dtype, "--memory-format", _memory_format(cell))
    yield from ("--precision", one.precision, "--backend", cell.place.backend)
    yield from ("--optimizer", one.optimizer, "--grad-accum-steps", str(one.grad_accum_steps))
    yield from _driven(one.options)
    yield from ("--label", cell.label)
    if one.options.note is not None:
        yield from ("--note", one.options.note)


def _driven(options: DriverOptions) -> Iterator[str]:
    for name, given in (
        ("--deterministic", options.deterministic),
        ("--cudnn-benchmark", options.cudnn_benchmark),
        ("--nvtx", options.nvtx),
    ):
        if given:
            yield name
    images = options.images
    if images is not None:
        yield from ("--images", str(images.folder), "--workers", str(images.workers))
        yield from () if images.augment else ("--no-augment",)
        yield from ("--pin-memory",) if images.pin_memory else ()
        if images.prefetch_factor is not None:
            yield from ("--prefetch-factor", str(images.prefetch_factor))
    yield from ("--warmup-iters", str(options.warmup_iters), "--iters", str(options.iters))
    yield from ("--repeat", str(options.repeats))


def _memory_format(cell: TrainingSpec) -> str:
    return "channels_last" if cell.combination.channels_last else "contiguous"
