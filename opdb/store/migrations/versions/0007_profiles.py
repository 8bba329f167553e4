"""What hardware counters saw of single calls."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

Text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "profile",
        sa.Column("id", Text, nullable=False),
        sa.Column("board", Text, nullable=False),
        sa.Column("device", Text, nullable=False),
        sa.Column("configuration_id", sa.Integer(), nullable=False),
        sa.Column("setting", Text, nullable=False),
        sa.Column("measured_at", Text, nullable=False),
        sa.Column("environment", Text, nullable=False),
        sa.Column("definition", Text, nullable=False),
        sa.Column("counts", Text, nullable=False),
        sa.ForeignKeyConstraint(
            ["configuration_id"],
            ["configuration.id"],
            name=op.f("fk_profile_configuration_id_configuration"),
        ),
        sa.ForeignKeyConstraint(
            ["board", "device"],
            ["board.uuid", "board.device"],
            name=op.f("fk_profile_board_board"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_profile")),
    )
    op.create_index(op.f("ix_profile_configuration_id"), "profile", ["configuration_id"])
    op.create_index(op.f("ix_profile_device"), "profile", ["device"])
