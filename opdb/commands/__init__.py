"""The commands, one file each: the Python verb, its answer, and the command side by side.

A command is a module that has a function `run`; its name is the file's, without a trailing
underscore (`import_.py`). What several commands share lies in modules whose names begin with an
underscore. CONTRIBUTING.md has a whole command as an example.

Only the console prints: while a command runs, whatever else is printed, such as by a model, goes to
stderr. The first sentence of `run`'s docstring is the command's line in `opdb --help`.

Where one of several models or devices may fail without stopping the others, the verb raises at the
end; the command calls it with `check=False`, and `out.answer` shows what there is before it calls
`check()` of it.

A verb becomes a name of `import opdb` by a line in `opdb/__init__.py`. The commands of
`opdb.studies` are made the same way, and are listed in its `COMMANDS`.
"""
