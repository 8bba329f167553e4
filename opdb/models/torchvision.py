"""torchvision's models: classification, segmentation, video, detection and optical flow."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import cache

import torchvision
from torchvision import models

from opdb.errors import InputError, UnknownNameError
from opdb.models import ModelRequest
from opdb.models.source import Blueprint, sized_input
from opdb.models.usual import FAMILY_SIZES
from opdb.records import Json

_FAMILIES = ("classification", "segmentation", "video", "detection", "optical_flow")
_FRAMES = 16


@cache
def family_names(family: str) -> tuple[str, ...]:
    """Return the model names of one of torchvision's families."""
    module = models if family == "classification" else getattr(models, family)
    return tuple(models.list_models(module=module))


def _family(name: str) -> str | None:
    return next((family for family in _FAMILIES if name in family_names(family)), None)


class TorchvisionSource:
    """The models that `torchvision.models.get_model` builds, quantized ones left out."""

    name = "torchvision"
    fixed = True
    runs_code = False

    def names(self) -> Sequence[str]:
        """Return the names of all families."""
        return [name for family in _FAMILIES for name in family_names(family)]

    def has(self, name: str) -> bool:
        """Return whether torchvision has a model of that name."""
        return _family(name) is not None

    def hint(self) -> str:
        """Return nothing: every name is listed."""
        return ""

    def version(self, name: str) -> str:
        """Return torchvision's version."""
        return str(torchvision.__version__).partition("+")[0]

    def build(self, request: ModelRequest) -> Blueprint:
        """Build the model; weights are downloaded where the request names them, never otherwise.

        Raises:
            InputError: the weights are unknown or cannot be had.
        """
        family = _family(request.name)
        assert family is not None, "the caller asked `has` before"
        options: dict[str, Json] = {}
        if request.num_classes is not None:
            options["num_classes"] = request.num_classes
        if family in ("segmentation", "detection"):
            options["weights_backbone"] = None
        weights = _weights(request)
        try:
            with warnings.catch_warnings():
                # Some builders announce another default initialization: of no concern here.
                warnings.simplefilter("ignore", FutureWarning)
                module = models.get_model(request.name, weights=weights, **options)
        except OSError as error:  # urllib's errors are OSErrors
            raise InputError(
                f"weights {request.weights!r} of {request.name!r} cannot be had: {error}"
            ) from error
        size = request.input_size or _default_size(request.name, family)
        return Blueprint(module, inputs=_INPUTS[family](size, request))


SOURCE = TorchvisionSource()


def _weights(request: ModelRequest) -> object:
    if request.weights is None:
        return None
    known = models.get_model_weights(request.name)
    if request.weights not in known.__members__:
        raise UnknownNameError(f"weights of {request.name}", request.weights, known.__members__)
    return known[request.weights]


def _default_size(name: str, family: str) -> tuple[int, ...]:
    if family == "video":
        # Video models are bound to the crop and the clip length they were trained on.
        weights = models.get_model_weights(name).DEFAULT
        frames = max(_FRAMES, weights.meta.get("min_temporal_size", 1))
        return (3, frames, *weights.transforms().crop_size)
    return FAMILY_SIZES[family]


def _images(size: tuple[int, ...], request: ModelRequest) -> dict[str, Json]:
    return sized_input(size, request.dtype)


def _image_list(size: tuple[int, ...], request: ModelRequest) -> dict[str, Json]:
    image = {"shape": list(size), "dtype": request.dtype}
    return {"args": [[image] * request.batch_size]}


def _image_pair(size: tuple[int, ...], request: ModelRequest) -> dict[str, Json]:
    return {"args": sized_input(size, request.dtype)["args"] * 2}


_INPUTS: dict[str, Callable[[tuple[int, ...], ModelRequest], dict[str, Json]]] = {
    "classification": _images,
    "segmentation": _images,
    "video": _images,
    "detection": _image_list,
    "optical_flow": _image_pair,
}
