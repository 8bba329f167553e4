"""The project's list of significant operators: `significant.yml`, beside the summary files.

    target: 0.95
    least_share: 0
    always: []
    never: [dropout]

    kinds:
    - {kind: conv2d, configurations: 402, models: 13, share_time: 0.52, share_energy: 0.55}
    configurations:
    - {key: 4f0c1a2b9d3e, kind: conv2d, what: "…", share_time: 0.01, share_energy: 0.01, most: "…"}

`opdb build` proposes `kinds` and `configurations`, and writes these two lists anew; everything else
is a person's, and so are comments, in the lists too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, StrictInt, StrictStr, ValidationError

from opdb.errors import InputError
from opdb.kinds import KINDS
from opdb.records import Configuration, Json
from opdb.summary import (
    SIGNIFICANT,
    explained,
    nearest,
    parse_mapping,
    read_text,
    replace_text,
    unknown_key,
)

TARGET = 0.95
"""Share of each model's time and of its energy that measured operators are to explain."""

KEY_SHOWN = 12
_LEAST_OF_KEY = 8
_WHAT = "the list of significant operators"
_LISTS = ("kinds", "configurations")
_ALLOWED = {
    "target": "a share above 0, up to 1",
    "least_share": "a share from 0 to below 1",
    "always": f"a list of kinds, or of beginnings of keys ({_LEAST_OF_KEY} or more of 0-9a-f)",
    "never": f"a list of kinds, or of beginnings of keys ({_LEAST_OF_KEY} or more of 0-9a-f)",
    "kinds": "a list that opdb build writes",
    "configurations": "a list that opdb build writes; as a count, a whole number",
}

_HEADER = f"""\
# The significant operators of these models: those that carry most of each one's time and energy.
# opdb build measures them first, and proposes the two lists below: it writes these anew.
# All else is yours, comments included. A kind (conv2d) or the beginning of a key (4f0c1a2b) under
# `always` is measured in any case and first, under `never` not at all.
target: {TARGET:g}  # share of each model's time, and of its energy, that is to be measured
least_share: 0  # what has a smaller share than this of every model is left out
always: []
never: []
"""

Share = Annotated[float, Field(ge=0, le=1)]


class KindEntry(BaseModel):
    """A kind's part: how many configurations in how many models, and their mean shares."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: StrictStr
    configurations: Annotated[StrictInt, Field(ge=0)]
    models: Annotated[StrictInt, Field(ge=0)]
    share_time: Share
    share_energy: Share


class ConfigurationEntry(BaseModel):
    """A configuration's part: what it is, its mean shares, and where it matters most."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    key: StrictStr
    kind: StrictStr
    what: StrictStr
    share_time: Share
    share_energy: Share
    most: StrictStr


class Significance(BaseModel):
    """The list's content; the defaults are those of a project without one."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    target: Annotated[float, Field(gt=0, le=1, strict=True)] = TARGET
    least_share: Annotated[float, Field(ge=0, lt=1, strict=True)] = 0.0
    always: tuple[StrictStr, ...] = ()
    never: tuple[StrictStr, ...] = ()
    kinds: tuple[KindEntry, ...] = ()
    configurations: tuple[ConfigurationEntry, ...] = ()

    def is_always(self, configuration: Configuration) -> bool:
        """Whether a configuration is to be measured in any case; its key goes before its kind."""
        return _pin(configuration, self.always, self.never)

    def is_never(self, configuration: Configuration) -> bool:
        """Whether a configuration is not to be measured; its key goes before its kind."""
        return _pin(configuration, self.never, self.always)


@dataclass(frozen=True)
class Proposal:
    """What `opdb build` proposes: both lists, and a line that says what they rest on."""

    rests_on: str
    kinds: Sequence[KindEntry]
    configurations: Sequence[ConfigurationEntry]


def load_significance(path: Path) -> Significance:
    """Read the list; the defaults where there is no such file.

    Raises:
        InputError: it cannot be read or is none; all of its mistakes at once.
    """
    if not path.exists():
        return Significance()
    document = parse_mapping(path, read_text(path, _WHAT), _WHAT, f"target: {TARGET:g}")
    problems = _misspelled(document)
    try:
        found = Significance.model_validate(document)
    except ValidationError as error:
        problems += explained(error, _ALLOWED)
    else:
        problems += _wrong_pins(found)
    if not problems:
        return found
    raise InputError(f"{path}: " + "; ".join(dict.fromkeys(problems)))


def propose(path: Path, proposal: Proposal) -> bool:
    """Write a proposal's lists into the file, new where there is none; return whether it changed.

    Raises:
        InputError: the file is not what `load_significance` reads, or cannot be written.
    """
    load_significance(path)
    before = read_text(path, _WHAT) if path.exists() else None
    after = _with_lists(before if before is not None else _HEADER, proposal)
    if after == before:
        return False
    replace_text(path, after)
    return True


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


def _misspelled(document: Mapping[Any, Any]) -> list[str]:
    problems = [
        unknown_key(key, Significance.model_fields)
        for key in document
        if key not in Significance.model_fields
    ]
    for name, entry in (("kinds", KindEntry), ("configurations", ConfigurationEntry)):
        entries = document.get(name)
        for number, each in enumerate(entries if isinstance(entries, list) else ()):
            problems += [
                unknown_key(key, entry.model_fields, f"{name}[{number}].")
                for key in (each if isinstance(each, dict) else ())
                if key not in entry.model_fields
            ]
    return problems


def _wrong_pins(found: Significance) -> list[str]:
    problems = []
    for name, pins in (("always", found.always), ("never", found.never)):
        for pin in pins:
            if pin not in KINDS and not _is_key(pin):
                near = nearest(pin, KINDS)
                problems.append(
                    f"{name}: found {pin!r}; allowed: {_ALLOWED[name]}" + (near and f"; {near}")
                )
    both = [pin for pin in found.always if pin in found.never]
    problems += [f"{pin!r} is both under always and under never" for pin in both]
    return problems


def _with_lists(text: str, proposal: Proposal) -> str:
    """Return the file's text with a proposal's lists in place of those that it has."""
    newline = "\r\n" if "\r\n" in text else "\n"
    for name, entries, note in (
        ("kinds", proposal.kinds, f"  # {proposal.rests_on}"),
        ("configurations", proposal.configurations, "  # the largest, by mean share of time"),
    ):
        start, end = _block(text, name)
        comments, loose = _comments(text[start:end])
        lines = [f"{name}:{note}" if entries else f"{name}: []{note}"]
        for entry in entries:
            own, beside = comments.pop(_identity(entry.model_dump()), ([], ""))
            lines += [*own, f"- {_flow(entry)}{beside}"]
        for own, beside in comments.values():  # of what is proposed no longer: a person wrote them
            loose += [*own, *([beside.strip()] if beside else [])]
        block = newline.join([*lines, *loose]) + newline
        gap = "" if start == 0 or text[:start].endswith(newline) else newline
        if start == len(text) and name == _LISTS[0]:
            gap += newline
        text = text[:start] + gap + block + text[end:]
    return text


def _block(text: str, name: str) -> tuple[int, int]:
    """Return where a top-level key's lines begin and end in a text; its end where it has none."""
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    assert isinstance(root, yaml.MappingNode)
    if root.flow_style:
        raise InputError("the list of significant operators must not stand in { } as a whole")
    keys = [key for key, _ in root.value]
    for number, key in enumerate(keys):
        if key.value == name:
            start = key.start_mark.index
            later = keys[number + 1].start_mark.index if number + 1 < len(keys) else len(text)
            return start, _end_of_entries(text, start, later)
    return len(text), len(text)


def _end_of_entries(text: str, start: int, limit: int) -> int:
    """Return where a key's lines end: before blank lines and comments that lead to the next key."""
    if limit == len(text):
        return limit
    lines = text[start:limit].splitlines(keepends=True)
    while len(lines) > 1 and (not lines[-1].strip() or lines[-1].startswith("#")):
        lines.pop()
    return start + sum(map(len, lines))


def _comments(block: str) -> tuple[dict[str, tuple[list[str], str]], list[str]]:
    """Return a list's comments by the entry that they stand over and beside, and those at its end.

    The comment in the list's own first line is its note, and written anew.
    """
    found: dict[str, tuple[list[str], str]] = {}
    over: list[str] = []
    for line in block.splitlines()[1:]:
        if line.strip().startswith("#"):
            over.append(line)
            continue
        entry = re.match(r"\s*-\s*(\{.*\})(\s*#.*)?$", line)
        identity = _identity_in(entry[1]) if entry else None
        if entry is None or identity is None:
            continue
        found[identity] = over, entry[2] or ""
        over = []
    return {name: kept for name, kept in found.items() if any(kept)}, over


def _identity_in(line: str) -> str | None:
    """Return what an entry's line is about; None where a longer text only looks like one."""
    try:
        return _identity(parse_mapping(Path(SIGNIFICANT), line))
    except InputError:
        return None


def _identity(entry: Mapping[str, Any]) -> str:
    return str(entry.get("key") or entry.get("kind"))


def _flow(entry: BaseModel) -> str:
    values = entry.model_dump()
    return "{" + ", ".join(f"{name}: {_scalar(name, v)}" for name, v in values.items()) + "}"


def _scalar(name: str, value: Json) -> str:
    """Return a value as YAML in one line: shares rounded, texts quoted but for kinds and keys."""
    if isinstance(value, float):
        return f"{value:.4f}"
    plain = name == "kind" or (name == "key" and not re.fullmatch(r"[0-9]+(e[0-9]+)?", str(value)))
    return str(value) if isinstance(value, int) or plain else json.dumps(value, ensure_ascii=False)


def place_of(folder: Path) -> Path:
    """Return where a folder's list stands."""
    return folder / SIGNIFICANT
