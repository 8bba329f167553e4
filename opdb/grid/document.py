"""Read a grid file's mapping, in which no key may be said twice, however deep."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from opdb.errors import InputError
from opdb.summary import parse_mapping, read_text


def read_mapping(path: Path, *, what: str, least: str) -> dict[str, Any]:
    """Return the mapping that a file holds; `what` it is and `least` says are for messages.

    Raises:
        InputError: it cannot be read, is no YAML mapping, or says a key twice.
    """
    text = read_text(path, what)
    document = parse_mapping(path, text, what, least)
    _check_keys(path, yaml.compose(text, Loader=yaml.SafeLoader), "")
    return document


def shown(value: object) -> str:
    """Return a value for a message, cut short."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _check_keys(path: Path, node: yaml.Node | None, at: str) -> None:
    """Check that every key of a mapping and of those inside is a text and there once."""
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _check_keys(path, item, at)
    if not isinstance(node, yaml.MappingNode):
        return
    names = [key.value for key, _ in node.value]
    for key, value in node.value:
        if key.tag != "tag:yaml.org,2002:str":
            raise InputError(f"{path}: key {at}{shown(key.value)} is no text; put it in quotes")
        if names.count(key.value) > 1:
            raise InputError(
                f"{path}: key {at + key.value!r} is there {names.count(key.value)} times"
            )
        _check_keys(path, value, f"{at}{key.value}.")
