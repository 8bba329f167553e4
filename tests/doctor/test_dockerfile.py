"""The Dockerfile: linted by hadolint, its steps the README's."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
HADOLINT = shutil.which("hadolint", path=str(Path(sys.executable).parent))


def instructions() -> list[tuple[str, str]]:
    """Return the Dockerfile's instructions, each with its arguments on one line."""
    text = (ROOT / "Dockerfile").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    whole = re.sub(r"\s*\\\n\s*", " ", "\n".join(lines))
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in whole.splitlines() if line]


def arguments(name: str) -> list[str]:
    return [said for each, said in instructions() if each == name]


def test_the_linter_finds_nothing() -> None:
    ran = subprocess.run(
        [str(HADOLINT), str(ROOT / "Dockerfile")], capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stdout) == (0, "")


def test_its_steps_are_those_of_the_readme() -> None:
    """Beside the system's packages and the empty environment it runs what the README runs."""
    readme = (ROOT / "README.md").read_text()
    steps = [step.strip() for run in arguments("RUN") for step in run.split("&&")]
    of_the_image = (
        "apt-get ",
        "rm -rf /var/lib/apt",
        "sed --in-place '/^setuptools==/d' /etc/pip/",
    )
    own = [step for step in steps if not step.startswith(of_the_image)]
    environment, *rest = own
    assert environment == "python3 -m venv --system-site-packages .venv"
    assert rest
    for step in rest:
        assert f"$ {step}\n" in readme, f"the README has no step {step}"
