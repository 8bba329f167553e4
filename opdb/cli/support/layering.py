"""What `opdb predict --layers` adds: the prediction layer by layer."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

from opdb.errors import InputError

LayersFlag: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--layers",
        help="Break the prediction down by layer: module path, kind, shape, time, energy.",
    ),
]
Top: TypeAlias = Annotated[
    int | None,
    typer.Option(
        "--top", metavar="N", min=1, help="Of --layers: show those N that take longest.  "
        "[default: all]",
    ),
]  # fmt: skip


def check_top(top: int | None, *, layers: bool) -> None:
    """Check that layers are asked for where only some of them are to be shown.

    Raises:
        InputError: they are not.
    """
    if top is not None and not layers:
        raise InputError(f"--top {top} is about layers: add --layers")
