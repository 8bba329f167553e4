"""Kinds: names, rules, and the absence of torch."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from opdb.errors import UnknownNameError
from opdb.kinds import KINDS, get_kind, register
from opdb.kinds.products import active_groups
from opdb.records import Configuration


def spec(*shape: int, **more: Any) -> dict[str, Any]:
    return {"shape": list(shape), "dtype": "float32", **more}


def test_kinds_import_no_torch() -> None:
    code = "import sys, opdb.kinds; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_unknown_kind_offers_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="conv2d"):
        get_kind("conv2")


def test_a_duplicate_is_refused() -> None:
    with pytest.raises(ValueError, match="twice"):
        register(get_kind("conv2d"))


def test_a_configuration_of_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="asked about"):
        get_kind("relu").flops(Configuration("add"))


def test_what_is_changed_in_place_is_an_argument() -> None:
    assert all(m in kind.signature.parameters for kind in KINDS.values() for m in kind.mutates)


def test_groups_that_get_no_row_are_not_read() -> None:
    """Of 128 groups, 16 rows reach 15.1 on average: 128 · (1 - (127/128)^16)."""
    assert active_groups(128, 16) == pytest.approx(15.1, abs=0.05)
    assert active_groups(128, 16, imbalance=1.0) < 13
    assert active_groups(8, 100_000) == pytest.approx(8)
