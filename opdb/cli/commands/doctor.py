"""`opdb doctor`: what is fine on this machine for measuring, what is not, and what to do."""

from __future__ import annotations

from opdb.cli.support import options
from opdb.cli.support.console import show


def run(
    db: options.Db = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Check what measuring needs: GPU, driver, meters, torch, tools, database, disk.

    Nothing is changed, and no work is given to the GPU. Exit status 1 if something keeps a GPU from
    being measured; notes do not count.
    """
    from opdb.doctor import diagnose

    diagnosis = diagnose(db)
    show(diagnosis, as_json=as_json)
    diagnosis.check()
