"""What was learned from a board's costs: estimates of what was never measured."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.create_table(
        "learned",
        sa.Column("board", sa.Text(), nullable=False),
        sa.Column("device", sa.Text(), nullable=False),
        sa.Column("trained_at", sa.Text(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["board", "device"],
            ["board.uuid", "board.device"],
            name=op.f("fk_learned_board_board"),
        ),
        sa.PrimaryKeyConstraint("board", name=op.f("pk_learned")),
    )
