"""What the checks found, for machines and for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from opdb.doctor.checks import works
from opdb.doctor.facts import Facts
from opdb.doctor.finding import Finding
from opdb.errors import CheckError
from opdb.records import Json
from opdb.tables import Column, Report, Rows, Table


def _result(finding: Finding) -> str:
    if finding.result == "not":
        return "NOT FINE" if finding.blocks else "note"
    return {"fine": "fine", "unknown": "cannot tell"}[finding.result]


FINDINGS: Table[Finding] = Table(
    Column("check", lambda finding: finding.check),
    Column("board", lambda finding: finding.board),
    Column("result", lambda finding: finding.result),
    Column("blocks", lambda finding: finding.blocks),
    Column("found", lambda finding: finding.found),
    Column("advice", lambda finding: finding.advice),
)
"""What one check found."""

Named = tuple[str, Finding]

RESULTS: Table[Named] = Table(
    Column("check", lambda row: row[0], title="check"),
    Column("result", lambda row: _result(row[1]), title="result"),
    Column("found", lambda row: row[1].found, title="found"),
)
"""A check by its name on this machine, and what it found."""

ADVICE: Table[Named] = Table(
    Column("check", lambda row: row[0], title="check"),
    Column("advice", lambda row: row[1].advice, title="what to do"),
)
"""A check by its name on this machine, and what to do about what it found."""


@dataclass(frozen=True)
class Diagnosis(Report):
    """The findings of all checks of a machine."""

    facts: Facts
    findings: Sequence[Finding]

    @cached_property
    def verdict(self) -> tuple[bool, str]:
        """Whether a GPU can be measured, and in one sentence what works."""
        return works(self.facts, self.findings)

    def check(self) -> None:
        """Check that a GPU can be measured.

        Raises:
            CheckError: something keeps it from that.
        """
        healthy, words = self.verdict
        if not healthy:
            raise CheckError(words)

    def to_dict(self) -> Json:
        """Return the verdict and every finding."""
        healthy, words = self.verdict
        return {
            "healthy": healthy,
            "words": words,
            "boards": [board.state.uuid for board in self.facts.nvidia.boards],
            "findings": FINDINGS.documents(self.findings),
        }

    def blocks(self) -> Iterator[str | Rows[Any]]:
        """Yield the checks, what to do, and the verdict where it is good."""
        named = [(self._name(each), each) for each in self.findings]
        yield Rows(RESULTS, named)
        if advised := [row for row in named if row[1].advice is not None]:
            yield ""
            yield Rows(ADVICE, advised)
        healthy, words = self.verdict
        if healthy:
            yield ""
            yield words

    def _name(self, finding: Finding) -> str:
        if finding.board is None or len(self.facts.nvidia.boards) < 2:
            return finding.check
        return f"GPU {finding.board}: {finding.check}"
