"""What one model lacks on a device: the configurations to measure, and how long that takes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from opdb.bench.harvests import Stored
from opdb.bench.platform import Platform
from opdb.bench.request import BenchRequest
from opdb.bench.run import pending
from opdb.growth import benched_configurations
from opdb.plan.known import prices
from opdb.records import Configuration
from opdb.store import Store


@dataclass(frozen=True)
class Lacking:
    """The configurations that lack visits on a device, and the seconds these are likely to take."""

    configurations: Sequence[Configuration]
    seconds: float


def of_model(request: BenchRequest, stored: Stored) -> BenchRequest:
    """Return a request for what a harvested model calls alone, captured in a CUDA graph too.

    It is in the model's order; of a whole generation, that of few steps.
    """
    captured = stored.found.captured
    workloads = [stored.found.workload, *([] if captured is None else [captured])]
    return replace(
        request,
        configurations=list(benched_configurations(workloads)),
        workloads=[workload.key for workload in workloads],
    )


def lacking(store: Store, request: BenchRequest, platform: Platform) -> Lacking:
    """Return what a bench of this request would find to do on a platform, and its price."""
    jobs = [job for jobs in pending(store, platform, request).rounds for job in jobs]
    price = prices(store, platform.device.slug)
    found = {job.configuration.key: job.configuration for job in jobs}
    seconds = math.fsum(price.of(each) for each in found.values())
    return Lacking(list(found.values()), seconds)
