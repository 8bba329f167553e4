"""The manifest of a set: checksums of its files, licence, and what it was measured with."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from opdb.errors import InputError
from opdb.files import parse_json, read_bytes, read_text
from opdb.records import Json
from opdb.store.sets import SET_FILE_BYTES

MANIFEST = "manifest.json"


def write_manifest(folder: Path, names: Iterable[str], about: Mapping[str, Json]) -> None:
    """Write the manifest of these files of a folder.

    Raises:
        OSError: it cannot be written.
    """
    files = {name: _seen(folder / name) for name in names}
    text = json.dumps({"format": 1, **about, "files": files}, indent=2) + "\n"
    (folder / MANIFEST).write_text(text, encoding="utf-8")


def check_manifest(folder: Path) -> None:
    """Check the files of a folder against its manifest, where it has one.

    Raises:
        InputError: a file is missing or another one, or the manifest is none.
    """
    for name, said in read_manifest(folder).get("files", {}).items():
        path = folder / name
        if Path(name).name != name or not path.is_file() or _seen(path) != said:
            raise InputError(
                f"{path}: not the file that {MANIFEST} lists: it was changed, cut off or left out "
                f"after the export; fetch it again, or, where the change is meant, delete "
                f"{folder / MANIFEST}"
            )


def read_manifest(folder: Path) -> dict[str, Json]:
    """Return the manifest of a folder; an empty one where it has none.

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


def stated_licence(folder: Path) -> str | None:
    """Return the licence that a folder's manifest states; None where it states none."""
    try:
        found = read_manifest(folder).get("licence")
    except InputError:
        return None
    return found if isinstance(found, str) else None


def _seen(path: Path) -> dict[str, Json]:
    content = read_bytes(path, "a file of a set", SET_FILE_BYTES)
    return {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}
