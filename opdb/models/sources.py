"""The sources of models: opdb's own, torchvision's, timm's, and models of your own.

Packages are imported as a model of theirs is asked for; transformers has a file of its own.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import util
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes

import opdb
from opdb.errors import InputError, UnknownNameError
from opdb.models import Blueprint, Source, missing_library, sized_input
from opdb.models.catalogue import FAMILY_SIZES, FEATURES
from opdb.models.construction import ANY_FAILURE, one_line
from opdb.records import Json
from opdb.spec import TOKENS, ModelSpec, is_import_path

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
        """Return logits of shape (batch, length, outputs)."""
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
        """Return logits of shape (batch, outputs)."""
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


_MODELS: dict[str, Callable[..., nn.Module]] = {
    "lstm": LSTMLanguageModel,
    "mlp": mlp,
    "transformer": TransformerClassifier,
}


class BuiltinSource(Source):
    name = "builtin"

    def names(self) -> Sequence[str]:
        return list(_MODELS)

    def version(self, name: str) -> str:
        return opdb.__version__

    def build(self, request: ModelSpec) -> Blueprint:
        """Build the model; an input size is the number of features, or of tokens."""
        if request.input_size is not None and len(request.input_size) != 1:
            size = list(request.input_size)
            raise InputError(f"input size {size} of {request.name!r}; it takes one number")
        if request.name == "mlp":
            features = request.input_size[0] if request.input_size else FEATURES
            module = mlp(features=features)
            return Blueprint(module, inputs=sized_input((features,)))
        length = request.input_size[0] if request.input_size else TOKENS
        tokens: dict[str, Json] = {
            "shape": ["batch", length],
            "dtype": "int64",
            "values": {"range": [0, VOCABULARY]},
        }
        return Blueprint(_MODELS[request.name](), inputs={"args": [tokens]})


# torchvision's: classification, segmentation, video, detection and optical flow

FAMILIES = ("classification", "segmentation", "video", "detection", "optical_flow")
_FRAMES = 16


def _package(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise missing_library(error, f"for models of {name}") from error


@cache
def family_names(family: str) -> tuple[str, ...]:
    models = _package("torchvision").models
    module = models if family == "classification" else getattr(models, family)
    return tuple(models.list_models(module=module))


class TorchvisionSource(Source):
    """The models that `torchvision.models.get_model` builds, quantized ones left out."""

    name = "torchvision"
    no_weights = ""

    def names(self) -> Sequence[str]:
        return [name for family in FAMILIES for name in family_names(family)]

    def version(self, name: str) -> str:
        return str(_package("torchvision").__version__).partition("+")[0]

    def build(self, request: ModelSpec) -> Blueprint:
        """Build the model; weights are downloaded where the request names them, never otherwise."""
        models = _package("torchvision").models
        family = next(each for each in FAMILIES if request.name in family_names(each))
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


class TimmSource(Source):
    """timm's models, named "timm:mixer_b16_224"."""

    name = "timm"
    prefix = "timm:"

    def names(self) -> Sequence[str]:
        if util.find_spec("timm") is None:
            return []
        return [self.prefix + name for name in _package("timm").list_models()]

    def has(self, name: str) -> bool:
        plain = name.removeprefix(self.prefix)
        return plain != name and bool(_package("timm").is_model(plain))

    def version(self, name: str) -> str:
        return str(_package("timm").__version__)

    def build(self, request: ModelSpec) -> Blueprint:
        """Build the model with random weights, for the images that it was made for."""
        module = _package("timm").create_model(request.name.removeprefix(self.prefix))
        size = request.input_size or tuple(module.default_cfg["input_size"])
        return Blueprint(module, inputs=sized_input(size))


# models of your own


class PythonSource(Source):
    """Callables that return an nn.Module, or (module, args), or (module, args, kwargs)."""

    name = "python"
    no_weights = "the callable loads its own"

    def has(self, name: str) -> bool:
        return is_import_path(name)

    def version(self, name: str) -> str:
        """Return the `__version__` of the outermost package, or an empty string."""
        package = sys.modules.get(name.partition(":")[0].partition(".")[0])
        return str(getattr(package, "__version__", ""))

    def build(self, request: ModelSpec) -> Blueprint:
        """Import the module (of the working directory, or a file), and call the callable.

        The callable is given `batch_size` where it has a parameter of that name: unless one is
        asked for its default, or 1.
        """
        build = request.built_by or _find(request.name)
        taken = _parameters_of(build)
        answer = _call(build, taken, request)
        parts = answer if isinstance(answer, tuple) else (answer,)
        if not 1 <= len(parts) <= 3 or not isinstance(parts[0], nn.Module):
            raise InputError(
                f"{request.name!r} returned {_spelled(answer)}; "
                "it must return an nn.Module, (module, args) or (module, args, kwargs)"
            )
        if len(parts) == 1:
            return Blueprint(parts[0])
        args = tuple(parts[1]) if isinstance(parts[1], tuple | list) else (parts[1],)
        kwargs = parts[2] if len(parts) == 3 else {}
        if not isinstance(kwargs, dict):
            raise InputError(f"{request.name!r} returned keyword inputs as {_spelled(kwargs)}")
        if request.input_size is not None:
            return Blueprint(parts[0])
        return Blueprint(parts[0], example=(args, kwargs), of_batch=_own_batch(taken))


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


def _parameters_of(build: Callable[..., object]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(build).parameters
    except ValueError:  # some builtins have no signature
        return {}


def _own_batch(taken: Mapping[str, inspect.Parameter]) -> int | None:
    """Return the batch size that a callable makes inputs for unless told; None: not known."""
    default = taken["batch_size"].default if "batch_size" in taken else None
    return 1 if default is inspect.Parameter.empty else default


def _call(
    build: Callable[..., object], taken: Mapping[str, inspect.Parameter], request: ModelSpec
) -> Any:
    batch_size = request.batch_size or _own_batch(taken)
    return build(batch_size=batch_size) if "batch_size" in taken and batch_size else build()


def _spelled(value: object) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(map(_spelled, value))})"
    return type(value).__name__


SOURCES: dict[str, Source] = {
    each.name: each for each in (BuiltinSource(), TorchvisionSource(), TimmSource(), PythonSource())
}
