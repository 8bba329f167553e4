"""On PostgreSQL text is ordered by its characters, as on SQLite, whatever the server's language."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    connection = op.get_bind()
    if connection.dialect.name != "postgresql":
        return
    inspector = sa.inspect(connection)
    for table in sorted(set(inspector.get_table_names()) - {"alembic_version"}):
        for column in inspector.get_columns(table):
            if isinstance(column["type"], sa.Text):
                op.alter_column(table, column["name"], type_=sa.Text(collation="C"))
