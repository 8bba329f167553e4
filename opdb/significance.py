"""The project's list of significant operators: `significant.yml`, beside the summary files.

    target: 0.95
    least_share: 0
    always: []
    never: [dropout]

A kind (conv2d) or the beginning of a key (4f0c1a2b) under `always` is measured in any case and
first, under `never` not at all; what has a smaller share than `least_share` of every model is left
out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
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

_LEAST_OF_KEY = 8
_WHAT = "the list of significant operators"
_PINS = f"a list of kinds, or of beginnings of keys ({_LEAST_OF_KEY} or more of 0-9a-f)"
_ALLOWED = {
    "target": "a share above 0, up to 1",
    "least_share": "a share from 0 to below 1",
    "always": _PINS,
    "never": _PINS,
}


@dataclass(frozen=True)
class Significance:
    """What a person says in the list; the defaults are those of a project without one."""

    target: float = TARGET
    least_share: float = 0.0
    always: tuple[str, ...] = ()
    never: tuple[str, ...] = ()

    def is_always(self, configuration: Configuration) -> bool:
        """Whether a configuration is to be measured in any case; its key goes before its kind."""
        return _pin(configuration, self.always, self.never)

    def is_never(self, configuration: Configuration) -> bool:
        """Whether a configuration is not to be measured; its key goes before its kind."""
        return _pin(configuration, self.never, self.always)


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
        return isinstance(value, list) and all(
            isinstance(pin, str) and (pin in KINDS or _is_key(pin)) for pin in value
        )
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


def _pin(configuration: Configuration, pins: Iterable[str], others: Iterable[str]) -> bool:
    if any(configuration.key.startswith(pin) for pin in pins if _is_key(pin)):
        return True
    if any(configuration.key.startswith(pin) for pin in others if _is_key(pin)):
        return False
    return configuration.kind in pins


def _is_key(pin: str) -> bool:
    return re.fullmatch(rf"[0-9a-f]{{{_LEAST_OF_KEY},64}}", pin) is not None
