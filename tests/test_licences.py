"""docs/licences.md names the licence of all that opdb installs; CI's constraints name the rest."""

from __future__ import annotations

import re
from importlib.metadata import Distribution

from packaging.requirements import Requirement

from tests.paths import ROOT
from tests.requirements import LEFT_OPEN, required

EXTRAS = ("plots", "postgres", "slurm", "transformers")
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
    installed = required(*EXTRAS)
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
