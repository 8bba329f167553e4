"""Summary files, `measurements/*.yml`, and what a name on the command line means.

    model: resnet50
    weights: null
    input_size: [3, 224, 224]
    processed: false
    batch_sizes: [1, 32, 128]
    variants:
      - {dtype: bfloat16, memory_format: channels_last, batch_sizes: [128]}

The keys are those of `opdb.spec`. A variant says only what differs; the file itself is the first.
`processed` is a marker for people: the database is what is trusted.

Beside them may lie the project's list of significant operators, `significant.yml`:

    target: 0.95
    always: []
    never: [dropout]

A kind under `always` is measured in any case and first, under `never` not at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from opdb.checkpoints import of_hub
from opdb.errors import InputError, shown
from opdb.files import read_text, write_file
from opdb.kinds import KINDS
from opdb.models import checked
from opdb.models.catalogue import sources_of
from opdb.records import Json
from opdb.spec import OPTIONS, ModelSpec, Option, is_count, nearest

SIGNIFICANT = "significant.yml"
TARGET = 0.95
"""Share of each model's time and of its energy that measured operators are to explain."""

_WHAT = "a summary file"
_ENDINGS = (".yml", ".yaml")
_PROCESSED = Option("switch", key="processed", varies=False)
_KEYS = {option.key: option for option in (*OPTIONS.values(), _PROCESSED) if option.key is not None}
_VARYING = [key for key, option in _KEYS.items() if option.varies]
_SIZES = "a list of whole numbers of 1 or more, such as [1, 32, 128]"
_MARKER = re.compile(r"^(processed:[ \t]*)[^#\r\n]*?(?=[ \t]*(?:#|\r?$))", re.MULTILINE)
_UNREADABLE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
_VARIANTS = "a list of mappings that say what differs"


def load_summary(path: Path) -> list[ModelSpec]:
    """Read a summary file: every batch size of the file and of each variant, in order.

    The specs tell which file names the model, so that no code is run which it names.
    """
    document = parse_mapping(path, read_text(path, _WHAT))
    variants = document.get("variants", [])
    if not isinstance(variants, list) or not all(isinstance(each, dict) for each in variants):
        raise InputError(f"{path}: variants: found {shown(variants)}; allowed: {_VARIANTS}")
    _check(path, document, [*_KEYS, "variants"])
    if "model" not in document:
        raise InputError(f"{path}: key model is missing; give {_KEYS['model'].allowed_text}")
    for number, variant in enumerate(variants):
        _check(path, variant, _VARYING, f"variants[{number}].")
    return list({repr(each): each for each in _specs(path, document)}.values())


def _check(path: Path, said: Mapping[str, Any], valid: Sequence[str], at: str = "") -> None:
    for key, value in said.items():
        if key not in valid:
            raise InputError(f"{path}: {unknown_key(key, valid, at)}")
        option = _KEYS.get(key)
        if option is None or (value is None and option.kind not in ("name", "switch")):
            continue
        several = isinstance(value, list) and bool(value) and all(map(is_count, value))
        if not (several if key == "batch_sizes" else option.allows(value)):
            allowed = _SIZES if key == "batch_sizes" else option.allowed_text
            raise InputError(f"{path}: {at}{key}: found {shown(value)}; allowed: {allowed}")


def _specs(path: Path, document: Mapping[str, Any]) -> Iterator[ModelSpec]:
    for variant in ({}, *document.get("variants", ())):
        said = {**document, **{key: value for key, value in variant.items() if value is not None}}
        # A variant that gives one kind of input does not take the other from the file.
        if variant.get("inputs") is not None:
            said["input_size"] = variant.get("input_size")
        elif variant.get("input_size") is not None:
            said["inputs"] = None
        if said.get("input_size") is not None:
            said["input_size"] = tuple(said["input_size"])
        given = {name: said.get(str(option.key)) for name, option in OPTIONS.items() if option.key}
        for batch_size in said.get("batch_sizes") or [None]:
            yield ModelSpec(**{**given, "batch_size": batch_size}, named_in=str(path))


def mark_processed(path: Path) -> None:
    """Set `processed` to true and leave every other character of the file as it is.

    The file appears whole or not at all, under its own permissions.
    """
    text = read_text(path, _WHAT)
    if parse_mapping(path, text).get("processed") is True:
        return
    marked, found = _MARKER.subn(r"\1true", text, count=1)
    if not found:
        marked = f"{text}{'' if text.endswith(chr(10)) else chr(10)}processed: true\n"
    import yaml

    try:
        done = yaml.safe_load(marked)["processed"] is True
    except (yaml.YAMLError, KeyError):
        done = False
    if not done:
        raise InputError(f"{path}: a line 'processed: true' cannot be put in; write it by hand")
    write_file(path, marked.encode())


def summary_files(argument: str) -> list[Path]:
    """Return the summary files that an argument names, a folder's all; none for a model's name.

    What ends as summary files do is one. A folder may have a model's name by chance: with a slash
    in it it is meant.
    """
    if not argument:
        raise InputError("the name of a model is empty")
    path = Path(argument)
    if path.is_dir() and ("/" in argument or not sources_of(argument)):
        inside = [each for each in path.iterdir() if each.suffix in _ENDINGS]
        found = sorted(each for each in inside if each.name != SIGNIFICANT)
        if not found:
            raise InputError(f"folder {path}: no summary file (*.yml) in it")
        return found
    is_file = path.suffix in _ENDINGS or ("/" in argument and path.exists())
    return [path] if is_file else []


def requests_in(path: Path, options: ModelSpec) -> list[ModelSpec]:
    """Return every request of a summary file, with what the options say otherwise."""
    changed = [request.changed(options) for request in load_summary(path)]
    _check_step(changed, options)
    return [request for number, request in enumerate(changed) if request not in changed[:number]]


def requests_named(name: str, options: ModelSpec) -> list[ModelSpec]:
    """Return all that a name and the options mean, checked: of a file or folder every request."""
    files = summary_files(name)
    found = [request for path in files for request in requests_in(path, options)]
    return [checked(request) for request in found] if files else [checked_request(name, options)]


def request_for(name: str, options: ModelSpec) -> ModelSpec:
    """Return the one request that a model's name (or summary file) and the options mean.

    A name means plain defaults (see `ModelSpec`), and what the options say otherwise: inference,
    on the model's own inputs. A summary file means its first request that agrees with
    the options; where none does, the first, changed to what the options say.
    """
    files = summary_files(name)
    if len(files) > 1:
        raise InputError(f"folder {name} holds {len(files)} summary files; name one of them")
    found = ModelSpec(of_hub(name) or name)
    if files:
        requests = load_summary(files[0])
        agreeing = [request for request in requests if request.changed(options) == request]
        found = (agreeing or requests)[0]
    found = found.changed(options)
    _check_step([found], options)
    return found


def checked_request(name: str, options: ModelSpec) -> ModelSpec:
    """Return the request of a name (or summary file) with its source found, all of it valid."""
    return checked(request_for(name, options))


def _check_step(requests: Sequence[ModelSpec], options: ModelSpec) -> None:
    for name, option in OPTIONS.items():
        given = option.data == "training" and getattr(options, name) is not None
        if given and any(request.training is None for request in requests):
            raise InputError(f"{option.flag} is for a training step: add --phase training")


@cache
def _loader() -> Any:
    import yaml  # which takes its time: a model's name needs none

    class Loader(yaml.SafeLoader):
        """Reads YAML whose keys are text and there once, without what only a hostile file uses."""

        def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
            if self.check_event(yaml.AliasEvent):
                problem, mark = "an alias; write the values out", self.get_mark()
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=mark)
            return super().compose_node(parent, index)

        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            seen: set[str] = set()
            for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
                is_text = isinstance(key, yaml.ScalarNode) and key.tag == "tag:yaml.org,2002:str"
                if not is_text or key.value in seen:
                    fault = "there twice" if is_text else "not text; put it in quotes"
                    problem = f"key {shown(key.value)} is {fault}"
                    raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
                seen.add(key.value)
            return super().construct_mapping(node, deep)

    return Loader


def parse_mapping(
    path: Path, text: str, what: str = _WHAT, least: str = "model: NAME"
) -> dict[str, Any]:
    import yaml

    try:
        document = yaml.load(text, _loader())
        repr(document)  # fails for a number of more digits than Python prints
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
        raise InputError(f"{path}{where}: not valid YAML: {problem}") from error
    except _UNREADABLE as error:
        raise InputError(f"{path}: not valid YAML: {error}") from error
    if document is None:
        raise InputError(f"{path} is empty; {what} has at least: {least}")
    if not isinstance(document, dict):
        raise InputError(f"{path}: found {shown(document)}; {what} has keys, at least: {least}")
    return document


def unknown_key(key: object, valid: Iterable[str], at: str = "") -> str:
    advice = nearest(str(key), valid) or "allowed: " + ", ".join(valid)
    return f"unknown key {at}{key}; {advice}"


# The list of significant operators.

_LIST = "the list of significant operators"
_ALLOWED = {
    "target": "a share above 0, up to 1",
    "always": "a list of kinds",
    "never": "a list of kinds",
}


@dataclass(frozen=True)
class Significance:
    """What a person says in the list; the defaults are those of a project without one."""

    target: float = TARGET
    always: tuple[str, ...] = ()
    never: tuple[str, ...] = ()


def load_significance(path: Path) -> Significance:
    """Read the list; the defaults where there is no such file. Mistakes are told all at once."""
    if not path.exists():
        return Significance()
    document = parse_mapping(path, read_text(path, _LIST), _LIST, f"target: {TARGET:g}")
    problems = [unknown_key(name, _ALLOWED) for name in document if name not in _ALLOWED]
    for name, value in document.items():
        if name in _ALLOWED and not (_is_share(value) if name == "target" else _is_kinds(value)):
            problems.append(f"{name}: found {shown(value)}; allowed: {_ALLOWED[name]}")
    if problems:
        raise InputError(f"{path}: " + "; ".join(problems))
    always, never = (tuple(document.get(name, ())) for name in ("always", "never"))
    found = Significance(document.get("target", TARGET), always, never)
    if both := set(found.always) & set(found.never):
        raise InputError(f"{path}: {', '.join(sorted(both))}: both under always and under never")
    return found


def _is_share(value: Json) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 1


def _is_kinds(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(e, str) and e in KINDS for e in value)
