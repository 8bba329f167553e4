"""Figures of matplotlib, which is imported when one is drawn, and saved the same every time."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from opdb.distribution import install
from opdb.errors import InputError

DPI = 120


@dataclass(frozen=True)
class Drawing:
    """A drawn figure: SVG text, PNG bytes, and what each mark shows, by its id in the SVG."""

    svg: str
    png: bytes
    marks: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def _repr_svg_(self) -> str:
        """Return the figure as a notebook shows it."""
        return self.svg

    @classmethod
    def of(cls, figure: Any, marks: Mapping[str, Mapping[str, str]] | None = None) -> Drawing:
        """Return a figure of matplotlib as it is saved: the same bytes every time."""
        svg, png = io.StringIO(), io.BytesIO()
        figure.savefig(svg, format="svg", metadata={"Date": None})
        figure.savefig(png, format="png", dpi=DPI, metadata={"Software": None})
        return cls(svg.getvalue(), png.getvalue(), marks or {})


@contextmanager
def new_figure(width_in: float, height_in: float, *, font_size: float) -> Iterator[Any]:
    """Yield an empty figure of matplotlib, to be drawn and saved inside the block.

    Raises:
        InputError: matplotlib is not installed.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InputError(
            f"a figure needs matplotlib, which is not installed; {install('plots')}"
        ) from error
    settings: Any = {"svg.fonttype": "none", "svg.hashsalt": "opdb", "font.size": font_size}
    with matplotlib.rc_context(settings):
        yield Figure(figsize=(width_in, height_in), layout="constrained")
