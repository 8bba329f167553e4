"""`opdb import`: published sets, and shards, into the database."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from opdb.api.sets import load_all
from opdb.cli import options
from opdb.cli.console import note, show

PANEL = "data"


def run(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="PATH", help="Folders of published sets, or SQLite files of jobs."),
    ],
    db: options.Db = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Take published sets, and the databases that jobs wrote each for itself, into the database.

    What is there already stays: twice is once. Every row is checked and every key recomputed; a
    set comes in whole or not at all, and one that cannot be taken stops no other.
    """
    found = load_all(paths, db=db, tell=partial(note, quiet=quiet))
    show(found, as_json=as_json)
    found.check()
