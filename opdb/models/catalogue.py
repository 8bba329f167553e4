"""The names of the models that can be asked for, found without importing torch.

torchvision's and transformers' names are in their source files, which are read, not run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import util
from pathlib import Path

from opdb.distribution import install
from opdb.errors import UnknownModelError
from opdb.models import names
from opdb.models.checkpoints import CHECKPOINTS

_FAMILIES = {
    "classification": ".",
    "segmentation": "segmentation",
    "video": "video",
    "detection": "detection",
    "optical flow": "optical_flow",
}
"""torchvision's families that opdb loads, and the folder of each below torchvision/models."""

_BUILTIN = {
    "lstm": "language model, two LSTM layers",
    "mlp": "perceptron, two hidden layers",
    "transformer": "classifier, four encoder layers",
}


@dataclass(frozen=True)
class CatalogueModel:
    """A model's name, the source that builds it, and what it is in a few words."""

    name: str
    source: str
    what: str


@cache
def catalogue() -> tuple[CatalogueModel, ...]:
    """Return the models of all sources that list their names, by source and name."""
    found = [CatalogueModel(name, "builtin", what) for name, what in _BUILTIN.items()]
    for source, listed in (("torchvision", _torchvision()), ("transformers", _transformers())):
        found += [CatalogueModel(name, source, what) for name, what in sorted(listed.items())]
    return tuple(found)


def is_known(name: str) -> bool:
    """Whether a source has a model of that name, or it is written as an import path."""
    spelled = name.replace("_", "-")  # as files are: bert_base
    return ":" in name or spelled in CHECKPOINTS or name in {each.name for each in catalogue()}


def unknown_model(name: str, also: Iterable[str] = ()) -> UnknownModelError:
    """Return the error of a name that no source has; `also` are names that are known besides."""
    valid = {each.name for each in catalogue()}
    return UnknownModelError(name, {*valid, *also}, hint=unknown_hint(name))


def unknown_hint(name: str) -> str:
    """Say what to install or write where no source has a name."""
    extras = {"transformers": "transformers"}
    hints = [
        f"(more names come with {package}: {install(extras.get(package, ''))})"
        for package in not_installed()
    ]
    if "/" in name:
        hints.append("(nothing is downloaded from a hub: name a model's type, as in llama)")
    hints.append('(a model of your own is "package.module:callable"; opdb list has all names)')
    return " ".join(hints)


@cache
def image_size(name: str) -> tuple[int, int, int] | None:
    """Return the image that a model of transformers takes by default: channels, height, width.

    None where the file of its configuration does not say one for one model alone.
    """
    kind, overrides = CHECKPOINTS.get(name.replace("_", "-"), (name, {}))
    folder, module = _folder("transformers"), kind.replace("-", "_")
    if folder is None or not module.isidentifier() or "image_size" in overrides:
        return None
    file = folder / "models" / module / f"configuration_{module}.py"
    if not file.is_file():
        return None
    body = ast.parse(file.read_text(encoding="utf-8")).body
    classes = [each for each in body if isinstance(each, ast.ClassDef)]
    said = {} if len(classes) != 1 else dict(_numbers(classes[0]))
    if "image_size" not in said or "num_channels" not in said:
        return None
    return said["num_channels"], said["image_size"], said["image_size"]


def _numbers(of: ast.ClassDef) -> Iterator[tuple[str, int]]:
    """Yield the attributes of a class that are whole numbers."""
    for each in of.body:
        value = each.value if isinstance(each, ast.AnnAssign) else None
        number = value.value if isinstance(value, ast.Constant) else None
        if isinstance(each, ast.AnnAssign) and isinstance(number, int):
            yield ast.unparse(each.target), number


def not_installed() -> list[str]:
    """Return the packages whose models are left out because they are not installed."""
    return [name for name in ("torchvision", "transformers") if _folder(name) is None]


def _folder(package: str) -> Path | None:
    found = util.find_spec(package)
    return None if found is None or found.origin is None else Path(found.origin).parent


def _torchvision() -> dict[str, str]:
    """Return torchvision's names, each with its family."""
    folder = _folder("torchvision")
    if folder is None:
        return {}
    found = {
        name: family
        for family, below in _FAMILIES.items()
        for file in sorted((folder / "models" / below).glob("*.py"))
        for name in _registered(file)
    }
    return found or dict.fromkeys(names("torchvision"), "")  # a version that registers otherwise


def _registered(file: Path) -> Iterator[str]:
    """Yield the names under which a file's functions are registered as models."""
    body = ast.parse(file.read_text(encoding="utf-8")).body
    for builder in (each for each in body if isinstance(each, ast.FunctionDef)):
        for called in builder.decorator_list:
            if isinstance(called, ast.Call) and ast.unparse(called.func) == "register_model":
                given = [*called.args, *(named.value for named in called.keywords)]
                yield str(ast.literal_eval(given[0])) if given else builder.name


def _transformers() -> dict[str, str]:
    """Return the checkpoints' names, and transformers' model types that have a base model."""
    found = {name: f"checkpoint of type {kind}" for name, (kind, _) in CHECKPOINTS.items()}
    folder = _folder("transformers")
    if folder is None:
        return found
    auto = folder / "models" / "auto"
    configured = _mapped(auto / "auto_mappings.py", "CONFIG_MAPPING_NAMES")
    configured |= _mapped(auto / "configuration_auto.py", "CONFIG_MAPPING_NAMES")
    types = configured & _mapped(auto / "modeling_auto.py", "MODEL_MAPPING_NAMES")
    listed = types or set(names("transformers"))  # a version that keeps them elsewhere
    return dict.fromkeys(listed, "model type") | found


def _mapped(file: Path, name: str) -> set[str]:
    """Return the keys that a file gives to a mapping: where it assigns or updates it."""
    if not file.is_file():
        return set()
    keys: set[str] = set()
    for each in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(each, ast.Assign):
            about = [ast.unparse(target) for target in each.targets]
        elif isinstance(each, ast.AnnAssign):
            about = [ast.unparse(each.target)]
        elif isinstance(each, ast.Expr) and isinstance(each.value, ast.Call):
            about = [ast.unparse(each.value.func).removesuffix(".update")]
        else:
            continue
        if name in about:
            keys |= set(_keys(each))
    return keys


def _keys(statement: ast.stmt) -> Iterator[str]:
    """Yield the keys of the literals in a statement: of dicts, and of lists of pairs."""
    for node in ast.walk(statement):
        written = node.keys if isinstance(node, ast.Dict) else ()
        pair = node.elts[:1] if isinstance(node, ast.Tuple) and len(node.elts) == 2 else ()
        for key in (*written, *pair):
            if isinstance(key, ast.Constant) and isinstance(key.value, str):
                yield key.value
