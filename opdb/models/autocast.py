"""Autocast inside a model: it casts on the device itself, and cannot be seen on another."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.amp.autocast_mode import autocast

from opdb.errors import UnsupportedError


@contextmanager
def autocast_refused(model: str) -> Iterator[None]:
    """Refuse a model that enters autocast by itself, until the block ends.

    Without a GPU torch switches autocast for CUDA off as soon as it is made, and says so in a
    warning alone: so it is refused where it is made. A context made earlier is refused where it is
    entered. Blocks of several threads must not overlap: the class itself is changed.

    Raises:
        UnsupportedError: inside the block, where autocast is switched on.
    """
    made, entered = autocast.__init__, autocast.__enter__

    def init(
        self: Any,
        device_type: str,
        dtype: Any = None,
        enabled: bool = True,
        *rest: Any,
        **named: Any,
    ) -> None:
        _check(model, enabled)
        made(self, device_type, dtype, enabled, *rest, **named)

    def enter(self: Any) -> Any:
        _check(model, self._enabled)
        return entered(self)  # type: ignore[no-untyped-call]

    autocast.__init__, autocast.__enter__ = init, enter  # type: ignore[method-assign]
    try:
        yield
    finally:
        autocast.__init__, autocast.__enter__ = made, entered  # type: ignore[method-assign]


def _check(model: str, enabled: bool) -> None:
    if enabled:
        raise UnsupportedError(
            f"{model!r} enters autocast by itself and cannot be harvested: autocast casts on the "
            "device itself; take it out, and give the dtype instead"
        )
