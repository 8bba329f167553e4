"""Calls by operator: one row an operator of a workload, and the order of the calls as one text."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from operator import itemgetter

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.add_column("workload", sa.Column("sequence", TEXT, nullable=False, server_default=""))
    connection = op.get_bind()
    query = "SELECT workload_id, configuration_id, form FROM call ORDER BY workload_id, position"
    operators, sequences = [], []
    for workload, rows in groupby(connection.execute(sa.text(query)), itemgetter(0)):
        called = [(configuration, form) for _, configuration, form in rows]
        numbers: dict[tuple[int, str], int] = {}
        for number, (operator, calls) in enumerate(Counter(called).items()):
            numbers[operator] = number
            operators.append((workload, number, *operator, calls))
        sequences.append((" ".join(str(numbers[operator]) for operator in called), workload))
    replace_table()
    columns = ("workload_id", "number", "configuration_id", "form", "calls")
    insert = f"INSERT INTO call ({', '.join(columns)}) VALUES (:{', :'.join(columns)})"
    change = "UPDATE workload SET sequence = :sequence WHERE id = :id"
    if operators:
        named = [dict(zip(columns, row, strict=True)) for row in operators]
        connection.execute(sa.text(insert), named)
        changed = [{"sequence": sequence, "id": workload} for sequence, workload in sequences]
        connection.execute(sa.text(change), changed)


def replace_table() -> None:
    """Empty the table and change its columns; PostgreSQL keeps who may read it."""
    if op.get_bind().dialect.name == "postgresql":
        op.execute("DELETE FROM call")
        op.drop_constraint("pk_call", "call")
        op.alter_column("call", "position", new_column_name="number")
        op.add_column("call", sa.Column("calls", sa.Integer(), nullable=False))
        op.create_primary_key("pk_call", "call", ["workload_id", "number"])
        return
    op.drop_table("call")
    op.create_table(
        "call",
        sa.Column("workload_id", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("configuration_id", sa.Integer(), nullable=False),
        sa.Column("form", TEXT, nullable=False),
        sa.Column("calls", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("workload_id", "number", name="pk_call"),
        sa.ForeignKeyConstraint(
            ["workload_id"],
            ["workload.id"],
            name="fk_call_workload_id_workload",
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["configuration_id"],
            ["configuration.id"],
            name="fk_call_configuration_id_configuration",
        ),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_call_configuration_id", "call", ["configuration_id"])
