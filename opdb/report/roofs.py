"""The rooflines of a report: the models that one board ran most, under that board's peaks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from opdb.predict import PLAIN_MODES, Answer, Predictor
from opdb.records import Json, Mode, Workload
from opdb.store import Store
from opdb.studies.accuracy import is_whole
from opdb.studies.points import ModelRoofline
from opdb.studies.roofline import RoofOptions, Study, study
from opdb.studies.roofline_report import OPERATORS, PEAKS, Placed, title_of
from opdb.tables import Column, Table

_UNITS = {
    "intensity": "number",
    "flops_per_s": "FLOP/s",
    "bytes_per_s": "B/s",
    "flops_per_j": "FLOP/J",
}


def _as_value(column: Column[Placed]) -> Column[Placed]:
    """Return a column that a page can show from its value alone."""
    get: Any = column.text if column.name is None and column.text else column.get
    name = column.name or column.title
    return replace(column, name=name, get=get, text=None, unit=_UNITS.get(name or "", column.unit))


POINTS: Table[Placed] = Table(
    *(_as_value(column) for column in OPERATORS.columns if column.title is not None)
)
"""An operator under its roofs, as `opdb roofline` shows it; each column is a value."""


@dataclass(frozen=True)
class Roofs:
    """Workloads under the roofs of one board, in one mode."""

    study: Study

    @property
    def titles(self) -> list[str]:
        """The title of each model for readers."""
        return [title_of(model) for model in self.study.models]

    @property
    def document(self) -> Json:
        """The peaks, and each model's operators that give the device work."""
        found = self.study
        return {
            "device": found.device,
            "board": found.board,
            "mode": found.mode,
            "measured": PEAKS.document(found.measured),
            "vendor": PEAKS.document(found.vendor),
            "models": [self._model(model) for model in found.models],
            "notes": [*found.notes, *found.vendor.notes],
        }

    def _model(self, model: ModelRoofline) -> Json:
        placed = [Placed(self.study, model, point) for point in model.points if point.works]
        return {
            "title": title_of(model),
            "flops": model.flops,
            "bytes": model.bytes_moved,
            "intensity": model.intensity,
            "flops_per_s": model.flops_per_s,
            "flops_per_j": model.flops_per_j,
            "points": [list(POINTS.document(row).values()) for row in placed],
        }


def roofs(store: Store, predictor: Predictor, answers: Sequence[Answer]) -> Roofs | None:
    """Place the workloads that one board ran under its roofs; None where no board ran any whole.

    It is the board and mode with the most runs whose operators are all measured; CUDA graphs come
    before eager runs, because they do not wait for the host.
    """
    ran: dict[tuple[Mode, str], dict[str, Workload]] = {}
    for answer in answers:
        found = answer.prediction
        if found.mode in PLAIN_MODES and is_whole(answer) and found.time_s is not None:
            ran.setdefault((found.mode, found.board), {})[found.workload.key] = found.workload
    if not ran:
        return None
    mode, board = max(ran, key=lambda place: (place[0] == "graph", len(ran[place]), place[1]))
    workloads = list(ran[mode, board].values())
    return Roofs(study(store, predictor, workloads, mode, RoofOptions(board)))
