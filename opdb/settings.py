"""What a backend was told, and which of it touches a kind of operator."""

from __future__ import annotations

from collections.abc import Mapping

from opdb.kinds import get_kind
from opdb.records import Json, canonical_json

DEFAULT_SETTINGS: Mapping[str, Json] = {
    "tf32_convolution": True,
    "tf32_matmul": False,
    "cudnn_benchmark": False,
    "mha_fastpath": True,
}
"""The backend settings of a fresh torch process."""


def relevant_setting(kind: str, settings: Mapping[str, Json]) -> str:
    """Return, as canonical JSON, the settings that touch this kind, and no others.

    Raises:
        UnknownNameError: no such kind.
    """
    touching = get_kind(kind).settings
    return canonical_json({name: settings[name] for name in sorted(touching) if name in settings})
