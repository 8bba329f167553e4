"""The published sets at hand: those of the checkout, or those that the wheel carries."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

from opdb.store import database

SWEEPS = "-sweeps"
"""Endings of the names of sets that hold sweeps and convolutions by algorithm, nothing usual."""


def sets_at_hand() -> dict[str, Path]:
    """Return the folders of all published sets at hand, by name."""
    folder = database.published_folder()
    if folder is None:
        return {}
    return {path.parent.name: path.parent for path in sorted(folder.glob("*/workloads.csv"))}


def usual_sets(*, sweeps: bool = False) -> dict[str, Path]:
    """Return those that each first command takes in: of the device that most sets are of.

    Sets of sweeps are among them with `sweeps` alone.
    """
    usual = Counter(map(device_of, sets_at_hand().values())).most_common(1)
    return sets_of(usual[0][0], sweeps=sweeps) if usual else {}


def sets_of(device: str | None, *, sweeps: bool = False) -> dict[str, Path]:
    """Return those of a device (slug; None: those that do not say so), sweeps with `sweeps`."""
    return {
        name: path
        for name, path in sets_at_hand().items()
        if device_of(path) == device and (sweeps or not name.endswith(SWEEPS))
    }


def published_devices() -> dict[str, str]:
    """Return the devices that the sets at hand are of: the name of each by its slug."""
    rows = [_device(path) for path in sets_at_hand().values()]
    return {row["slug"]: row["name"] for row in rows if row.keys() >= {"slug", "name"}}


def device_of(folder: Path) -> str | None:
    """Return the device (slug) that a set is of; None where it does not say so."""
    return _device(folder).get("slug")


def _device(folder: Path) -> dict[str, str]:
    """Return the row of a set's device; whether it is one is checked by who reads the set."""
    try:
        with (folder / "device.csv").open(encoding="utf-8", newline="") as stream:
            return next(csv.DictReader(stream), {})
    except (OSError, UnicodeDecodeError, csv.Error):
        return {}


def is_packaged(folder: Path) -> bool:
    """Whether a folder is a set that the wheel carries: its costs are trusted as its code is."""
    packaged = database.packaged_folder()
    return packaged is not None and folder.resolve().parent == packaged.resolve()
