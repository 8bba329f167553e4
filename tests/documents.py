"""What the documents say: their links, and the commands to type, sorted by what these need."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
DOCUMENTS = (
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
    ROOT / "db" / "README.md",
    *sorted((ROOT / "measurements" / "grids").glob("*.yml")),
)

PAGES = (
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    ROOT / "db" / "README.md",
)
"""Every page of Markdown that people read."""

_FENCE = re.compile(r"^```.*?^```", re.M | re.S)
_INLINE = re.compile(r"(?<!`)`((?:OPDB_DB=\S+ )?opdb [a-z][^`]*)`(?!`)")
_LINE = re.compile(r"^(?:\$ |# +)?(?:[A-Z_]+=\S+ )?opdb ([a-z].*)$")

PLACEHOLDER = re.compile(r"(?:[A-Z]{3,}|…)(?:\.yml|…)?|…")
"""A word that stands for what the reader names: MODEL, FILE.yml, FOLDER, …"""

SHELL = re.compile(r"[$*{]")
"""What only a shell makes an argument of: variables, patterns, braces."""

ALONE = ("doctor", "show", "validate")
"""Commands that need no argument, and so are whole in the text, too."""

NEEDS = {
    r"annotate ": "a profile of a GPU",
    r"(bench|measure)\b|doctor .*--calibrate": "a GPU",
    r"harvest .*--mode compile": "a GPU, for which the model is compiled",
    r"modes (?!.*--stored)": "a GPU",
    r"sweep (?!.*(--status|--list))": "a GPU",
    r"build (?!.*--plan)": "a GPU",
    r"build 'torchvision": "half an hour: it harvests 80 models at three batch sizes",
    r"submit\b": "Slurm",
    r"show jobs": "the folder of jobs that were submitted to Slurm",
    r"train (?!.*(--plan|--status))": "a GPU, or hours",
    r"roofline .*(--ncu|--counters)": "a GPU and Nsight Compute, or what they stored",
}
"""Commands that are parsed and not run, and what it is that they need."""


@dataclass(frozen=True)
class Told:
    """A command that a document tells; `whole` is one to be typed as it stands."""

    text: str
    whole: bool

    @property
    def arguments(self) -> list[str]:
        """Its words without `opdb` and without a comment."""
        return shlex.split(self.text, comments=True)

    @property
    def left_out(self) -> str | None:
        """Why it is not run; None of what is."""
        if not self.whole:
            return "it names a command or an option of one, and is none to be typed"
        if any(PLACEHOLDER.fullmatch(word) for word in self.arguments):
            return "the reader names something in it"
        said = (why for pattern, why in NEEDS.items() if re.match(pattern, self.text))
        return next(said, "a shell" if SHELL.search(self.text) else None)


def commands(document: Path) -> Iterator[Told]:
    """Yield the commands of a document in order: lines of code, and code in its text.

    One in the text is whole where it names something, rather than a command or an option of it.
    """
    text = document.read_text().replace("\\\n", " ")
    found = []
    for fence in (
        _FENCE.finditer(text) if document.suffix == ".md" else re.finditer(r"(?s).+", text)
    ):
        if fence[0].startswith("```pycon"):
            continue  # a session of Python, which tests/test_documents.py runs
        at = fence.start()
        for line in fence[0].splitlines():
            if typed := _LINE.match(line):
                found.append((at, Told(typed[1], whole=True)))
    if document.suffix == ".md":
        prose = _FENCE.sub(lambda fence: " " * len(fence[0]), text)
        for inline in _INLINE.finditer(prose):
            words = inline[1].partition("opdb ")[2].replace("\n", " ")
            found.append((inline.start(), Told(words, whole=_names_something(words))))
    yield from (told for _, told in sorted(found, key=lambda each: each[0]))


def _names_something(words: str) -> bool:
    command, *rest = words.split()
    return command in ALONE or (bool(rest) and not rest[0].startswith("-"))


def links(page: Path) -> list[str]:
    """Return the targets of a page's links and images within this tree."""
    found = re.findall(r"\]\(([^)\s]+)\)", _FENCE.sub("", page.read_text()))
    return [link for link in found if "://" not in link]


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, named as GitHub names them."""
    headings = re.findall(r"(?m)^#+ +(.+)$", _FENCE.sub("", page.read_text()))
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}
