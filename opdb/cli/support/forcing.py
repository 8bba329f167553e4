"""What a prediction under a named convolution algorithm adds: what may be asked, what is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opdb.algorithms.names import ALGORITHMS, Algorithm
from opdb.cli.support import options
from opdb.errors import InputError

if TYPE_CHECKING:
    pass


def one_algorithm(names: list[str] | None) -> Algorithm | None:
    """Return the algorithm of these names; None where none is named.

    Raises:
        InputError: there is none of a name, or they name several.
    """
    found = options.parse_algorithms(names)
    if len(found) > 1:
        raise InputError(
            f"--algorithm {', '.join(names or [])}: a prediction is under one algorithm; name one "
            f"of {', '.join(ALGORITHMS)}"
        )
    return found[0] if found else None
