"""The names of the models that can be asked for, and the inputs that they take unless told.

Nothing here imports torch: `names.json` lists the names of torchvision's and transformers' models,
written by `python -m benchmarks.model_names`. Other versions than those of that file are imported
to be asked.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from opdb.checkpoints import BARE, CHECKPOINTS, checkpoint
from opdb.errors import UnknownNameError
from opdb.packaging import install
from opdb.spec import TOKENS, is_import_path

FEATURES = 784

IMAGE_SIDE = 224
"""The side of an image, unless the model's configuration says another."""

FAMILY_SIZES: Mapping[str, tuple[int, ...]] = {
    "classification": (3, IMAGE_SIDE, IMAGE_SIDE),
    "segmentation": (3, 520, 520),
    "detection": (3, 800, 800),
    "optical_flow": (3, 520, 960),
}
"""One input of the models of each of torchvision's families, video apart: these each have one."""

_BUILTIN: Mapping[str, tuple[str, int]] = {
    "lstm": ("language model, two LSTM layers", TOKENS),
    "mlp": ("perceptron, two hidden layers", FEATURES),
    "transformer": ("classifier, four encoder layers", TOKENS),
}
"""opdb's own models: what each is, and the length of its input."""

_LISTED: Mapping[str, Any] = json.loads(Path(__file__).with_name("names.json").read_text())
IMAGE_AXES = ("channels", "height", "width")
_VIDEO_AXES = 4


@dataclass(frozen=True)
class CatalogueModel:
    name: str
    source: str
    what: str


@cache
def catalogue() -> tuple[CatalogueModel, ...]:
    """Return the models of all sources that list their names, by source and name."""
    checkpoints = {name: f"checkpoint of type {kind}" for name, (kind, _) in CHECKPOINTS.items()}
    listed = {
        "builtin": {name: what for name, (what, _) in _BUILTIN.items()},
        "torchvision": _names_of("torchvision"),
        "transformers": _names_of("transformers") | checkpoints,
    }
    return tuple(
        CatalogueModel(name, source, what)
        for source, found in listed.items()
        for name, what in sorted(found.items())
    )


def of_timm() -> tuple[CatalogueModel, ...]:
    """Return the models of timm where it is installed: it is imported, which takes seconds."""
    if version_of("timm") is None:
        return ()
    from timm import list_models

    return tuple(CatalogueModel(f"timm:{name}", "timm", "model") for name in list_models())


def _names_of(package: str) -> dict[str, str]:
    if (installed := version_of(package)) is None:
        return {}
    models: dict[str, str] = _LISTED[package]["models"]
    if installed != _LISTED[package]["version"]:
        file = "sources" if package == "torchvision" else package
        present = import_module(f"opdb.models.{file}").NAMES[package]()
        models = {name: models.get(name, "model") for name in present}
    return {name: what.replace("_", " ") for name, what in models.items()}


def version_of(package: str) -> str | None:
    """Return the version of a package, without build suffixes; None where it is not installed."""
    from importlib import metadata  # which parses mail: 20 ms, and a stored model needs no version

    try:
        return metadata.version(package).partition("+")[0]
    except metadata.PackageNotFoundError:
        return None


def sources_of(name: str) -> list[str]:
    """Return the sources that have a model, the one that a bare name means first."""
    if ":" in name:
        return ["python" if is_import_path(name) else "timm"]
    found = [each.source for each in catalogue() if each.name == name]
    body = name.removesuffix(BARE)
    in_transformers = {each.name for each in catalogue() if each.source == "transformers"}
    if not found and (body in in_transformers or checkpoint(name) is not None):
        return ["transformers"]
    return found


def unknown_model(
    name: str, also: Iterable[str] = (), source: str | None = None
) -> UnknownNameError:
    """Return the error of a name that a source lacks, or all; `also` are names known besides."""
    valid = {each.name for each in catalogue() if source in (None, each.source)}
    what = "model" if source is None else f"{source} model"
    return UnknownNameError(what, name, {*valid, *also}, hint=unknown_hint())


def unknown_hint() -> str:
    hints = [
        f"(more names come with {package}: {install(package if package == 'transformers' else '')})"
        for package in _LISTED
        if version_of(package) is None
    ]
    own = (
        '(a model of your own is "package.module:callable" or "file.py:callable"; opdb show models '
        "has all names; nothing is downloaded from a hub)"
    )
    return " ".join([*hints, own])


def image_size(name: str) -> tuple[int, ...] | None:
    """Channels, height, width; None where the model's configuration does not say one."""
    kind, overrides = checkpoint(name) or (name, {})
    side = _LISTED["transformers"]["image_sides"].get(kind.replace("-", "_"))
    return None if side is None or "image_size" in overrides else (3, side, side)


def is_usual(source: str, name: str, size: Sequence[int] | None) -> bool | None:
    """`size` is without the batch; None where it is not known without building the model."""
    if size is None:
        return None
    if source == "builtin" and name in _BUILTIN:
        return tuple(size) == (_BUILTIN[name][1],)
    if source == "torchvision" and len(size) != _VIDEO_AXES:
        family = _LISTED["torchvision"]["models"].get(name)
        return tuple(size) == FAMILY_SIZES.get(family, FAMILY_SIZES["classification"])
    if source == "transformers" and len(size) == 1 and size[0] >= TOKENS:
        return size[0] == TOKENS  # who has positions for fewer takes no such text
    if source == "transformers" and len(size) == len(IMAGE_AXES):
        known = image_size(name)
        return None if known is None else tuple(size) == known
    return None
