"""The result of a check."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Result: TypeAlias = Literal["fine", "not", "unknown"]


@dataclass(frozen=True)
class Finding:
    """The result of one check: the finding, whether it is fine, and in one sentence what to do.

    `board` is the index of the GPU that it is about. `blocks`: a GPU cannot be measured so.
    """

    check: str
    result: Result
    found: str
    advice: str | None = None
    blocks: bool = False
    board: int | None = None


def fine(check: str, found: str) -> Finding:
    """Say that all is well."""
    return Finding(check, "fine", found)


def note(check: str, found: str, advice: str) -> Finding:
    """Say what is not fine and keeps no GPU from being measured."""
    return Finding(check, "not", found, advice)


def blocks(check: str, found: str, advice: str) -> Finding:
    """Say what keeps a GPU from being measured."""
    return Finding(check, "not", found, advice, blocks=True)


def unknown(check: str, found: str, advice: str | None = None) -> Finding:
    """Say what cannot be told."""
    return Finding(check, "unknown", found, advice)
