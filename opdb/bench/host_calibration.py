"""The calibration of a host: host times of stored workloads that boards have seen, too."""

from __future__ import annotations

from collections.abc import Sequence

from opdb.bench.host import MOMENTS, host_visits
from opdb.bench.session import Session, now
from opdb.records import CalibratedCall, HostCalibration, Workload


def calibrate_host(session: Session, workloads: Sequence[Workload]) -> HostCalibration:
    """Time the calls of workloads in their order, in as many moments as a bench takes."""
    measured_at, campaign = now(), session.campaign
    calls = [each.calls for each in workloads]
    seen = [visit for _ in range(MOMENTS) for visit in host_visits(session, calls)]
    return HostCalibration(
        id=campaign.id,
        host=campaign.host.id,
        board=campaign.board,
        measured_at=measured_at,
        environment=campaign.environment,
        workloads=tuple(each.key for each in workloads),
        calls=tuple(
            CalibratedCall(each.configuration, each.form, each.started_at, each.times_s)
            for each in seen
        ),
    )
