"""Model runs of several workloads in one campaign, each saved as soon as it is done."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from opdb.bench.model import RunOptions, measure
from opdb.bench.run import campaign
from opdb.harvest import harvest
from opdb.models import ModelRequest, load
from opdb.records import Mode, ModelRun, Workload
from opdb.store import Store


def measure_models(
    store: Store,
    jobs: Sequence[tuple[ModelRequest, Mode]],
    options: RunOptions,
    *,
    device: str | None = None,
) -> Iterator[tuple[Workload, ModelRun]]:
    """Measure each request in its mode; yield workload and run as they are saved.

    A model that was not harvested yet is harvested first. One that fails does not stop the others:
    its run carries the outcome.

    Raises:
        CannotMeasureError: there is no such device, or it stopped answering.
        InputError: a model cannot be built.
    """
    workloads: dict[str, Workload] = {}
    for request, _ in jobs:
        if repr(request) not in workloads:
            workloads[repr(request)] = harvest(request)
            store.save_workload(workloads[repr(request)])
    with campaign(device, store) as session:
        for request, mode in jobs:
            loaded = load(request, device=session.platform.torch_device)
            workload = workloads[repr(request)]
            run = measure(session, loaded, workload.key, mode, options)
            store.save_model_run(run)
            yield workload, run
