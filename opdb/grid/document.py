"""Read a YAML file that holds one mapping, with every mistake told as where it stands.

What a small file never needs and a hostile one lives on is refused: aliases, depth, size.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from opdb.errors import InputError

LARGEST_BYTES = 128 * 1024
_DEEPEST = 32


def read_mapping(path: Path, *, least: str) -> dict[str, Any]:
    """Return the mapping that a file holds; `least` is what any such file says, for messages.

    Raises:
        InputError: it cannot be read, is not YAML, holds something else, or says a key twice.
    """
    text = _read(path)
    try:
        _check_shape(path, text)
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
        raise InputError(f"{path}{where}: not valid YAML: {problem}") from error
    except ValueError as error:  # a date or number that YAML's own rules recognise but cannot read
        raise InputError(f"{path}: not valid YAML: {error}") from error
    if document is None:
        raise InputError(f"{path} is empty; it needs at least: {least}")
    if not isinstance(document, dict):
        raise InputError(f"{path}: found {shown(document)}; it needs keys, at least: {least}")
    _check_keys(path, root, "")
    return document


def shown(value: object) -> str:
    """Return a value for a message, cut short."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _read(path: Path) -> str:
    try:
        if path.is_dir():
            raise InputError(f"{path} is a folder; give a file")
        size = path.stat().st_size
        if size > LARGEST_BYTES:
            raise InputError(f"{path}: {size} bytes; such a file has at most {LARGEST_BYTES}")
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not a text file (byte {error.start} is not UTF-8)") from error


def _check_shape(path: Path, text: str) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if isinstance(event, yaml.AliasEvent) or depth > _DEEPEST:
            what = "nested too deep" if depth > _DEEPEST else "an alias"
            line = event.start_mark.line + 1 if event.start_mark else 0
            raise InputError(f"{path}, line {line}: {what}; write the values out, in few levels")


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
