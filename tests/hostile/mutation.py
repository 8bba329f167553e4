"""Files changed as a careless person, a damaged disk or an attacker changes them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

KINDS = ("word", "delete", "copy", "swap", "insert", "byte", "cut", "nest")
LONGEST = 200_000
_TOKEN = re.compile(r"[+-]?\w[\w.+-]*|\s+|[^\w\s]")


@dataclass(frozen=True)
class Edit:
    """One change: its kind, where (a share of the text) and what (any number)."""

    kind: str
    at: float
    what: int


def edited(text: str, edits: Sequence[Edit], words: Sequence[str]) -> bytes:
    """Return a text after some edits, each of whole words but for single bytes."""
    for edit in edits:
        text = _edited(text, edit, words)[:LONGEST]
    return text.encode("utf-8", "surrogateescape")


def _edited(text: str, edit: Edit, words: Sequence[str]) -> str:
    if edit.kind == "byte":
        raw = bytearray(text.encode("utf-8", "surrogateescape"))
        if raw:
            raw[int(edit.at * (len(raw) - 1))] ^= 1 << edit.what % 8
        return raw.decode("utf-8", "surrogateescape")
    tokens = _TOKEN.findall(text)
    if not tokens:
        return words[edit.what % len(words)]
    place = int(edit.at * (len(tokens) - 1))
    other = edit.what % len(tokens)
    if edit.kind == "word":
        tokens[place] = words[edit.what % len(words)]
    elif edit.kind == "insert":
        tokens.insert(place, words[edit.what % len(words)])
    elif edit.kind == "delete":
        del tokens[place : place + 1 + edit.what % 4]
    elif edit.kind == "copy":
        tokens[place] = tokens[other]
    elif edit.kind == "swap":
        tokens[place], tokens[other] = tokens[other], tokens[place]
    elif edit.kind == "cut":
        del tokens[place:]
    else:
        tokens[place:place] = tokens[place : place + 1 + edit.what % 8] * (1 + edit.what % 50)
    return "".join(tokens)
