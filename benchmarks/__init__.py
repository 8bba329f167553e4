"""How fast opdb is, and how it compares: scripts, each run by itself."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from opdb.errors import InputError
from opdb.files import check_writable

if TYPE_CHECKING:
    from opdb.models import ModelRequest


def new_file(text: str) -> Path:
    """Return the path of a file to write, refused as an option before anything is measured."""
    try:
        check_writable(Path(text))
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return Path(text)


def plain_requests(files: Iterable[Path]) -> list[ModelRequest]:
    """Return what summary files ask for in float32 at batch 1, for inference.

    Raises:
        InputError: a file is not valid.
    """
    from opdb.summary import load_summary

    return [
        request
        for file in files
        for request in load_summary(file).requests()
        if (request.batch_size, request.dtype, request.phase) == (1, "float32", "inference")
    ]
