"""What texts tell to install: this project from its clone, and nobody's package in its place."""

from __future__ import annotations

import re
import shutil
import tomllib
from collections.abc import Iterator
from importlib.metadata import Distribution
from pathlib import Path

from opdb.packaging import DISTRIBUTION, install
from tests.paths import ROOT
from tests.requirements import required

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = set(PROJECT["optional-dependencies"])
OTHERS = {"atheris", "pandas", "sqlalchemy", "torch", "triton", "zeus"}
"""Distributions of others that texts tell to install."""

FOLDERS = (".ci", "benchmarks", "db", "docs", "measurements", "opdb", "tests")
TEXTS = ("", ".md", ".py", ".sh", ".toml", ".yml")

COMMAND = re.compile(r"pip3? install(?: +-[-\w]+)* +['\"]?(?P<named>[^\s'\"`;,)]+)")
"""`pip install`, its options, and the first thing that it names."""


def texts() -> Iterator[tuple[str, str]]:
    """Yield the name and content of every text of the tree, this file left out."""
    paths = [*ROOT.iterdir(), *(each for name in FOLDERS for each in (ROOT / name).rglob("*"))]
    for path in sorted(paths):
        if path.is_file() and path.suffix in TEXTS and path != Path(__file__):
            yield str(path.relative_to(ROOT)), path.read_text()


def is_ours_or_known(named: str) -> bool:
    """Whether what a text tells to install is the clone, this distribution or one that is known."""
    if re.fullmatch(r"opdb_torch-[\d.]+-py3-none-any\.whl", named):
        return True
    found = re.fullmatch(r"(?P<what>[^\[]+)(?:\[(?P<extra>[a-z]+)\])?", named)
    if found is None or (found["extra"] is not None and found["extra"] not in EXTRAS):
        return False
    return found["what"] in {".", DISTRIBUTION} or named.rstrip(".") in OTHERS


def test_every_text_installs_the_clone_or_a_known_package() -> None:
    told = [
        (name, command["named"])
        for name, text in texts()
        if name != "opdb/packaging.py"
        for command in COMMAND.finditer(text)
    ]
    assert len(told) > 10
    assert [each for each in told if not is_ours_or_known(each[1])] == []


def test_what_runs_from_a_clone_is_installed_by_its_path(tmp_path: Path) -> None:
    assert install() == f"pip install -e {ROOT}"
    assert install("plots") == f"pip install -e '{ROOT}[plots]'"
    clone = tmp_path / "my clone"
    clone.mkdir()
    shutil.copy(ROOT / "pyproject.toml", clone)
    assert install(root=clone) == f"pip install -e '{clone}'"


INSTALLED = ("plots", "postgres", "slurm", "transformers")
FAMILIES = re.compile(
    r"LGPL|(?<!L)GPL|MPL|Apache|BSD|MIT|ISC|PSF|Python Software Foundation|CNRI|Zlib|CC0|BSL|NVIDIA"
)
LISTED: dict[str, str] = dict(
    re.findall(r"(?m)^\| `([\w.*-]+)` \| ([^|]+) \|", (ROOT / "docs" / "licences.md").read_text())
)


def said(found: Distribution) -> str:
    """Return what a distribution says of its licence; many lines are the licence itself."""
    fields = found.metadata.json
    expression = fields.get("license_expression")
    if expression:
        return str(expression)
    classifiers = [c for c in fields.get("classifier", ()) if str(c).startswith("License ::")]
    licence = str(fields.get("license", ""))
    return " ".join([*map(str, classifiers), licence if "\n" not in licence else ""])


def families(text: str) -> set[str]:
    """Return the families of licences that a text names."""
    text = text.replace("GNU Library or Lesser General Public License", "LGPL")
    text = text.replace("GNU General Public License", "GPL").replace(
        "Python Software Foundation", "PSF"
    )
    return {found.replace("Python Software Foundation", "PSF") for found in FAMILIES.findall(text)}


def listed(name: str) -> str | None:
    if re.match(r"nvidia-(?!ml-py$)|cuda-", name):
        return LISTED["nvidia-*"]
    return LISTED.get(name)


def test_every_licence_is_listed_as_its_package_says() -> None:
    installed = required(*INSTALLED)
    assert {"torch", "numpy", "sqlalchemy"} <= installed.keys()
    for name, found in installed.items():
        row = listed(name)
        assert row is not None, f"docs/licences.md lacks {name}: {said(found)}"
        if name != "opdb-torch" and not re.match(r"nvidia-(?!ml-py$)|cuda-", name):
            assert families(said(found)) <= families(row), f"{name}: {said(found)!r}, listed: {row}"
