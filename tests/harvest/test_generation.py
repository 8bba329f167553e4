"""A whole generation is recorded token by token."""

from __future__ import annotations

import pytest

from opdb.harvest.passes import harvest
from opdb.spec import ModelSpec

pytest.importorskip("transformers")


@pytest.mark.parametrize("cache", ["static", "dynamic"])
def test_each_token_of_a_generation_is_chosen_once(cache: str) -> None:
    request = ModelSpec(
        "tests.models.decoders:windowed",  # a window fills up after 7 tokens
        phase="generate",
        max_new_tokens=9,
        input_size=(9,),
        batch_size=2,
        cache=cache,
        dtype="bfloat16",
    )
    found = harvest(request)
    assert [c.configuration.kind for c in found.calls].count("argmax") == 9
    assert found.unsupported == {}
