"""What a kind is, and the one registry of kinds."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from types import MappingProxyType
from typing import Any

from opdb.errors import UnknownNameError
from opdb.kinds import view as v
from opdb.kinds.view import Shape, View
from opdb.records import Configuration, Json

Canonical = Callable[[dict[str, Json], dict[str, Json]], None]
"""Rewrite a call's parameters and inputs in place, so that equal calls become equal text."""


@cache
def parse_signature(text: str) -> inspect.Signature:
    """Return the signature that a text like ``"input, other, *, alpha=1"`` spells; runs no code."""
    function = ast.parse(f"def f({text}): pass").body[0]
    assert isinstance(function, ast.FunctionDef)
    spelled = function.args
    parameters = []
    plain = [*spelled.posonlyargs, *spelled.args]
    missing: list[ast.expr | None] = [None] * (len(plain) - len(spelled.defaults))
    for name, default in zip(plain, missing + list(spelled.defaults), strict=True):
        parameters.append(_parameter(name, default, inspect.Parameter.POSITIONAL_OR_KEYWORD))
    if spelled.vararg:
        parameters.append(_parameter(spelled.vararg, None, inspect.Parameter.VAR_POSITIONAL))
    for name, default in zip(spelled.kwonlyargs, spelled.kw_defaults, strict=True):
        parameters.append(_parameter(name, default, inspect.Parameter.KEYWORD_ONLY))
    return inspect.Signature(parameters)


def _parameter(name: ast.arg, default: ast.expr | None, kind: Any) -> inspect.Parameter:
    value = inspect.Parameter.empty if default is None else ast.literal_eval(default)
    return inspect.Parameter(name.arg, kind, default=value)


_CAST = frozenset({"float16", "bfloat16", "float32"})
"""The dtypes that autocast casts."""

_OF_PRODUCTS = frozenset({"tf32_convolution", "tf32_matmul"})
"""The settings of kinds that come down to products."""


@dataclass(frozen=True)
class Kind:
    """The name of the function that an operator computes, and what is known of it without torch.

    The methods take a configuration of this kind; the fields ending in `_rule` hold what they do.
    `then_indices` says that the outputs after the first are indices. Under autocast the outputs of
    what comes down to products are halves, unless it is `raised` in the end.
    """

    name: str
    spelled: str = "input"
    flops_rule: Callable[[View], int] = v.one_flop_an_output
    bytes_rule: Callable[[View], int] = v.inputs_and_outputs
    shapes_rule: Callable[[View], list[Shape]] = v.broadcast_output
    dtype_rule: Callable[[View], str] = v.promoted_dtype
    then_indices: bool = False
    launches_rule: Callable[[View], bool] = v.always
    values_rule: Callable[[View], Json | None] = v.no_values
    canonical: Canonical | None = None
    mutates: tuple[str, ...] = ()
    synchronises: bool = False
    settings: tuple[str, ...] = ()
    raised: bool = False

    @cached_property
    def signature(self) -> inspect.Signature:
        """The named arguments, in order, with their defaults."""
        return parse_signature(self.spelled)

    def view(self, configuration: Configuration) -> View:
        """Return a reader of the configuration's arguments, defaults filled in.

        Raises:
            ValueError: the configuration is of another kind.
        """
        if configuration.kind != self.name:
            raise ValueError(f"kind {self.name!r} asked about a {configuration.kind!r}")
        return View(configuration, self.signature)

    def flops(self, configuration: Configuration) -> int:
        """Return the floating point operations of one call; a multiply-add counts 2."""
        if configuration.pass_name in _passes:
            return _passes[configuration.pass_name].flops(configuration)
        view = self.view(configuration)
        return self.flops_rule(view.with_outputs(self.shapes_rule(view)))

    def bytes_moved(self, configuration: Configuration) -> int:
        """Return the bytes of each input and weight read once and each output written once."""
        return self.traffic(configuration)[0]

    def weight_bytes(self, configuration: Configuration) -> int:
        """Return the bytes of weights that one call reads.

        They are what it moves beyond its inputs and outputs: an embedding reads few of its rows. A
        backward pass finds nothing as the pass before it left it: it has none that could stay hot.
        """
        return self.traffic(configuration)[1]

    def traffic(self, configuration: Configuration) -> tuple[int, int]:
        """Return the bytes that one call moves, and those of weights among them."""
        if configuration.pass_name in _passes:
            return _passes[configuration.pass_name].bytes_moved(configuration), 0
        view = self.view(configuration)
        if not self.launches_rule(view):
            return 0, 0
        view = self._with_outputs(view)
        moved = self.bytes_rule(view)
        weights = sum(v.spec_bytes(t) for t in view.unique if t.get("role") == "weight")
        return moved, max(0, moved - (v.inputs_and_outputs(view) - weights))

    def output_bytes(self, configuration: Configuration) -> int:
        """Return the bytes of the outputs of one call."""
        return self._with_outputs(self.view(configuration)).output_bytes

    def _with_outputs(self, view: View) -> View:
        shapes, dtype = self.shapes_rule(view), self._output_dtype(view)
        return view.with_outputs(shapes, dtype, then_indices=self.then_indices)

    def _output_dtype(self, view: View) -> str:
        """Return the outputs' dtype: autocast lowers those of products, and raises all others."""
        dtype, lowered = self.dtype_rule(view), view.configuration.autocast
        if lowered is None or dtype not in _CAST:
            return dtype
        is_product = not _OF_PRODUCTS.isdisjoint(self.settings)
        return lowered if is_product and not self.raised else "float32"

    def activation_bytes(self, configuration: Configuration) -> int:
        """Return the bytes of the outputs that one call makes room for; views have none."""
        view = self.view(configuration)
        if view.inplace or not self.launches_rule(view):
            return 0
        return self.output_bytes(configuration)

    def output_shapes(self, configuration: Configuration) -> list[Shape]:
        """Return the shapes of the outputs, as far as shapes alone decide them."""
        return self.shapes_rule(self.view(configuration))

    def launches(self, configuration: Configuration) -> bool:
        """Return whether the call gives the device work; a view does not."""
        if configuration.pass_name in _passes:
            return self.bytes_moved(configuration) > 0
        return self.launches_rule(self.view(configuration))

    def output_values(self, configuration: Configuration) -> Json | None:
        """Return the value class of the output, None for normal."""
        return self.values_rule(self.view(configuration))


@dataclass(frozen=True)
class PassRules:
    """What a pass of its own costs, of any kind."""

    flops: Callable[[Configuration], int]
    bytes_moved: Callable[[Configuration], int]


_passes: dict[str, PassRules] = {}
_kinds: dict[str, Kind] = {}

KINDS: Mapping[str, Kind] = MappingProxyType(_kinds)
"""Every kind, by name."""


def register(*kinds: Kind) -> None:
    """Add kinds to the registry.

    Raises:
        ValueError: a kind of that name is registered already.
    """
    for kind in kinds:
        if kind.name in _kinds:
            raise ValueError(f"kind {kind.name!r} is registered twice")
        _kinds[kind.name] = kind


def register_pass(name: str, rules: PassRules) -> None:
    """Say what a pass costs that follows from no kind's own rules."""
    _passes[name] = rules


def get_kind(name: str) -> Kind:
    """Return the kind of that name.

    Raises:
        UnknownNameError: there is none; the message offers the nearest.
    """
    try:
        return _kinds[name]
    except KeyError:
        raise UnknownNameError("kind", name, _kinds) from None
