"""Who measures what now."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
    op.create_table(
        "claim",
        sa.Column("scope", text, nullable=False),
        sa.Column("task", text, nullable=False),
        sa.Column("worker", text, nullable=False),
        sa.Column("board", text, nullable=False),
        sa.Column("until_s", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("scope", "task", name=op.f("pk_claim")),
        sqlite_with_rowid=False,
    )
