"""The notebook of docs/ runs from the first cell to the last, in a real kernel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests import published
from tests.paths import python_path

pytestmark = pytest.mark.slow

NOTEBOOK = Path(__file__).parents[1] / "docs" / "tutorial.ipynb"


def test_every_cell_runs_and_shows_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import nbformat  # takes seconds, which one worker shall spend, not each that collects tests
    from nbclient import NotebookClient

    monkeypatch.setenv("OPDB_DB", str(published.default_database()))
    monkeypatch.setenv("PYTHONPATH", python_path())
    notebook: Any = nbformat.read(NOTEBOOK, as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs for cell in cells), "outputs are not committed"
    place = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=300, resources=place).execute()
    shown = [[kind for out in cell.outputs for kind in out.get("data", {})] for cell in cells]
    tables = [cell for cell, kinds in zip(cells, shown, strict=True) if "text/html" in kinds]
    assert [cell.source.splitlines()[-1] for cell in tables] == [
        "found", "both", 'opdb.show("softmax", top=10)'
    ]  # fmt: skip
    assert sum("image/png" in kinds for kinds in shown) == 2, "what pandas draws"
    assert not [out for cell in cells for out in cell.outputs if out.output_type == "stream"]
