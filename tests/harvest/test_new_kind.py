"""An element-wise kind that is declared in one line is harvested, counted and differentiated."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from opdb.harvest.passes import harvest
from opdb.kinds import KINDS, Kind, families, registry
from opdb.operators import build
from opdb.operators.describe import find_operator
from opdb.spec import ModelSpec
from tests import declarations
from tests.own import model


@pytest.fixture
def ndtr() -> Iterator[Kind]:
    """Declare a kind as a file of `opdb.kinds` would: torch.special.ndtr, which opdb lacks."""
    assert "ndtr" not in KINDS
    declarations.clear()
    registry.register(families.unary("ndtr"))
    yield KINDS["ndtr"]
    del registry._kinds["ndtr"]
    declarations.clear()


@model((4, 8), linear=lambda: nn.Linear(8, 8))
def gate(m: Any, x: Tensor) -> Any:
    return x * torch.special.ndtr(m.linear(x))


def test_one_line_makes_a_kind(ndtr: Kind) -> None:
    request = ModelSpec(f"{__name__}:gate")
    forward = next(
        c.configuration for c in harvest(request).calls if c.configuration.kind == "ndtr"
    )
    assert ndtr.shapes_rule(ndtr.view(forward)) == [[4, 8]]
    assert ndtr.flops(forward) == 32 and ndtr.bytes_moved(forward) == 2 * 4 * 32
    assert ndtr.nonzero_share(forward, 0.5) == 0.5
    built = build(forward)
    assert built().shape == (4, 8)
    assert find_operator("special.ndtr").called is torch.special.ndtr


def test_its_backward_pass_is_found_and_counted(ndtr: Kind) -> None:
    request = ModelSpec(f"{__name__}:gate", phase="training")
    calls = [c.configuration for c in harvest(request).calls]
    backward = next(c for c in calls if c.title == "ndtr backward")
    assert ndtr.flops(backward) == 32 and ndtr.bytes_moved(backward) == 3 * 4 * 32
    assert build(backward)() is not None


def test_without_the_line_it_is_unsupported() -> None:
    request = ModelSpec(f"{__name__}:gate")
    assert any("ndtr" in name for name in harvest(request).unsupported)


def test_a_kind_that_leaves_something_undecided_is_refused() -> None:
    with pytest.raises(TypeError, match=r"backward.*nonzero_rule.*functions"):
        Kind("made_up", "input")  # type: ignore[call-arg]
