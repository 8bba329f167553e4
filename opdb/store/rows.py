"""Records to rows and back, by the declarations of columns in `opdb.store.schema`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from operator import attrgetter, itemgetter
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from sqlalchemy import Column, Table

from opdb.records import (
    Board,
    BoardCalibration,
    Campaign,
    Configuration,
    Cost,
    Device,
    Host,
    HostCalibration,
    HostVisit,
    ModelRun,
    Profile,
    Quantity,
    Visit,
    Workload,
)
from opdb.store import schema
from opdb.store.documents import quantity
from opdb.store.fields import field_of, is_number
from opdb.store.schema import QUANTITIES, QUANTITY_PARTS

NewRow: TypeAlias = dict[str, Any]

Record = TypeVar("Record")

_NUMBERS = frozenset({int, float})
_NUMBERS_OR_NONE = _NUMBERS | {type(None)}
"""What numbers are read as: to look a type up is several times as quick as `isinstance`."""


class Row(Protocol):
    """A row that was read: values by column name."""

    def __getitem__(self, name: str, /) -> Any: ...


@dataclass(frozen=True)
class Part:
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

    def __init__(self, record: type[Record], table: Table, *parts: Part) -> None:
        """Look up which columns the attributes of a record are."""
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
        self._encoders = [(name, each.encode) for name, each in held.items() if each.encode]
        self._decoders = [(name, held[name].decode) for name in self._read if held[name].decode]
        self._numbers = [
            name
            for name, column in schema.outside(table).items()
            if name in self._read and is_number(column)
        ]

    def row(self, record: Record) -> NewRow:
        """Return a record's row."""
        row = {name: getattr(record, name) for name in self._written}
        for name, encode in self._encoders:
            if row[name] is not None:
                row[name] = encode(row[name])
        for part in self._parts:
            values = part.split(getattr(record, part.attribute))
            row.update(zip(part.columns, values, strict=True))
        return row

    def read(self, row: Row, **given: Any) -> Record:
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
                found[name] = decode(found[name])  # type: ignore[misc]
        for part in self._parts:
            if part.join is not None:
                found[part.attribute] = part.join(*[row[column] for column in part.columns])
        return self._record(**found, **given)


def _renamed(attribute: str, column: Column[Any]) -> Part:
    """Return the part of an attribute that is one column of another name."""
    field = field_of(column)
    encode, decode = field.encode, field.decode
    assert encode is not None and decode is not None
    return Part(
        attribute,
        (column.name,),
        lambda value: (encode(value),),
        lambda stored: None if stored is None else decode(stored),
    )


def _split_quantity(held: Quantity | None) -> tuple[float | None, ...]:
    return (None,) * len(QUANTITY_PARTS) if held is None else _quantity_parts(held)


def joined_quantity(name: str, *values: Any) -> Quantity | None:
    """Return the quantity of these parts (`QUANTITY_PARTS`); None where it has none."""
    if values[0] is None:
        return None
    parts = dict(zip(QUANTITY_PARTS, values, strict=True))
    if _NUMBERS.issuperset(map(type, values)):
        return Quantity(**parts)
    return quantity(name, parts)  # without an interval, or what is none


_quantity_parts: Callable[[Quantity], tuple[float, ...]] = attrgetter(*QUANTITY_PARTS)

_BOARD = Part("board", ("board", "device"), lambda board: (board.uuid, board.device), Board)

_QUANTITIES = [
    Part(
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
CAMPAIGN = Codec(Campaign, schema.campaign, _BOARD, Part("host", ("host",), lambda it: (it.id,)))
"""`read` is given the device and the host."""

BOARD_CALIBRATION = Codec(BoardCalibration, schema.board_calibration, _BOARD)
HOST_CALIBRATION = Codec(HostCalibration, schema.host_calibration, _BOARD)
PROFILE = Codec(Profile, schema.profile, _BOARD, _renamed("kernels", schema.profile.c.counts))
VISIT = Codec(Visit, schema.visit)
HOST_VISIT = Codec(HostVisit, schema.host_visit, _renamed("times_s", schema.host_visit.c.times))
MODEL_RUN = Codec(ModelRun, schema.model_run)
COST = Codec(Cost, schema.cost, *_QUANTITIES)
