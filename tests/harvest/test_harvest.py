from __future__ import annotations

import hashlib
import threading
from collections import Counter
from dataclasses import replace
from typing import Any, cast

import pytest
import torch
from torch import nn

from opdb.errors import InputError, UnsupportedError
from opdb.harvest.passes import harvest, record
from opdb.harvest.recorder import OUTSIDE
from opdb.models import load
from opdb.records import Json, Phase, Workload
from opdb.spec import ModelSpec
from tests.harvest import sample_models
from tests.own import model


def own(name: str) -> Workload:
    return harvest(ModelSpec(sample_models.path(name)))


def by_kind(workload: Workload) -> Counter[str]:
    return Counter(call.configuration.kind for call in workload.calls)


@model((2, 4), linear=lambda: nn.Linear(4, 3))
def marked(m: Any, x: torch.Tensor) -> torch.Tensor:
    with torch.profiler.record_function("a part"):
        return torch.sin(m.linear(x))


CALLED: list[tuple[str, dict[str, int], dict[str, int]]] = [
    # a model, its calls by kind, and what no kind describes
    ("recovering", {"linear": 1, "relu": 1}, {}),
    ("scripted", {"linear": 1, "mul": 1, "add": 1, "relu": 1}, {}),
    (
        "scripted_beyond",
        {"linear": 1, "sub": 1, "relu": 1},
        {f"aten::nanmedian{OUTSIDE}": 1},
    ),
    ("sized_by_a_tensor", {"item": 1, "zeros": 1, "add": 1}, {}),
    (
        "threaded",
        {"add": 1},
        {"Linear (in another thread)": 2, "ReLU (in another thread)": 1},
    ),
    ("marked", {"linear": 1, "sin": 1}, {}),
]


@pytest.mark.parametrize(("name", "known", "unknown"), CALLED, ids=[each[0] for each in CALLED])
def test_a_model_calls_what_it_calls(
    name: str, known: dict[str, int], unknown: dict[str, int]
) -> None:
    here = name in globals()
    workload = harvest(ModelSpec(f"{__name__}:{name}")) if here else own(name)
    assert by_kind(workload) == known and workload.unsupported == unknown


@pytest.mark.parametrize(
    ("name", "autocast", "error", "message"),
    [
        ("asks_for_values", "bfloat16", UnsupportedError, "under autocast .* does not run on meta"),
        ("lazily", None, UnsupportedError, "lazily' returns a generator"),
        ("casts_by_itself", None, UnsupportedError, "casts_by_itself' enters autocast by itself"),
        ("casts_by_its_own", None, UnsupportedError, "casts_by_its_own' enters autocast by itself"),
        ("fails_in_a_function", None, InputError, r"last call was torch\.Tensor\.view in 'inner'"),
        ("ends_the_process", None, InputError, "cannot be built: SystemExit: 7"),
        ("ends_in_forward", None, InputError, "SystemExit: enough; the last call was EndsInForw"),
        ("lazy", None, InputError, "has lazy modules, .*: call it once before it is returned"),
        ("unhashable", None, InputError, "unhashable type"),
        ("always_trains", None, InputError, "cannot be made float32 contiguous for .*no eval"),
    ],
)
def test_what_cannot_be_harvested_is_one_message(
    name: str, autocast: str | None, error: type[Exception], message: str
) -> None:
    made, entered = torch.autocast.__init__, torch.autocast.__enter__
    with pytest.raises(error, match=message):
        harvest(ModelSpec(sample_models.path(name), autocast=autocast))
    assert (torch.autocast.__init__, torch.autocast.__enter__) == (made, entered)


def test_rectified_values_reach_the_next_operator() -> None:
    workload = harvest(ModelSpec("resnet18"))
    values = [c.inputs["input"].get("values") for c in workload.occurrences() if c.kind == "conv2d"]
    assert values[0] is None and "rectified" in values


def test_batch_dtype_and_layout_reach_the_configurations() -> None:
    workload = harvest(
        ModelSpec("resnet18", batch_size=4, dtype="bfloat16", memory_format="channels_last")
    )
    first = workload.calls[0].configuration.inputs["input"]
    assert first == {"shape": [4, 3, 224, 224], "dtype": "bfloat16", "layout": "channels_last"}
    weight = workload.calls[0].configuration.inputs["weight"]
    assert weight["layout"] == "channels_last"


@pytest.mark.parametrize(
    "name", ["lstm", "attention", "shared", "functional", "keywords", "writes", "reparametrized"]
)
def test_meta_shows_what_real_tensors_show_of_own_models(name: str) -> None:
    request = ModelSpec(sample_models.path(name))
    # an example's random values depend on what its constructor drew before: give them as data
    request = replace(request, inputs=load(request, device="meta").inputs)
    on_meta, on_cpu = (record(load(request, device=device)) for device in ("meta", "cpu"))
    assert on_meta.calls == on_cpu.calls


@pytest.mark.parametrize("phase", ["inference", "training"])
def test_what_a_first_pass_makes_for_good_is_no_part_of_a_pass(phase: Phase) -> None:
    found = harvest(ModelSpec(sample_models.path("keeps"), phase=phase))
    forward = [c.configuration for c in found.calls if c.configuration.pass_name == "forward"]
    kinds = ["linear", "getitem", "getitem", "add", "getitem", "mul"]
    assert [each.kind for each in forward][: len(kinds)] == kinds
    assert cast(dict[str, Json], forward[4].inputs["input"])["role"] == "weight", "a buffer is one"
    assert found.containers == 1 and found.unsupported == {}


def test_a_failure_names_the_last_call_and_leaves_nothing_behind() -> None:
    call, register = nn.Module.__call__, nn.Module.register_parameter
    with pytest.raises(InputError, match=r"last call was 'inner\.1' \(Linear\)"):
        own("fails")
    assert nn.Module.__call__ is call and nn.Module.register_parameter is register
    assert torch.overrides._get_current_function_mode_stack() == []
    assert nn.Linear(2, 2)(torch.ones(1, 2)).device.type == "cpu"


def test_threads_take_turns_and_do_not_see_each_other() -> None:
    found: list[Workload] = []
    made, entered = torch.autocast.__init__, torch.autocast.__enter__
    threads = [
        threading.Thread(target=lambda: found.append(harvest(ModelSpec("squeezenet1_1"))))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 3 and found[0] == found[1] == found[2]
    assert (torch.autocast.__init__, torch.autocast.__enter__) == (made, entered)


def test_resnet50_keys_are_golden() -> None:
    keys = "\n".join(c.key for c in harvest(ModelSpec("resnet50")).occurrences())
    assert hashlib.sha256(keys.encode()).hexdigest() == GOLDEN_RESNET50


GOLDEN_RESNET50 = "d29bd4daa11ca6a7238922fb86ce6de750fe3ff8070e841a70441ca79be94f31"
"""Over the configuration keys of ResNet-50, in first-call order; the same on every torch."""


@pytest.mark.parametrize("cache", ["static", "dynamic"])
def test_each_token_of_a_generation_is_chosen_once(cache: str) -> None:
    pytest.importorskip("transformers")
    # A window fills up after 7 tokens.
    windowed = ModelSpec("tests.models.decoders:windowed", phase="generate", max_new_tokens=9)
    said: dict[str, Any] = {"input_size": (9,), "batch_size": 2, "dtype": "bfloat16"}
    found = harvest(replace(windowed, cache=cache, **said))
    assert by_kind(found)["argmax"] == 9 and found.unsupported == {}
