"""The project's list of significant operators: `significant.yml`, beside the summary files.

    target: 0.95
    least_share: 0
    always: []
    never: [dropout]

A kind (conv2d) under `always` is measured in any case and first, under `never` not at all; what has
a smaller share than `least_share` of every model is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opdb.errors import InputError, shown
from opdb.files import read_text
from opdb.kinds import KINDS
from opdb.records import Configuration, Json
from opdb.summary import parse_mapping, unknown_key

TARGET = 0.95
"""Share of each model's time and of its energy that measured operators are to explain."""

_WHAT = "the list of significant operators"
_ALLOWED = {
    "target": "a share above 0, up to 1",
    "least_share": "a share from 0 to below 1",
    "always": "a list of kinds",
    "never": "a list of kinds",
}


@dataclass(frozen=True)
class Significance:
    """What a person says in the list; the defaults are those of a project without one."""

    target: float = TARGET
    least_share: float = 0.0
    always: tuple[str, ...] = ()
    never: tuple[str, ...] = ()


def load_significance(path: Path) -> Significance:
    """Read the list; the defaults where there is no such file. Mistakes are told all at once."""
    if not path.exists():
        return Significance()
    document = parse_mapping(path, read_text(path, _WHAT), _WHAT, f"target: {TARGET:g}")
    problems = []
    for name, value in document.items():
        if name not in _ALLOWED:
            problems.append(unknown_key(name, _ALLOWED))
        elif not _is_allowed(name, value):
            problems.append(f"{name}: found {shown(value)}; allowed: {_ALLOWED[name]}")
    if problems:
        raise InputError(f"{path}: " + "; ".join(problems))
    pins: dict[str, Any] = {name: tuple(document.get(name, ())) for name in ("always", "never")}
    found = Significance(**{**document, **pins})
    if both := set(found.always) & set(found.never):
        raise InputError(f"{path}: {', '.join(sorted(both))}: both under always and under never")
    return found


def _is_allowed(name: str, value: Json) -> bool:
    if name not in ("target", "least_share"):
        return isinstance(value, list) and all(isinstance(k, str) and k in KINDS for k in value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 < value <= 1 if name == "target" else 0 <= value < 1


def in_words(configuration: Configuration) -> str:
    """Return a configuration in a few words: shapes, dtype, parameters."""
    said: list[str] = []
    for name, value in configuration.inputs.items():
        if isinstance(value, Mapping) and "shape" in value and name != "bias":
            said.append(_tensor(name, value, first=not said))
    said += [f"{name} {_parameter(value)}" for name, value in configuration.parameters.items()]
    text = ", ".join(said[:5])
    return text if len(text) <= 90 else text[:89] + "…"


def _tensor(name: str, spec: Mapping[str, Json], *, first: bool) -> str:
    shape = "x".join(map(str, spec["shape"])) or "scalar"
    if not first:
        return f"{name} {shape}"
    layout = spec.get("layout")
    words = [shape, str(spec.get("dtype", ""))]
    words += [layout] if isinstance(layout, str) else ["strided"] if layout else []
    return " ".join(words).strip()


def _parameter(value: Json) -> str:
    if isinstance(value, list):
        same = len(set(map(str, value))) == 1
        return str(value[0]) if same else "x".join(map(str, value))
    return str(value)
