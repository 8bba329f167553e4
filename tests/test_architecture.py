"""The direction of imports: a part of opdb imports what the table allows, and all that lies lower.

Every import counts, those inside functions and those for types too.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

import opdb
from tests import published

ROOT = Path(__file__).parents[1]

# The rooms from the ground up: each imports only itself and what stands before it.
ORDER = """
errors packaging processes records units progress files tables
capturing algorithms kinds growth memory meters checkpoints spec
models summary_files operators.encoding operators.call
compiled operators grid derive store runs workers harvest doctor
bench estimates predict plan cli commands studies opdb
derive.__main__ estimates.__main__ __main__
""".split()  # noqa: SIM905 (one name a line would fill a page)

# Each package from outside, and the rooms that import it. The rest is standard library.
OUTSIDE: dict[str, tuple[str, ...]] = {
    "torch": (
        *("algorithms", "bench", "capturing", "compiled", "doctor", "grid", "harvest", "models"),
        *("operators", "operators.call", "operators.encoding", "studies", "workers"),
    ),
    "triton": ("algorithms",),
    "timm": ("models",),
    "torchvision": ("models", "operators", "bench"),
    "PIL": ("bench",),
    "transformers": ("models",),
    "huggingface_hub": ("models",),
    "cuda": ("bench",),
    "pynvml": ("meters",),
    "nvitop": ("meters",),
    "psutil": ("doctor", "store"),
    "submitit": ("workers",),
    "pandas": ("tables",),
    "sqlalchemy": ("store",),
    "yaml": ("summary_files", "grid"),
    "numpy": ("plan", "estimates"),
    "scipy": ("plan", "estimates"),
    "matplotlib": ("commands", "studies"),
    "typer": ("cli", "commands", "studies", "derive.__main__", "estimates.__main__"),
    "rich": ("tables",),
}

COMPOSING = [f"predict.{name}" for name in ("timeline", "sizes", "compose", "generation")]
PURE = {
    "derive": ("records",),
    **dict.fromkeys(
        COMPOSING,
        (*COMPOSING, "derive", "errors", "growth", "kinds", "memory", "records", "units"),
    ),
}
"""Rooms and modules without torch, database or files, and all that they import of opdb."""

HEAVY = {"torch", "torchvision", "transformers", "scipy", "numpy", "matplotlib"}


def module_name(path: Path) -> str:
    """Return a file's module without the leading `opdb.`; the package itself is "opdb"."""
    parts = path.relative_to(ROOT / "opdb").with_suffix("").parts
    parts = parts[:-1] if parts[-1] == "__init__" else parts
    return ".".join(parts) or "opdb"


MODULES = {module_name(path): path for path in sorted((ROOT / "opdb").rglob("*.py"))}


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}, line {node.lineno}: a relative import"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner.removeprefix("opdb.") in MODULES else str(node.module)


def room_of(module: str) -> str:
    two = ".".join(module.split(".")[:2])  # the old home of commands lies above the framework
    return two if two in ORDER else module.split(".")[0]


def test_imports_run_one_way() -> None:
    assert {room_of(module) for module in MODULES} == set(ORDER)
    wrong = [
        f"{module} imports {imported}"
        for module, path in MODULES.items()
        for imported in imports(path)
        if not is_allowed(module, imported)
    ]
    assert not wrong, "\n".join(wrong)


def is_allowed(module: str, imported: str) -> bool:
    room, outermost = room_of(module), imported.split(".")[0]
    if imported == "opdb":
        return True  # for its version: see below
    if outermost == "opdb":
        inner = imported.removeprefix("opdb.")
        if module in PURE:
            return inner in PURE[module] or room_of(inner) in PURE[module]
        inner = room_of(inner)
        return inner == room or inner in PURE.get(room, tuple(ORDER[: ORDER.index(room)]))
    return outermost in sys.stdlib_module_names or room in OUTSIDE.get(outermost, ())


IMPORTS = """
import json, sys
from opdb.cli import main
for command, *heavy in json.loads(sys.argv[1]):
    run, words = None, command.split()
    if words[0] == "derive":
        from opdb.derive.__main__ import run
        del words[0]
    assert main(words, run=run) == 0, command
    found = set(heavy) & {name.split(".")[0] for name in sys.modules}
    assert not found, f"{command}: {found}"
"""

COMMANDS = """
predict resnet152 --batch-size 32 --target 0.9 --db {published}
trace resnet152 --batch-size 32 --output /dev/null --db {published}
validate --db {published}
roofline resnet152 --batch-size 32 --db {published}
show --db {published}
import {set} --db {own}
export {own}-set --db {own}
"""


def test_what_reads_a_database_or_a_set_imports_nothing_heavy(tmp_path: Path) -> None:
    lists = [("--help", *HEAVY, "sqlalchemy", "rich"), ("show models", *HEAVY, "sqlalchemy")]
    lists.append(("show kinds", *HEAVY, "sqlalchemy"))
    names = {"published": published.database(), "own": tmp_path / "own.sqlite"}
    names["set"] = published.SET.with_name("nvidia-h200-held-out")
    commands = [(line.format(**names), *HEAVY) for line in COMMANDS.strip().splitlines()]
    program = [sys.executable, "-c", IMPORTS, json.dumps([*lists, *commands])]
    done = subprocess.run(program, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


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


@pytest.mark.parametrize("first", ["import opdb.predict.figures", ""])
def test_a_verb_is_a_function_whatever_was_imported_before(first: str) -> None:
    """A room of the package may have its name: both are found, and no name loads torch."""
    program = f"""
import opdb
{first}
from opdb import *
from opdb.predict.predictor import Predictor
import opdb.predict.predictor
import opdb.summary_files
import sys
assert callable(opdb.predict) and opdb.predict.__name__ == "predict"
assert sys.modules["opdb.predict.predictor"].Predictor is Predictor is opdb.Predictor
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
