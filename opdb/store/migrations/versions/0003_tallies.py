"""Visits counted by sort, and what a pass of each workload touches: pending without the visits."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_SORT = ("setting", "role", "access", "weights", "outcome")

_COUNTED = """
INSERT INTO tally
SELECT c.device, v.configuration_id, c.board, v.setting, v.role, v.access, v.weights, v.outcome,
    v.rejected, count(*)
FROM (SELECT visit.*, {rejected} AS rejected FROM visit) v
JOIN campaign c ON c.id = v.campaign
GROUP BY c.device, v.configuration_id, c.board, v.setting, v.role, v.access, v.weights, v.outcome,
    v.rejected
"""

_REJECTED = {
    # The words between `"rejected: ` and the next quotation mark; none holds one itself.
    "sqlite": """CASE WHEN instr(flags, '"rejected: ') = 0 THEN '' ELSE substr(
        substr(flags, instr(flags, '"rejected: ') + 11), 1,
        instr(substr(flags, instr(flags, '"rejected: ') + 11), '"') - 1) END""",
    "postgresql": "coalesce(substring(flags from '\"rejected: ([^\"]*)\"'), '')",
}
"""Why a visit was rejected, empty where it was not, from its flags, a JSON list of strings."""


def upgrade() -> None:
    op.add_column("workload", sa.Column("touched_bytes", sa.BigInteger(), nullable=True))
    op.drop_index(
        op.f("ix_visit_campaign_visit_role_visit_configuration_id_visit_setting_visit_outcome"),
        table_name="visit",
    )
    op.create_index(op.f("ix_visit_campaign_visit_role"), "visit", ["campaign", "role"])
    op.create_table(
        "tally",
        sa.Column("device", sa.Text(), nullable=False),
        sa.Column("configuration_id", sa.Integer(), nullable=False),
        sa.Column("board", sa.Text(), nullable=False),
        *(sa.Column(name, sa.Text(), nullable=False) for name in _SORT),
        sa.Column("rejected", sa.Text(), nullable=False),
        sa.Column("visits", sa.Integer(), nullable=False),
        sa.ForeignKeyConstraint(
            ["board", "device"],
            ["board.uuid", "board.device"],
            name=op.f("fk_tally_board_board"),
        ),
        sa.ForeignKeyConstraint(
            ["configuration_id"],
            ["configuration.id"],
            name=op.f("fk_tally_configuration_id_configuration"),
        ),
        sa.PrimaryKeyConstraint(
            "device", "configuration_id", "board", *_SORT, "rejected", name=op.f("pk_tally")
        ),
        sqlite_with_rowid=False,
    )
    op.execute(_COUNTED.format(rejected=_REJECTED[op.get_context().dialect.name]))
