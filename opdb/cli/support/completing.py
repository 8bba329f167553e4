"""What a shell completes beside the names of commands and options: models, and listed values.

A key press waits for the answer: nothing here imports torch or opens a database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from opdb.records import COMPILED_MODES


def models(incomplete: str) -> list[str]:
    """Return the models of all sources whose names begin so."""
    from opdb.models.catalogue import catalogue
    from opdb.models.checkpoints import CHECKPOINTS

    return _beginning((*(each.name for each in catalogue()), *CHECKPOINTS), incomplete)


def kinds(incomplete: str) -> list[str]:
    """Return the kinds of operators whose names begin so."""
    from opdb.kinds import KINDS

    return _beginning(KINDS, incomplete)


def one_of(*values: str) -> Callable[[str], list[str]]:
    """Return what completes one of these values."""

    def completed(incomplete: str) -> list[str]:
        return _beginning(values, incomplete)

    return completed


def _beginning(names: Iterable[str], incomplete: str) -> list[str]:
    return sorted({name for name in names if name.startswith(incomplete)})


predicted_modes = one_of("eager", "graph", *COMPILED_MODES)
"""Completes a mode that can be predicted."""
