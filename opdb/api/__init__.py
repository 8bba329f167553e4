"""The verbs of `import opdb`: each does what the command of its name does, and returns a record.

A verb opens a database (`db`: a path or URL, as --db), asks the library, and returns a `Result`:
frozen, printed as a table, shown as one in a notebook, a dict by `to_dict()` (the command's --json)
and, where pandas is installed, a frame by `to_frame()`. Nothing here parses, prints or exits;
commands call these modules and show what they return.
"""
