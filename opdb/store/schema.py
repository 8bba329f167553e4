"""The tables. Rows point at each other by small integers inside; content keys go outside.

JSON columns are canonical text, so that equal values are equal rows on every database.
Change a table here and add a revision to `migrations/versions` and to `REVISIONS`: a test
compares both.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    false,
    types,
)

REVISIONS = (
    *("0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008", "0009", "0010", "0011"),
    *("0012", "0013"),
)
"""Every Alembic revision, oldest first; the last is what this version writes."""

QUANTITIES = ("time_s", "eager_time_s", "power_w", "energy_j", "dynamic_energy_j")
"""The estimated quantities of a cost, each held in five columns."""

QUANTITY_PARTS = ("median", "mean", "low", "high", "count")

USUAL = "{}"
"""The setting of a usual model run: nothing beyond its campaign's settings."""

Text = types.Text().with_variant(types.Text(collation="C"), "postgresql")
"""Text in the order of its characters on every database, not in that of people's languages."""

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(column_0_N_label)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

source = Table(
    "source",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", Text, nullable=False, unique=True),
    Column("fingerprint", Text, nullable=False),
)

configuration = Table(
    "configuration",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("key", Text, nullable=False, unique=True),
    Column("kind", Text, nullable=False, index=True),
    Column("json", Text, nullable=False),
)

workload = Table(
    "workload",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("key", Text, nullable=False, unique=True),
    Column("name", Text, nullable=False, index=True),
    Column("source", Text, nullable=False),
    Column("source_version", Text, nullable=False),
    Column("batch_size", Integer, nullable=False),
    Column("dtype", Text, nullable=False),
    Column("memory_format", Text, nullable=False),
    Column("phase", Text, nullable=False),
    Column("gradient", Boolean, nullable=False),
    Column("autocast", Text),
    Column("inputs", Text, nullable=False),
    Column("containers", Integer, nullable=False),
    Column("foreign_leaves", Text, nullable=False),
    Column("unsupported", Text, nullable=False),
    # The device (slug) that its calls were compiled for; NULL as the model stands.
    Column("compiled_for", Text),
    # Whether these are the calls that the model makes while a CUDA graph captures it.
    Column("captured", Boolean, nullable=False, server_default=false()),
    # Whether only a sweep asked for it: then nothing that it calls is pending.
    Column("swept", Boolean, nullable=False, server_default=false()),
    # What `opdb.footprint` says of its calls; NULL until a bench is first planned with it.
    Column("touched_bytes", BigInteger),
    # What its harvest hung on, as a digest: of the same one, another would find nothing else. NULL
    # where that is not known, or it was not harvested here.
    Column("fingerprint", Text, index=True),
    Column("source_id", Integer, ForeignKey("source.id", ondelete="SET NULL")),
)

call = Table(
    "call",
    metadata,
    Column("workload_id", Integer, ForeignKey("workload.id", ondelete="CASCADE")),
    Column("position", Integer),
    Column("configuration_id", Integer, ForeignKey("configuration.id"), nullable=False, index=True),
    Column("form", Text, nullable=False),
    PrimaryKeyConstraint("workload_id", "position"),
    sqlite_with_rowid=False,
)

device = Table(
    "device",
    metadata,
    Column("slug", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("type", Text, nullable=False),
    Column("power_limit_w", Float),
    Column("memory_bytes", BigInteger),
    Column("l2_bytes", BigInteger),
    Column("max_clock_hz", Float),
)

# A board under another power limit is another device: the pair is what a campaign measures.
board = Table(
    "board",
    metadata,
    Column("uuid", Text),
    Column("device", Text, ForeignKey("device.slug"), index=True),
    PrimaryKeyConstraint("uuid", "device"),
)

host = Table(
    "host",
    metadata,
    Column("id", Text, primary_key=True),
    Column("cpu", Text, nullable=False),
    Column("cores", Integer, nullable=False),
    Column("system", Text, nullable=False),
)

campaign = Table(
    "campaign",
    metadata,
    Column("id", Text, primary_key=True),
    Column("board", Text, nullable=False),
    Column("device", Text, nullable=False, index=True),
    Column("host", Text, ForeignKey("host.id"), nullable=False),
    Column("started_at", Text, nullable=False),
    Column("environment", Text, nullable=False),
    Column("settings", Text, nullable=False),
    Column("calibration", Text, nullable=False),
    Column("source_id", Integer, ForeignKey("source.id", ondelete="SET NULL")),
    ForeignKeyConstraint(["board", "device"], ["board.uuid", "board.device"]),
    Index(None, "board"),
)

board_calibration = Table(
    "board_calibration",
    metadata,
    Column("id", Text, primary_key=True),
    Column("board", Text, nullable=False),
    Column("device", Text, nullable=False),
    Column("driver", Text),
    Column("power_limit_w", Float),
    Column("measured_at", Text, nullable=False),
    Column("environment", Text, nullable=False),
    Column("cost_s", Float, nullable=False),
    Column("facts", Text, nullable=False),
    Column("tests", Text, nullable=False),
    Column("notes", Text, nullable=False),
    ForeignKeyConstraint(["board", "device"], ["board.uuid", "board.device"]),
    Index(None, "board"),
)

# What hardware counters saw of one call: the metrics of its kernels, raw.
profile = Table(
    "profile",
    metadata,
    Column("id", Text, primary_key=True),
    Column("board", Text, nullable=False),
    Column("device", Text, nullable=False),
    Column("configuration_id", Integer, ForeignKey("configuration.id"), nullable=False, index=True),
    Column("setting", Text, nullable=False),
    Column("measured_at", Text, nullable=False),
    Column("environment", Text, nullable=False),
    Column("definition", Text, nullable=False),
    Column("counts", Text, nullable=False),
    ForeignKeyConstraint(["board", "device"], ["board.uuid", "board.device"]),
    Index(None, "device"),
)

# What `opdb learn` made of a board's costs, as one JSON value.
learned = Table(
    "learned",
    metadata,
    Column("board", Text, primary_key=True),
    Column("device", Text, nullable=False),
    Column("trained_at", Text, nullable=False),
    Column("document", Text, nullable=False),
    ForeignKeyConstraint(["board", "device"], ["board.uuid", "board.device"]),
)

visit = Table(
    "visit",
    metadata,
    Column("id", Text, primary_key=True),
    Column("campaign", Text, ForeignKey("campaign.id", ondelete="CASCADE"), nullable=False),
    Column("configuration_id", Integer, ForeignKey("configuration.id"), nullable=False, index=True),
    Column("setting", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("reason", Text),
    Column("started_at", Text, nullable=False),
    Column("cost_s", Float, nullable=False),
    Column("issue", Text, nullable=False),
    Column("weights", Text, nullable=False),
    Column("copies", Integer, nullable=False),
    Column("stretch", Text),
    Column("restore", Text),
    Column("kernels", Text),
    Column("flags", Text, nullable=False),
    Column("access", Text, nullable=False, server_default="model"),
    Column("neighbours", Text),
    Column("outputs", Text),
    Index(None, "campaign", "role"),
)

# How many visits there are of each sort, and why they were rejected (empty: they were not). What is
# pending is asked of this, never of the visits: of these there may be millions. Written with every
# visit; see `opdb.store.tallies`.
tally = Table(
    "tally",
    metadata,
    Column("device", Text),
    Column("configuration_id", Integer, ForeignKey("configuration.id")),
    Column("board", Text),
    Column("setting", Text),
    Column("role", Text),
    Column("access", Text),
    Column("weights", Text),
    Column("outcome", Text),
    Column("rejected", Text),
    Column("visits", Integer, nullable=False),
    ForeignKeyConstraint(["board", "device"], ["board.uuid", "board.device"]),
    PrimaryKeyConstraint(
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

# Who measures what now: a task of a list (`scope`), the worker's process, and the moment (Unix
# time) from which anybody may take it over; see `opdb.store.claims`.
claim = Table(
    "claim",
    metadata,
    Column("scope", Text),
    Column("task", Text),
    Column("worker", Text, nullable=False),
    Column("board", Text, nullable=False),
    Column("until_s", Float, nullable=False),
    PrimaryKeyConstraint("scope", "task"),
    sqlite_with_rowid=False,
)

host_visit = Table(
    "host_visit",
    metadata,
    Column("id", Text, primary_key=True),
    Column("campaign", Text, ForeignKey("campaign.id", ondelete="CASCADE"), nullable=False),
    Column("configuration_id", Integer, ForeignKey("configuration.id"), nullable=False, index=True),
    Column("form", Text, nullable=False),
    Column("started_at", Text, nullable=False),
    Column("times", Text, nullable=False),
    Column("flags", Text, nullable=False),
    Index(None, "campaign"),
)

model_run = Table(
    "model_run",
    metadata,
    Column("id", Text, primary_key=True),
    Column("campaign", Text, ForeignKey("campaign.id", ondelete="CASCADE"), nullable=False),
    Column("workload_id", Integer, ForeignKey("workload.id"), nullable=False, index=True),
    Column("mode", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("reason", Text),
    Column("started_at", Text, nullable=False),
    Column("cost_s", Float, nullable=False),
    Column("repeats", Text, nullable=False),
    Column("peak_memory_bytes", BigInteger),
    Column("kernels", Text),
    Column("layers", Text),
    Column("flags", Text, nullable=False),
    # What the backend was told beyond the campaign's settings.
    Column("setting", Text, nullable=False, server_default=USUAL),
    Column("facts", Text, nullable=False, server_default="{}"),
    Index(None, "campaign"),
)


def _quantity_columns() -> list[Column[float] | Column[int]]:
    columns: list[Column[float] | Column[int]] = []
    for quantity in QUANTITIES:
        for part in QUANTITY_PARTS:
            name = f"{quantity}_{part}"
            columns.append(Column(name, Integer) if part == "count" else Column(name, Float))
    return columns


cost = Table(
    "cost",
    metadata,
    Column("board", Text),
    Column("configuration_id", Integer, ForeignKey("configuration.id"), index=True),
    Column("setting", Text),
    Column("estimator", Text),
    Column("visits", Integer, nullable=False),
    Column("kernels", Integer),
    *_quantity_columns(),
    Column("host_time_s", Text, nullable=False),
    Column("clock_hz", Float),
    Column("limited", Text),
    Column("reasons", Text, nullable=False),
    Column("flags", Text, nullable=False),
    Column("hot", Text),
    PrimaryKeyConstraint("board", "configuration_id", "setting", "estimator"),
)
