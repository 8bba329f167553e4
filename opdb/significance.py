"""The project's list of significant operators: `significant.yml`, beside the summary files.

    target: 0.95
    least_share: 0
    always: []
    never: [dropout]

    kinds:
    - {kind: conv2d, configurations: 402, models: 13, share_time: 0.52, share_energy: 0.55}
    configurations:
    - {key: 4f0c1a2b9d3e, kind: conv2d, what: "…", share_time: 0.01, share_energy: 0.01, most: "…"}

What stands above `kinds` is a person's, comments included. `opdb build` writes the two lists below
it anew.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from opdb.errors import InputError, shown
from opdb.files import read_text, write_file
from opdb.kinds import KINDS
from opdb.records import Configuration, Json
from opdb.spec import nearest
from opdb.summary import SIGNIFICANT, parse_mapping, unknown_key

TARGET = 0.95
"""Share of each model's time and of its energy that measured operators are to explain."""

KEY_SHOWN = 12
_LEAST_OF_KEY = 8
_WHAT = "the list of significant operators"
_PINS = f"a list of kinds, or of beginnings of keys ({_LEAST_OF_KEY} or more of 0-9a-f)"
_LISTS = ("kinds", "configurations")
_ALLOWED = {
    "target": "a share above 0, up to 1",
    "least_share": "a share from 0 to below 1",
    "always": _PINS,
    "never": _PINS,
    **dict.fromkeys(_LISTS, "a list that opdb build writes"),
}

_HEADER = f"""\
# The significant operators of these models: those that carry most of each one's time and energy.
# opdb build measures them first, and proposes the two lists below: it writes these anew.
# All above them is yours, comments included. A kind (conv2d) or the beginning of a key (4f0c1a2b)
# under `always` is measured in any case and first, under `never` not at all.
target: {TARGET:g}  # share of each model's time, and of its energy, that is to be measured
least_share: 0  # what has a smaller share than this of every model is left out
always: []
never: []

"""


@dataclass(frozen=True)
class KindEntry:
    """A kind's part: how many configurations in how many models, and their mean shares."""

    kind: str
    configurations: int
    models: int
    share_time: float
    share_energy: float


@dataclass(frozen=True)
class ConfigurationEntry:
    """A configuration's part: what it is, its mean shares, and where it matters most."""

    key: str
    kind: str
    what: str
    share_time: float
    share_energy: float
    most: str


@dataclass(frozen=True)
class Proposal:
    """What `opdb build` proposes: both lists, and a line that says what they rest on."""

    rests_on: str
    kinds: Sequence[KindEntry]
    configurations: Sequence[ConfigurationEntry]


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
    problems = [unknown_key(key, _ALLOWED) for key in document if key not in _ALLOWED]
    said = {name: value for name, value in document.items() if name in _ALLOWED}
    for name, value in said.items():
        if not _is_allowed(name, value):
            problems.append(f"{name}: found {shown(value)}; allowed: {_ALLOWED[name]}")
        elif _ALLOWED[name] == _PINS:
            for pin in value:
                if not isinstance(pin, str) or not (pin in KINDS or _is_key(pin)):
                    near = nearest(str(pin), KINDS)
                    problem = f"{name}: found {pin!r}; allowed: {_PINS}"
                    problems.append(problem + (near and f"; {near}"))
    if not problems:
        both = [pin for pin in said.get("always", ()) if pin in said.get("never", ())]
        problems += [f"{pin!r} is both under always and under never" for pin in both]
    if problems:
        raise InputError(f"{path}: " + "; ".join(problems))
    found = {name: value for name, value in said.items() if name not in _LISTS}
    found |= {name: tuple(found.get(name, ())) for name in ("always", "never")}
    return Significance(**found)


def _is_allowed(name: str, value: Json) -> bool:
    if name not in ("target", "least_share"):
        return isinstance(value, list)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return 0 < value <= 1 if name == "target" else 0 <= value < 1


def propose(path: Path, proposal: Proposal) -> bool:
    """Write a proposal's lists into the file, made where there is none; return if it changed."""
    load_significance(path)
    before = read_text(path, _WHAT) if path.exists() else None
    own = before if before is not None else _HEADER
    newline = "\r\n" if "\r\n" in own else "\n"
    if start := re.search(r"^(kinds|configurations):", own, re.MULTILINE):
        below = re.findall(r"^(\w+):", own[start.start() :], re.MULTILINE)
        own = own[: start.start()]
        if not {*below} <= {*_LISTS}:
            raise InputError(f"{path}: keep kinds and configurations last: they are written anew")
    elif own.lstrip().startswith("{"):
        raise InputError("the list of significant operators must not stand in { } as a whole")
    lines = own.splitlines()
    for name, entries, note in (
        ("kinds", proposal.kinds, proposal.rests_on),
        ("configurations", proposal.configurations, "the largest, by mean share of time"),
    ):
        lines += [f"{name}:{'' if entries else ' []'}  # {note}", *map(_flow, entries)]
    after = newline.join([*lines, ""])
    if after == before:
        return False
    write_file(path, after.encode())
    return True


def _flow(entry: KindEntry | ConfigurationEntry) -> str:
    """Return an entry as YAML in one line: shares rounded, texts quoted but for kinds and keys."""
    return "- {" + ", ".join(f"{name}: {_scalar(name, v)}" for name, v in vars(entry).items()) + "}"


def _scalar(name: str, value: Json) -> str:
    if isinstance(value, float):
        return f"{value:.4f}"
    plain = name == "kind" or (name == "key" and not re.fullmatch(r"[0-9]+(e[0-9]+)?", str(value)))
    return str(value) if isinstance(value, int) or plain else json.dumps(value, ensure_ascii=False)


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


def place_of(folder: Path) -> Path:
    return folder / SIGNIFICANT
