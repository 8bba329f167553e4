"""The inputs that models take where nothing is said of them, as far as that is known without torch.

The sources build models for these sizes; whoever looks for a stored workload tells by them whether
it is the one that a bare name means.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from opdb.models import TOKENS, ModelRequest
from opdb.models.catalogue import image_size
from opdb.records import Json, Workload

FEATURES = 784
"""What a perceptron takes."""

IMAGE_SIDE = 224
"""The side of an image, unless the model's configuration says another."""

FAMILY_SIZES: Mapping[str, tuple[int, ...]] = {
    "classification": (3, IMAGE_SIDE, IMAGE_SIDE),
    "segmentation": (3, 520, 520),
    "detection": (3, 800, 800),
    "optical_flow": (3, 520, 960),
}
"""One input of the models of each of torchvision's families, video apart: these each have one."""

_FAMILIES = {
    **dict.fromkeys(("deeplabv3", "fcn", "lraspp"), "segmentation"),
    **dict.fromkeys(("fasterrcnn", "fcos", "keypointrcnn"), "detection"),
    **dict.fromkeys(("maskrcnn", "retinanet", "ssd", "ssd300", "ssdlite320"), "detection"),
    "raft": "optical_flow",
}
"""How the names of torchvision's models begin, of those that classify no images."""

IMAGE_AXES = ("channels", "height", "width")
_VIDEO_AXES = 4
_BUILTIN = {"lstm": (TOKENS,), "transformer": (TOKENS,), "mlp": (FEATURES,)}


def is_usual(source: str, name: str, size: Sequence[int] | None) -> bool | None:
    """Whether a size (without the batch) is the one that a source's model takes unless asked.

    None where that is not known without building the model.
    """
    if size is None:
        return None
    if source == "builtin" and name in _BUILTIN:
        return tuple(size) == _BUILTIN[name]
    if source == "torchvision" and len(size) != _VIDEO_AXES:
        family = _FAMILIES.get(name.partition("_")[0], "classification")
        return tuple(size) == FAMILY_SIZES[family]
    if source == "transformers" and len(size) == 1 and size[0] >= TOKENS:
        return size[0] == TOKENS  # who has positions for fewer takes no such text
    if source == "transformers" and len(size) == len(IMAGE_AXES):
        known = image_size(name)
        return None if known is None else tuple(size) == known
    return None


def size_of(what: Workload | ModelRequest) -> tuple[int, ...] | None:
    """Return the shape of the first input without its batch; None where none is known.

    Images in a list have no batch: each has the size.
    """
    if isinstance(what, ModelRequest):
        return None if what.input_size is None else tuple(what.input_size)
    first = cast(Sequence[Json], what.inputs.get("args") or [None])[0]
    listed = isinstance(first, list)
    if listed:
        first = first[0] if first else None
    shape = first.get("shape") if isinstance(first, dict) else None
    return tuple(shape if listed else shape[1:]) if isinstance(shape, list) else None


def times(size: Sequence[int]) -> str:
    """Return a size as it is written: 3x224x224."""
    return "x".join(map(str, size))


def asked_as(workload: Workload) -> list[str]:
    """Return the options of a command by which a bare name means this workload of inference."""
    said = ["--batch-size", str(workload.batch_size), "--dtype", workload.dtype]
    if workload.memory_format != "contiguous":
        said += ["--memory-format", workload.memory_format]
    size = size_of(workload)
    if size is not None and not is_usual(workload.source, workload.name, size):
        said += ["--input-size", times(size)]
    return said
