"""Choose the device that a command predicts for."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from opdb.errors import InputError, UnknownNameError
from opdb.records import Device
from opdb.store import Store, how_to_fill, is_default, published_devices, take_in


def choose_device(store: Store, name: str | None) -> Device:
    """Return the device of that slug; unnamed: this machine's GPU, else the most measured one.

    The default database takes in the published sets of a device once that is chosen.

    Raises:
        UnknownNameError: no device of that name was measured.
        InputError: the store holds no device at all, or not this one, of which there are published
            sets; or one of these cannot be imported.
    """
    devices = {d.slug: d for d in store.devices()}
    published = published_devices()
    if name is None:
        known = {slug: device.name for slug, device in devices.items()}
        name = _of_this_machine(published | known if is_default(store) else known)
    if name is not None and name in published:
        take_in(store, name)
        devices = {d.slug: d for d in store.devices()}
    if not devices:
        raise InputError(
            f"{store.location} holds no measurements; run opdb bench on a machine with a GPU; "
            f"{how_to_fill(store.url)}"
        )
    if name is not None:
        if name in devices:
            return devices[name]
        if name in published:
            raise InputError(
                f"{store.location} holds nothing of device {name!r}; {how_to_fill(store.url, name)}"
            )
        raise UnknownNameError("device", name, devices.keys() | published.keys())
    if len(devices) == 1:
        return next(iter(devices.values()))
    counts = store.cost_counts()
    measured = {
        slug: sum(counts.get(board.uuid, 0) for board in store.boards(slug)) for slug in devices
    }
    return devices[max(measured, key=lambda slug: measured[slug])]


def _of_this_machine(known: Mapping[str, str]) -> str | None:
    """Return the first device (slug) whose name a GPU of this machine has.

    None where there is none, or where no choice is.
    """
    if len(known) < 2 or not _has_driver():
        return None
    from opdb.meters.nvml import gpu_names

    here = gpu_names()
    return next((slug for slug, name in known.items() if name in here), None)


def _has_driver() -> bool:
    """Whether this machine may have NVIDIA's driver: to ask it takes a moment to import."""
    if sys.platform != "linux":
        return True
    import ctypes

    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    return True
