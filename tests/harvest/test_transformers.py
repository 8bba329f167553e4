"""What the models of transformers call, on meta and on the CPU."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from opdb.harvest.passes import harvest
from opdb.operators import build
from opdb.records import Workload
from opdb.spec import ModelSpec
from opdb.summary_files import load_summary
from tests.harvest.oracle import Opinion

SUMMARIES = Path(__file__).parents[2] / "measurements"


def by_kind(workload: Workload) -> Counter[str]:
    return Counter(call.configuration.kind for call in workload.calls)


def test_gpt2_calls_what_it_calls() -> None:
    workload = harvest(ModelSpec("gpt2", batch_size=32))
    kinds = by_kind(workload)
    assert kinds["addmm"] == 48 and kinds["cat"] == 24  # Conv1D, and the cache being filled
    assert not {"item", "all", "contains"} & kinds.keys()  # nothing makes the host wait
    attention = {c.json for c in workload.occurrences() if c.kind == "scaled_dot_product_attention"}
    assert len(attention) == 1 and '"is_causal":true' in attention.pop()


@pytest.mark.parametrize("name", ["bert_base", "gpt2-bare", "lstm"])
def test_every_workload_of_the_summary_files_is_fully_described(name: str) -> None:
    requests = load_summary(SUMMARIES / f"{name}.yml")
    sizes = {(request.batch_size, request.input_size, request.dtype) for request in requests}
    lengths = [(128,)] if name == "lstm" else [(128,), (512,)]
    wanted = [(1, "float32"), (32, "float32"), (128, "bfloat16")]
    assert sizes == {(batch, size, dtype) for size in lengths for batch, dtype in wanted}
    for request in requests:
        workload = harvest(request)
        assert workload.unsupported == {} and workload.calls
        for configuration in workload.occurrences():
            build(configuration, device="meta")


@pytest.mark.parametrize("name", ["bert-base-uncased", "gpt2"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_is_harvested_runs_on_the_cpu(name: str, dtype: str) -> None:
    small = ModelSpec(name, batch_size=2, input_size=(64,), dtype=dtype)
    assert Opinion(small, "cpu").mismatches() == []


def test_large_and_odd_models_are_harvested_without_their_weights() -> None:
    llama = harvest(ModelSpec("tinyllama-1.1b", batch_size=8, dtype="bfloat16"))
    assert llama.unsupported == {}
    assert by_kind(llama)["scaled_dot_product_attention"] == 22
    assert harvest(ModelSpec("opt-125m")).unsupported == {}
    align = harvest(ModelSpec("align"))  # it looks for padding: a pass with values
    assert align.unsupported == {} and by_kind(align)["contains"] == 1
