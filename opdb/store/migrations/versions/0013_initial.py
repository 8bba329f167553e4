"""Every table of the first release."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy import BigInteger, Boolean, Column, Float, ForeignKey, Integer, Table

revision = "0013"
down_revision = None

Text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")

metadata = sa.MetaData(
    naming_convention={
        "ix": "ix_%(column_0_N_label)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def upgrade() -> None:
    metadata.create_all(op.get_bind(), checkfirst=False)


def texts(*names: str, nullable: bool = False) -> list[Column[str]]:
    """Return columns of text."""
    return [Column(name, Text, nullable=nullable) for name in names]


def numbers(*names: str) -> list[Column[float]]:
    """Return columns of numbers that may be missing."""
    return [Column(name, Float) for name in names]


BOARD = (["board", "device"], ["board.uuid", "board.device"])
Table(
    "claim",
    metadata,
    *texts("scope", "task", "worker", "board"),
    Column("until_s", Float, nullable=False),
    sa.PrimaryKeyConstraint("scope", "task"),
    sqlite_with_rowid=False,
)

Table(
    "configuration",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("key", Text, nullable=False, unique=True),
    Column("kind", Text, nullable=False, index=True),
    *texts("json"),
)

Table(
    "device",
    metadata,
    Column("slug", Text, primary_key=True),
    *texts("name", "type"),
    *numbers("power_limit_w"),
    Column("memory_bytes", BigInteger),
    Column("l2_bytes", BigInteger),
    *numbers("max_clock_hz"),
)

Table(
    "host",
    metadata,
    Column("id", Text, primary_key=True),
    *texts("cpu"),
    Column("cores", Integer, nullable=False),
    *texts("system"),
)

Table(
    "source",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    *texts("fingerprint"),
)

Table(
    "board",
    metadata,
    *texts("uuid"),
    Column("device", Text, ForeignKey("device.slug"), nullable=False, index=True),
    sa.PrimaryKeyConstraint("uuid", "device"),
)

Table(
    "cost",
    metadata,
    *texts("board"),
    Column("configuration_id", Integer, ForeignKey("configuration.id"), nullable=False, index=True),
    *texts("setting", "estimator"),
    Column("visits", Integer, nullable=False),
    Column("kernels", Integer),
    *(
        Column(f"{name}_{part}", Integer if part == "count" else Float)
        for name in ("time_s", "eager_time_s", "power_w", "energy_j", "dynamic_energy_j")
        for part in ("median", "mean", "low", "high", "count")
    ),
    *texts("host_time_s"),
    *numbers("clock_hz"),
    *texts("limited", nullable=True),
    *texts("reasons", "flags"),
    *texts("hot", nullable=True),
    sa.PrimaryKeyConstraint("board", "configuration_id", "setting", "estimator"),
)

Table(
    "workload",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("key", Text, nullable=False, unique=True),
    Column("name", Text, nullable=False, index=True),
    *texts("source", "source_version"),
    Column("batch_size", Integer, nullable=False),
    *texts("dtype", "memory_format", "phase"),
    Column("gradient", Boolean, nullable=False),
    *texts("autocast", nullable=True),
    *texts("inputs"),
    Column("containers", Integer, nullable=False),
    *texts("foreign_leaves", "unsupported"),
    *texts("compiled_for", nullable=True),
    Column("captured", Boolean, nullable=False, server_default=sa.false()),
    Column("swept", Boolean, nullable=False, server_default=sa.false()),
    Column("touched_bytes", BigInteger),
    Column("fingerprint", Text, index=True),
    Column("source_id", Integer, ForeignKey("source.id", ondelete="SET NULL")),
)

Table(
    "board_calibration",
    metadata,
    Column("id", Text, primary_key=True),
    *texts("board", "device"),
    *texts("driver", nullable=True),
    *numbers("power_limit_w"),
    *texts("measured_at", "environment"),
    Column("cost_s", Float, nullable=False),
    *texts("facts", "tests", "notes"),
    sa.ForeignKeyConstraint(*BOARD),
    sa.Index(None, "board"),
)

Table(
    "call",
    metadata,
    Column("workload_id", Integer, ForeignKey("workload.id", ondelete="CASCADE"), nullable=False),
    Column("position", Integer, nullable=False),
    Column("configuration_id", Integer, ForeignKey("configuration.id"), nullable=False, index=True),
    *texts("form"),
    sa.PrimaryKeyConstraint("workload_id", "position"),
    sqlite_with_rowid=False,
)

Table(
    "campaign",
    metadata,
    Column("id", Text, primary_key=True),
    *texts("board"),
    Column("device", Text, nullable=False, index=True),
    Column("host", Text, ForeignKey("host.id"), nullable=False),
    *texts("started_at", "environment", "settings", "calibration"),
    Column("source_id", Integer, ForeignKey("source.id", ondelete="SET NULL")),
    sa.ForeignKeyConstraint(*BOARD),
    sa.Index(None, "board"),
)

Table(
    "learned",
    metadata,
    Column("board", Text, primary_key=True),
    *texts("device", "trained_at", "document"),
    sa.ForeignKeyConstraint(*BOARD),
)

Table(
    "profile",
    metadata,
    Column("id", Text, primary_key=True),
    *texts("board", "device"),
    Column("configuration_id", Integer, ForeignKey("configuration.id"), nullable=False, index=True),
    *texts("setting", "measured_at", "environment", "definition", "counts"),
    sa.ForeignKeyConstraint(*BOARD),
    sa.Index(None, "device"),
)

Table(
    "tally",
    metadata,
    *texts("device"),
    Column("configuration_id", Integer, ForeignKey("configuration.id"), nullable=False),
    *texts("board", "setting", "role", "access", "weights", "outcome", "rejected"),
    Column("visits", Integer, nullable=False),
    sa.ForeignKeyConstraint(*BOARD),
    sa.PrimaryKeyConstraint(
        "device",
        "configuration_id",
        "board",
        "setting",
        "role",
        "access",
        "weights",
        "outcome",
        "rejected",
    ),
    sqlite_with_rowid=False,
)

Table(
    "host_visit",
    metadata,
    Column("id", Text, primary_key=True),
    Column("campaign", Text, ForeignKey("campaign.id", ondelete="CASCADE"), nullable=False),
    Column("configuration_id", Integer, ForeignKey("configuration.id"), nullable=False, index=True),
    *texts("form", "started_at", "times", "flags"),
    sa.Index(None, "campaign"),
)

Table(
    "model_run",
    metadata,
    Column("id", Text, primary_key=True),
    Column("campaign", Text, ForeignKey("campaign.id", ondelete="CASCADE"), nullable=False),
    Column("workload_id", Integer, ForeignKey("workload.id"), nullable=False, index=True),
    *texts("mode", "outcome"),
    *texts("reason", nullable=True),
    *texts("started_at"),
    Column("cost_s", Float, nullable=False),
    *texts("repeats"),
    Column("peak_memory_bytes", BigInteger),
    *texts("kernels", "layers", nullable=True),
    *texts("flags"),
    Column("setting", Text, nullable=False, server_default="{}"),
    Column("facts", Text, nullable=False, server_default="{}"),
    sa.Index(None, "campaign"),
)

Table(
    "visit",
    metadata,
    Column("id", Text, primary_key=True),
    Column("campaign", Text, ForeignKey("campaign.id", ondelete="CASCADE"), nullable=False),
    Column("configuration_id", Integer, ForeignKey("configuration.id"), nullable=False, index=True),
    *texts("setting", "role", "outcome"),
    *texts("reason", nullable=True),
    *texts("started_at"),
    Column("cost_s", Float, nullable=False),
    *texts("issue", "weights"),
    Column("copies", Integer, nullable=False),
    *texts("stretch", "restore", "kernels", nullable=True),
    *texts("flags"),
    Column("access", Text, nullable=False, server_default="model"),
    *texts("neighbours", "outputs", nullable=True),
    sa.Index(None, "campaign", "role"),
)
