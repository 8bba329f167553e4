"""The database: what was harvested, measured and derived.

`open_store` opens it, `Store` reads and writes records, `exchange` publishes and imports sets.
"""

from opdb.store.claims import Claims
from opdb.store.database import checkout_database, default_url
from opdb.store.opening import how_to_fill, is_default, open_store, published_devices, take_in
from opdb.store.rows import Failure, HostSeen, Spent
from opdb.store.store import MeasuredWorkload, RunState, Store
from opdb.store.visits import (
    ConfigurationFilter,
    Head,
    Standing,
    Touched,
    VisitFilter,
)

__all__ = [
    "Claims",
    "ConfigurationFilter",
    "Failure",
    "Head",
    "HostSeen",
    "MeasuredWorkload",
    "RunState",
    "Spent",
    "Standing",
    "Store",
    "Touched",
    "VisitFilter",
    "checkout_database",
    "default_url",
    "how_to_fill",
    "is_default",
    "open_store",
    "published_devices",
    "take_in",
]
