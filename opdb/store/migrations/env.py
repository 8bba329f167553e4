"""Run by Alembic: hands it the connection of `opdb.store.migrate` and the tables."""

from __future__ import annotations

from alembic import context

from opdb.store.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,  # SQLite alters a table by copying it
)
context.run_migrations()
