"""Open a database; the default one takes in the published sets of the checkout or the wheel."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from sqlalchemy import Connection, Table, func, select, update

from opdb.errors import DatabaseError, InputError, NoDatabaseError
from opdb.files import parse_json, read_bytes, read_text
from opdb.records import Json, canonical_json
from opdb.store import database, schema
from opdb.store.store import Store

# published sets
#
# What is asked of a set before it is read is in its manifest: the device, the licence, checksums.

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
    device: str | None = _stated(folder).get("device")
    return device


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
    """Check the files of a set against its manifest, where it has one."""
    path = folder / MANIFEST
    stated = parse_json(path, read_text(path, "a manifest")) if path.exists() else {"files": {}}
    if not isinstance(stated, dict) or not isinstance(stated.get("files"), dict):
        raise InputError(f"{path}: expected a manifest, an object with `files`")
    found = {each.name: _checksum(each) for each in set_files(folder)}
    for name in stated["files"]:
        if found.get(name) != stated["files"][name]:
            raise InputError(
                f"{folder / name}: not the file that {MANIFEST} lists: it was changed, cut off or "
                f"left out after the export; fetch it again, or, where the change is meant, delete "
                f"{path}"
            )


def _stated(folder: Path) -> dict[str, Json]:
    """Return what a set's manifest states, which is checked by who reads the set."""
    try:
        found = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        found = None
    return found if isinstance(found, dict) else {}


def _checksum(path: Path) -> dict[str, Json]:
    content = read_bytes(path, "a file of a set", SET_FILE_BYTES)
    return {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}


def open_store(url: str | None = None, *, create: bool = True, sweeps: bool = False) -> Store:
    """Open a database: the one named, else `OPDB_DB`'s, else the default one.

    A new database is created. The default one, and no other, takes in every usual published set (of
    the checkout's `db/*/`, or those that a wheel carries) that it has not seen as it now is.
    Sets of sweeps are taken in with `sweeps` alone, those of another device once it is asked for
    (`take_in`): a usual prediction needs nothing of them, and need not wait for them.

    Raises:
        DatabaseError: it cannot be used; or it was named, there is none, and `create` is false.
        InputError: a published set cannot be imported.
    """
    if url is not None and not url.strip():
        raise DatabaseError(f"database {url!r}: give a file or a URL")
    named = url or os.environ.get("OPDB_DB")
    location = database.as_url(url) if url else database.default_url()
    with ExitStack() as undo:
        try:
            engine = database.connect(location, create=create or not named)
        except NoDatabaseError as error:
            raise NoDatabaseError(f"{error}; {how_to_fill(location)}") from error
        store = undo.enter_context(Store(location, engine))
        if not named:
            import_published(store, sweeps=sweeps)
        undo.pop_all()
    return store


def how_to_fill(location: str, device: str | None = None) -> str:
    """Say which command brings published sets, the usual or a device's, into a database (a URL)."""
    found = usual_sets() if device is None else sets_of(device)
    if not found:
        return "to bring in measurements: opdb import FOLDER, a published set of a clone's db/"
    named = [] if location == database.default_url() else ["--db", database.shown(location)]
    command = shlex.join(["opdb", "import", *map(str, found.values()), *named])
    return f"to bring in the published measurements: {command}"


def is_default(store: Store) -> bool:
    """Whether a database is the default one, which alone takes in published sets."""
    return not os.environ.get("OPDB_DB") and store.url == database.default_url()


def take_in(store: Store, device: str) -> None:
    """Take the published sets of a device (slug) into the default database, and into no other."""
    if is_default(store) and sets_of(device):
        import_published(store, device=device)


def import_published(store: Store, *, sweeps: bool = False, device: str | None = None) -> None:
    """Import the published sets whose files are not those that were imported last.

    These are the usual ones, with a `device` (slug) its own as well, and all that were imported
    once. Nothing happens where the database cannot be written: it then serves as it is.
    """
    sets = sets_at_hand()
    if not sets or (store.path is not None and database.read_only(store.path)):
        return
    with store.reading() as connection:
        query = select(schema.source.c.name, schema.source.c.fingerprint)
        seen = {row.name: row.fingerprint for row in connection.execute(query)}
    wanted = usual_sets(sweeps=sweeps).keys() | seen.keys()
    if device is not None:
        wanted |= sets_of(device).keys()
    new = {
        name: found
        for name, path in sets.items()
        if name in wanted and seen.get(name) != (found := fingerprint(path))
    }
    if not new:
        return
    # They read archives and statistics, which most commands need not.
    from concurrent.futures import ThreadPoolExecutor

    from opdb.store.costs import derive_pooled
    from opdb.store.sets import merge, opened

    with ExitStack() as undo, ThreadPoolExecutor(1) as pool:  # one is unpacked beside a merge
        # Sets beside the code are trusted as they are; `make check` proves their costs.
        unpacked = {
            name: pool.submit(undo.enter_context, opened(sets[name], trusted=True)) for name in new
        }
        for name, one in unpacked.items():
            merge(store, one.result(), sets[name], (name, ""))
    derive_pooled(store, store.boards_of_several_sources())
    # Seen only now: what is killed before this begins anew.
    source = schema.source
    with store.writing() as connection:
        for name, found in new.items():
            connection.execute(
                update(source).where(source.c.name == name).values(fingerprint=found)
            )


Place: TypeAlias = Literal["wheel", "clone", "import", "here"]
"""How a set came in: with an installed opdb, its clone, `opdb import`, or not at all."""


@dataclass(frozen=True)
class Origin:
    """A set that was taken into a database, or can be, or what was measured here.

    `folder` is None where it is not known or not there. Of a set that was not taken in yet all
    that was measured counts 0. `first` and `last` are when its campaigns began, ISO 8601.
    """

    name: str
    place: Place
    folder: Path | None
    taken_in: bool
    licence: str | None
    devices: tuple[str, ...]
    boards: tuple[str, ...]
    visits: int
    model_runs: int
    first: str | None
    last: str | None


HERE = "measured here"


def origins(store: Store, *, waiting: bool = False) -> list[Origin]:
    """Return where a database's measurements came from; what was measured here is the last.

    With `waiting` the published sets that it has not taken in yet are there too.
    """
    sets, source, campaign = sets_at_hand(), schema.source, schema.campaign
    with store.reading() as connection:
        names = dict(map(tuple, connection.execute(select(source.c.name, source.c.id))))
        campaigns = connection.execute(select(campaign).order_by(campaign.c.started_at)).all()
        visits, runs = (_by_source(connection, t) for t in (schema.visit, schema.model_run))
    ours: Place = "clone" if database.packaged_folder() is None else "wheel"
    known = sorted({*names, *(sets if waiting else ())})
    if any(each.source_id is None for each in campaigns):
        known.append(HERE)
    found = []
    for name in known:
        folder = sets.get(name) or (Path(name) if Path(name).is_absolute() else None)
        number = names.get(name, 0 if name in sets else None)
        of_it = [each for each in campaigns if each.source_id == number]
        devices = {each.device for each in of_it}
        if folder is not None and not of_it:
            devices.add(device_of(folder))
        origin = Origin(
            name,
            "here" if name == HERE else ours if name in sets else "import",
            folder if folder is not None and folder.is_dir() else None,
            taken_in=number != 0,
            licence=None if folder is None else _stated(folder).get("licence"),
            devices=tuple(sorted(filter(None, devices))),
            boards=tuple(sorted({each.board for each in of_it})),
            visits=visits.get(number, 0),
            model_runs=runs.get(number, 0),
            first=of_it[0].started_at if of_it else None,
            last=of_it[-1].started_at if of_it else None,
        )
        found.append(origin)
    return found


def _by_source(connection: Connection, table: Table) -> dict[int | None, int]:
    """Count a table's rows by the source (row number; None: here) of their campaigns."""
    number = schema.campaign.c.source_id
    query = select(number, func.count()).join_from(table, schema.campaign).group_by(number)
    return dict(map(tuple, connection.execute(query)))


def about_set(store: Store, device: str, licence: str | None = None) -> dict[str, Json]:
    """Return what a device's (slug) measurements are: licence, boards, dates, environments.

    `licence` is what their owner says; when None, what all sets have that they came from.
    """
    campaigns = store.campaigns(device)
    known = {each.licence for each in origins(store) if device in each.devices}
    environments = {canonical_json(dict(each.environment)): each for each in campaigns}
    days = [each.started_at for each in campaigns]
    return {
        "licence": licence or (known.pop() if len(known) == 1 else None),
        "boards": sorted({each.board.uuid for each in campaigns}),
        "measured_from": min(days, default=None),
        "measured_to": max(days, default=None),
        "environments": [dict(each.environment) for each in environments.values()],
    }
