"""The list of significant operators: what a person wrote stays, what is wrong is said at once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from opdb.errors import InputError
from opdb.records import Configuration
from opdb.significance import (
    ConfigurationEntry,
    KindEntry,
    Proposal,
    Significance,
    in_words,
    load_significance,
    propose,
)
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


def kind(name: str, share: float = 0.5) -> KindEntry:
    return KindEntry(kind=name, configurations=3, models=2, share_time=share, share_energy=share)


def entry(key: str, name: str = "conv2d") -> ConfigurationEntry:
    return ConfigurationEntry(
        key=key,
        kind=name,
        what='3x3, "quoted"',
        share_time=0.01,
        share_energy=0.02,
        most="5 % of a",
    )


PROPOSAL = Proposal(
    "2 workloads on a device: 4 of 9 configurations for 0.95",
    [kind("conv2d"), kind("relu", 0.125)],
    [entry("4f0c1a2b9d3e"), entry("123456789012", "relu")],
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "significant.yml"


def test_without_a_file_nothing_is_pinned(path: Path) -> None:
    found = load_significance(path)
    assert found == Significance() and (found.target, found.least_share) == (0.95, 0.0)
    assert not found.is_always(CONV) and not found.is_never(CONV)


def listed(path: Path, name: str) -> list[str]:
    """What an entry of a list is about: its key, or its kind."""
    entries = yaml.safe_load(path.read_text())[name]
    return [entry.get("key", entry["kind"]) for entry in entries]


def test_a_proposal_makes_a_file_that_is_read_back(path: Path) -> None:
    assert propose(path, PROPOSAL)
    written = yaml.safe_load(path.read_text())
    assert written["kinds"] == [vars(each) for each in PROPOSAL.kinds]
    assert written["configurations"] == [vars(each) for each in PROPOSAL.configurations]
    assert load_significance(path) == Significance()
    text = path.read_text()
    assert text.startswith("# The significant operators") and PROPOSAL.rests_on in text


def test_a_proposal_that_changes_nothing_leaves_the_file_alone(path: Path) -> None:
    propose(path, PROPOSAL)
    before, at = path.read_bytes(), path.stat().st_mtime_ns
    assert not propose(path, PROPOSAL)
    assert path.read_bytes() == before and path.stat().st_mtime_ns == at


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_what_a_person_wrote_above_the_lists_stays(path: Path, newline: str) -> None:
    propose(path, PROPOSAL)
    text = path.read_text()
    text = text.replace(
        "always: []", "always:  # we always want these\n  - layer_norm\n  - 4f0c1a2b"
    )
    text = text.replace("never: []", "never: [dropout]   # costs nothing")
    text = text.replace("target: 0.95 ", "target: 0.9 ")
    own = text[: text.index("kinds:")]
    path.write_bytes(text.replace("\n", newline).encode())
    changed = replace(
        PROPOSAL,
        kinds=[kind("relu", 0.6), kind("conv2d", 0.3), kind("add", 0.1)],
        configurations=[],
    )
    assert propose(path, changed)
    after = path.read_bytes().decode()
    assert after.count(newline) == after.count("\n")
    assert after.replace("\r\n", "\n").startswith(own + "kinds:  # 2 workloads")
    found = load_significance(path)
    assert found.always == ("layer_norm", "4f0c1a2b") and found.target == 0.9
    assert listed(path, "kinds") == ["relu", "conv2d", "add"]
    assert listed(path, "configurations") == []
    assert not propose(path, changed)


def test_keys_below_the_lists_are_not_overwritten(path: Path) -> None:
    path.write_text("kinds:\n  - kind: conv2d\n\ntarget: 0.8\n")
    with pytest.raises(InputError, match="keep kinds and configurations last"):
        propose(path, PROPOSAL)
    path.write_text("target: 0.8\nkinds:\n  - kind: conv2d\n")
    assert propose(path, PROPOSAL)
    assert load_significance(path).target == 0.8 and len(listed(path, "kinds")) == 2


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
    ("zebra: 1", "unknown key zebra; allowed: target, least_share, always, never, kinds"),
    ("never: dropout", "never: found 'dropout'; allowed: a list of kinds"),
    ("never: [dropuot]", "never: found 'dropuot'; allowed: a list of kinds"),
    ("never: [dropuot]", "did you mean 'dropout'?"),
    ("always: [4f0c]", "always: found '4f0c'; allowed"),
    ("always: [12345678]", "always: found 12345678; allowed: a list of kinds"),
    ("always: [relu]\nnever: [relu]", "'relu' is both under always and under never"),
    ("kinds: 3", "kinds: found 3; allowed: a list that opdb build writes"),
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
    with pytest.raises(InputError):
        propose(path, PROPOSAL)
    assert path.read_text() == text


def test_that_of_the_project_is_valid_and_can_be_read_by_a_person() -> None:
    path = Path(__file__).parents[1] / "measurements" / "significant.yml"
    load_significance(path)
    assert listed(path, "kinds") and listed(path, "configurations")
    assert len(path.read_text().splitlines()) < 100


def test_it_is_no_summary_file(path: Path) -> None:
    propose(path, PROPOSAL)
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


def test_every_text_is_safe_in_yaml(path: Path) -> None:
    odd = replace(entry("4f0c1a2b9d3e"), what='a: [b], {c} # d "e" \\ ⁄', most="- x")
    propose(path, replace(PROPOSAL, configurations=[odd]))
    [found] = yaml.safe_load(path.read_text())["configurations"]
    assert (found["what"], found["most"]) == (odd.what, odd.most)
    assert not propose(path, replace(PROPOSAL, configurations=[odd]))
