"""What calls find in the caches, times among neighbours, hot weights, calibrations of boards."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.add_column("visit", sa.Column("access", sa.Text(), nullable=False, server_default="model"))
    op.add_column("visit", sa.Column("neighbours", sa.Text(), nullable=True))
    op.add_column("cost", sa.Column("hot", sa.Text(), nullable=True))
    op.create_table(
        "board_calibration",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("board", sa.Text(), nullable=False),
        sa.Column("device", sa.Text(), nullable=False),
        sa.Column("driver", sa.Text(), nullable=True),
        sa.Column("power_limit_w", sa.Float(), nullable=True),
        sa.Column("measured_at", sa.Text(), nullable=False),
        sa.Column("environment", sa.Text(), nullable=False),
        sa.Column("cost_s", sa.Float(), nullable=False),
        sa.Column("facts", sa.Text(), nullable=False),
        sa.Column("tests", sa.Text(), nullable=False),
        sa.Column("notes", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["board", "device"],
            ["board.uuid", "board.device"],
            name=op.f("fk_board_calibration_board_board"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_board_calibration")),
    )
    op.create_index(
        op.f("ix_board_calibration_board"), "board_calibration", ["board"], unique=False
    )
