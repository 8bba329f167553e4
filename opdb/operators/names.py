"""Operators by the names that a PyTorch user gives them, from the reviewed table alone.

`nn.Conv2d`, `torch.nn.Conv2d` and `Conv2d` are one class; `F.conv2d`, `torch.nn.functional.conv2d`
one function; a kind's own name (`conv2d`) stands for its function, or its module where it has none.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from opdb.errors import UnknownNameError
from opdb.kinds import KINDS
from opdb.kinds.registry import parse_signature
from opdb.operators.functions import Form as FunctionForm
from opdb.operators.functions import forms_by_name
from opdb.operators.module_form import ModuleForm
from opdb.operators.modules import FORMS
from opdb.records import Form

_PREFIXES = {
    "torch.nn.functional.": "F.",
    "nn.functional.": "F.",
    "torch.nn.": "nn.",
    "torch.Tensor.": "Tensor.",
    "torch.linalg.": "linalg.",
    "torch.special.": "special.",
    "torch.fft.": "fft.",
}
_NOT_CONSTRUCTED = {"self", "device", "dtype", "training", "weight_dtype"}


@dataclass(frozen=True)
class NamedOperator:
    """A reviewed operator: what is called, and the names of what it takes.

    `constructed` is what a module is constructed with, `taken` what the call takes; each says
    whether a name must be given. A function is not constructed.
    """

    name: str
    form: Form
    called: Callable[..., Any]
    constructed: Mapping[str, bool]
    taken: Mapping[str, bool]


def find_operator(name: str) -> NamedOperator:
    """Return the operator that a user's name means.

    Raises:
        UnknownNameError: no reviewed operator is named so; the message offers the nearest.
    """
    prefix = next((old for old in _PREFIXES if name.startswith(old)), "")
    spelled = _PREFIXES.get(prefix, "") + name.removeprefix(prefix)
    known = operators()
    for candidate in (spelled, f"nn.{spelled}"):
        if candidate in known:
            return known[candidate]
    if name in KINDS:
        return _of_kind(name)
    raise UnknownNameError("operator", spelled, known)


@cache
def operators() -> Mapping[str, NamedOperator]:
    """Return every reviewed operator by its name: "nn.Conv2d", "F.conv2d", "torch.cat"."""
    found = {f"nn.{form.module.__name__}": form for form in reversed(FORMS)}
    modules = {name: _module(name, form) for name, form in found.items()}
    return modules | {name: _function(name, form) for name, form in forms_by_name().items()}


def _of_kind(kind: str) -> NamedOperator:
    """Return the function of a kind, or its module where it has none.

    Raises:
        UnknownNameError: it has neither.
    """
    known = operators()
    for name, form in forms_by_name().items():
        if form.kind == kind and not form.inplace and not form.swapped:
            return known[name]
    for each in FORMS:
        if each.kind == kind:
            return known[f"nn.{each.module.__name__}"]
    raise UnknownNameError("operator", kind, known)


def _module(name: str, form: ModuleForm) -> NamedOperator:
    taken = _needed(parse_signature(form.call))
    constructed = _needed(inspect.signature(form.module.__init__))
    if "kwargs" in constructed:
        # recurrent layers hand what they are given to their base
        constructed = _needed(KINDS[form.kind].signature)
    without = _NOT_CONSTRUCTED | taken.keys()
    kept = {n: needed for n, needed in constructed.items() if n not in without}
    return NamedOperator(name, "module", form.module, kept, taken)


def _function(name: str, form: FunctionForm) -> NamedOperator:
    needed = _needed(form.signature)
    taken = {n: must for n, must in needed.items() if not n.startswith("_") and n != "out"}
    return NamedOperator(name, "function", form.function, {}, taken)


def _needed(signature: inspect.Signature) -> dict[str, bool]:
    return {
        name: p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
        for name, p in signature.parameters.items()
    }
