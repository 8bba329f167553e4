"""opdb in a process of its own, its visits and runs as short as the fixture `short` makes them."""

from __future__ import annotations

import sys

from opdb.cli import main
from tests.conftest import SHORT

if __name__ == "__main__":
    for module, name, value in SHORT:
        setattr(module, name, value)
    sys.exit(main())
