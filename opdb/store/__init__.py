"""The database: what was harvested, measured and derived.

`open_store` opens it, `Store` reads and writes records, `sets` publishes and imports sets.
"""

from opdb.store.claims import Claims
from opdb.store.database import checkout_database, default_url
from opdb.store.opening import how_to_fill, is_default, open_store, published_devices, take_in
from opdb.store.rows import Failure
from opdb.store.store import MeasuredWorkload, RunState, Store
from opdb.store.visits import Head, Standing, usual_host_s

__all__ = [
    "Claims",
    "Failure",
    "Head",
    "MeasuredWorkload",
    "RunState",
    "Standing",
    "Store",
    "checkout_database",
    "default_url",
    "how_to_fill",
    "is_default",
    "open_store",
    "published_devices",
    "take_in",
    "usual_host_s",
]
