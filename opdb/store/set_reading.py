"""A published set read and checked, every field and key of it; no database is touched."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from opdb.errors import InputError
from opdb.garbage import gc_paused
from opdb.records import Configuration
from opdb.store import rows, schema
from opdb.store.manifest import check_manifest
from opdb.store.raw import encode_stretches
from opdb.store.set_samples import with_samples
from opdb.store.sets import (
    FILES,
    Columns,
    SetFile,
    parsed,
    read_fields,
    read_file,
)
from opdb.store.shorthand import (
    CALLS,
    KERNELS,
    REFERRED,
    calls_at_length,
    costs_at_length,
    facts_at_length,
    is_short_for,
    kernel_key,
    kernels_at_length,
    lengthened,
)

Contents: TypeAlias = dict[str, Columns]
"""The content of a set's files, by name."""


@gc_paused()
def read_set(folder: Path, *, trusted: bool = False) -> Contents:
    """Read a published set at length and check its fields and keys.

    Raw samples are left unread, and costs are as they stand: see `opdb.store.proving`. Packed, a
    sample has a checksum of its own, which is held against it when it is read. Where the folder has
    a manifest, its files are held against that first.

    A trusted set was checked before: its fields are what they say, and its configurations
    canonical. Keys and references are followed all the same. Raw samples that it has apart are
    left there.

    Raises:
        InputError: the folder is not a set, or a row is not what it says it is.
    """
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "does not exist"
        raise InputError(f"{folder} {what}; give the folder of a published set")
    check_manifest(folder)
    contents: Contents = {}
    whole: dict[str, Callable[[str], str]] = {}
    kernels: Callable[[str | None], str | None] | None = None
    for file in FILES:
        found = _READERS.get(file.name, read_file)(file, folder, trusted=trusted)
        for column in REFERRED:
            if column in found.values:
                found = found.converted(column, whole[column])
        if "kernels" in found.values and file.table is not schema.cost:
            kernels = kernels or kernels_at_length(_kernel_names(folder / "kernels.csv"))
            found = found.converted("kernels", kernels)
        for column, (name, key) in REFERRED.items():
            if name == file.name:
                whole[column] = lengthened(column, found.values[key])
        contents[file.name] = found
    return contents


def _kernel_names(path: Path) -> dict[str, str]:
    """Read the names of kernels by their keys, recomputed."""
    fields = read_fields(path, KERNELS)
    names = {}
    for row, (short, name) in enumerate(zip(*map(fields.values.__getitem__, KERNELS), strict=True)):
        key = kernel_key(name)
        if not is_short_for(short, key):
            raise fields.error(row, "key", short, f"the name's key is {key}")
        names[key] = name
    return names


def _read_configurations(file: SetFile, folder: Path, *, trusted: bool) -> Columns:
    """Read configurations, each text canonical, its key and kind its own."""
    found, keys = read_file(file, folder, trusted=trusted), []
    for row, (short, kind, text) in enumerate(
        zip(*map(found.values.__getitem__, ("key", "kind", "json")), strict=True)
    ):
        if not trusted:
            _check_configuration(found, row, kind, text)
        key = hashlib.sha256(text.encode()).hexdigest()
        if not is_short_for(short, key):
            raise found.error(row, "key", short, f"the configuration's key is {key}")
        keys.append(key)
    return found.having(key=keys)


def _check_configuration(found: Columns, row: int, kind: str, text: str) -> None:
    """Check that a text is a configuration's canonical JSON, of this kind.

    Raises:
        InputError: it is not.
    """
    try:
        configuration = Configuration.from_json(text)
        canonical = configuration.json
    except (ValueError, TypeError, RecursionError) as error:
        raise found.error(row, "json", text, error) from error
    if canonical != text:
        raise found.error(row, "json", text, "not a configuration's canonical JSON")
    if kind != configuration.kind:
        raise found.error(row, "kind", kind, f"the configuration is {configuration.kind!r}")


def _read_workloads(file: SetFile, folder: Path, *, trusted: bool) -> Columns:
    """Read workloads, the key of each its own."""
    found, keys = read_file(file, folder, trusted=trusted), []
    for number, row in enumerate(found.rows()):
        key = rows.WORKLOAD.read(row).key
        if not is_short_for(row["key"], key):
            raise found.error(number, "key", row["key"], f"the workload's key is {key}")
        keys.append(key)
    return found.having(key=keys)


def _read_calls(file: SetFile, folder: Path, *, trusted: bool) -> Columns:
    """Read calls, one row a call.

    Raises:
        InputError: a workload has two rows in the file.
    """
    fields = read_fields(folder / file.name, CALLS)
    seen: set[str] = set()
    for row, workload in enumerate(fields.values["workload"]):
        if workload in seen:
            raise fields.error(row, "workload", workload, "its calls are in another row already")
        seen.add(workload)
    return parsed(file, calls_at_length(fields), trusted=trusted)


def _read_visits(file: SetFile, folder: Path, *, trusted: bool) -> Columns:
    """Read visits with their raw samples; of a trusted set these stay where they are."""
    found = read_file(file, folder, trusted=trusted)
    return found if trusted else with_samples(file.table, found)


def _read_model_runs(file: SetFile, folder: Path, *, trusted: bool) -> Columns:
    """Read runs of models; one that went well has a repeat."""
    fields = read_fields(folder / file.name, list(file.columns)).converted("facts", facts_at_length)
    found = parsed(file, fields, trusted=trusted)
    none = encode_stretches(())
    for row, ended in enumerate(zip(found.values["outcome"], found.values["repeats"], strict=True)):
        if ended == ("ok", none):
            raise found.error(row, "repeats", none, "a run without a single repeat")
    return found


def _read_costs(file: SetFile, folder: Path, *, trusted: bool) -> Columns:
    return costs_at_length(read_file(file, folder, trusted=trusted))


_READERS: dict[str, Callable[..., Columns]] = {
    "configurations.csv": _read_configurations,
    "workloads.csv": _read_workloads,
    "calls.csv": _read_calls,
    "visits.csv": _read_visits,
    "host_visits.csv": _read_visits,
    "costs.csv": _read_costs,
    "model_runs.csv": _read_model_runs,
}
"""Files that need more than each field to be checked."""
