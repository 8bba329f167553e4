"""Run by Alembic: hands it the connection of `opdb.store.migrate`."""

from __future__ import annotations

from alembic import context

context.configure(connection=context.config.attributes["connection"])
context.run_migrations()
