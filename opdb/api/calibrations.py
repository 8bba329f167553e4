"""Test the power meters of a GPU, and measure what its board reaches at most."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from opdb.errors import CannotMeasureError

if TYPE_CHECKING:
    from opdb.records import BoardCalibration


def calibrate(
    device: str | None = None,
    *,
    again: bool = False,
    db: str | None = None,
    tell: Callable[[str], None] = lambda text: None,
) -> BoardCalibration:
    """Return the calibration of this GPU's board; make and store it where there is none.

    `device` is cuda or cuda:N, and `again` makes a new one. `tell` is given what is being done.

    Raises:
        CannotMeasureError: this is not an NVIDIA GPU, or it stopped answering.
        DatabaseError: the calibration cannot be saved.
    """
    from opdb.bench.board import ensure_board_calibration
    from opdb.bench.platform import detect, open_meter
    from opdb.bench.session import open_session
    from opdb.store import open_store

    platform = detect(device)
    if platform.device.type != "cuda":
        raise CannotMeasureError(
            f"{platform.device.name} has no meters that opdb tests; run opdb calibrate on a "
            "machine with an NVIDIA GPU"
        )
    meter = open_meter(platform)
    try:
        with open_store(db) as store:
            session = open_session(platform, meter)
            found = ensure_board_calibration(session, store, again=again, tell=tell)
    finally:
        meter.close()
    assert found is not None  # the device is a GPU
    return found
