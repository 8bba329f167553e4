"""The framework of the command line: the only place that parses, prints and exits.

`console` finds the commands, runs one and prints, `options` has the options that they share.
The commands themselves are in `opdb.commands` and `opdb.studies`.
"""

from opdb.cli.console import COMMANDS, app, main

__all__ = ["COMMANDS", "app", "main"]
