"""Workloads that tell what their harvest hung on: of the same, another finds nothing else."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
    op.add_column("workload", sa.Column("fingerprint", text))
    op.create_index(op.f("ix_workload_fingerprint"), "workload", ["fingerprint"])
