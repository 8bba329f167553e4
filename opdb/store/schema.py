"""The tables. Rows point at each other by small integers inside; content keys go outside.

A column is declared with what it holds (`opdb.store.fields`): its type, its values, and how a
record's attribute of the same name becomes it. JSON columns are canonical text, so that
equal values are equal rows on every database.
Change a table here and raise `SCHEMA`: a database of another schema is refused.
"""

from __future__ import annotations

from typing import Any, Literal

from sqlalchemy import (
    Column,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    false,
)

from opdb.records import Access, Form, Mode, Outcome, Outputs, Phase, Role, Weights
from opdb.store.fields import (
    AFTER_OTHERS,
    BYTES,
    CALIBRATION,
    CONFIGURATION,
    DEFINITION,
    FACTS,
    HOST_TIMES,
    KERNEL_COUNTS,
    KERNELS,
    LAYERS,
    MEMORY,
    METER_TESTS,
    NEIGHBOURS,
    NOT_NEGATIVE,
    NUMBER,
    OBJECT,
    OPERATING_POINT,
    POSITIVE,
    RUN_RATIOS,
    SLUG,
    STRETCH,
    STRETCHES,
    TEXT,
    TIMES,
    TRUTH,
    WHOLE,
    WORDS,
    column,
    field_of,
    one_of,
    within,
)

SCHEMA = 1
"""The number of this schema, which every database holds in its table `opdb_schema`."""

QUANTITIES = ("time_s", "eager_time_s", "power_w", "energy_j", "dynamic_energy_j")
"""The estimated quantities of a cost, each held in five columns."""

QUANTITY_PARTS = ("median", "mean", "low", "high", "count")

USUAL = "{}"
"""The setting of a usual model run: nothing beyond its campaign's settings."""

REFERENCES = {"configuration_id": "configuration", "workload_id": "workload"}
"""Columns that hold a row number inside, and what their content key is called outside."""

INSIDE = ("source_id", "touched_bytes", "fingerprint")
"""Columns that neither a record nor a set has."""

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(column_0_N_label)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)

opdb_schema = Table("opdb_schema", metadata, column("number", WHOLE, primary_key=True))

source = Table(
    "source",
    metadata,
    column("id", WHOLE, primary_key=True),
    column("name", TEXT, unique=True),
    column("fingerprint", TEXT),
)

configuration = Table(
    "configuration",
    metadata,
    column("id", WHOLE, primary_key=True),
    column("key", TEXT, unique=True),
    column("kind", TEXT, index=True),
    column("json", CONFIGURATION),
)

workload = Table(
    "workload",
    metadata,
    column("id", WHOLE, primary_key=True),
    column("key", TEXT, unique=True),
    column("name", TEXT, index=True),
    column("source", TEXT),
    column("source_version", TEXT),
    column("batch_size", within(POSITIVE, WHOLE)),
    column("dtype", TEXT),
    column("memory_format", TEXT),
    column("phase", one_of(Phase)),
    column("gradient", TRUTH),
    column("autocast", TEXT, nullable=True),
    column("inputs", OBJECT),
    column("containers", within(NOT_NEGATIVE, WHOLE)),
    column("foreign_leaves", OBJECT),
    column("unsupported", OBJECT),
    # The device (slug) that its calls were compiled for; NULL as the model stands.
    column("compiled_for", SLUG, nullable=True),
    # Whether these are the calls that the model makes while a CUDA graph captures it.
    column("captured", TRUTH, server_default=false()),
    # Whether only a sweep asked for it: then none of its calls is pending.
    column("swept", TRUTH, server_default=false()),
    # The bytes that a pass touches (`opdb.memory`); NULL until a bench is planned with it.
    column("touched_bytes", BYTES, nullable=True),
    # A digest of all that its harvest depended on: with the same one, another harvest finds the
    # same. NULL where that is not known, or it was not harvested here.
    column("fingerprint", TEXT, index=True, nullable=True),
    column("source_id", WHOLE, ForeignKey("source.id", ondelete="SET NULL"), nullable=True),
    # The memory that its harvest saw live; NULL where that was not recorded.
    column("memory", MEMORY, nullable=True),
    # Python's time around the calls of a pass, in containers; NULL where it was not timed.
    column("around", within(NOT_NEGATIVE), nullable=True),
    # The calls of a pass in order: the number of each one's operator (`call.number`), with a space
    # between two.
    column("sequence", TEXT, server_default=""),
)

# An operator that a workload calls, and how often: there are many times as many calls as operators.
# Their order is `workload.sequence`.
call = Table(
    "call",
    metadata,
    column("workload_id", WHOLE, ForeignKey("workload.id", ondelete="CASCADE")),
    column("number", within(NOT_NEGATIVE, WHOLE)),
    column("configuration_id", WHOLE, ForeignKey("configuration.id"), index=True),
    column("form", one_of(Form)),
    column("calls", within(POSITIVE, WHOLE)),
    PrimaryKeyConstraint("workload_id", "number"),
    sqlite_with_rowid=False,
)

device = Table(
    "device",
    metadata,
    column("slug", SLUG, primary_key=True),
    column("name", TEXT),
    column("type", one_of(Literal["cuda", "cpu"])),
    column("power_limit_w", within(POSITIVE), nullable=True),
    column("memory_bytes", within(POSITIVE, BYTES), nullable=True),
    column("l2_bytes", within(POSITIVE, BYTES), nullable=True),
    column("max_clock_hz", within(POSITIVE), nullable=True),
)

# A board under another power limit is another device: the pair is what a campaign measures.
board = Table(
    "board",
    metadata,
    column("uuid", TEXT),
    column("device", TEXT, ForeignKey("device.slug"), index=True),
    PrimaryKeyConstraint("uuid", "device"),
)

host = Table(
    "host",
    metadata,
    column("id", TEXT, primary_key=True),
    column("cpu", TEXT),
    column("cores", within(POSITIVE, WHOLE)),
    column("system", TEXT),
)

campaign = Table(
    "campaign",
    metadata,
    column("id", TEXT, primary_key=True),
    column("board", TEXT),
    column("device", TEXT, index=True),
    column("host", TEXT, ForeignKey("host.id")),
    column("started_at", TEXT),
    column("environment", OBJECT),
    column("settings", OBJECT),
    column("calibration", CALIBRATION),
    column("source_id", WHOLE, ForeignKey("source.id", ondelete="SET NULL"), nullable=True),
    ForeignKeyConstraint(["board", "device"], ["board.uuid", "board.device"]),
    Index(None, "board"),
)

board_calibration = Table(
    "board_calibration",
    metadata,
    column("id", TEXT, primary_key=True),
    column("board", TEXT),
    column("device", TEXT),
    column("driver", TEXT, nullable=True),
    column("power_limit_w", within(POSITIVE), nullable=True),
    column("measured_at", TEXT),
    column("environment", OBJECT),
    column("cost_s", within(NOT_NEGATIVE)),
    column("facts", FACTS),
    column("tests", METER_TESTS),
    column("notes", WORDS),
    ForeignKeyConstraint(["board", "device"], ["board.uuid", "board.device"]),
    Index(None, "board"),
)

# Hardware counters of one call: the metrics of its kernels, raw.
profile = Table(
    "profile",
    metadata,
    column("id", TEXT, primary_key=True),
    column("board", TEXT),
    column("device", TEXT),
    column("configuration_id", WHOLE, ForeignKey("configuration.id"), index=True),
    column("setting", TEXT),
    column("measured_at", TEXT),
    column("environment", OBJECT),
    column("definition", DEFINITION),
    column("counts", KERNEL_COUNTS),
    ForeignKeyConstraint(["board", "device"], ["board.uuid", "board.device"]),
    Index(None, "device"),
)

# The estimates that `python -m opdb.estimates` made from a board's costs, as one JSON value.
learned = Table(
    "learned",
    metadata,
    column("board", TEXT, primary_key=True),
    column("device", TEXT),
    column("trained_at", TEXT),
    column("document", OBJECT),
    # What the measured runs of all boards showed of sums then; NULL where nobody asked.
    column("ratios", RUN_RATIOS, nullable=True),
    ForeignKeyConstraint(["board", "device"], ["board.uuid", "board.device"]),
)

visit = Table(
    "visit",
    metadata,
    column("id", TEXT, primary_key=True),
    column("campaign", TEXT, ForeignKey("campaign.id", ondelete="CASCADE")),
    column("configuration_id", WHOLE, ForeignKey("configuration.id")),
    column("setting", TEXT),
    column("role", one_of(Role)),
    column("outcome", one_of(Outcome)),
    column("reason", TEXT, nullable=True),
    column("started_at", TEXT),
    column("cost_s", within(NOT_NEGATIVE)),
    column("issue", one_of(Literal["graph", "eager"])),
    column("weights", one_of(Weights)),
    column("copies", within(NOT_NEGATIVE, WHOLE)),
    column("stretch", STRETCH, nullable=True),
    column("restore", STRETCH, nullable=True),
    column("kernels", KERNELS, nullable=True),
    column("flags", WORDS),
    column("access", one_of(Access), server_default="model"),
    column("neighbours", NEIGHBOURS, nullable=True),
    column("outputs", one_of(Outputs), nullable=True),
    Index(None, "campaign", "role"),
    # What visits are counted by: beside these columns the raw samples are long.
    Index(
        "ix_visit_counted",
        *("configuration_id", "campaign", "setting", "role", "access", "weights", "outcome"),
        "flags",
    ),
)

# Claims on work: a task of a list (`scope`), the worker's process, and the moment (Unix
# time) from which anybody may take it over; see `opdb.store.claims`.
claim = Table(
    "claim",
    metadata,
    column("scope", TEXT),
    column("task", TEXT),
    column("worker", TEXT),
    column("board", TEXT),
    column("until_s", NUMBER),
    PrimaryKeyConstraint("scope", "task"),
    sqlite_with_rowid=False,
)

host_visit = Table(
    "host_visit",
    metadata,
    column("id", TEXT, primary_key=True),
    column("campaign", TEXT, ForeignKey("campaign.id", ondelete="CASCADE")),
    column("configuration_id", WHOLE, ForeignKey("configuration.id"), index=True),
    column("form", one_of(Form)),
    column("started_at", TEXT),
    column("times", TIMES),
    column("flags", WORDS),
    Index(None, "campaign"),
)

model_run = Table(
    "model_run",
    metadata,
    column("id", TEXT, primary_key=True),
    column("campaign", TEXT, ForeignKey("campaign.id", ondelete="CASCADE")),
    column("workload_id", WHOLE, ForeignKey("workload.id"), index=True),
    column("mode", one_of(Mode)),
    column("outcome", one_of(Outcome)),
    column("reason", TEXT, nullable=True),
    column("started_at", TEXT),
    column("cost_s", within(NOT_NEGATIVE)),
    column("repeats", STRETCHES),
    column("peak_memory_bytes", within(POSITIVE, BYTES), nullable=True),
    column("kernels", KERNELS, nullable=True),
    column("layers", LAYERS, nullable=True),
    column("flags", WORDS),
    # The backend's settings beyond those of the campaign.
    column("setting", OBJECT, server_default=USUAL),
    column("facts", OBJECT, server_default="{}"),
    Index(None, "campaign"),
)


cost = Table(
    "cost",
    metadata,
    column("board", TEXT),
    column("configuration_id", WHOLE, ForeignKey("configuration.id"), index=True),
    column("setting", TEXT),
    column("estimator", TEXT),
    column("visits", WHOLE),
    column("kernels", WHOLE, nullable=True),
    *(
        column(f"{quantity}_{part}", WHOLE if part == "count" else NUMBER, nullable=True)
        for quantity in QUANTITIES
        for part in QUANTITY_PARTS
    ),
    column("host_time_s", HOST_TIMES),
    column("clock_hz", NUMBER, nullable=True),
    column("limited", OPERATING_POINT, nullable=True),
    column("reasons", OBJECT),
    column("flags", WORDS),
    column("hot", OPERATING_POINT, nullable=True),
    column("after_others", AFTER_OTHERS, nullable=True),
    PrimaryKeyConstraint("board", "configuration_id", "setting", "estimator"),
)


def outside(table: Table) -> dict[str, Column[Any]]:
    """Return the columns that records and sets have, by their names there, in order."""
    return {
        REFERENCES.get(each.name, each.name): each
        for each in table.columns
        if each.name not in (*INSIDE, "sequence") and (each.name != "id" or field_of(each) is TEXT)
    }
