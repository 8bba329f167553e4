"""Every table of the first version."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    _create_source()
    _create_configuration()
    _create_workload()
    _create_call()
    _create_device()
    _create_board()
    _create_host()
    _create_campaign()
    _create_visit()
    _create_host_visit()
    _create_model_run()
    _create_cost()


def _create_source() -> None:
    op.create_table(
        "source",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_source")),
        sa.UniqueConstraint("name", name=op.f("uq_source_name")),
    )


def _create_configuration() -> None:
    op.create_table(
        "configuration",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("json", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_configuration")),
        sa.UniqueConstraint("key", name=op.f("uq_configuration_key")),
    )
    op.create_index(op.f("ix_configuration_kind"), "configuration", ["kind"], unique=False)


def _create_workload() -> None:
    op.create_table(
        "workload",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("source_version", sa.Text(), nullable=False),
        sa.Column("batch_size", sa.Integer(), nullable=False),
        sa.Column("dtype", sa.Text(), nullable=False),
        sa.Column("memory_format", sa.Text(), nullable=False),
        sa.Column("phase", sa.Text(), nullable=False),
        sa.Column("gradient", sa.Boolean(), nullable=False),
        sa.Column("autocast", sa.Text(), nullable=True),
        sa.Column("inputs", sa.Text(), nullable=False),
        sa.Column("containers", sa.Integer(), nullable=False),
        sa.Column("foreign_leaves", sa.Text(), nullable=False),
        sa.Column("unsupported", sa.Text(), nullable=False),
        sa.Column("source_id", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(
            ["source_id"],
            ["source.id"],
            name=op.f("fk_workload_source_id_source"),
            ondelete="SET NULL",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workload")),
        sa.UniqueConstraint("key", name=op.f("uq_workload_key")),
    )
    op.create_index(op.f("ix_workload_name"), "workload", ["name"], unique=False)


def _create_call() -> None:
    op.create_table(
        "call",
        sa.Column("workload_id", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("configuration_id", sa.Integer(), nullable=False),
        sa.Column("form", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["configuration_id"],
            ["configuration.id"],
            name=op.f("fk_call_configuration_id_configuration"),
        ),
        sa.ForeignKeyConstraint(
            ["workload_id"],
            ["workload.id"],
            name=op.f("fk_call_workload_id_workload"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("workload_id", "position", name=op.f("pk_call")),
        sqlite_with_rowid=False,
    )
    op.create_index(op.f("ix_call_configuration_id"), "call", ["configuration_id"], unique=False)


def _create_device() -> None:
    op.create_table(
        "device",
        sa.Column("slug", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("power_limit_w", sa.Float(), nullable=True),
        sa.Column("memory_bytes", sa.BigInteger(), nullable=True),
        sa.Column("l2_bytes", sa.BigInteger(), nullable=True),
        sa.Column("max_clock_hz", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("slug", name=op.f("pk_device")),
    )


def _create_board() -> None:
    op.create_table(
        "board",
        sa.Column("uuid", sa.Text(), nullable=False),
        sa.Column("device", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(["device"], ["device.slug"], name=op.f("fk_board_device_device")),
        sa.PrimaryKeyConstraint("uuid", "device", name=op.f("pk_board")),
    )
    op.create_index(op.f("ix_board_device"), "board", ["device"], unique=False)


def _create_host() -> None:
    op.create_table(
        "host",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("cpu", sa.Text(), nullable=False),
        sa.Column("cores", sa.Integer(), nullable=False),
        sa.Column("system", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_host")),
    )


def _create_campaign() -> None:
    op.create_table(
        "campaign",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("board", sa.Text(), nullable=False),
        sa.Column("device", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("started_at", sa.Text(), nullable=False),
        sa.Column("environment", sa.Text(), nullable=False),
        sa.Column("settings", sa.Text(), nullable=False),
        sa.Column("calibration", sa.Text(), nullable=False),
        sa.Column("source_id", sa.Integer(), nullable=True),
        sa.ForeignKeyConstraint(
            ["board", "device"],
            ["board.uuid", "board.device"],
            name=op.f("fk_campaign_board_device_board"),
        ),
        sa.ForeignKeyConstraint(["host"], ["host.id"], name=op.f("fk_campaign_host_host")),
        sa.ForeignKeyConstraint(
            ["source_id"],
            ["source.id"],
            name=op.f("fk_campaign_source_id_source"),
            ondelete="SET NULL",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_campaign")),
    )
    op.create_index(op.f("ix_campaign_board"), "campaign", ["board"], unique=False)
    op.create_index(op.f("ix_campaign_device"), "campaign", ["device"], unique=False)


def _create_visit() -> None:
    op.create_table(
        "visit",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("campaign", sa.Text(), nullable=False),
        sa.Column("configuration_id", sa.Integer(), nullable=False),
        sa.Column("setting", sa.Text(), nullable=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("started_at", sa.Text(), nullable=False),
        sa.Column("cost_s", sa.Float(), nullable=False),
        sa.Column("issue", sa.Text(), nullable=False),
        sa.Column("weights", sa.Text(), nullable=False),
        sa.Column("copies", sa.Integer(), nullable=False),
        sa.Column("stretch", sa.Text(), nullable=True),
        sa.Column("restore", sa.Text(), nullable=True),
        sa.Column("kernels", sa.Text(), nullable=True),
        sa.Column("flags", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["campaign"],
            ["campaign.id"],
            name=op.f("fk_visit_campaign_campaign"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["configuration_id"],
            ["configuration.id"],
            name=op.f("fk_visit_configuration_id_configuration"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_visit")),
    )
    op.create_index(
        op.f("ix_visit_campaign_visit_role_visit_configuration_id_visit_setting_visit_outcome"),
        "visit",
        ["campaign", "role", "configuration_id", "setting", "outcome"],
        unique=False,
    )
    op.create_index(op.f("ix_visit_configuration_id"), "visit", ["configuration_id"], unique=False)


def _create_host_visit() -> None:
    op.create_table(
        "host_visit",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("campaign", sa.Text(), nullable=False),
        sa.Column("configuration_id", sa.Integer(), nullable=False),
        sa.Column("form", sa.Text(), nullable=False),
        sa.Column("started_at", sa.Text(), nullable=False),
        sa.Column("times", sa.Text(), nullable=False),
        sa.Column("flags", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["campaign"],
            ["campaign.id"],
            name=op.f("fk_host_visit_campaign_campaign"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["configuration_id"],
            ["configuration.id"],
            name=op.f("fk_host_visit_configuration_id_configuration"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_host_visit")),
    )
    op.create_index(op.f("ix_host_visit_campaign"), "host_visit", ["campaign"], unique=False)
    op.create_index(
        op.f("ix_host_visit_configuration_id"), "host_visit", ["configuration_id"], unique=False
    )


def _create_model_run() -> None:
    op.create_table(
        "model_run",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("campaign", sa.Text(), nullable=False),
        sa.Column("workload_id", sa.Integer(), nullable=False),
        sa.Column("mode", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("started_at", sa.Text(), nullable=False),
        sa.Column("cost_s", sa.Float(), nullable=False),
        sa.Column("repeats", sa.Text(), nullable=False),
        sa.Column("peak_memory_bytes", sa.BigInteger(), nullable=True),
        sa.Column("kernels", sa.Text(), nullable=True),
        sa.Column("layers", sa.Text(), nullable=True),
        sa.Column("flags", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["campaign"],
            ["campaign.id"],
            name=op.f("fk_model_run_campaign_campaign"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["workload_id"], ["workload.id"], name=op.f("fk_model_run_workload_id_workload")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_model_run")),
    )
    op.create_index(op.f("ix_model_run_campaign"), "model_run", ["campaign"], unique=False)
    op.create_index(op.f("ix_model_run_workload_id"), "model_run", ["workload_id"], unique=False)


def _create_cost() -> None:
    op.create_table(
        "cost",
        sa.Column("board", sa.Text(), nullable=False),
        sa.Column("configuration_id", sa.Integer(), nullable=False),
        sa.Column("setting", sa.Text(), nullable=False),
        sa.Column("estimator", sa.Text(), nullable=False),
        sa.Column("visits", sa.Integer(), nullable=False),
        sa.Column("kernels", sa.Integer(), nullable=True),
        *[
            sa.Column(f"{quantity}_{part}", sa.Integer() if part == "count" else sa.Float())
            for quantity in ("time_s", "eager_time_s", "power_w", "energy_j", "dynamic_energy_j")
            for part in ("median", "mean", "low", "high", "count")
        ],
        sa.Column("host_time_s", sa.Text(), nullable=False),
        sa.Column("clock_hz", sa.Float(), nullable=True),
        sa.Column("limited", sa.Text(), nullable=True),
        sa.Column("reasons", sa.Text(), nullable=False),
        sa.Column("flags", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["configuration_id"],
            ["configuration.id"],
            name=op.f("fk_cost_configuration_id_configuration"),
        ),
        sa.PrimaryKeyConstraint(
            "board", "configuration_id", "setting", "estimator", name=op.f("pk_cost")
        ),
    )
    op.create_index(op.f("ix_cost_configuration_id"), "cost", ["configuration_id"], unique=False)
