"""From a torch callable to its kind and named arguments, and back, by the kinds' declarations."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor

from opdb.errors import UnsupportedError
from opdb.kinds import KINDS, Kind
from opdb.kinds.registry import parse_signature
from opdb.operators import table
from opdb.operators.overloads import OVERLOADS, Bound

_SPACES: Mapping[str, Any] = {
    "torch": torch,
    "Tensor": Tensor,
    "F": torch.nn.functional,
    "linalg": torch.linalg,
    "special": torch.special,
    "fft": torch.fft,
    "C": torch._C,
    "amp": torch.amp.autocast_mode,
}
# where a tensor lives and how autograd sees it are not the call's: they are the campaign's
_IGNORED = frozenset(
    [
        "device",
        "pin_memory",
        "requires_grad",
        "generator",
        "non_blocking",
        "out",
        "layout",
        "names",
        "_stacklevel",
        "sparse_grad",
    ]
)
# other spellings of an argument's name, the first that the signature knows is taken
_ALIASES: Mapping[str, tuple[str, ...]] = {
    "axis": ("dim", "dims"),
    "dims": ("dim",),
    "keepdims": ("keepdim",),
    "self": ("input",),
    "x": ("input",),
    "A": ("input",),
    "train": ("training",),
    "size": ("shape",),
    "sizes": ("size",),
    "shape": ("size",),
    "axis0": ("dim0",),
    "axis1": ("dim1",),
    "split_size": ("split_size_or_sections",),
    "split_sizes": ("split_size_or_sections",),
    "indices": ("indices_or_sections", "index"),
    "sections": ("indices_or_sections",),
    "tensor": ("other", "input"),
    "tensors": ("operands",),
    "exponent": ("other",),
}
_ENTRY = re.compile(r"([\w.:]+)(\([^()]*(?:\([^()]*\))?[^()]*\))?([!~@]?)")


@dataclass(frozen=True)
class Form:
    """One torch callable as a form of a kind."""

    function: Callable[..., Any]
    kind: str
    signature: inspect.Signature
    inplace: bool = False
    swapped: bool = False

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Bound:
        """Return the kind and the call's named arguments, defaults filled in.

        Raises:
            UnsupportedError: the arguments do not fit the reviewed signature.
        """
        if self.swapped and len(args) == 2:
            args = (args[1], args[0])
        arguments = bind(self.signature, args, kwargs, self.kind)
        if self.inplace:
            arguments["inplace"] = True
        return self.kind, arguments


def bind(
    signature: inspect.Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any], what: str
) -> dict[str, Any]:
    """Bind a call to a signature; a sequence given to a `*name` is that name's items.

    Raises:
        UnsupportedError: the arguments do not fit, or ask for an output tensor.
    """
    if kwargs.get("out") is not None:
        raise UnsupportedError(f"{what}: an out= argument has no description")
    variadic = next(
        (p.name for p in signature.parameters.values() if p.kind is p.VAR_POSITIONAL), None
    )
    given: dict[str, Any] = {}
    for name, value in kwargs.items():
        if name in signature.parameters or name == "inplace":
            given[name] = value
        elif name not in _IGNORED:
            known = [n for n in _ALIASES.get(name, ()) if n in signature.parameters]
            given[known[0] if known else name] = value
    if variadic in given:
        value = given.pop(variadic)
        before = list(signature.parameters)[len(args) : list(signature.parameters).index(variadic)]
        args = (*args, *(given.pop(name) for name in before if name in given))
        args = (*args, *(value if isinstance(value, list | tuple) else (value,)))
    try:
        bound = signature.bind(*args, **given)
    except TypeError as error:
        raise UnsupportedError(f"{what}: {error}") from error
    bound.apply_defaults()
    if variadic is not None:
        items = bound.arguments[variadic]
        if len(items) == 1 and isinstance(items[0], list | tuple):
            bound.arguments[variadic] = tuple(items[0])
    return {n: v for n, v in bound.arguments.items() if not n.startswith("_") and n != "out"}


def _resolve(name: str, getter: bool) -> Any:
    space, _, attribute = name.partition(".")
    found = getattr(_SPACES[space], attribute, None)
    return getattr(found, "__get__", None) if getter else found


def _entries(kind: Kind) -> dict[str, Form]:
    """Return the callables that a kind names, by their names, in order."""
    forms = {}
    for match in _ENTRY.finditer(kind.functions.format(kind.name)):
        name, signature, flag = match.groups()
        function = _resolve(name, flag == "@")
        if function is None:
            continue
        spelled = parse_signature(signature[1:-1]) if signature else kind.signature
        forms[name] = Form(function, kind.name, spelled, flag == "!", flag == "~")
    return forms


@cache
def _table() -> Mapping[str, Mapping[str, Form]]:
    """Return each kind's callables by name."""
    return {name: _entries(kind) for name, kind in KINDS.items()}


@cache
def forms_by_kind() -> Mapping[str, tuple[Form, ...]]:
    """Return each kind's callables, the one that `build` calls first."""
    return {kind: tuple(forms.values()) for kind, forms in _table().items()}


@cache
def forms_by_name() -> Mapping[str, Form]:
    """Return each callable by its name in the table, "torch.cat"; getters are not calls."""
    return {
        name: form
        for forms in _table().values()
        for name, form in forms.items()
        if not name.startswith("C.") and callable(form.function)
    }


@cache
def forms_by_function() -> Mapping[Callable[..., Any], Form]:
    """Return the form of each callable.

    Raises:
        ValueError: the table gives one callable two kinds.
    """
    found: dict[Callable[..., Any], Form] = {}
    for forms in forms_by_kind().values():
        for form in forms:
            earlier = found.setdefault(form.function, form)
            if earlier.kind != form.kind:
                raise ValueError(f"{form.function} is both {earlier.kind} and {form.kind}")
    return found


@cache
def metadata_functions() -> frozenset[Callable[..., Any]]:
    """Return the callables that only ask or tell what a tensor is."""
    found = {_resolve(name, False) for name in table.METADATA.split()}
    for name in table.METADATA_GETTERS.split():
        found.add(getattr(getattr(Tensor, name, None), "__get__", None))
    for name in table.METADATA_SETTERS.split():
        found.add(getattr(getattr(Tensor, name, None), "__set__", None))
        found.add(getattr(getattr(Tensor, name, None), "__delete__", None))
    return frozenset(f for f in found if f is not None)


def bind_function(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Bound:
    """Return the kind and the named arguments of a call of a torch function.

    Raises:
        UnsupportedError: the function is not in the table, or the arguments do not fit.
    """
    custom = custom_name(function)
    if custom is not None:
        return _bind_custom(custom, args, kwargs)
    overload = OVERLOADS.get(function)
    if overload is not None:
        try:
            return overload(*args, **{k: v for k, v in kwargs.items() if k not in _IGNORED})
        except (TypeError, KeyError) as error:
            raise UnsupportedError(f"{function_name(function)}: {error}") from error
    form = forms_by_function().get(function)
    if form is None:
        raise UnsupportedError(f"no registered operator for {function_name(function)}")
    return form.bind(args, kwargs)


def function_name(function: Callable[..., Any]) -> str:
    """Return a callable's name for messages."""
    owner = getattr(function, "__module__", None) or getattr(function, "__objclass__", None)
    named = getattr(function, "__qualname__", None) or getattr(function, "__name__", "function")
    name = str(named)
    name = name.removeprefix("_VariableFunctionsClass.").removeprefix("TensorBase.")
    module = owner if isinstance(owner, str) else "torch.Tensor"
    return f"{module}.{name}"


def custom_name(function: Callable[..., Any]) -> str | None:
    """Return the name of a custom operator ("torchvision::nms"), None for anything else."""
    if isinstance(function, torch._ops.OpOverloadPacket):
        return str(function._qualified_op_name)
    if isinstance(function, torch._ops.OpOverload):
        return str(function._schema.name)
    return None


def _bind_custom(name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Bound:
    if name not in table.CUSTOM:
        raise UnsupportedError(f"no registered operator for {name}")
    kind, spelled = table.CUSTOM[name]
    arguments = bind(parse_signature(spelled), args, kwargs, kind)
    if kind == "roi_align":
        size = (arguments.pop("output_height"), arguments.pop("output_width"))
        arguments["output_size"] = size
    if kind == "deform_conv2d":
        if not arguments.pop("use_mask"):
            arguments["mask"] = None  # the given argument is a placeholder
        for target, source in (("stride", "stride"), ("padding", "pad"), ("dilation", "dilation")):
            pair = (arguments.pop(f"{source}_h"), arguments.pop(f"{source}_w"))
            arguments[target] = pair
    return kind, arguments
