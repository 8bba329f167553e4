"""Bring an older database up to date; the only place that imports Alembic."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Engine

from opdb.store.database import written_alone

MIGRATIONS = Path(__file__).parent / "migrations"


def upgrade(engine: Engine, revision: str = "head") -> None:
    """Run the migrations up to a revision, all in one transaction."""
    with written_alone(engine) as connection:
        command.upgrade(_config(connection), revision)


def _config(connection: object) -> Config:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config
