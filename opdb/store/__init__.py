"""The database: what was harvested, measured and derived.

`open_store` opens it, `Store` reads and writes records, `exchange` publishes and imports sets.
"""

from opdb.store.claims import Claims
from opdb.store.database import default_url
from opdb.store.opening import open_store
from opdb.store.pending import Among, Lack, Sort, Touched
from opdb.store.reading import Failure, HostSeen, Measured, RunState, Spent
from opdb.store.standing import Head, Standing
from opdb.store.store import Store

__all__ = [
    "Among",
    "Claims",
    "Failure",
    "Head",
    "HostSeen",
    "Lack",
    "Measured",
    "RunState",
    "Sort",
    "Spent",
    "Standing",
    "Store",
    "Touched",
    "default_url",
    "open_store",
]
