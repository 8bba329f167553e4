"""The commands, one file each: the Python verb, its answer, and the command side by side.

A command is a module of this package that has a function `run`; its name is the file's, without a
trailing underscore (`import_.py`). Nothing else needs to be told of it. What several commands share
lies in modules whose names begin with an underscore. The module of a command holds, in this order:

    PANEL = "predict"  # where `opdb --help` lists it: predict, measure or data


    BOARDS: Table[Board] = Table(  # each column once: for JSON, CSV, text and HTML
        Column("board", lambda board: board.uuid, title="board"),
        Column("device", lambda board: board.device, title="device"),
    )


    def boards(*, db: str | None = None) -> Listing:  # the verb: `opdb.boards()`
        with lazy.store.open_store(db, create=False) as store:
            found = store.boards(None)
        return Listing(BOARDS.documents(found), [Rows(BOARDS, found)])  # for machines, for people


    def run(out: options.Output = options.Output()) -> None:  # the command: `opdb boards`
        '''List the boards that the database has measurements of.'''
        out.answer(boards(db=out.db))

`run` takes the options of `opdb.cli.options` (a record of them, such as `options.Output`, is one
parameter), calls the verb, and shows the answer by `out.answer`. Only the console prints: while a
command runs, whatever else is printed, such as by a model, goes to stderr. What the user must know
is an `OpdbError`, which `opdb.cli` turns into one message and an exit status. What is heavy to
import is an attribute of `_lazy`, so that `opdb --help` stays quick. The first sentence of `run`'s
docstring is the command's line in `opdb --help`, in which nothing is cut.

Where one of several models or devices may fail without stopping the others, the verb raises at the
end; the command calls it with `check=False`, and `out.answer` shows what there is before it calls
`check()` of it. An answer without methods of its own is an `opdb.tables.Listing`. A quantity with
an interval is one column, `opdb.tables.quantity`, in JSON and in CSV.

A verb becomes a name of `import opdb` by a line in `opdb/__init__.py`. The commands of
`opdb.studies` are made the same way, and are listed in its `COMMANDS`.
"""
