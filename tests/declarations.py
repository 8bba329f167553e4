"""What opdb reads from the declarations of kinds once a process."""

from __future__ import annotations

from opdb.operators import describe, functions

READ = (
    functions._table,
    functions.forms_by_kind,
    functions.forms_by_name,
    functions.forms_by_function,
    describe.operators,
)


def clear() -> None:
    """Let the declarations be read again, after a test has changed them."""
    for read in READ:
        read.cache_clear()
