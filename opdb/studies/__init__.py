"""Questions about the database, each with its command, which nothing else in opdb imports."""

COMMANDS = ("annotate", "complexity", "fx", "modes", "report", "roofline", "sweep", "train")
"""The modules of this package that are commands: made as `opdb.commands` says, found by name."""
