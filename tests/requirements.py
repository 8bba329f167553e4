"""The distributions that opdb needs, as they are installed here."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import Distribution, PackageNotFoundError, distribution

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.paths import ROOT

LEFT_OPEN = re.compile(r"torch|torchvision|triton|sympy|pip|setuptools|cuda-.*|nvidia-(?!ml-py$).*")
"""What a build of torch chooses itself: CI's constraints name none of it."""


def required(*extras: str) -> dict[str, Distribution]:
    """Return what opdb needs with these extras, all that these need included, by name.

    What is not installed, such as an extra's packages or those of another platform, is left out.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"]]
    for extra in extras:
        wanted += project["optional-dependencies"][extra]
    waiting = [Requirement(each) for each in wanted]
    found: dict[str, Distribution] = {}
    seen: set[tuple[str, str]] = set()
    while waiting:
        asked = waiting.pop()
        name = canonicalize_name(asked.name)
        try:
            found[name] = distribution(asked.name)
        except PackageNotFoundError:
            continue
        for extra in {"", *asked.extras} - {e for n, e in seen if n == name}:
            seen.add((name, extra))
            needed = map(Requirement, found[name].requires or ())
            waiting += [
                r for r in needed if r.marker is None or r.marker.evaluate({"extra": extra})
            ]
    return found
