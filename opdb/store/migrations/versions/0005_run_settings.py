"""What the backend was told for one model run, and what else is kept of it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    for name in ("setting", "facts"):
        column = sa.Column(name, sa.Text(), nullable=False, server_default="{}")
        op.add_column("model_run", column)
