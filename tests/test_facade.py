from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import FunctionType

import pytest

import opdb

ROOT = Path(__file__).parents[1]
VERBS = (
    "annotate",
    "bench",
    "build",
    "compare",
    "export",
    "generate",
    "harvest",
    "load",
    "measure",
    "plan",
    "predict",
    "report",
    "show",
    "trace",
    "validate",
)


def test_every_name_comes_from_where_types_say() -> None:
    tree = ast.parse(Path(opdb.__file__).read_text())
    typed = {
        alias.name: node.module
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("opdb.")
        for alias in node.names
    }
    assert set(opdb.__all__) == {*typed, "__version__"}
    for name, module in typed.items():
        assert getattr(opdb, name) is getattr(import_module(str(module)), name)
    assert set(dir(opdb)) == set(opdb.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Predictr'"):
        getattr(opdb, "Predictr")  # noqa: B009  (a type checker would refuse the attribute)


def test_no_name_but_a_verb_is_that_of_a_module_or_loads_torch() -> None:
    assert all(isinstance(getattr(opdb, name), FunctionType) for name in VERBS)
    modules = {path.stem for path in (ROOT / "opdb").iterdir()}
    assert not modules & set(opdb.__all__) - set(VERBS)
    program = "import sys; from opdb import *; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("first", ["import opdb.predict.figures", ""])
def test_a_verb_is_a_function_whatever_was_imported_before(first: str) -> None:
    """A room of the package may have its name: both are found."""
    program = f"""
import opdb
{first}
from opdb.predict.predictor import Predictor
import opdb.predict.peers
import sys
assert callable(opdb.predict) and opdb.predict.__name__ == "predict"
assert sys.modules["opdb.predict.predictor"].Predictor is Predictor is opdb.Predictor
"""
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("name", opdb.__all__)
def test_every_name_is_documented(name: str) -> None:
    assert name == "__version__" or getattr(opdb, name).__doc__
