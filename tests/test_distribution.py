"""What texts tell to install: this project from its clone, and nobody's package in its place."""

from __future__ import annotations

import importlib.metadata
import re
import shutil
import tomllib
from collections.abc import Iterator
from importlib.metadata import Distribution
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

from opdb.distribution import DISTRIBUTION, install
from opdb.doctor import missing_extras
from tests.paths import ROOT
from tests.requirements import LEFT_OPEN, required

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = set(PROJECT["optional-dependencies"])
OTHERS = {"atheris", "pandas", "sqlalchemy", "torch", "triton", "zeus"}
"""Distributions of others that texts tell to install."""

FOLDERS = (".ci", "benchmarks", "db", "docs", "measurements", "opdb", "tests")
TEXTS = ("", ".md", ".py", ".sh", ".toml", ".yml")

COMMAND = re.compile(r"pip3? install(?: +-[-\w]+)* +['\"]?(?P<named>[^\s'\"`;,)]+)")
"""`pip install`, its options, and the first thing that it names."""

REQUIREMENT = re.compile(r"(?<![\w./-])opdb\[[a-z]+\]")


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
        if name != "opdb/distribution.py"
        for command in COMMAND.finditer(text)
    ]
    assert len(told) > 10
    assert [each for each in told if not is_ours_or_known(each[1])] == []


def test_no_text_requires_the_other_project() -> None:
    found = [(name, *REQUIREMENT.findall(text)) for name, text in texts()]
    assert [each for each in found if len(each) > 1] == []
    packages = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    assert [each["pip"] for each in packages if isinstance(each, dict)] == [["-e ."]]


def test_the_project_has_its_own_name_and_the_command_keeps_its() -> None:
    assert PROJECT["name"] == DISTRIBUTION == "opdb-torch"
    assert list(PROJECT["scripts"]) == ["opdb"]


def test_what_runs_from_a_clone_is_installed_by_its_path(tmp_path: Path) -> None:
    assert install() == f"pip install -e {ROOT}"
    assert install("plots") == f"pip install -e '{ROOT}[plots]'"
    clone = tmp_path / "my clone"
    clone.mkdir()
    shutil.copy(ROOT / "pyproject.toml", clone)
    assert install(root=clone) == f"pip install -e '{clone}'"


@pytest.mark.parametrize(
    "content", [None, "[project]\nname = 'other'\n", "[project\n", "[other]\n"]
)
def test_what_runs_from_no_clone_says_that_one_is_needed(
    tmp_path: Path, content: str | None
) -> None:
    if content is not None:
        (tmp_path / "pyproject.toml").write_text(content)
    assert install("plots", root=tmp_path) == "pip install -e '.[plots]' in a clone of opdb"


def test_doctor_does_not_take_the_other_projects_extras_for_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def requires(name: str) -> list[str]:
        if name == DISTRIBUTION:
            raise importlib.metadata.PackageNotFoundError(name)
        return ["rich; extra == 'other'"]

    monkeypatch.setattr(importlib.metadata, "requires", requires)
    assert missing_extras() == {}


INSTALLED = ("plots", "postgres", "slurm", "transformers")
FAMILIES = re.compile(
    r"LGPL|(?<!L)GPL|MPL|Apache|BSD|MIT|ISC|PSF|Python Software Foundation|CNRI|Zlib|CC0|BSL|NVIDIA"
)
LISTED: dict[str, str] = dict(
    re.findall(r"(?m)^\| `([\w.*-]+)` \| ([^|]+) \|", (ROOT / "docs" / "licences.md").read_text())
)
CONSTRAINTS = [
    Requirement(line)
    for line in (ROOT / ".ci" / "constraints.txt").read_text().splitlines()
    if not line.startswith("#")
]


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


def test_ci_pins_all_but_what_torch_brings() -> None:
    names = [each.name for each in CONSTRAINTS]
    assert names == sorted(set(names))
    assert not [name for name in names if LEFT_OPEN.fullmatch(name)]
    assert all(re.fullmatch(r"==[\w.]+", str(each.specifier)) for each in CONSTRAINTS)
    lacking = {n for n in required("dev") if not LEFT_OPEN.fullmatch(n)} - {*names}
    assert not lacking, "run .ci/lock"
