"""Backend settings, and which of them affect a kind of operator."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from opdb.kinds import KINDS
from opdb.records import ALGORITHM_SETTING, Json, canonical_json

# The backend settings of a fresh torch process.
DEFAULT_SETTINGS: Mapping[str, Json] = {
    "tf32_convolution": True,
    "tf32_matmul": False,
    "cudnn_benchmark": False,
    "mha_fastpath": True,
}


def relevant_setting(kind: str, settings: Mapping[str, Json]) -> str:
    """Return, as canonical JSON, the settings that affect this kind, and no others.

    A kind that this version does not know (a newer one's set may hold it) has none.
    """
    touching = KINDS[kind].settings if kind in KINDS else ()
    return canonical_json({name: settings[name] for name in sorted(touching) if name in settings})


def is_forcible(kind: str) -> bool:
    return kind in KINDS and ALGORITHM_SETTING in KINDS[kind].settings


def relevant_settings(
    settings: Mapping[str, Json], kinds: Collection[str] | None = None
) -> set[str]:
    """Return the relevant setting of each of these kinds, each text once.

    One kind's setting may be another's default: pass no more kinds than are meant.
    """
    return {relevant_setting(kind, settings) for kind in (KINDS if kinds is None else kinds)}
