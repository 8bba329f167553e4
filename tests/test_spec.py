"""How a workload is told from others: what its dtype is to its model."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opdb.records import Workload
from opdb.spec import ModelSpec, describe, dtype_from, identity, title
from tests.store import samples


def named(name: str, dtype: str) -> Workload:
    return replace(samples.workload(name, 2), dtype=dtype)


@pytest.mark.parametrize(
    ("name", "dtype", "said"),
    [
        ("llama-3.1-8b", "bfloat16", "as published"),
        ("llama-3.1-8b", "float32", "published in bfloat16"),
        ("llama-2-7b", "float16", "as published"),
        ("gpt2-bare", "float32", "as published"),
        ("bert_base", "bfloat16", "published in float32"),
        ("package.module:build", "float16", "as built"),
        ("resnet50", "float32", None),
        ("llama", "bfloat16", None),
    ],
)
def test_a_dtype_is_said_with_what_it_is_to_the_model(
    name: str, dtype: str, said: str | None
) -> None:
    workload = named(name, dtype)
    assert dtype_from(workload) == identity(workload)["dtype_from"] == said
    brackets = f" ({said})" if said else ""
    assert title(workload) == f"{name}, batch 2 {dtype}{brackets} 3x32x32"
    assert describe(workload) == f"batch 2 {dtype} 3x32x32"


def test_a_cast_is_said_with_the_dtype_that_was_built() -> None:
    plain = named("package.module:build", "bfloat16")
    cast = replace(plain, inputs={**plain.inputs, "built": {"dtype": "float16+float32"}})
    assert title(cast).startswith(
        "package.module:build, batch 2 bfloat16 (cast from float16+float32)"
    )
    assert identity(cast)["dtype_from"] == "cast from float16+float32"
    assert cast.key != plain.key


def test_what_a_request_leaves_open_is_not_said() -> None:
    assert describe(ModelSpec("package.module:build")) == ""
    assert describe(ModelSpec("package.module:build", dtype="float16")) == "float16"
    assert describe(ModelSpec("gpt2")) == "batch 1 float32"
