"""Which callables compute which kind, and the keys of calls, held to what was recorded.

`python -m tests.operators.test_pinned` records those of today's code.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import torch

from opdb.kinds import KINDS
from opdb.operators import TensorNotes, describe_module
from opdb.operators.functions import FunctionForm, forms_by_name, function_forms
from tests.operators.calls import CALLS, MODULES, Tensors
from tests.operators.watching import watch

FILE = Path(__file__).parents[1] / "data" / "operators.json"


def callables() -> dict[str, list[str]]:
    """Return each kind's callables in order, the one that `build` calls first."""
    names = {id(form): name for name, form in forms_by_name().items()}
    found = function_forms()
    return {
        kind: [_spelled(kind, form, names) for form in found[kind].values()]
        for kind in sorted(KINDS)
        if found.get(kind)
    }


def _spelled(kind: str, form: FunctionForm, names: Mapping[int, str]) -> str:
    flags = "!" * form.inplace + "~" * form.swapped
    own = form.signature == KINDS[kind].signature
    return names[id(form)] + flags + ("" if own else str(form.signature))


def keys() -> dict[str, list[str]]:
    """Return how the keys begin of all that the sample calls and modules describe as."""
    found = {}
    for name, call in CALLS.items():
        torch.manual_seed(0)
        tensors = Tensors()
        found[name] = [c.key[:12] for c in watch(lambda call=call, t=tensors: call(t))]  # type: ignore[misc]
    for name, make in MODULES.items():
        module, inputs = make()
        modes = (module.train(training) for training in (False, True))
        found[f"nn.{name}"] = [
            describe_module(m, inputs, {}, TensorNotes()).key[:12] for m in modes
        ]
    return found


def test_every_callable_computes_the_kind_that_was_recorded() -> None:
    assert callables() == json.loads(FILE.read_text())["callables"]


def test_every_sample_call_has_the_key_that_was_recorded() -> None:
    assert keys() == json.loads(FILE.read_text())["keys"]


if __name__ == "__main__":
    document = {"callables": callables(), "keys": keys()}
    lines = [
        f'"{title}": {{\n'
        + ",\n".join(f"{json.dumps(name)}: {json.dumps(each)}" for name, each in found.items())
        + "\n}"
        for title, found in document.items()
    ]
    FILE.write_text("{" + ",\n".join(lines) + "}\n")
