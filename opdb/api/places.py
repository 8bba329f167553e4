"""One device or several at once: which they are, and which of them failed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from opdb.errors import CannotMeasureError, InputError
from opdb.units import plural

if TYPE_CHECKING:
    from opdb.cluster.devices import WorkerDevice


def chosen_places(device: str | None, devices: str | None) -> list[WorkerDevice]:
    """Return the places that `--devices` names; none where it is not given.

    Where one device is to be measured, it is looked for: what cannot be measured here is told
    before a database is opened.

    Raises:
        InputError: the options name no devices, or both are given.
        CannotMeasureError: there is no such device here.
    """
    if device is not None and devices is not None:
        raise InputError(f"--device {device} and --devices {devices}: give one of them")
    if devices is None:
        from opdb.bench.platform import detect

        detect(device)
        return []
    from opdb.cluster.devices import places

    return places(devices)


def measured_places(device: str | None, devices: str | None) -> list[WorkerDevice]:
    """Return the places to measure on, as `chosen_places` does.

    A processor is measured only where it is named: all that is published would take it a day.

    Raises:
        InputError: the options name no devices, or both are given.
        CannotMeasureError: there is no such device here, or none is named and there is no GPU.
    """
    from opdb.bench.platform import cuda_devices

    if device is None and devices is None and not cuda_devices():
        raise CannotMeasureError(
            "no NVIDIA GPU here that torch can use (opdb doctor says why); to measure this "
            "machine's processor, add --device cpu"
        )
    return chosen_places(device, devices)


def check_failures(failures: Sequence[str], places: Sequence[WorkerDevice]) -> None:
    """Raise where a device failed, each named with the reason.

    Raises:
        CannotMeasureError: one did.
    """
    if failures:
        listed = "\n".join(f"  {failure}" for failure in failures)
        raise CannotMeasureError(
            f"{len(failures)} of {plural(len(places), 'device')} failed; what was finished is "
            f"stored, and the others went on\n{listed}"
        )
