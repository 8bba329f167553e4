"""A torch.nn class as a form of a kind."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from opdb.errors import UnsupportedError
from opdb.kinds import KINDS
from opdb.kinds.registry import parse_signature
from opdb.operators.functions import bind
from opdb.operators.overloads import Bound

Arguments = Mapping[str, Any]

_OF_ANY = ("inplace", "training", "weight_dtype")
"""Arguments that any module has: its mode, its tensors' dtype, and whether it works in place."""


@dataclass(frozen=True)
class ModuleForm:
    """One torch.nn class as a form of a kind.

    `call` is its forward's signature in the kind's names. Every other argument of the kind is the
    module's attribute of that name; `attributes` says where that is not so. `construct` gives the
    constructor's arguments that are not the kind's. `matches` says which configurations the class
    can be built for; `opaque` that the weights are implied.
    """

    module: type[nn.Module]
    kind: str
    call: str = "input"
    attributes: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    construct: Callable[[Arguments], dict[str, Any]] | None = None
    matches: Callable[[Arguments], bool] = lambda arguments: True
    opaque: bool = False

    def bind(self, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Bound:
        """Return the kind and the named arguments of a call of the module.

        Raises:
            UnsupportedError: the call does not fit, or the module was changed by hand.
        """
        arguments = bind(parse_signature(self.call), args, kwargs, self.module.__name__)
        for name, parameter in KINDS[self.kind].signature.parameters.items():
            if name in arguments or name == "weight_dtype":
                continue
            if name in self.attributes:
                arguments[name] = self.attributes[name](module)
            elif hasattr(module, name):
                arguments[name] = getattr(module, name)
            elif parameter.default is inspect.Parameter.empty:
                raise UnsupportedError(f"{self.module.__name__} has no {name!r}")
        if self.opaque:
            weight = next(module.parameters(), None)
            first = next((a for a in arguments.values() if isinstance(a, Tensor)), None)
            if weight is not None and first is not None and weight.dtype != first.dtype:
                arguments["weight_dtype"] = weight.dtype
        return self.kind, arguments

    def takes(self, names: Iterable[str]) -> bool:
        """Return whether the class or its forward has arguments of these names.

        A function may have more: `nn.Softmax` has no `dtype`, which softmax has.
        """
        of_call = parse_signature(self.call).parameters
        known = {*of_call, *self._constructor_names(), *self.attributes, *_OF_ANY}
        return known.issuperset(names)

    def _constructor_names(self) -> set[str]:
        names = set(inspect.signature(self.module.__init__).parameters)
        if "kwargs" in names:
            # recurrent layers hand what they are given to their base
            names = set(KINDS[self.kind].signature.parameters)
            names -= {*parse_signature(self.call).parameters, "training", "weight_dtype"}
        return names

    def constructor_arguments(self, arguments: Arguments) -> dict[str, Any]:
        """Return what the class is constructed with, from the call's named arguments."""
        names = self._constructor_names()
        found = {n: arguments[n] for n in names if n in arguments and n not in ("weight", "bias")}
        bias = arguments.get("bias")
        if "bias" in names:
            found["bias"] = bias if isinstance(bias, bool) else bias is not None
        return found | (self.construct(arguments) if self.construct else {})
