"""The Dockerfile: linted by hadolint, its steps the README's."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from opdb.cli import COMMANDS

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


def test_it_stands_on_a_pytorch_image_of_nvidia_of_one_version() -> None:
    assert instructions()[0][0] == "FROM"
    assert len(arguments("FROM")) == 1
    assert re.fullmatch(r"nvcr\.io/nvidia/pytorch:\d\d\.\d\d-py3", arguments("FROM")[0])


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


def test_its_packages_are_those_that_the_makefile_and_ci_ask_for() -> None:
    install = next(run for run in arguments("RUN") if "apt-get install" in run)
    packages = re.findall(
        r" ([a-z][\w-]+)(?= |$)", install.partition("recommends")[2].split("&")[0]
    )
    assert set(packages) == {"make", "python3", "python3-venv"}
    asked = (ROOT / ".ci" / "run").read_text() + (ROOT / "Makefile").read_text()
    assert all(package in asked for package in packages)


def test_it_runs_a_command_of_opdb_from_the_environment_that_was_made() -> None:
    assert arguments("ENTRYPOINT") == ['["opdb"]']
    (command,) = arguments("CMD")
    assert command.strip('[]"') in COMMANDS
    (folder,) = arguments("WORKDIR")
    assert arguments("ENV") == [f"PATH={folder}/.venv/bin:$PATH"]


def test_what_git_ignores_stays_out_of_the_image() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    for line in (ROOT / ".gitignore").read_text().splitlines():
        name = line.strip("/")
        assert name in ignored or f"**/{name}" in ignored, f".dockerignore lacks {name}"
    assert ".git" in ignored
