"""`python -m opdb`: the command line without an installed script."""

from opdb.cli import main

raise SystemExit(main())
