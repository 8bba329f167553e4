"""The framework of the command line: the only place that parses, prints and exits.

`app` finds the commands and runs one, `options` has the options that they share, `console` prints.
The commands themselves are in `opdb.commands` and `opdb.studies`.
"""

from opdb.cli.console import COMMANDS, app, main

__all__ = ["COMMANDS", "app", "main"]
