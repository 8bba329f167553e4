from __future__ import annotations

from dataclasses import dataclass
from inspect import signature
from typing import Annotated

from opdb.cli.app import taken_apart


@dataclass(frozen=True)
class Given:
    size: Annotated[int, "how large"] = 3
    name: str = "a"


def test_a_record_of_options_is_taken_apart_and_put_together_again() -> None:
    seen = []

    def run(what: str, given: Given = Given(), often: bool = False) -> None:
        """Do it."""
        seen.append((what, given, often))

    command = taken_apart(run)
    parameters = signature(command).parameters
    assert list(parameters) == ["what", "size", "name", "often"]
    assert parameters["size"].annotation == Annotated[int, "how large"]
    assert parameters["name"].default == "a"
    assert command.__doc__ == "Do it."
    command(what="x", size=4, name="b", often=True)
    assert seen == [("x", Given(4, "b"), True)]
