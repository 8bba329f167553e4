"""Choose the device that a command predicts for."""

from __future__ import annotations

from opdb.errors import InputError, UnknownNameError
from opdb.records import Device
from opdb.store import Store, how_to_fill


def choose_device(store: Store, name: str | None) -> Device:
    """Return the device of that slug; unnamed: this machine's GPU, else the most measured one.

    Raises:
        UnknownNameError: no device of that name was measured.
        InputError: the store holds no device at all.
    """
    devices = {d.slug: d for d in store.devices()}
    if not devices:
        raise InputError(
            f"{store.location} holds no measurements; run opdb bench on a machine with a GPU; "
            f"{how_to_fill(store.url)}"
        )
    if name is not None:
        if name not in devices:
            raise UnknownNameError("device", name, devices)
        return devices[name]
    if len(devices) == 1:
        return next(iter(devices.values()))  # whatever this machine has: NVML need not be asked
    here = _gpus_here()
    for device in devices.values():
        if device.name in here:
            return device
    counts = store.cost_counts()
    measured = {
        slug: sum(counts.get(board.uuid, 0) for board in store.boards(slug)) for slug in devices
    }
    return devices[max(measured, key=lambda slug: measured[slug])]


def _gpus_here() -> list[str]:
    """Name this machine's NVIDIA GPUs; none where there is no driver."""
    from opdb.meters.nvml import gpu_names

    return gpu_names()
