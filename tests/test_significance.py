"""The list of significant operators: what a person wrote stays, what is wrong is said at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from opdb.errors import InputError
from opdb.records import Configuration
from opdb.significance import Significance, in_words, load_significance
from opdb.summary import load_summary, summaries_in

CONV = Configuration(
    "conv2d",
    {"stride": [2, 2], "padding": [1, 0]},
    {
        "input": {"shape": [32, 3, 8, 8], "dtype": "float32", "layout": "channels_last"},
        "weight": {"shape": [8, 3, 3, 3], "dtype": "float32", "role": "weight"},
        "bias": {"shape": [8], "dtype": "float32", "role": "weight"},
    },
)
RELU = Configuration("relu", {}, {"input": {"shape": [4], "dtype": "bfloat16"}})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "significant.yml"


def test_without_a_file_nothing_is_pinned(path: Path) -> None:
    found = load_significance(path)
    assert found == Significance() and (found.target, found.least_share) == (0.95, 0.0)
    assert not found.is_always(CONV) and not found.is_never(CONV)


def test_pins_name_kinds_and_keys_and_the_key_goes_first() -> None:
    found = Significance(always=("conv2d",), never=(CONV.key[:12],))
    assert found.is_never(CONV) and not found.is_always(CONV)
    assert not found.is_never(RELU) and not found.is_always(RELU)
    found = Significance(always=(CONV.key,), never=("conv2d", "relu"))
    assert found.is_always(CONV) and not found.is_never(CONV) and found.is_never(RELU)


BAD = [
    ("target: 1.5", "target: found 1.5; allowed: a share above 0, up to 1"),
    ("target: 0", "target: found 0; allowed: a share above 0, up to 1"),
    ("target: high", "target: found 'high'; allowed"),
    ("least_share: 1", "least_share: found 1; allowed: a share from 0 to below 1"),
    ("targt: 0.9", "unknown key targt; did you mean 'target'?"),
    ("zebra: 1", "unknown key zebra; allowed: target, least_share, always, never"),
    ("never: dropout", "never: found 'dropout'; allowed: a list of kinds"),
    ("never: [dropuot]", "never: found 'dropuot'; allowed: a list of kinds"),
    ("never: [dropuot]", "did you mean 'dropout'?"),
    ("always: [4f0c]", "always: found '4f0c'; allowed"),
    ("always: [12345678]", "always: found 12345678; allowed: a list of kinds"),
    ("always: [relu]\nnever: [relu]", "'relu' is both under always and under never"),
    ("- relu", "the list of significant operators has keys, at least: target: 0.95"),
    ("", "is empty; the list of significant operators has at least: target: 0.95"),
    ("never: [relu", "not valid YAML"),
    ("targt: 1\nnevr: []", "unknown key targt; did you mean 'target'?; unknown key nevr"),
    ("targt: 1\nalways: 5", "did you mean 'target'?; always: found 5"),
]


@pytest.mark.parametrize(("text", "said"), BAD, ids=lambda value: value[:30])
def test_a_mistake_is_one_clear_error(path: Path, text: str, said: str) -> None:
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        load_significance(path)
    message = str(caught.value)
    assert message.startswith(str(path)) and said in message and "\n" not in message


def test_that_of_the_project_is_valid() -> None:
    path = Path(__file__).parents[1] / "measurements" / "significant.yml"
    assert load_significance(path) == Significance()


def test_it_is_no_summary_file(path: Path) -> None:
    path.write_text("never: [dropout]\n")
    model = path.with_name("alexnet.yml")
    model.write_text("model: alexnet\n")
    assert summaries_in(path.parent) == [model]
    with pytest.raises(InputError, match="is the list of significant operators"):
        load_summary(path)


def test_a_configuration_in_words() -> None:
    assert in_words(CONV) == "32x3x8x8 float32 channels_last, weight 8x3x3x3, stride 2, padding 1x0"
    assert in_words(RELU) == "4 bfloat16"
    assert in_words(Configuration("arange", {"end": 4}, {})) == "end 4"
    long = Configuration("cat", {f"parameter{n}": list(range(30)) for n in range(9)}, {})
    assert len(in_words(long)) <= 90
