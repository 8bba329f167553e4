"""Summary files: what a person asks for of one model, `measurements/*.yml`.

    model: resnet50
    weights: null
    input_size: [3, 224, 224]
    processed: false
    batch_sizes: [1, 32, 128]
    variants:
      - {dtype: bfloat16, memory_format: channels_last, batch_sizes: [128]}

A variant says only what differs; the file itself is the first. `processed` is a marker for people:
the database is what is trusted.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, cast

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    StrictBool,
    StrictInt,
    StrictStr,
    ValidationError,
)
from pydantic_core import ErrorDetails

from opdb.errors import InputError
from opdb.models import (
    AUTOCASTS,
    CACHES,
    DTYPES,
    EXPERTS,
    MEMORY_FORMATS,
    OPTIMIZERS,
    PHASES,
    QUANTIZED,
    ModelRequest,
    sources,
)
from opdb.records import Json, Phase

SIGNIFICANT = "significant.yml"
"""The project's list of significant operators, beside the summary files: see opdb.significance."""

LARGEST_BYTES = 128 * 1024
_ENDINGS = (".yml", ".yaml")
_DEEPEST = 32
_WIDEST_BITS = 63
_NEW_FILE = 0o644

Size = Annotated[StrictInt, Field(ge=1)]
Sizes = Annotated[list[Size], Field(min_length=1)]

_ALLOWED = {
    "model": "a model's name",
    "weights": "null (random) or the name of published weights",
    "input_size": "one input's shape without the batch, such as [3, 224, 224], or null",
    "processed": "true or false",
    "source": "one of " + ", ".join(sources()) + ", or null",
    "dtype": "one of " + ", ".join(DTYPES),
    "memory_format": "one of " + ", ".join(MEMORY_FORMATS),
    "phase": "one of " + ", ".join(PHASES),
    "autocast": "the dtype to cast to: one of " + ", ".join(AUTOCASTS) + ", or null",
    "optimizer": "of a training step: one of " + ", ".join(OPTIMIZERS),
    "accumulation": "a whole number of batches whose gradients add up, 1 or more",
    "context": "of phase decode: a whole number of positions that are filled, 1 or more",
    "max_new_tokens": "of phase generate: a whole number of new tokens, 1 or more",
    "cache_length": "a whole number of positions of a static cache, 1 or more, or null",
    "cache": "of phase prefill or decode: one of " + ", ".join(CACHES),
    "experts": "of phase prefill or decode: one of " + ", ".join(EXPERTS),
    "imbalance": "how unevenly a router chooses experts: a number of 0 or more",
    "quantize": "of phase prefill or decode: one of " + ", ".join(QUANTIZED),
    "batch_sizes": "a list of whole numbers of 1 or more, such as [1, 32, 128]",
    "inputs": "a mapping of args and kwargs, or null",
    "variants": "a list of mappings that say what differs",
}
_WORDS = {
    "dtype": DTYPES,
    "memory_format": MEMORY_FORMATS,
    "phase": PHASES,
    "autocast": AUTOCASTS,
    "optimizer": OPTIMIZERS,
    "cache": CACHES,
    "experts": EXPERTS,
    "quantize": QUANTIZED,
    "source": tuple(sources()),
}


class Variant(BaseModel):
    """What a variant may say otherwise than the file; None where it does not."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    dtype: StrictStr | None = None
    memory_format: StrictStr | None = None
    phase: StrictStr | None = None
    autocast: StrictStr | None = None
    optimizer: StrictStr | None = None
    accumulation: Size | None = None
    context: Size | None = None
    max_new_tokens: Size | None = None
    cache_length: Size | None = None
    cache: StrictStr | None = None
    experts: StrictStr | None = None
    imbalance: Annotated[float, Field(ge=0, strict=True, allow_inf_nan=False)] | None = None
    quantize: StrictStr | None = None
    batch_sizes: Sizes | None = None
    input_size: Sizes | None = None
    inputs: dict[StrictStr, Any] | None = None


class Summary(Variant):
    """A summary file's content."""

    model: Annotated[StrictStr, Field(min_length=1)]
    weights: StrictStr | None = None
    processed: StrictBool = False
    source: StrictStr | None = None
    variants: tuple[Variant, ...] = ()
    _file: Path | None = PrivateAttr(None)

    def requests(self) -> list[ModelRequest]:
        """Return what to harvest: every batch size of the file and of each variant, in order.

        They say which file names the model, so that no code is run which it names.
        """
        found: dict[str, ModelRequest] = {}
        for variant in (self, *self.variants):
            for request in self._requests(variant):
                found.setdefault(repr(request), request)
        return list(found.values())

    def _requests(self, variant: Variant) -> Iterable[ModelRequest]:
        def said(name: str) -> Any:
            value = getattr(variant, name)
            return getattr(self, name) if value is None else value

        # A variant that gives one kind of input does not take the other from the file.
        inputs, size = said("inputs"), said("input_size")
        if variant.inputs is not None:
            size = variant.input_size
        elif variant.input_size is not None:
            inputs = None
        for batch_size in said("batch_sizes") or [1]:
            yield ModelRequest(
                name=self.model,
                source=self.source,
                weights=self.weights,
                batch_size=batch_size,
                input_size=None if size is None else tuple(size),
                dtype=said("dtype") or "float32",
                memory_format=said("memory_format") or "contiguous",
                phase=cast(Phase, said("phase") or "inference"),
                inputs=inputs,
                autocast=said("autocast"),
                optimizer=said("optimizer") or OPTIMIZERS[0],
                accumulation=said("accumulation") or 1,
                context=said("context"),
                max_new_tokens=said("max_new_tokens"),
                cache_length=said("cache_length"),
                cache=said("cache"),
                experts=said("experts"),
                imbalance=said("imbalance"),
                quantize=said("quantize"),
                named_in=None if self._file is None else str(self._file),
            )


def summaries_in(folder: Path) -> list[Path]:
    """Return a folder's summary files, sorted: every *.yml but the list of what is significant."""
    found = (each for each in folder.iterdir() if each.suffix in _ENDINGS)
    return sorted(each for each in found if each.name != SIGNIFICANT)


def load_summary(path: Path) -> Summary:
    """Read a summary file.

    Raises:
        InputError: it cannot be read or does not hold a summary; all of its mistakes at once.
    """
    if path.name == SIGNIFICANT and path.is_file():
        raise InputError(
            f"{path} is the list of significant operators, which opdb build reads; "
            "give a model's summary file"
        )
    document = parse_mapping(path, read_text(path))
    problems = _misspelled(document, Summary)
    try:
        found = Summary.model_validate(document)
    except ValidationError as error:
        problems += explained(error, _ALLOWED)
    if not problems:
        found._file = path
        return found
    raise InputError(f"{path}: " + "; ".join(dict.fromkeys(problems)))


def mark_processed(path: Path) -> None:
    """Set `processed` to true and leave every other character of the file as it is.

    The file appears whole or not at all, under its own permissions.

    Raises:
        InputError: it cannot be read as YAML, or cannot be written.
    """
    text = read_text(path)
    document = parse_mapping(path, text)
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    assert isinstance(root, yaml.MappingNode)
    for key, value in root.value:
        if key.value == "processed":
            if not isinstance(value, yaml.ScalarNode):
                raise InputError(f"{path}: processed: allowed: {_ALLOWED['processed']}")
            if document["processed"] is True:
                return
            start, end = value.start_mark.index, value.end_mark.index
            replace_text(path, f"{text[:start]}true{text[end:]}")
            return
    if root.flow_style:
        end = text.index("}", root.value[-1][1].end_mark.index)
        replace_text(path, f"{text[:end].rstrip()}, processed: true{text[end:]}")
        return
    newline = "\r\n" if "\r\n" in text else "\n"
    end = root.end_mark.index
    gap = "" if text[:end].endswith("\n") else newline
    replace_text(path, f"{text[:end]}{gap}processed: true{newline}{text[end:]}")


def read_text(path: Path, what: str = "a summary file") -> str:
    """Return the text of a small file.

    Raises:
        InputError: it is none, or cannot be read; `what` says what was wanted.
    """
    try:
        if path.is_dir():
            raise InputError(f"{path} is a folder; give {what}")
        if path.stat().st_size > LARGEST_BYTES:
            size = path.stat().st_size
            raise InputError(f"{path}: {size} bytes; {what} has at most {LARGEST_BYTES}")
        return path.read_bytes().decode("utf-8")
    except FileNotFoundError as error:
        raise InputError(f"{path}: no such file") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not a text file (byte {error.start} is not UTF-8)") from error


def parse_mapping(
    path: Path, text: str, what: str = "a summary file", least: str = "model: NAME"
) -> dict[str, Any]:
    """Return the mapping that a YAML text holds.

    Raises:
        InputError: it is not YAML, or is something else, nests too deep, or uses aliases or tags.
    """
    try:
        _check_shape(path, text)
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        document = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or str(error)
        raise InputError(f"{path}{where}: not valid YAML: {problem}") from error
    except (ValueError, OverflowError) as error:  # a date or number that only looks like one
        raise InputError(f"{path}: not valid YAML: {error}") from error
    if root is None or document is None:
        raise InputError(f"{path} is empty; {what} has at least: {least}")
    _check_numbers(path, document)
    if not isinstance(document, dict):
        raise InputError(f"{path}: found {_shown(document)}; {what} has keys, at least: {least}")
    names = [key.value for key, _ in root.value]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{path}: key {name!r} is there {names.count(name)} times")
    return document


def _check_numbers(path: Path, value: object) -> None:
    """Refuse whole numbers that no size is: Python cannot even print the largest."""
    if isinstance(value, int) and value.bit_length() > _WIDEST_BITS:
        raise InputError(
            f"{path}: a number of {value.bit_length()} bits; numbers have at most {_WIDEST_BITS}"
        )
    if isinstance(value, dict):
        for key in value:
            _check_numbers(path, key)
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            _check_numbers(path, each)


def _check_shape(path: Path, text: str) -> None:
    """Refuse what a small file never needs and a hostile one uses: aliases, tags and depth."""
    depth = 0
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        line = event.start_mark.line + 1 if event.start_mark else 0
        if isinstance(event, yaml.AliasEvent) or depth > _DEEPEST:
            what = "nested too deep" if depth > _DEEPEST else "an alias"
            raise InputError(f"{path}, line {line}: {what}; write the values out, in few levels")
        if tag := getattr(event, "tag", None):
            name = tag.replace("tag:yaml.org,2002:", "!!")
            raise InputError(
                f"{path}, line {line}: the tag {name}; write plain values without tags"
            )


def _misspelled(document: Mapping[Any, Any], model: type[BaseModel], at: str = "") -> list[str]:
    """Return what is wrong with a mapping's keys and with the words that have few valid values."""
    valid = list(model.model_fields)
    problems = []
    for key, value in document.items():
        if key not in valid:
            problems.append(unknown_key(key, valid, at))
        elif key in _WORDS and isinstance(value, str) and value not in _WORDS[key]:
            near = nearest(value, _WORDS[key])
            allowed = _ALLOWED[key]
            problems.append(
                f"{at}{key}: found {_shown(value)}; allowed: {allowed}" + (near and f"; {near}")
            )
    variants = document.get("variants") if model is Summary else None
    if isinstance(variants, list):
        for number, variant in enumerate(variants):
            if isinstance(variant, dict):
                problems += _misspelled(variant, Variant, f"variants[{number}].")
    return problems


def unknown_key(key: object, valid: Iterable[str], at: str = "") -> str:
    """Say that a key is not known, and what is."""
    advice = nearest(str(key), valid) or "allowed: " + ", ".join(valid)
    return f"unknown key {at}{key}; {advice}"


def nearest(name: str, valid: Iterable[str]) -> str:
    """Ask whether the nearest valid name was meant; empty where none is near."""
    near = get_close_matches(name, list(valid), n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else ""


def explained(error: ValidationError, allowed: Mapping[str, str]) -> list[str]:
    """Return validation errors in the words of the file; `allowed` says what a key may hold.

    Keys that are not known are left out: `unknown_key` says more of them.
    """
    found = error.errors(include_url=False)
    unknown = ("extra_forbidden", "invalid_key")
    return [_explained(each, allowed) for each in found if each["type"] not in unknown]


def _explained(detail: ErrorDetails, allowed_of: Mapping[str, str]) -> str:
    location = [part for part in detail["loc"] if not (isinstance(part, str) and "[" in part)]
    names = [part for part in location if isinstance(part, str)]
    at = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)[1:]
    if detail["type"] == "missing":
        return f"key {at} is missing; give {allowed_of.get(names[-1], 'a value')}"
    allowed = allowed_of.get(names[-1], detail["msg"]) if names else detail["msg"]
    return f"{at}: found {_shown(detail['input'])}; allowed: {allowed}"


def _shown(value: Json) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def replace_text(path: Path, text: str) -> None:
    """Write a file aside and rename it into place, under the permissions that it had.

    Raises:
        InputError: it cannot be written.
    """
    target = path.resolve()
    try:
        mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else _NEW_FILE
        number, name = tempfile.mkstemp(prefix=f".{target.name}-", dir=target.parent)
        aside = Path(name)
        try:
            with os.fdopen(number, "wb") as stream:
                stream.write(text.encode())
            aside.chmod(mode)
            aside.replace(target)
        finally:
            aside.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from error
