"""`opdb import`: a published set into the database."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from opdb.cli import options
from opdb.cli.console import print_json, print_table


def run(
    folder: Annotated[Path, typer.Argument(help="Folder of a published set.")],
    db: options.Db = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Take a published set into the database.

    What is there already stays. Every row is checked and every key recomputed; a set
    comes in whole or not at all.
    """
    from opdb.store import open_store
    from opdb.store.exchange import import_set
    from opdb.store.set_reading import read_set

    contents = read_set(folder)  # before a database is created for it
    with open_store(db) as store:
        imported = import_set(store, folder, contents=contents)
        location = store.location
    if as_json:
        document = {"folder": str(folder), "found": imported.found, "added": imported.added}
        print_json({"database": location, **document})
    else:
        print(f"{folder} imported into {location}")
        rows = [
            (f"{name}.csv", imported.found[name], imported.added[name]) for name in imported.found
        ]
        print_table(("file", "rows", "new"), rows)
