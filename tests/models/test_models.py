from __future__ import annotations

import datetime
import math
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from opdb.errors import InputError
from opdb.models import LoadedModel, catalogue, checked, construction, load, names
from opdb.models.catalogue import sources_of
from opdb.models.construction import calibrate_batch_norms, parameters_on_meta
from opdb.records import Json
from opdb.spec import ModelSpec
from tests.harvest import sample_models


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("resnet18", [2, 3, 224, 224]),
        ("lraspp_mobilenet_v3_large", [2, 3, 520, 520]),
        ("r3d_18", [2, 3, 16, 112, 112]),
        ("mvit_v1_b", [2, 3, 16, 224, 224]),
    ],
)
def test_default_inputs_follow_the_family(name: str, shape: list[int]) -> None:
    loaded = load(ModelSpec(name, batch_size=2), device="meta")
    assert loaded.inputs["args"][0]["shape"] == shape
    assert list(loaded.args[0].shape) == shape
    assert loaded.source == "torchvision" and "+" not in loaded.source_version


def test_two_loads_give_the_same_numbers_and_leave_the_generator_alone() -> None:
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    first, second = (load(ModelSpec("mlp"), device="cpu") for _ in range(2))
    assert torch.equal(torch.rand(1), expected)
    assert torch.equal(first.args[0], second.args[0])
    for one, other in zip(first.module.parameters(), second.module.parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("name", ["resnet18", "r3d_18", "mvit_v2_s"])
def test_channels_last_covers_images_and_videos(name: str) -> None:
    request = ModelSpec(name, dtype="float16", memory_format="channels_last")
    loaded = load(request, device="meta")
    image = loaded.args[0]
    last = torch.channels_last_3d if image.dim() == 5 else torch.channels_last
    assert image.is_contiguous(memory_format=last) and image.dtype == torch.float16
    assert {p.dtype for p in loaded.module.parameters()} == {torch.float16}


def test_tied_parameters_stay_tied_on_meta() -> None:
    weight = nn.Parameter(torch.zeros(4, 4))
    with parameters_on_meta():
        one, other, third = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        one.weight = weight
        other.weight = weight
        third.weight = one.weight
    assert one.weight is other.weight is third.weight
    assert one.weight.is_meta and not weight.is_meta


def test_inputs_as_data() -> None:
    inputs = {
        "args": [{"shape": ["batch", 7], "dtype": "int64", "values": {"range": [0, 50]}}],
        "kwargs": {},
    }
    request = ModelSpec(sample_models.path("lstm"), batch_size=3, inputs=inputs)
    loaded = load(request, device="cpu")
    tokens = loaded.args[0]
    assert tokens.shape == (3, 7) and tokens.dtype == torch.int64
    assert tokens.min() >= 0 and tokens.max() < 50
    assert loaded.inputs["args"][0]["shape"] == [3, 7]


def test_inputs_of_which_a_share_is_zero() -> None:
    inputs = {"args": [{"shape": ["batch", 1000], "values": {"zeros": 0.75}}], "kwargs": {}}
    path = sample_models.path("bare")
    request = ModelSpec(path, batch_size=3, inputs=inputs)
    loaded = load(request, device="cpu")
    assert (loaded.args[0] == 0).float().mean().item() == pytest.approx(0.75, abs=0.05)
    assert loaded.inputs["args"][0]["values"] == {"zeros": 0.75}
    none = {"args": [{"shape": ["batch", 4], "values": {"zeros": 0}}], "kwargs": {}}
    spec = load(ModelSpec(path, inputs=none), device="meta").inputs["args"][0]
    assert spec == {"shape": [1, 4], "dtype": "float32"}


IMAGE = {"shape": ["batch", 3, 8, 8]}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({**IMAGE, "values": {"range": ["a", 1]}}, "values {'range'"),
        ({**IMAGE, "values": {"range": [0, math.inf]}}, "values {'range'"),
        ({**IMAGE, "values": {"density": 0.5}}, "{'density': 0.5} of float32"),
        ({**IMAGE, "dtype": "bool", "values": {"range": [0, 2]}}, "of bool"),
        ({**IMAGE, "dtype": "int64", "values": "mask"}, "'mask' of int64"),
        ({**IMAGE, "values": {"zeros": 1.5}}, "values {'zeros'"),
        ({**IMAGE, "dtype": "int64", "values": {"zeros": 0.5}}, "of int64"),
        ({**IMAGE, "dtype": "int8", "values": {"range": [0, 300]}}, "of int8"),
        ({**IMAGE, "dtype": "int8", "values": {"range": [0, 2.5]}}, "of int8"),
        ({**IMAGE, "dtype": ["float32"]}, "unknown dtype of a tensor"),
        ({**IMAGE, "layout": [1, "a", 2, 3]}, "layout [1, 'a', 2, 3]"),
        ({**IMAGE, "layout": [-1, 8, 8, 1]}, "layout [-1"),
        ({**IMAGE, "layout": [8, 1]}, "layout [8, 1]"),
        ({**IMAGE, "layout": "channels_first"}, "layout 'channels_first'"),
        ({"shape": ["batch", 10**20]}, "more bytes than can be addressed"),
        ({"shape": ["batch", 10**10, 10**10]}, "more bytes than can be addressed"),
        ({"tuple": 5}, "tuple 5"),
        (math.nan, "nan is a float"),
        (datetime.date(2026, 1, 1), "is a date"),
        ({"a", "b"}, "is a set"),
    ],
)
def test_inputs_that_cannot_be_made_are_told(given: Json, said: str) -> None:
    name = sample_models.path("bare")
    with pytest.raises(InputError, match=f"^{re.escape(repr(name))}: .*{re.escape(said)}"):
        load(ModelSpec(name, inputs={"args": [given]}), device="meta")


@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_example_inputs_take_the_dtype_and_format_of_the_model(device: str) -> None:
    name = sample_models.path("image_in_float32")
    request = ModelSpec(name, dtype="float64", memory_format="channels_last")
    loaded = load(request, device=device)
    (image,) = loaded.args
    assert image.dtype == loaded.module.weight.dtype == torch.float64
    assert image.is_contiguous(memory_format=torch.channels_last)
    spec = loaded.inputs["args"][0]
    assert spec == {"shape": [2, 3, 8, 8], "dtype": "float64", "layout": "channels_last"}


def test_a_script_that_ends_the_process_when_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_script_file.py").write_text("import sys\nsys.exit('usage: …\\n  --x')\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        InputError, match=r"importing own_script_file failed: SystemExit: usage: …$"
    ):
        load(ModelSpec("own_script_file:make"), device="meta")


def compiled_already() -> tuple[nn.Module, torch.Tensor]:
    part = nn.Linear(8, 8)
    part.compile(backend="eager")
    first: Any = torch.compile(nn.ReLU(), backend="eager")
    whole: Any = torch.compile(nn.Sequential(first, part), backend="eager")
    return whole, torch.ones(2, 8)


@pytest.mark.parametrize("device", ["meta", "cpu"])
def test_a_model_that_is_compiled_already_is_loaded_as_it_was(device: str) -> None:
    made = load(ModelSpec(f"{__name__}:compiled_already"), device=device)
    assert [type(m) for m in made.module.modules()] == [nn.Sequential, nn.ReLU, nn.Linear]
    assert all(m._compiled_call_impl is None for m in made.module.modules())
    assert made.module(*made.args).shape == (2, 8)


def test_a_module_beside_the_user_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_model_file.py").write_text(
        "__version__ = '1.2'\nfrom torch import nn\ndef make(): return nn.Linear(3, 3)\n"
    )
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    loaded = load(ModelSpec("own_model_file:make", input_size=(3,)), device="meta")
    assert loaded.source_version == "1.2"
    assert sys.path == before


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (ModelSpec("resnet51"), "did you mean 'resnet5"),
        (ModelSpec("lstn"), "did you mean 'lstm'"),
        (ModelSpec("resnet50", source="torchvison"), "did you mean 'torchvision'"),
        (ModelSpec("resnet50", source="builtin"), "unknown builtin model"),
        (ModelSpec("resnet50", dtype="float23"), "unknown dtype 'float23'"),
        (ModelSpec("resnet50", memory_format="nhwc"), "unknown memory format 'nhwc'"),
        (ModelSpec("resnet50", weights="IMAGENET1K_V9"), "IMAGENET1K_V1"),
        (ModelSpec("no_such_module_here:f"), "no module named 'no_such_module_here'"),
        (ModelSpec(sample_models.path("absent")), "has no 'absent'"),
        (ModelSpec(sample_models.path("COMPLETE")), "give what returns a new module"),
        (ModelSpec(sample_models.path("not_a_module")), "returned int"),
        (ModelSpec(":f"), "package.module:callable"),
        (ModelSpec("resnet50", batch_size=0), "batch size 0"),
        (ModelSpec("resnet50", input_size=(3, -1)), "input size"),
        (ModelSpec("mlp", inputs={"arg": []}), "unknown key of inputs 'arg'"),
        (ModelSpec("mlp", inputs={"args": [{"shape": ["b"]}]}), "size 'b'"),
        (ModelSpec("mlp", inputs={"args": [{"shape": [1], "values": "odd"}]}), "values 'odd'"),
    ],
)
def test_bad_requests_are_explained(request_: ModelSpec, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        load(request_, device="meta")
    assert len(str(caught.value).splitlines()) == 1


def test_a_name_is_found_in_the_source_that_comes_first() -> None:
    assert sources_of("resnet50") == ["torchvision"]
    assert sources_of("gpt2-bare") == sources_of("bert_base") == ["transformers"]
    for each in catalogue.catalogue():
        assert checked(ModelSpec(each.name)).source == sources_of(each.name)[0]


def test_models_of_timm_are_found_behind_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    timm: Any = ModuleType("timm")
    timm.list_models = lambda: ["tiny"]

    def create_model(name: str) -> Any:
        made: Any = nn.Linear(8, 4)
        made.default_cfg = {"input_size": (8,)}
        return made

    timm.create_model = create_model
    monkeypatch.setitem(sys.modules, "timm", timm)
    for module in (catalogue, construction):
        monkeypatch.setattr(module, "version_of", lambda package: "1.0")
    found = load(ModelSpec("timm:tiny", batch_size=3), device="meta")
    assert (found.source, found.source_version, names("timm")) == ("timm", "1.0", ["timm:tiny"])
    assert found.args[0].shape == (3, 8) and found.module(*found.args).shape == (3, 4)
    with pytest.raises(InputError, match="only models of torchvision take any"):
        load(ModelSpec("timm:tiny", weights="in1k"), device="meta")


# Batch norms on the processor: calibrated by one pass, and the model's state put back


def loaded(module: nn.Module, *args: object) -> LoadedModel:
    return LoadedModel("own", "python", "0", module, args, {}, {"args": [], "kwargs": {}}, 1)


def norms(module: nn.Module) -> list[nn.BatchNorm2d]:
    return [m for m in module.modules() if isinstance(m, nn.BatchNorm2d)]


def test_statistics_of_resnet18_are_calibrated_and_its_outputs_finite() -> None:
    made = load(ModelSpec("resnet18", batch_size=1, input_size=(3, 64, 64)), device="cpu")
    calibrate_batch_norms(made)
    found: list[float] = []

    def look(_: nn.Module, __: Any, output: Tensor) -> None:
        found.append(float(output.std()))

    hooks = [norm.register_forward_hook(look) for norm in norms(made.module)]
    with torch.no_grad():
        outputs = made.module(*made.args)
    for hook in hooks:
        hook.remove()
    assert torch.isfinite(outputs).all()
    assert len(found) == 20
    assert all(0.2 < spread < 5 for spread in found), "activations neither grow nor vanish"
    assert not any(m.training for m in made.module.modules())
    assert all(n.momentum == 0.1 for n in norms(made.module))
    assert made.args[0].shape[0] == 1
