"""The direction of imports: a part of opdb imports what the table allows, and all that lies lower.

Every import counts, those inside functions and those for types too.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# A part, or one module of it, and what it imports of opdb. Only what stands higher may be named.
ALLOWED: dict[str, tuple[str, ...]] = {
    "errors": (),
    "distribution": (),
    "garbage": (),
    "secrets": (),
    "records": (),
    "this_host": ("records",),
    "units": (),
    "layout": (),
    "files": ("errors",),
    "tables": ("errors", "layout", "records", "units"),
    "capturing": (),
    "algorithms": ("capturing", "errors", "records"),
    "kinds": ("errors", "records"),
    "settings": ("kinds", "records"),
    "footprint": ("kinds", "records"),
    "memory": ("footprint", "kinds", "records"),
    "growth": ("records",),
    "meters": ("errors", "records", "units"),
    "counters": ("errors", "records", "settings", "units"),
    "models": ("distribution", "errors", "records"),
    "summary": ("errors", "models", "records"),
    "significance": ("errors", "kinds", "records", "summary"),
    "compile": ("errors",),
    "operators": ("capturing", "compile.inductor", "errors", "kinds", "records"),
    "harvest": (
        "capturing",
        "compile.dynamo",
        "compile.inductor",
        "errors",
        "growth",
        "kinds",
        "models",
        "operators",
        "records",
    ),
    "grid": ("errors", "kinds", "models", "operators", "records", "summary"),
    "derive": ("records",),
    "store": ("derive", "distribution", "errors", "garbage", "records", "secrets"),
    "runs": ("errors", "models", "records", "store"),
    "lookup": (
        "errors",
        "garbage",
        "growth",
        "harvest",
        "models",
        "records",
        "runs",
        "store",
        "summary",
        "tables",
        "units",
    ),
    "doctor": (
        "compile.switches",
        "compile.toolchain",
        "counters",
        "distribution",
        "errors",
        "meters",
        "records",
        "secrets",
        "store",
        "tables",
        "units",
    ),
    "bench": (
        "algorithms",
        "capturing",
        "counters",
        "derive",
        "compile.dynamo",
        "compile.inductor",
        "compile.switches",
        "errors",
        "footprint",
        "garbage",
        "growth",
        "harvest",
        "kinds",
        "lookup",
        "memory",
        "meters",
        "models",
        "operators",
        "records",
        "settings",
        "store",
        "this_host",
        "units",
        "runs",
    ),
    "cluster": (
        "algorithms",
        "bench",
        "distribution",
        "errors",
        "records",
        "store",
        "units",
        "runs",
    ),
    "estimates": ("errors", "kinds", "records", "units"),
    "compose": ("derive", "errors", "footprint", "growth", "kinds", "records", "units"),
    "predict": (
        "compose",
        "derive",
        "errors",
        "estimates",
        "footprint",
        "growth",
        "memory",
        "meters.nvml",
        "models.usual",
        "records",
        "settings",
        "store",
        "units",
    ),
    "trace": (
        "compose",
        "distribution",
        "errors",
        "footprint",
        "kinds",
        "layout",
        "lookup",
        "operators",
        "records",
        "units",
    ),
    "sweep": (
        "algorithms",
        "bench",
        "derive",
        "distribution",
        "errors",
        "files",
        "lookup",
        "meters",
        "models",
        "predict",
        "records",
        "runs",
        "settings",
        "store",
        "tables",
        "units",
    ),
    "matrix": (
        "bench",
        "cluster",
        "derive",
        "distribution",
        "errors",
        "grid.document",
        "lookup",
        "models",
        "records",
        "runs",
        "store",
        "summary",
        "tables",
        "units",
    ),
    "plan": (
        "bench",
        "cluster",
        "compose",
        "derive",
        "errors",
        "growth",
        "models",
        "predict",
        "records",
        "settings",
        "significance",
        "store",
        "units",
        "runs",
    ),
    "learning": (
        "compose",
        "errors",
        "estimates",
        "predict",
        "records",
        "store",
        "tables",
        "units",
    ),
    "studies": (
        "compose",
        "counters",
        "derive",
        "distribution",
        "errors",
        "footprint",
        "harvest",
        "kinds",
        "layout",
        "learning",
        "lookup",
        "models",
        "predict",
        "records",
        "runs",
        "settings",
        "store",
        "summary",
        "tables",
        "units",
    ),
    "report": (
        "compose",
        "derive",
        "layout",
        "lookup",
        "predict",
        "records",
        "store",
        "studies",
        "tables",
        "units",
    ),
    "sharing": (
        "derive",
        "distribution",
        "errors",
        "footprint",
        "kinds",
        "lookup",
        "predict",
        "records",
        "store",
        "studies",
        "tables",
    ),
    "api": (
        "algorithms",
        "bench",
        "cluster",
        "compose",
        "counters",
        "derive",
        "errors",
        "files",
        "garbage",
        "grid",
        "growth",
        "kinds",
        "lookup",
        "matrix",
        "memory",
        "models",
        "plan",
        "predict",
        "records",
        "report",
        "settings",
        "sharing",
        "significance",
        "store",
        "studies",
        "summary",
        "sweep",
        "tables",
        "this_host",
        "trace",
        "units",
        "runs",
    ),
    "opdb": (  # the façade
        "api",
        "compose",
        "errors",
        "lookup.workloads",
        "models",
        "predict",
        "records",
        "store",
    ),
    "cli": (
        "algorithms",
        "api",
        "bench",
        "cluster",
        "counters",
        "distribution",
        "doctor",
        "errors",
        "files",
        "garbage",
        "harvest",
        "kinds",
        "layout",
        "learning",
        "lookup",
        "matrix",
        "models",
        "predict",
        "records",
        "secrets",
        "store",
        "studies",
        "sweep",
        "tables",
        "units",
        "runs",
    ),
    "__main__": ("cli", "garbage"),
}

# Each package from outside, and the modules of opdb that import it. The rest is standard library.
OUTSIDE: dict[str, tuple[str, ...]] = {
    "torch": (
        "algorithms.convolution",
        "algorithms.direct",
        "algorithms.plans",
        "algorithms.swap",
        "algorithms.workspace",
        "capturing",
        "models",
        "operators",
        "harvest",
        "grid.calls",
        "compile.dynamo",
        "compile.inductor",
        "bench",
        "sweep.measuring",
        "sweep.verify",
        "trace.inductor",
        "doctor.machine",
    ),
    "triton": ("algorithms.direct",),
    "torchvision": ("models", "operators", "bench.images"),
    "PIL": ("bench.images",),
    "transformers": ("models.generation", "models.transformers"),
    "huggingface_hub": ("models.transformers",),
    "cuda": ("bench.code", "bench.kernels"),
    "pynvml": ("meters.nvml",),
    "nvitop": ("meters.nvml",),
    "psutil": ("store.claims",),
    "submitit": ("cluster.slurm", "cluster.job"),
    "pandas": ("tables",),
    "sqlalchemy": ("store",),
    "alembic": ("store.migrate", "store.migrations"),
    "pydantic": ("summary", "significance"),
    "pydantic_core": ("summary",),
    "yaml": ("summary", "significance", "grid.document", "sharing.hub"),
    "pyarrow": ("sharing.hub",),
    "chakra": ("trace.chakra",),
    "numpy": (
        "plan.ranking",
        "estimates.document",
        "estimates.process",
        "estimates.estimator",
        "estimates.left_out",
        "estimates.training",
        "estimates.tuning",
    ),
    "scipy": ("plan.ranking", "estimates.tuning"),
    "matplotlib": (
        "matrix.figure",
        "studies.charts",
        "studies.figure",
        "studies.drawing",
        "sweep.figure",
    ),
    "typer": ("cli",),
    "rich": ("cli",),
}

PURE = (
    "errors",
    "records",
    "units",
    "kinds",
    "settings",
    "derive",
    "growth",
    "compose",
    "predict",
    "opdb",
)
"""Parts that import nothing from outside."""

HEAVY = {"torch", "torchvision", "transformers", "scipy", "alembic", "numpy", "matplotlib"}


def module_name(path: Path) -> str:
    """Return a file's module without the leading `opdb.`; the package itself is "opdb"."""
    parts = path.relative_to(ROOT / "opdb").with_suffix("").parts
    parts = parts[:-1] if parts[-1] == "__init__" else parts
    return ".".join(parts) or "opdb"


MODULES = {module_name(path): path for path in sorted((ROOT / "opdb").rglob("*.py"))}


def imports(path: Path) -> Iterator[str]:
    """Yield the full name of every module that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}, line {node.lineno}: a relative import"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner.removeprefix("opdb.") in MODULES else str(node.module)


def is_in(module: str, parts: tuple[str, ...]) -> bool:
    """Return whether a module is one of the parts or lies inside one."""
    return any(module == part or module.startswith(f"{part}.") for part in parts)


def part_of(module: str) -> str:
    return module.split(".")[0]


def test_every_part_has_its_line_and_names_only_what_stands_higher() -> None:
    assert {part_of(module) for module in MODULES} == set(ALLOWED)
    order = list(ALLOWED)
    for part, allowed in ALLOWED.items():
        for name in allowed:
            assert name in MODULES, f"{part} may import {name}, which is not there"
            assert order.index(part_of(name)) < order.index(part), f"{part} imports {name}: a loop"


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_only_what_its_part_may(module: str) -> None:
    part = part_of(module)
    for imported in imports(MODULES[module]):
        inner = imported.removeprefix("opdb.")
        outermost = imported.split(".")[0]
        if imported == "opdb":
            continue  # for its version: see below
        if outermost == "opdb":
            assert is_in(inner, (part, *ALLOWED[part])), f"opdb.{module} imports opdb.{inner}"
        elif outermost not in sys.stdlib_module_names:
            assert outermost in OUTSIDE, f"opdb.{module} imports {imported}: a new dependency"
            assert is_in(module, OUTSIDE[outermost]), f"opdb.{module} imports {imported}"


@pytest.mark.parametrize("part", PURE)
def test_a_pure_part_imports_the_standard_library_alone(part: str) -> None:
    assert not [name for name, users in OUTSIDE.items() if is_in(part, users)]


def test_the_table_allows_nothing_that_is_not_used() -> None:
    used = {
        (part_of(module), imported.removeprefix("opdb."))
        for module, path in MODULES.items()
        for imported in imports(path)
    }
    for part, allowed in ALLOWED.items():
        for name in allowed:
            assert any(user == part and is_in(inner, (name,)) for user, inner in used), (
                f"no module of {part} imports {name} any more"
            )


def test_the_package_itself_is_imported_for_its_version_alone() -> None:
    for path in MODULES.values():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "opdb":
                assert node.attr == "__version__", f"{path}, line {node.lineno}"
            if isinstance(node, ast.ImportFrom) and node.module == "opdb":
                names = {alias.name for alias in node.names}
                assert names <= {"__version__", *MODULES}, f"{path}, line {node.lineno}"


def loaded_after(program: str, *arguments: str) -> set[str]:
    """Run a program in a process of its own and return the packages that it has imported."""
    text = (
        f"import sys\n{program}\nprint(*{{n.split('.')[0] for n in sys.modules}}, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", text, *arguments], capture_output=True, text=True, check=True
    )
    return set(done.stderr.splitlines()[-1].split())


COMMAND = "from opdb.cli import main\nassert main() == 0"


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A database built from the published set."""
    path = str(tmp_path_factory.mktemp("published") / "opdb.sqlite")
    loaded = loaded_after(COMMAND, "import", str(ROOT / "db" / "nvidia-h200"), "--db", path)
    assert not loaded & HEAVY
    return path


def test_the_package_imports_nothing_from_outside() -> None:
    assert not loaded_after("import opdb") & {*HEAVY, *OUTSIDE}


@pytest.mark.parametrize(
    "arguments",
    [
        ("predict", "resnet152", "--batch-size", "32", "--target", "0.9"),
        ("predict", "resnet152", "--batch-size", "32", "--mode", "graph", "--json"),
        ("trace", "resnet152", "--batch-size", "32", "--output", "/dev/null"),
        ("validate",),
        ("roofline", "resnet152", "--batch-size", "32"),
        ("report", "resnet50", "--output", "/dev/null"),
        ("status",),
        ("derive", "--check"),
    ],
    ids=" ".join,
)
def test_what_reads_the_database_imports_nothing_heavy(
    arguments: tuple[str, ...], published: str
) -> None:
    assert not loaded_after(COMMAND, *arguments, "--db", published) & HEAVY


def test_export_imports_nothing_heavy(published: str, tmp_path: Path) -> None:
    loaded = loaded_after(COMMAND, "export", str(tmp_path / "set"), "--db", published)
    assert not loaded & HEAVY
