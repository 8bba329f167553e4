from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from opdb.errors import InputError, UnsupportedError
from opdb.harvest.passes import harvest, record
from opdb.harvest.recorder import OUTSIDE, Recorder
from opdb.kinds import KINDS, Kind, families, registry
from opdb.models import load
from opdb.operators import build
from opdb.operators.describe import find_operator
from opdb.records import Json, Phase, Workload
from opdb.spec import ModelSpec
from tests import declarations
from tests.harvest import sample_models
from tests.own import Built, model


def own(name: str) -> Workload:
    return harvest(ModelSpec(sample_models.path(name)))


def by_kind(workload: Workload) -> Counter[str]:
    return Counter(call.configuration.kind for call in workload.calls)


def keys_digest(workload: Workload) -> str:
    keys = "\n".join(c.key for c in workload.occurrences())
    return hashlib.sha256(keys.encode()).hexdigest()


def test_resnet50_calls_what_it_calls() -> None:
    workload = harvest(ModelSpec("resnet50"))
    assert by_kind(workload) == {
        "conv2d": 53,
        "batch_norm": 53,
        "relu": 49,
        "add": 16,
        "max_pool2d": 1,
        "adaptive_avg_pool2d": 1,
        "linear": 1,
        "flatten": 1,
    }
    assert len([c for c in workload.occurrences() if c.kind == "conv2d"]) == 23
    assert workload.unsupported == {}
    assert workload.foreign_leaves == {}
    forms = {(call.configuration.kind, call.form) for call in workload.calls}
    assert ("conv2d", "module") in forms and ("add", "function") in forms


@pytest.mark.parametrize("name", ["lstm", "mlp", "transformer"])
def test_builtin_models_are_fully_described(name: str) -> None:
    workload = harvest(ModelSpec(name, batch_size=3))
    assert workload.unsupported == {}
    assert workload.calls
    assert workload.batch_size == 3


def test_attention_modules_are_opaque_and_keep_identity() -> None:
    workload = own("attention")
    kinds = by_kind(workload)
    assert kinds["transformer_encoder_layer"] == 2
    attention = [c for c in workload.occurrences() if c.kind == "multi_head_attention"]
    assert len(attention) == 2
    assert kinds["scaled_dot_product_attention"] == 1


def test_functions_with_parameters_are_operators_in_function_form() -> None:
    workload = own("functional")
    assert {call.form for call in workload.calls} == {"function"}
    convolution = next(c for c in workload.occurrences() if c.kind == "conv2d")
    assert convolution.inputs["weight"]["role"] == "weight"
    assert "role" not in convolution.inputs["input"]


def test_keyword_and_tuple_inputs_are_kept_as_data() -> None:
    workload = own("keywords")
    assert by_kind(workload)["linear"] == 2
    first = workload.inputs["args"][0]["tuple"][0]
    assert first == {"shape": [5, 8], "dtype": "float32"}
    assert set(workload.inputs["kwargs"]) == {"scale", "mask"}
    again = harvest(ModelSpec(sample_models.path("keywords"), inputs=workload.inputs))
    assert again.calls == workload.calls


@model((), table=lambda: torch.zeros(1))
def _replaces(m: Any, x: torch.Tensor) -> torch.Tensor:
    """Makes its table anew, as positions are kept that hang on the length."""
    m.table = torch.arange(6.0, device=x.device)
    return torch.relu(torch.sin(x) + m.table)


def replacing() -> Built:
    return nn.Sequential(*(_replaces()[0] for _ in range(20))), (torch.randn(2, 6),)


def test_what_takes_the_memory_of_a_replaced_buffer_is_no_weight() -> None:
    workload = harvest(ModelSpec(f"{__name__}:replacing"))
    assert by_kind(workload) == dict.fromkeys(("arange", "sin", "add", "relu"), 20)
    assert not [c.json for c in workload.occurrences() if '"weight"' in c.json]


class DropsWeights(nn.LSTM):
    def forward(self, input: Any, hx: Any = None) -> Any:
        return super().forward(torch.sin(input))


def drops_weights() -> Built:
    return DropsWeights(4, 8), (torch.randn(5, 2, 4),)


@model((2, 4), linear=lambda: nn.Linear(4, 3))
def marked(m: Any, x: torch.Tensor) -> torch.Tensor:
    with torch.profiler.record_function("a part"):
        return torch.sin(m.linear(x))


CALLED: list[tuple[str, dict[str, int], dict[str, int]]] = [
    # a model, its calls by kind, and what no kind describes
    ("recovering", {"linear": 1, "relu": 1}, {}),
    ("lazy", {"linear": 2, "relu": 1}, {}),
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
    ("drops_weights", {"sin": 1, "zeros": 2}, {"torch.lstm": 1}),
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
    ("name", "some"),
    [
        ("lstm", {"lstm": 1, "gru": 1, "embedding": 1}),
        ("shared", {"linear": 4, "relu": 3, "add": 3}),
        ("asks_for_values", {"linear": 1, "embedding": 1}),
    ],
)
def test_of_some_kinds_a_model_makes_so_many_calls(name: str, some: dict[str, int]) -> None:
    kinds = by_kind(own(name))
    assert {kind: kinds[kind] for kind in some} == some


@pytest.mark.parametrize(
    ("name", "autocast", "error", "message"),
    [
        ("asks_for_values", "bfloat16", UnsupportedError, "under autocast .* does not run on meta"),
        ("lazily", None, UnsupportedError, "lazily' returns a generator"),
        ("casts_by_itself", None, UnsupportedError, "casts_by_itself' enters autocast by itself"),
        ("fails_in_a_function", None, InputError, r"last call was torch\.Tensor\.view in 'inner'"),
        ("ends_the_process", None, InputError, "cannot be built: SystemExit: 7"),
        ("ends_in_forward", None, InputError, "SystemExit: enough; the last call was EndsInForw"),
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


def test_autocast_of_a_model_in_halves_is_refused() -> None:
    with pytest.raises(InputError, match="autocast is for a model in float32"):
        harvest(ModelSpec("mlp", dtype="bfloat16", autocast="bfloat16"))


def test_a_model_too_large_for_the_cpu_stays_off_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opdb.models.construction.os.sysconf", lambda name: 1)
    with pytest.raises(InputError, match=r"fails on meta.*too large for a pass on the CPU"):
        own("asks_for_values")


def test_an_inherited_module_shows_the_functions_of_its_own_forward() -> None:
    workload = own("inherited")
    assert workload.foreign_leaves == {"StandardizedConv2d": 1}
    forms = {call.configuration.kind: call.form for call in workload.calls}
    assert forms == {"mean": "function", "sub": "function", "conv2d": "function", "relu": "module"}


def test_a_computed_weight_is_an_operator_too() -> None:
    kinds = by_kind(own("reparametrized"))
    assert kinds["linear"] == 2
    assert sum(kinds.values()) > 3


def test_rectified_values_reach_the_next_operator() -> None:
    workload = harvest(ModelSpec("resnet18"))
    values = [c.inputs["input"].get("values") for c in workload.occurrences() if c.kind == "conv2d"]
    assert values[0] is None and "rectified" in values


def test_in_place_calls_renew_what_is_known_of_their_argument() -> None:
    workload = own("writes")
    gelu = next(c for c in workload.occurrences() if c.kind == "gelu")
    assert gelu.inputs["input"]["values"] == "rectified"


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


@model((2, 4), total=lambda: 0)
def totals(m: Any, x: torch.Tensor) -> torch.Tensor:
    """Adds up what it was given, from a number on."""
    m.total = m.total + x.relu()
    return torch.sin(m.total)


def test_a_tensor_may_take_the_place_of_a_number() -> None:
    workload = harvest(ModelSpec(f"{__name__}:totals"))
    assert by_kind(workload) == {"relu": 1, "add": 1, "sin": 1}
    [add] = [c for c in workload.occurrences() if c.kind == "add"]
    assert set(add.inputs) == {"input", "other"}, "from the second pass on it adds tensors"


def test_training_is_another_workload() -> None:
    trained = harvest(ModelSpec("resnet18", batch_size=2, phase="training"))
    assert trained.gradient and trained.unsupported == {}
    assert all(call.configuration.gradient for call in trained.calls[:2])
    assert trained.key != harvest(ModelSpec("resnet18", batch_size=2)).key


def test_harvests_do_not_depend_on_each_other() -> None:
    first = harvest(ModelSpec("squeezenet1_1"))
    with pytest.raises(InputError):
        own("fails")
    assert harvest(ModelSpec("squeezenet1_1")) == first


def test_a_failure_names_the_last_call_and_leaves_nothing_behind() -> None:
    call, register = nn.Module.__call__, nn.Module.register_parameter
    with pytest.raises(InputError, match=r"last call was 'inner\.1' \(Linear\)"):
        own("fails")
    assert nn.Module.__call__ is call and nn.Module.register_parameter is register
    assert torch.overrides._get_current_function_mode_stack() == []
    assert nn.Linear(2, 2)(torch.ones(1, 2)).device.type == "cpu"


def test_the_train_mode_is_restored() -> None:
    loaded = load(ModelSpec("mlp"), device="meta")
    loaded.module[1].train()  # type: ignore[index]
    record(loaded)
    assert [m.training for m in loaded.module.children()] == [False, True, False, False, False]


def test_a_harvest_inside_a_harvest_is_refused() -> None:
    with pytest.raises(InputError, match="inside the forward pass"):
        own("nested")
    assert harvest(ModelSpec("mlp")).calls


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


def test_another_thread_is_not_recorded() -> None:
    loaded = load(ModelSpec("mlp"), device="meta")
    recorder = Recorder(loaded.module)
    shapes = []

    def elsewhere() -> None:
        shapes.append(nn.Linear(2, 2)(torch.ones(1, 2)).shape)

    with recorder.watching():
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
    assert recorder.calls == [] and recorder.unsupported == {}
    assert shapes == [(1, 2)]


def test_a_gradient_taken_in_the_forward_is_listed() -> None:
    assert {"torch.Tensor.__pow__", "torch.Tensor.sum"} <= own("differentiated").unsupported.keys()


def test_operators_that_take_functions_are_listed() -> None:
    workload = own("branching")
    assert any("cond" in name for name in workload.unsupported)


def test_what_fails_while_it_is_built_is_built_again_only_where_it_fits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(InputError, match=r"cannot be built: KeyError: 'rope'$"):
        own("large_and_broken")
    pages = {"SC_PAGE_SIZE": 1, "SC_PHYS_PAGES": 8_000_000}
    monkeypatch.setattr("opdb.models.construction.os.sysconf", pages.__getitem__)
    with pytest.raises(InputError, match=r"rope.*too large for a pass on the CPU"):
        own("large_and_broken")


def test_resnet50_keys_are_golden() -> None:
    assert keys_digest(harvest(ModelSpec("resnet50"))) == GOLDEN_RESNET50


GOLDEN_RESNET50 = "d29bd4daa11ca6a7238922fb86ce6de750fe3ff8070e841a70441ca79be94f31"
"""Over the configuration keys of ResNet-50, in first-call order; the same on every torch."""


# An element-wise kind that is declared in one line is harvested, counted and differentiated


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
