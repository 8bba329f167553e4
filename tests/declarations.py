"""What opdb reads from the declarations of kinds once a process."""

from __future__ import annotations

from opdb.operators import functions

READ = (functions.function_forms, functions.forms_by_name, functions.forms_by_function)


def clear() -> None:
    """Let the declarations be read again, after a test has changed them."""
    for read in READ:
        read.cache_clear()
