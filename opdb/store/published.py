"""The published sets at hand: those of the checkout, or those that the wheel carries."""

from __future__ import annotations

from pathlib import Path

from opdb.store import database

SWEEPS = "-sweeps"
"""Endings of the names of sets that hold sweeps and convolutions by algorithm, nothing usual."""


def published_sets(*, sweeps: bool = False) -> dict[str, Path]:
    """Return the folders of the published sets at hand, by name; with `sweeps` theirs, too."""
    folder = database.published_folder()
    if folder is None:
        return {}
    found = {path.parent.name: path.parent for path in sorted(folder.glob("*/workloads.csv"))}
    return {name: path for name, path in found.items() if sweeps or not name.endswith(SWEEPS)}


def is_packaged(folder: Path) -> bool:
    """Whether a folder is a set that the wheel carries: its costs are trusted as its code is."""
    packaged = database.packaged_folder()
    return packaged is not None and folder.resolve().parent == packaged.resolve()
