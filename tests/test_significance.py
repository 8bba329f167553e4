"""The list of significant operators: what a person wrote stays, what is wrong is said at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from opdb.errors import InputError
from opdb.summary_files import Significance, load_significance


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "significant.yml"


def test_a_list_says_what_is_measured_always_and_never(path: Path) -> None:
    path.write_text("always: [conv2d]\nnever: [relu, dropout]")
    assert load_significance(path) == Significance(0.95, ("conv2d",), ("relu", "dropout"))


BAD = [
    ("target: 1.5", "target: found 1.5; allowed: a share above 0, up to 1"),
    ("targt: 0.9", "unknown key targt; did you mean 'target'?"),
    ("never: [dropuot]", "never: found ['dropuot']; allowed: a list of kinds"),
    ("always: relu", "always: found 'relu'; allowed: a list of kinds"),
    ("always: [relu]\nnever: [relu]", "relu: both under always and under never"),
    ("", "is empty; the list of significant operators has at least: target: 0.95"),
    ("never: [relu", "not valid YAML"),
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
