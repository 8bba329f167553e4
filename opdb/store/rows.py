"""Records to rows and back, by the declarations of columns in `opdb.store.schema`."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from operator import attrgetter, itemgetter
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from sqlalchemy import (
    Boolean,
    Column,
    ColumnElement,
    Connection,
    Select,
    Table,
    delete,
    insert,
    literal,
    select,
    update,
)
from sqlalchemy.dialects import sqlite
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from opdb.errors import DatabaseError
from opdb.records import (
    ALGORITHM_SETTING,
    Board,
    BoardCalibration,
    Call,
    Campaign,
    Configuration,
    Cost,
    Device,
    Host,
    HostVisit,
    ModelRun,
    Outcome,
    Profile,
    Quantity,
    Visit,
    Workload,
)
from opdb.store import schema
from opdb.store.fields import field_of, is_number, same
from opdb.store.schema import QUANTITIES, QUANTITY_PARTS

NewRow: TypeAlias = dict[str, Any]

Record = TypeVar("Record")

_NUMBERS_OR_NONE = frozenset({int, float, type(None)})
"""What numbers are read as: to look a type up is several times as quick as `isinstance`."""


class ReadRow(Protocol):
    """A row that was read: values by column name."""

    def __getitem__(self, name: str, /) -> Any: ...


@dataclass(frozen=True)
class SqlPart:
    """An attribute of a record that is not one column of the same name.

    `split` returns the values of its columns, `join` makes the attribute of them. Where `join` is
    None, the caller of `Codec.read` gives the attribute.
    """

    attribute: str
    columns: tuple[str, ...]
    split: Callable[[Any], tuple[Any, ...]]
    join: Callable[..., Any] | None = None


class Codec(Generic[Record]):
    """The rows of a table as records of a class.

    An attribute is the column of the same name, unless a part says otherwise. Rows refer to others
    by content key: they have `configuration` in place of `configuration_id`.
    """

    def __init__(self, record: type[Record], table: Table, *parts: SqlPart) -> None:
        names = {each.name for each in fields(record)}  # type: ignore[arg-type]
        split = {column for part in parts for column in part.columns}
        held = {
            name: field_of(column)
            for name, column in schema.outside(table).items()
            if name not in split and (name in names or hasattr(record, name))
        }
        self._record, self._parts = record, parts
        self._written, self._read = list(held), [name for name in held if name in names]
        self._values = itemgetter(*self._read)
        self._encoders = [(n, each.encode) for n, each in held.items() if each.encode is not same]
        self._decoders = [
            (name, held[name].decode) for name in self._read if held[name].decode is not same
        ]
        self._numbers = [
            name
            for name, column in schema.outside(table).items()
            if name in self._read and is_number(column)
        ]

    def row(self, record: Record) -> NewRow:
        row = {name: getattr(record, name) for name in self._written}
        for name, encode in self._encoders:
            if row[name] is not None:
                row[name] = encode(row[name])
        for part in self._parts:
            values = part.split(getattr(record, part.attribute))
            row.update(zip(part.columns, values, strict=True))
        return row

    def read(self, row: ReadRow, **given: Any) -> Record:
        """Return a row's record, with the attributes that no column of it holds.

        Raises:
            ValueError, TypeError: a column does not hold what it should.
        """
        found = dict(zip(self._read, self._values(row), strict=True))
        for name in self._numbers:
            if type(found[name]) not in _NUMBERS_OR_NONE:  # SQLite holds any type
                raise TypeError(f"{name} is {found[name]!r}, no number")
        for name, decode in self._decoders:
            if found[name] is not None:
                found[name] = decode(found[name])
        for part in self._parts:
            if part.join is not None:
                found[part.attribute] = part.join(*[row[column] for column in part.columns])
        return self._record(**found, **given)


def _renamed(attribute: str, column: Column[Any]) -> SqlPart:
    field = field_of(column)
    return SqlPart(attribute, (column.name,), lambda value: (field.encode(value),), field.decode)


def _split_quantity(held: Quantity | None) -> tuple[float | None, ...]:
    return (None,) * len(QUANTITY_PARTS) if held is None else _quantity_parts(held)


def joined_quantity(name: str, *values: Any) -> Quantity | None:
    """Return the quantity of these parts (`QUANTITY_PARTS`); None where it has none."""
    if values[0] is None:
        return None
    if not _NUMBERS_OR_NONE.issuperset(map(type, values)) or values[1] is None:
        raise TypeError(f"{name} is {values}, no numbers")
    return Quantity(*values)


_quantity_parts: Callable[[Quantity], tuple[float, ...]] = attrgetter(*QUANTITY_PARTS)

_BOARD = SqlPart("board", ("board", "device"), lambda board: (board.uuid, board.device), Board)

_QUANTITIES = [
    SqlPart(
        name,
        tuple(f"{name}_{part}" for part in QUANTITY_PARTS),
        _split_quantity,
        partial(joined_quantity, name),
    )
    for name in QUANTITIES
]

CONFIGURATION = Codec(Configuration, schema.configuration)
"""To write them; they are read by `Configuration.from_canonical`."""

WORKLOAD = Codec(Workload, schema.workload)
"""Without its calls, which `read` is given."""

DEVICE = Codec(Device, schema.device)
BOARD = Codec(Board, schema.board)
HOST = Codec(Host, schema.host)
CAMPAIGN = Codec(Campaign, schema.campaign, _BOARD, SqlPart("host", ("host",), lambda it: (it.id,)))
"""`read` is given the device and the host."""

BOARD_CALIBRATION = Codec(BoardCalibration, schema.board_calibration, _BOARD)
PROFILE = Codec(Profile, schema.profile, _BOARD, _renamed("kernels", schema.profile.c.counts))
VISIT = Codec(Visit, schema.visit)
HOST_VISIT = Codec(HostVisit, schema.host_visit, _renamed("times_s", schema.host_visit.c.times))
MODEL_RUN = Codec(ModelRun, schema.model_run)
COST = Codec(Cost, schema.cost, *_QUANTITIES)


def upsert(
    connection: Connection,
    table: Table,
    new: Sequence[NewRow],
    identity: Sequence[str],
    *,
    replace: bool = True,
) -> None:
    """Insert rows; one that is there already is replaced, or left as it is."""
    if not new:
        return
    statement = insert_into(connection, table)
    values = {name: statement.excluded[name] for name in new[0] if name not in identity}
    if replace and values:
        statement = statement.on_conflict_do_update(index_elements=list(identity), set_=values)
    else:
        statement = statement.on_conflict_do_nothing(index_elements=list(identity))
    connection.execute(statement, new)


def insert_into(connection: Connection, table: Table) -> Any:
    """Return an insert of the connection's dialect, which can say what a conflict does."""
    if connection.dialect.name == "postgresql":
        from sqlalchemy.dialects import postgresql  # takes 25 ms that SQLite does not need

        return postgresql.insert(table)
    return sqlite.insert(table)


def save_configurations(
    connection: Connection, configurations: Iterable[Configuration]
) -> dict[str, int]:
    """Insert the configurations that are missing; return the row number of each by its key."""
    new = [CONFIGURATION.row(configuration) for configuration in configurations]
    upsert(connection, schema.configuration, new, ["key"], replace=False)
    return numbers(connection, schema.configuration, [row["key"] for row in new])


def numbers(connection: Connection, table: Table, keys: Iterable[str]) -> dict[str, int]:
    """Return the row number of each key that a table holds."""
    query = select(table.c.key, table.c.id).where(among(table.c.key, keys))
    return dict(map(tuple, connection.execute(query)))


def replace_calls(
    connection: Connection, workload_id: int, calls: Sequence[Call], known: Mapping[str, int]
) -> None:
    connection.execute(delete(schema.call).where(schema.call.c.workload_id == workload_id))
    called = [(known[call.configuration.key], call.form) for call in calls]
    operators = Counter(called)  # in the order of their first calls
    new = [
        {
            "workload_id": workload_id,
            "number": number,
            "configuration_id": configuration,
            "form": form,
            "calls": times,
        }
        for number, ((configuration, form), times) in enumerate(operators.items())
    ]
    if new:
        connection.execute(insert(schema.call), new)
    numbered = {operator: str(number) for number, operator in enumerate(operators)}
    sequence = " ".join(map(numbered.__getitem__, called))
    workload = schema.workload
    connection.execute(
        update(workload).where(workload.c.id == workload_id).values(sequence=sequence)
    )


class _Among(FunctionElement[bool]):
    """The condition that a text is one of a JSON list: one parameter, however many there are."""

    inherit_cache = True
    type = Boolean()


@compiles(_Among)
def _among(element: _Among, compiler: Any, **options: Any) -> str:
    column, texts = (compiler.process(each, **options) for each in element.clauses)
    return f"{column} IN (SELECT value FROM json_each({texts}))"


@compiles(_Among, "postgresql")
def _among_on_postgresql(element: _Among, compiler: Any, **options: Any) -> str:
    column, texts = (compiler.process(each, **options) for each in element.clauses)
    return f"{column} IN (SELECT json_array_elements_text(CAST({texts} AS json)))"


def among(column: ColumnElement[Any], texts: Iterable[str]) -> ColumnElement[bool]:
    """Return the condition that a column is one of some texts, of which there may be many."""
    return _Among(column, literal(json.dumps(list(texts))))


def matching(table: Table, conditions: Mapping[str, Any]) -> list[ColumnElement[bool]]:
    """Return one equality for each condition that is not None, by column name."""
    return [table.c[name] == value for name, value in conditions.items() if value is not None]


WhereClauses = Sequence[ColumnElement[bool]]

PLAIN: WhereClauses = (
    schema.workload.c.compiled_for.is_(None),
    schema.workload.c.captured.is_(False),
)
"""The conditions for workloads of models as they stand, neither compiled nor captured."""


@dataclass(frozen=True)
class Failure:
    """A configuration that was never measured in a setting, and the outcome of the attempts."""

    configuration: str
    kind: str
    setting: str
    outcome: Outcome
    reason: str | None
    attempts: int


def workloads(connection: Connection, conditions: WhereClauses) -> list[Workload]:
    """Return the workloads that meet the conditions, with their calls.

    Raises:
        DatabaseError: a row was altered: its key is not its own.
    """
    found = workload_rows(connection, conditions)
    calls = calls_of(connection, conditions)
    read = [WORKLOAD.read(row, calls=tuple(calls.get(row["id"], ()))) for row in found]
    for row, workload in zip(found, read, strict=True):
        if workload.key != row["key"]:
            raise DatabaseError(
                f"workload {row['name']!r}: its row was altered, for its key is not that of what "
                "it says; opdb harvest or opdb import brings it anew"
            )
    return read


def workload_rows(connection: Connection, conditions: WhereClauses) -> Sequence[ReadRow]:
    """Return the rows of the workloads that meet the conditions, without their calls."""
    table = schema.workload
    query = select(table).where(*conditions).order_by(*workload_order())
    return connection.execute(query).mappings().all()


def workload_order() -> list[ColumnElement[Any]]:
    table = schema.workload
    names = ("name", "phase", "dtype", "memory_format", "batch_size", "key")
    return [table.c[name] for name in names]


def calls_of(connection: Connection, conditions: WhereClauses) -> dict[int, list[Call]]:
    """Return the calls of the workloads that meet the conditions, by the workload's row number."""
    call, workload, configuration = schema.call, schema.workload, schema.configuration
    chosen = select(workload.c.id).where(*conditions)
    query = select(configuration.c.id, configuration.c.json).where(
        configuration.c.id.in_(
            select(call.c.configuration_id).where(call.c.workload_id.in_(chosen))
        )
    )
    known = {
        number: Configuration.from_canonical(text) for number, text in connection.execute(query)
    }
    # One object a configuration and form: a thousand calls share a few dozen.
    shared: dict[tuple[int, str], Call] = {}
    operators: dict[int, dict[str, Call]] = defaultdict(dict)
    columns = (call.c.workload_id, call.c.number, call.c.configuration_id, call.c.form)
    made = select(*columns).where(call.c.workload_id.in_(chosen))
    for of, number, configuration_id, form in connection.execute(made).all():
        which = configuration_id, form
        if which not in shared:
            shared[which] = Call(configuration=known[configuration_id], form=form)
        operators[of][str(number)] = shared[which]
    sequences = select(workload.c.id, workload.c.sequence).where(*conditions)
    return {
        number: list(map(operators[number].__getitem__, sequence.split(" ")))
        for number, sequence in connection.execute(sequences)
        if sequence
    }


def measurements(device: str) -> list[ColumnElement[bool]]:
    """Return the conditions on visits, and campaigns, of measurements inside models on a device.

    Convolutions that were forced to take an algorithm are left out.
    """
    visit = schema.visit
    of_role = visit.c.role == "measurement", visit.c.access == "model", unforced(visit)
    return [schema.campaign.c.device == device, *of_role]


def unforced(table: Table) -> ColumnElement[bool]:
    """Return the condition on visits or costs that torch chose their algorithm."""
    return table.c.setting.not_like(f'%"{ALGORITHM_SETTING}":%')


def usual_and_good() -> tuple[ColumnElement[bool], ...]:
    """Return the conditions for model runs that predictions are compared with."""
    run = schema.model_run
    return run.c.setting == schema.USUAL, run.c.outcome == "ok"


def with_key(table: Table) -> Select[Any]:
    """Select a table's columns with the configuration's key beside them."""
    configuration = schema.configuration
    key = configuration.c.key.label("configuration")
    return select(table, key).join(configuration, table.c.configuration_id == configuration.c.id)


def about(query: Select[Any], table: Table, keys: Collection[str] | None) -> Select[Any]:
    """Limit a query to the rows of a table that are about some configurations; None: to all.

    The keys are turned into row numbers first: joined by them, a database goes through all that
    the other conditions leave, which at times is all that a board has.
    """
    if keys is None:
        return query
    configuration = schema.configuration.c
    chosen = select(configuration.id).where(among(configuration.key, keys))
    return query.where(table.c.configuration_id.in_(chosen))
