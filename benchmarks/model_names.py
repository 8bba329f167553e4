"""Write `opdb/models/names.json`: the names of the models of the packages that are installed here.

    python -m benchmarks.model_names

`opdb.models.catalogue` reads it, so that commands need not import the packages to know
a name.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from transformers import AutoConfig

from opdb.models import names
from opdb.models.catalogue import version_of
from opdb.models.sources import family_of, torchvision_names
from opdb.models.transformers import model_types

FILE = Path(__file__).parents[1] / "opdb" / "models" / "names.json"


def listed() -> dict[str, Any]:
    """Return the names of both packages, and the images that models of transformers take."""
    families = {name: family_of(name) for name in torchvision_names()}
    types = sorted({*names("transformers"), *model_types()} & {*model_types()})
    sides = {name: side for name in types if (side := _image_side(name)) is not None}
    return {
        "torchvision": {"version": version_of("torchvision"), "models": families},
        "transformers": {
            "version": version_of("transformers"),
            "image_sides": sides,
            "models": dict.fromkeys(types, "model type"),
        },
    }


def _image_side(name: str) -> int | None:
    config: Any = AutoConfig.for_model(name)
    side = getattr(config, "image_size", None)
    side = side[0] if isinstance(side, list | tuple) and len({*side}) == 1 else side
    plain = isinstance(side, int) and getattr(config, "num_channels", None) == 3
    return side if plain else None


if __name__ == "__main__":
    FILE.write_text(json.dumps(listed(), indent=1, sort_keys=True) + "\n")
