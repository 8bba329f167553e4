"""Python's time around the calls of a workload."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    op.add_column("workload", sa.Column("around", sa.Float()))
