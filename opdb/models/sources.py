"""The sources of models: opdb's own, torchvision's, timm's, and models of your own.

Packages are imported as a model of theirs is asked for; transformers has a file of its own.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import util
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes

from opdb.errors import InputError, UnknownNameError
from opdb.models import Blueprint, sized_input
from opdb.models.catalogue import FAMILY_SIZES, FEATURES
from opdb.models.construction import ANY_FAILURE, one_line
from opdb.records import Json
from opdb.spec import TOKENS, ModelSpec

# opdb's own: small ones of the classes that torchvision lacks

VOCABULARY = 10_000


class LSTMLanguageModel(nn.Module):
    """An embedding, a two-layer LSTM and a projection to the vocabulary: (batch, length) tokens."""

    def __init__(self, outputs: int = VOCABULARY, width: int = 512) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.lstm = nn.LSTM(width, width, num_layers=2, batch_first=True)
        self.head = nn.Linear(width, outputs)

    def forward(self, tokens: Tensor) -> Tensor:
        states, _ = self.lstm(self.embedding(tokens))
        logits: Tensor = self.head(states)
        return logits


class TransformerClassifier(nn.Module):
    """An embedding, a four-layer transformer encoder and a classifier: (batch, length) tokens."""

    def __init__(self, outputs: int = 2, width: int = 256) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        layer = nn.TransformerEncoderLayer(width, 8, 4 * width, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers=4)
        self.head = nn.Linear(width, outputs)

    def forward(self, tokens: Tensor) -> Tensor:
        states = self.encoder(self.embedding(tokens))
        logits: Tensor = self.head(states.mean(dim=1))
        return logits


def mlp(outputs: int = 10, features: int = FEATURES, width: int = 1024) -> nn.Module:
    """Return a perceptron with two hidden layers: (batch, features) to (batch, outputs)."""
    return nn.Sequential(
        nn.Linear(features, width),
        nn.ReLU(),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Linear(width, outputs),
    )


def builtin(request: ModelSpec) -> Blueprint:
    """Build one of opdb's own; an input size is the number of features, or of tokens."""
    size = request.input_size or (FEATURES if request.name == "mlp" else TOKENS,)
    if len(size) != 1:
        raise InputError(f"input size {list(size)} of {request.name!r}; it takes one number")
    if request.name == "mlp":
        return Blueprint(mlp(features=size[0]), inputs=sized_input(size))
    tokens: dict[str, Json] = {
        "shape": ["batch", size[0]],
        "dtype": "int64",
        "values": {"range": [0, VOCABULARY]},
    }
    build = LSTMLanguageModel if request.name == "lstm" else TransformerClassifier
    return Blueprint(build(), inputs={"args": [tokens]})


# torchvision's: classification, segmentation, video, detection and optical flow

FAMILIES = ("segmentation", "video", "detection", "optical_flow")
_FRAMES = 16


def torchvision_names() -> list[str]:
    """Return the names of what `torchvision.models.get_model` builds, quantized ones left out."""
    from torchvision.models import list_models

    return [name for name in list_models() if not name.startswith("quantized_")]


def family_of(name: str) -> str:
    """Return what a model of torchvision is for: the package of `torchvision.models` it is in."""
    from torchvision.models import get_model_builder

    package = get_model_builder(name).__module__.split(".")[2]
    return package if package in FAMILIES else "classification"


def torchvision(request: ModelSpec) -> Blueprint:
    """Build the model; weights are downloaded where the request names them, never otherwise."""
    from torchvision import models

    family = family_of(request.name)
    options: dict[str, Any] = {"weights": _weights(models, request)}
    if family in ("segmentation", "detection"):
        options["weights_backbone"] = None
    try:
        with warnings.catch_warnings():
            # Some builders announce another default initialization: of no concern here.
            warnings.simplefilter("ignore", FutureWarning)
            module = models.get_model(request.name, **options)
    except OSError as error:  # urllib's errors are OSErrors
        raise InputError(
            f"weights {request.weights!r} of {request.name!r} cannot be had: {error}"
        ) from error
    size = request.input_size or FAMILY_SIZES.get(family)
    if size is None:  # video models are bound to the crop and length they were trained on
        trained = models.get_model_weights(request.name).DEFAULT
        frames = max(_FRAMES, trained.meta.get("min_temporal_size", 1))
        size = (3, frames, *trained.transforms().crop_size)
    inputs = sized_input(size)
    if family == "detection":
        inputs = {"args": [[{"shape": list(size)}] * (request.batch_size or 1)]}
    elif family == "optical_flow":
        inputs = {"args": inputs["args"] * 2}
    return Blueprint(module, inputs=inputs)


def _weights(models: Any, request: ModelSpec) -> object:
    if request.weights is None:
        return None
    known = models.get_model_weights(request.name)
    if request.weights not in known.__members__:
        raise UnknownNameError(f"weights of {request.name}", request.weights, known.__members__)
    return known[request.weights]


def timm(request: ModelSpec) -> Blueprint:
    """Build a model of timm, "timm:mixer_b16_224", for the images that it was made for."""
    try:
        from timm import create_model
    except ImportError as error:
        raise InputError(f"{request.name!r} is built by timm: {error}") from error
    module = create_model(request.name.removeprefix("timm:"))
    size = request.input_size or tuple(module.default_cfg["input_size"])
    return Blueprint(module, inputs=sized_input(size))


# models of your own


def python(request: ModelSpec) -> Blueprint:
    """Call what returns an nn.Module, or (module, args), or (module, args, kwargs).

    The callable, of a module of the working directory or of a file, is given `batch_size` where it
    has a parameter of that name: unless one is asked for its default, or 1.
    """
    build: Callable[..., object] = request.built_by or _find(request.name)
    batch_size = _batch_for(build, request.batch_size)
    answer: Any = build() if batch_size is None else build(batch_size=batch_size)
    parts = answer if isinstance(answer, tuple) else (answer,)
    if not 1 <= len(parts) <= 3 or not isinstance(parts[0], nn.Module):
        raise InputError(
            f"{request.name!r} returned {_spelled(answer)}; "
            "it must return an nn.Module, (module, args) or (module, args, kwargs)"
        )
    if request.input_size is not None:
        return Blueprint(parts[0], inputs=sized_input(request.input_size))
    if len(parts) == 1:
        return Blueprint(parts[0])
    args = tuple(parts[1]) if isinstance(parts[1], tuple | list) else (parts[1],)
    kwargs = parts[2] if len(parts) == 3 else {}
    if not isinstance(kwargs, dict):
        raise InputError(f"{request.name!r} returned keyword inputs as {_spelled(kwargs)}")
    return Blueprint(parts[0], example=(args, kwargs), batch_size=batch_size)


def _find(name: str) -> Callable[..., object]:
    path, _, attribute = name.rpartition(":")
    if not path or not attribute:
        raise InputError(f'model {name!r}; write an import path as "package.module:callable"')
    found: object = _import(path, name)
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise InputError(f"model {name!r}: {path} has no {attribute!r}")
        found = getattr(found, part)
    if isinstance(found, nn.Module) or not callable(found):
        raise InputError(f"model {name!r} is a {_spelled(found)}; give what returns a new module")
    return found


def _import(path: str, name: str) -> ModuleType:
    if path.endswith(".py") and not Path(path).is_file():
        raise InputError(f"model {name!r}: there is no file {path}")
    try:
        # What a module makes as it is imported stays, and is to have its values.
        with _importable_from(Path(path).parent), _disable_current_modes():
            return _file(path) if path.endswith(".py") else importlib.import_module(path)
    except ModuleNotFoundError as error:
        raise InputError(f"model {name!r}: no module named {error.name!r}") from error
    except ANY_FAILURE as error:  # an import runs anyone's code, which may raise anything
        raise InputError(f"model {name!r}: importing {path} failed: {one_line(error)}") from error


def _file(path: str) -> ModuleType:
    """Import a file, once, under a name that no other file has."""
    name = str(Path(path).resolve())
    if name in sys.modules:
        return sys.modules[name]
    spec = util.spec_from_file_location(name, name)
    assert spec is not None and spec.loader is not None, "it ends with .py"
    module = sys.modules[name] = util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:  # half a module, even of an interrupted import, must not be found again
        del sys.modules[name]
        raise
    return module


@contextmanager
def _importable_from(folder: Path) -> Iterator[None]:
    """Let modules in a folder be found, as `python -m` does; last, so that none is hidden."""
    here = str(folder.resolve())
    sys.path.append(here)
    try:
        yield
    finally:
        sys.path.remove(here)


def _batch_for(build: Callable[..., object], asked: int | None) -> int | None:
    """Return the batch size to call a callable with; None where it takes none."""
    try:
        taken = inspect.signature(build).parameters.get("batch_size")
    except ValueError:  # some builtins have no signature
        return None
    if taken is None:
        return None
    return asked or (1 if taken.default is inspect.Parameter.empty else taken.default)


def _spelled(value: object) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_spelled, value))})"
    return type(value).__name__


NAMES = {"torchvision": torchvision_names}
SOURCES: dict[str, Callable[[ModelSpec], Blueprint]] = {
    "builtin": builtin,
    "torchvision": torchvision,
    "timm": timm,
    "python": python,
}
