"""The published sets at hand: those of the checkout, or those that the wheel carries.

What is asked of a set before it is read is in its manifest: the device, the licence, checksums.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from opdb.errors import InputError
from opdb.files import parse_json, read_bytes, read_text
from opdb.records import Json
from opdb.store import database

FILE = "set.sqlite.xz"
SAMPLES = "samples.xz"
MANIFEST = "manifest.json"

SET_FILE_BYTES = 4 * 2**30  # the largest file of a published set has 6 MB

SWEEPS = "-sweeps"
"""Endings of the names of sets that hold sweeps and convolutions by algorithm, nothing usual."""


def sets_at_hand() -> dict[str, Path]:
    """Return the folders of all published sets at hand, by name."""
    folder = database.published_folder()
    if folder is None:
        return {}
    return {path.parent.name: path.parent for path in sorted(folder.glob(f"*/{FILE}"))}


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
    found = [_stated(path) for path in sets_at_hand().values()]
    return {each["device"]: each["name"] for each in found if each.keys() >= {"device", "name"}}


def device_of(folder: Path) -> str | None:
    """Return the device (slug) that a set is of; None where it does not say so."""
    return _text(folder, "device")


def stated_licence(folder: Path) -> str | None:
    """Return the licence that a set's manifest states; None where it states none."""
    return _text(folder, "licence")


def visits_with_samples(folder: Path) -> int:
    """Return of how many visits a set has the raw samples in their file; 0 where it has none."""
    found = _stated(folder).get("visits_with_samples")
    return found if isinstance(found, int) and (folder / SAMPLES).exists() else 0


def is_packaged(folder: Path) -> bool:
    """Whether a folder is a set that the wheel carries: its costs are trusted as its code is."""
    packaged = database.packaged_folder()
    return packaged is not None and folder.resolve().parent == packaged.resolve()


def set_files(folder: Path) -> list[Path]:
    """Return the files of a set, without its manifest."""
    return [path for path in (folder / FILE, folder / SAMPLES) if path.exists()]


def fingerprint(folder: Path) -> str:
    """Return what tells a set from a changed one without reading it: names, sizes, times."""
    stats = [(path.name, path.stat()) for path in set_files(folder)]
    lines = "\n".join(f"{name} {stat.st_size} {stat.st_mtime_ns}" for name, stat in stats)
    return hashlib.sha256(lines.encode()).hexdigest()


def write_manifest(folder: Path, about: Mapping[str, Json]) -> None:
    """Write the manifest of a set, with the checksums of its files.

    Raises:
        OSError: it cannot be written.
    """
    files = {path.name: _checksum(path) for path in set_files(folder)}
    text = json.dumps({**about, "files": files}, indent=2) + "\n"
    (folder / MANIFEST).write_text(text, encoding="utf-8")


def check_manifest(folder: Path) -> None:
    """Check the files of a set against its manifest, where it has one.

    Raises:
        InputError: a file is missing or another one, or the manifest cannot be read.
    """
    for name, stated in read_manifest(folder).get("files", {}).items():
        path = folder / name
        if Path(name).name != name or not path.is_file() or _checksum(path) != stated:
            raise InputError(
                f"{path}: not the file that {MANIFEST} lists: it was changed, cut off or left out "
                f"after the export; fetch it again, or, where the change is meant, delete "
                f"{folder / MANIFEST}"
            )


def read_manifest(folder: Path) -> dict[str, Json]:
    """Return the manifest of a set; an empty one where it has none.

    Raises:
        InputError: it is not one.
    """
    path = folder / MANIFEST
    if not path.exists():
        return {}
    found = parse_json(path, read_text(path, "a manifest", SET_FILE_BYTES))
    if not isinstance(found, dict) or not isinstance(found.get("files"), dict):
        raise InputError(f"{path}: expected a manifest, an object with `files`")
    return found


def _stated(folder: Path) -> dict[str, Json]:
    """Return a set's manifest; what it states is checked by who reads the set."""
    try:
        return read_manifest(folder)
    except InputError:
        return {}


def _text(folder: Path, name: str) -> str | None:
    found = _stated(folder).get(name)
    return found if isinstance(found, str) else None


def _checksum(path: Path) -> dict[str, Json]:
    content = read_bytes(path, "a file of a set", SET_FILE_BYTES)
    return {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
