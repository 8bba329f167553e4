"""Host times by which a host is held against those of boards."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    names = ("host", "board", "device", "measured_at", "environment", "workloads", "calls")
    op.create_table(
        "host_calibration",
        sa.Column("id", TEXT, nullable=False),
        *(sa.Column(name, TEXT, nullable=False) for name in names),
        sa.PrimaryKeyConstraint("id", name="pk_host_calibration"),
        sa.ForeignKeyConstraint(
            ["board", "device"],
            ["board.uuid", "board.device"],
            name="fk_host_calibration_board_device_board",
        ),
    )
    op.create_index("ix_host_calibration_host", "host_calibration", ["host"])
