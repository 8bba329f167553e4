"""Several models, one of which fails as nobody foresaw: the others' answers are not lost."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from opdb.errors import CannotMeasureError, InputError, OpdbError, kept, raise_all
from tests import published
from tests.cli.conftest import Opdb

pytestmark = pytest.mark.usefixtures("short")


def failing(of: str, run: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that fails for one model alone, as nobody foresaw."""

    def called(request: Any, *args: Any, **kwargs: Any) -> Any:
        if request.name == of:
            raise KeyError("of a fault")
        return run(request, *args, **kwargs)

    return called


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the harvest of the built-in `lstm` fail."""
    from opdb.harvest import passes
    from opdb.harvest.passes import harvest, harvest_in_both

    monkeypatch.setattr(passes, "harvest", failing("lstm", harvest))
    monkeypatch.setattr(passes, "harvest_in_both", failing("lstm", harvest_in_both))


def told(error: str) -> None:
    assert "lstm" in error and "unforeseen KeyError: 'of a fault' (" in error
    assert "Traceback" not in error


@pytest.mark.usefixtures("faulty")
def test_complexity_shows_the_others(opdb: Opdb) -> None:
    ran = opdb("complexity", "mlp", "lstm", "mlp", "--json", "--quiet")
    assert ran.status == 2
    assert [each["model"] for each in json.loads(ran.out)] == ["mlp", "mlp"]
    told(ran.err)
    assert len(ran.err.splitlines()) == 1
    assert "KeyError: 'of a fault'" in opdb("complexity", "mlp", "lstm", "--debug").err


@pytest.mark.usefixtures("faulty")
def test_harvest_stores_the_others(opdb: Opdb) -> None:
    ran = opdb("harvest", "lstm", "mlp", "--json", "--quiet")
    assert ran.status == 2
    assert [each["model"] for each in json.loads(ran.out)] == ["mlp"]
    told(ran.err)


@pytest.mark.usefixtures("faulty")
def test_predict_and_roofline_keep_the_others_answers(opdb: Opdb, tmp_path: Path) -> None:
    published.copy_to(tmp_path / "opdb.sqlite")
    ran = opdb("predict", "lstm", "resnet18", "-b", "128", "--json", "--quiet")
    assert ran.status == 2
    told(ran.err.splitlines()[1])
    found = json.loads(ran.out)
    assert [each["model"] for each in found["rows"]] == ["resnet18"], found
    ran = opdb("roofline", "lstm", "resnet50", "-b", "128", "--json", "--quiet")
    assert ran.status == 2
    told(ran.err)
    assert "resnet50" in ran.out and "lstm" not in ran.out


def test_what_concerns_all_is_not_kept() -> None:
    errors: list[OpdbError] = []
    for error in (BrokenPipeError(), ModuleNotFoundError("torch"), CannotMeasureError("no GPU")):
        with pytest.raises(type(error)), kept(errors, "mlp", CannotMeasureError):
            raise error
    assert not errors


def test_errors_of_several_models_are_one_message() -> None:
    errors: list[OpdbError] = []
    for error in (InputError("no such model"), KeyError("odd"), CannotMeasureError("no GPU")):
        with kept(errors, "mlp"):
            raise error
    with pytest.raises(OpdbError, match="3 models failed; what was finished is shown") as raised:
        raise_all(errors, "shown")
    assert "  no such model" in str(raised.value)
    assert "  mlp: unforeseen KeyError: 'odd' (" in str(raised.value)
    assert isinstance(raised.value.__cause__, ExceptionGroup)
