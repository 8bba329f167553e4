"""How fast opdb is, and how it compares: scripts, each run by itself."""

from __future__ import annotations

import argparse
from pathlib import Path

from opdb.errors import InputError
from opdb.files import check_writable


def new_file(text: str) -> Path:
    """Return the path of a file to write, refused as an option before anything is measured."""
    try:
        check_writable(Path(text))
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return Path(text)
