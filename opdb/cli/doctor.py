"""`opdb doctor`: what is fine on this machine for measuring, what is not, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opdb.cli import options
from opdb.cli.console import print_json, print_table
from opdb.errors import CheckError
from opdb.records import Json

if TYPE_CHECKING:
    from opdb.doctor import Facts, Finding


def run(
    db: options.Db = None,
    as_json: options.AsJson = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Check what measuring needs: GPU, driver, meters, torch, tools, database, disk.

    Nothing is changed, and no work is given to the GPU. Exit status 1 if something keeps a GPU from
    being measured; notes do not count.
    """
    from opdb.doctor import examine, gather, works

    facts = gather(db)
    findings = examine(facts)
    healthy, words = works(facts, findings)
    if as_json:
        print_json(_document(facts, findings, healthy, words))
    else:
        _print(facts, findings)
    if not healthy:
        raise CheckError(words)
    if not as_json:
        print(f"\n{words}")


def _document(facts: Facts, findings: list[Finding], healthy: bool, words: str) -> Json:
    return {
        "healthy": healthy,
        "words": words,
        "boards": [board.state.uuid for board in facts.nvidia.boards],
        "findings": [
            {
                "check": each.check,
                "board": each.board,
                "result": each.result,
                "blocks": each.blocks,
                "found": each.found,
                "advice": each.advice,
            }
            for each in findings
        ],
    }


def _print(facts: Facts, findings: list[Finding]) -> None:
    several = len(facts.nvidia.boards) > 1
    named = [(_name(each, several=several), each) for each in findings]
    rows = [(name, _result(each), each.found) for name, each in named]
    print_table(("check", "result", "found"), rows)
    advised = [(name, each.advice) for name, each in named if each.advice is not None]
    if advised:
        print()
        print_table(("check", "what to do"), advised)


def _name(finding: Finding, *, several: bool) -> str:
    if finding.board is None or not several:
        return finding.check
    return f"GPU {finding.board}: {finding.check}"


def _result(finding: Finding) -> str:
    if finding.result == "not":
        return "NOT FINE" if finding.blocks else "note"
    return {"fine": "fine", "unknown": "cannot tell"}[finding.result]
