from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

from opdb.cli import COMMANDS
from tests.cli.conftest import Opdb

ROOT = Path(__file__).parents[2]


def test_every_command_and_option_has_help_of_one_form(opdb: Opdb) -> None:
    wrong = []
    for name in COMMANDS:
        ran = opdb(name, "--help")
        assert ran.status == 0 and (import_module(COMMANDS[name]).run.__doc__ or "").strip(), name
        common = ("--db", "--json", "--quiet", "--debug")
        wrong += [f"{name} has no {option}" for option in common if option not in ran.out]
        options = ran.out.split("Options:")[1]
        for line in options.splitlines():
            if line.strip().startswith("-") and len(line) < 40:
                following = options.split(line)[1].splitlines()[1]
                if following.strip().startswith("-"):
                    wrong.append(f"{name}: {line.split()[0]} has no help")
    assert not wrong, "\n".join(wrong)


def test_every_command_is_in_the_docs() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    text = "\n".join(page.read_text() for page in pages)
    assert [name for name in COMMANDS if f"opdb {name}" not in text] == []


def test_all_commands_are_listed_in_panels_and_nothing_is_cut(opdb: Opdb) -> None:
    ran = opdb("--help")
    assert ran.status == 0 and opdb().out == ran.out
    assert "…" not in ran.out and "..." not in ran.out.split("Predict:")[1]
    panels = re.split(r"(?m)^(Predict|Measure|Data|Studies):$", ran.out)[1:]
    assert panels[::2] == ["Predict", "Measure", "Data", "Studies"]
    listed = [re.findall(r"(?m)^  (\w+)  ", panel) for panel in panels[1::2]]
    assert all(names == sorted(names) for names in listed)
    assert sorted(name for names in listed for name in names) == sorted(COMMANDS)
    assert max(map(len, ran.out.splitlines())) <= 80


HEAVY = {"torch", "torchvision", "transformers", "sqlalchemy", "numpy", "matplotlib"}
PROGRAM = """
import atexit, sys
from opdb.cli import main
atexit.register(lambda: print(*{n.split('.')[0] for n in sys.modules}, file=sys.stderr))
main([])
"""


def completed(words: str) -> list[str]:
    """Return what is completed after the last word; nothing heavy is imported for it."""
    asked = {
        "_OPDB_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
    }
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={**os.environ, **asked}, capture_output=True, text=True
    )
    [modules] = ran.stderr.splitlines()
    assert not HEAVY & set(modules.split())
    return ran.stdout.splitlines()


def test_options_are_completed() -> None:
    assert completed("opdb predict resnet50 --layer") == ["--layers"]
