"""`opdb data`: the sets of measurements, from where, under which licence, how old."""

from __future__ import annotations

from opdb.api.data import data
from opdb.cli.support import options
from opdb.cli.support.console import show


def run(
    db: options.Db = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Show which sets of measurements there are, from where, under which licence, how old.

    A set came with the installed opdb (wheel), with the clone that opdb runs from (clone), or by
    opdb import (import); what was measured into this database itself is the last row (here).
    Predictions rest on costs; a wheel leaves most raw samples out, which only opdb derive and
    opdb export need.
    """
    show(data(db=db), as_json=as_json)
