"""The store: records in, records out, each save a transaction of its own."""

from __future__ import annotations

from opdb.store.boards import Boards
from opdb.store.costs import Costs
from opdb.store.model_runs import ModelRuns
from opdb.store.pending import Pending
from opdb.store.visits import Visits
from opdb.store.workloads import Workloads


class Store(Workloads, Boards, Pending, Visits, ModelRuns, Costs):
    """An open database. Every save is one transaction, and safe once the method has returned.

    Each class that it is made of holds one subject.
    """
