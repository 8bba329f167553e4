"""Workloads of models that call something else while a CUDA graph captures them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.add_column(
        "workload",
        sa.Column("captured", sa.Boolean(), nullable=False, server_default=sa.false()),
    )
