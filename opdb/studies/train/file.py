"""Matrix files: models and options of training runs, each a value or a list.

    models: [resnet50, vgg16]
    batch_sizes: [32, 128]
    precision: [fp32, amp]
    backend: cuda
    repeats: 3                 # so many runs of each combination, each in a process of its own
    iters: 50                  # any option of a training run, by its name in opdb measure
    note: after the new driver
    variants:                  # further matrices; each says only what differs
      - {images: data/train, workers: [4, 8], pin_memory: true}

Every list is an axis, and every combination of the axes is a run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from itertools import product
from pathlib import Path
from typing import Any

from opdb.errors import InputError, shown
from opdb.files import read_text
from opdb.models import checked
from opdb.runs import BACKENDS, PRECISIONS, DriverOptions, ImageOptions
from opdb.spec import DTYPES, OPTIMIZERS, ModelSpec, nearest
from opdb.summary import parse_mapping, unknown_key


@dataclass(frozen=True)
class Combination:
    """One training of a matrix; `number` counts its repeats from 1, each a run of its own."""

    model: str
    batch_size: int = 1
    precision: str = "fp32"
    backend: str = "auto"
    input_size: tuple[int, ...] | None = None
    dtype: str = "float32"
    channels_last: bool = False
    optimizer: str = "sgd"
    grad_accum_steps: int = 1
    options: DriverOptions = field(default_factory=DriverOptions)
    number: int = 1

    @property
    def images_per_step(self) -> int:
        return self.batch_size * self.grad_accum_steps

    def parts(self, backend: str) -> tuple[str, ...]:
        """Return its properties on a backend besides its model, batch size and number.

        They depend only on what runs, not on the file: defaults are left out, so that a label stays
        the same when an axis is added.
        """
        precision = self.precision if self.dtype == "float32" else self.dtype
        return (precision, backend, *self._unusual())

    def group(self, backend: str) -> str:
        precision, *others = self.parts(backend)
        return f"{self.model}-b{self.batch_size}-{precision}-" + "+".join(others)

    def label(self, backend: str) -> str:
        number = f"#{self.number}" if self.number > 1 else ""
        return self.group(backend) + number

    def _unusual(self) -> list[str]:
        usual = Combination(self.model)
        names = ("input_size", "channels_last", "optimizer", "grad_accum_steps")
        said = _differing(self, usual, names)
        said += _differing(self.options, usual.options, ("deterministic", "cudnn_benchmark"))
        if self.options.images is not None:
            images = self.options.images
            said.append(f"images={images.folder}")
            said += [] if images.augment else ["no_augment"]
            how = [f.name for f in fields(images) if f.name not in ("folder", "augment")]
            said += _differing(images, ImageOptions(images.folder), how)
        said += _differing(self.options, usual.options, ("warmup_iters", "iters"))
        if self.options.repeats != usual.options.repeats:
            said.append(f"stretches={self.options.repeats}")
        return said + _differing(self.options, usual.options, ("nvtx",))


def _differing(one: Any, usual: Any, names: Iterable[str]) -> list[str]:
    """Return "name=value" of each option that is not at its default; its name alone if it is
    true."""
    found = []
    for name in names:
        value = getattr(one, name)
        if value != getattr(usual, name):
            text = "x".join(map(str, value)) if isinstance(value, tuple) else value
            found.append(name if value is True else f"{name}={text}")
    return found


MOST_RUNS = 10_000

_WHAT, _LEAST = "a matrix file", "models: [NAME]"
_SIZES = "one input's shape without the batch, such as [3, 224, 224], or a list of such"
_FOLDER = "a folder with one folder of images a class, or null for synthetic data"


@dataclass(frozen=True)
class _Key:
    """The values of a key of the file: one that passes, or where `axis` a list of such."""

    allowed: str
    passes: Callable[[Any], bool]
    words: tuple[str, ...] = ()
    axis: bool = True


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_size(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(_least(1)(each) for each in value)


def _least(least: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and value >= least


def _word(words: tuple[str, ...]) -> _Key:
    return _Key("one or a list of " + ", ".join(words), lambda value: value in words, words)


def _count(least: int) -> _Key:
    return _Key(f"one or a list of whole numbers of {least} or more", _least(least))


_FLAG = _Key("true, false or [false, true]", lambda value: isinstance(value, bool))

_KEYS: Mapping[str, _Key] = {
    "models": _Key("one or a list of model names", _is_text),
    "batch_sizes": _count(1),
    "precision": _word(PRECISIONS),
    "backend": _word(BACKENDS),
    "input_size": _Key(_SIZES, lambda value: value is None or _is_size(value)),
    "dtype": _word(DTYPES),
    "channels_last": _FLAG,
    "optimizer": _word(OPTIMIZERS),
    "grad_accum_steps": _count(1),
    "deterministic": _FLAG,
    "cudnn_benchmark": _FLAG,
    "images": _Key(_FOLDER, lambda value: value is None or _is_text(value)),
    "augment": _FLAG,
    "workers": _count(0),
    "pin_memory": _FLAG,
    "prefetch_factor": _count(1),
    "warmup_iters": _count(1),
    "iters": _count(1),
    "stretches": _count(1),
    "nvtx": _FLAG,
    "repeats": _Key("a whole number of 1 or more", _least(1), axis=False),
    "note": _Key("a text, or null", lambda value: value is None or _is_text(value), axis=False),
}
_OF_IMAGES = ("augment", "workers", "pin_memory", "prefetch_factor")
_OF_OPTIONS = ("deterministic", "cudnn_benchmark", "warmup_iters", "iters", "nvtx", "note")
_RENAMED = {"models": "model", "batch_sizes": "batch_size"}


def load_matrix(path: Path, *, allow_code: bool = False) -> list[Combination]:
    """Read a matrix file: its combinations, those of one repeat before those of the next.

    Repeats are as far apart as possible, so that their spread shows drift.
    """
    document = parse_mapping(path, read_text(path, _WHAT), _WHAT, _LEAST)
    problems = _unknown(document, (*_KEYS, "variants"), "")
    variants = document.pop("variants", [])
    if not isinstance(variants, list) or not all(isinstance(each, dict) for each in variants):
        allowed = "a list of mappings that say what differs"
        problems.append(f"variants: found {shown(variants)}; allowed: {allowed}")
        variants = []
    if "models" not in document:
        problems.append(f"key models is missing; give {_KEYS['models'].allowed}")
    problems += _wrong(document, "")
    for number, variant in enumerate(variants):
        at = f"variants[{number}]."
        problems += [*_unknown(variant, tuple(_KEYS), at), *_wrong(variant, at)]
    said = [document, *({**document, **variant} for variant in variants)]
    if not problems:
        problems = [p for each in said for p in _contradictions(each)]
    if problems:
        raise InputError(f"{path}: " + "; ".join(dict.fromkeys(problems)))
    found: dict[str, Combination] = {}
    for each in said:
        for combination in _combinations(each):
            found.setdefault(combination.label(combination.backend), combination)
    if not allow_code:
        for model in dict.fromkeys(combination.model for combination in found.values()):
            checked(ModelSpec(model, named_in=str(path)))
    return sorted(found.values(), key=lambda combination: combination.number)


def _unknown(mapping: Mapping[str, Any], valid: tuple[str, ...], at: str) -> list[str]:
    return [unknown_key(key, valid, at) for key in mapping if key not in valid]


def _wrong(mapping: Mapping[str, Any], at: str) -> list[str]:
    """Return what is wrong with the values of a mapping's known keys."""
    problems = []
    for name, value in mapping.items():
        key = _KEYS.get(name)
        if key is None:
            continue
        if key.axis and isinstance(value, list) and not value:
            problems.append(f"{at}{name}: found []; allowed: {key.allowed}")
        for where, each in _places(name, value):
            if not key.passes(each):
                near = isinstance(each, str) and nearest(each, key.words)
                advice = f"; {near}" if near else ""
                problems.append(f"{at}{where}: found {shown(each)}; allowed: {key.allowed}{advice}")
            elif reason := _REASONS.get(name, lambda _: None)(each):
                problems.append(f"{at}{where}: {reason}")
    return problems


def _no_model(name: str) -> str | None:
    try:
        checked(ModelSpec(name))
    except InputError as error:
        return str(error)
    return None


def _no_folder(folder: str | None) -> str | None:
    if folder is None or Path(folder).is_dir():
        return None
    return f"found {folder!r}; there is no such folder; allowed: {_FOLDER}"


_REASONS: Mapping[str, Callable[[Any], str | None]] = {"models": _no_model, "images": _no_folder}
"""Says of a value of the right form why it is not allowed."""


def _places(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield each value of a key with its place in the file."""
    is_list = isinstance(value, list)
    if name == "input_size":  # one size is a list itself
        is_list = is_list and all(isinstance(each, list | None) for each in value)
    if not is_list or not _KEYS[name].axis:
        yield name, value
        return
    for number, each in enumerate(value):
        yield f"{name}[{number}]", each


def _values(said: Mapping[str, Any]) -> dict[str, list[Any]]:
    return {
        name: list(dict.fromkeys(_plain(each) for _, each in _places(name, value)))
        for name, value in said.items()
    }


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _contradictions(said: Mapping[str, Any]) -> Iterator[str]:
    """Yield the values of a matrix that are not possible together."""
    values = _values(said)
    of_images = [name for name in _OF_IMAGES if name in values]
    if of_images and None in values.get("images", [None]):
        yield f"{of_images[0]} is for images: give a folder, in a variant where others have none"
    if 0 in values.get("workers", []) and "prefetch_factor" in values:
        yield "prefetch_factor needs workers: say workers 0 in a variant without it"
    if "amp" in values.get("precision", []) and set(values.get("dtype", [])) - {"float32"}:
        yield "precision amp is of a model in float32: say other dtypes in a variant with fp32"
    runs = math.prod(map(len, values.values())) * said.get("repeats", 1)
    if runs > MOST_RUNS:
        yield f"{runs} runs; a matrix has at most {MOST_RUNS}"


def _combinations(said: Mapping[str, Any]) -> Iterator[Combination]:
    values = _values(said)
    [repeats] = values.pop("repeats", [1])
    ordered = [name for name in _KEYS if name in values]
    for number in range(1, repeats + 1):
        for chosen in product(*(values[name] for name in ordered)):
            yield _combination(dict(zip(ordered, chosen, strict=True)), number)


def _combination(said: dict[str, Any], number: int) -> Combination:
    folder = said.pop("images", None)
    of_images = {name: said.pop(name) for name in _OF_IMAGES if name in said}
    images = None if folder is None else ImageOptions(Path(folder), **of_images)
    of_options = {name: said.pop(name) for name in _OF_OPTIONS if name in said}
    if "stretches" in said:
        of_options["repeats"] = said.pop("stretches")
    named = {_RENAMED.get(name, name): value for name, value in said.items()}
    options = DriverOptions(images=images, **of_options)
    return Combination(**named, options=options, number=number)
