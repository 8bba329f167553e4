"""A device's measurements as flat tables, for people and tools that do not have opdb.

`flat` makes the tables from a database; `hub` writes them as Parquet with a card, in the form that
data hubs expect, and `browsing` as an SQLite file with views, which Datasette opens.
"""

from opdb.sharing.browsing import write_database
from opdb.sharing.hub import write_parquet

__all__ = ["write_database", "write_parquet"]
