"""Models of your own: "package.module:callable", imported and called."""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn
from torch.utils._python_dispatch import _disable_current_modes

from opdb.errors import InputError
from opdb.models import ModelRequest
from opdb.models.construction import ANY_FAILURE, one_line
from opdb.models.source import Blueprint, sized_input


class PythonSource:
    """Callables that return an nn.Module, or (module, args), or (module, args, kwargs)."""

    name = "python"
    fixed = False
    runs_code = True

    def names(self) -> Sequence[str]:
        """Return nothing: import paths cannot be listed."""
        return []

    def has(self, name: str) -> bool:
        """Return whether the name is written as an import path."""
        return ":" in name

    def hint(self) -> str:
        """Say how such a name is written."""
        return '(a model of your own is "package.module:callable")'

    def version(self, name: str) -> str:
        """Return the `__version__` of the outermost package, or an empty string."""
        package = sys.modules.get(name.partition(":")[0].partition(".")[0])
        return str(getattr(package, "__version__", ""))

    def build(self, request: ModelRequest) -> Blueprint:
        """Import the module (the working directory counts), call the callable, check its answer.

        The callable is given `batch_size` where it has a parameter of that name.

        Raises:
            InputError: there is no such module or callable, or it returns something else.
        """
        if request.weights is not None:
            raise InputError(
                f"{request.name!r}: weights {request.weights!r}; the callable loads its own"
            )
        build = _find(request.name)
        taken = _parameters_of(build)
        answer = _call(build, taken, request)
        parts = answer if isinstance(answer, tuple) else (answer,)
        if not 1 <= len(parts) <= 3 or not isinstance(parts[0], nn.Module):
            raise InputError(
                f"{request.name!r} returned {_spelled(answer)}; "
                "it must return an nn.Module, (module, args) or (module, args, kwargs)"
            )
        if len(parts) == 1:
            inputs = request.input_size and sized_input(request.input_size, request.dtype)
            return Blueprint(parts[0], inputs=inputs or None)
        args = tuple(parts[1]) if isinstance(parts[1], tuple | list) else (parts[1],)
        kwargs = parts[2] if len(parts) == 3 else {}
        if not isinstance(kwargs, dict):
            raise InputError(f"{request.name!r} returned keyword inputs as {_spelled(kwargs)}")
        if request.input_size is not None:
            return Blueprint(parts[0], inputs=sized_input(request.input_size, request.dtype))
        return Blueprint(parts[0], example=(args, kwargs), of_batch="batch_size" in taken)


SOURCE = PythonSource()


def _find(name: str) -> Callable[..., object]:
    path, _, attribute = name.partition(":")
    if not path or not attribute:
        raise InputError(f'model {name!r}; write an import path as "package.module:callable"')
    found: object = _import(path, name)
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise InputError(f"model {name!r}: {path} has no {attribute!r}")
        found = getattr(found, part)
    if isinstance(found, nn.Module):
        raise InputError(f"model {name!r} is a module; give a callable that returns a new one")
    if not callable(found):
        raise InputError(f"model {name!r} is a value ({_spelled(found)}), not a callable")
    return found


def _import(path: str, name: str) -> ModuleType:
    try:
        # What a module makes as it is imported stays, and is to have its values.
        with _working_directory_importable(), _disable_current_modes():
            return importlib.import_module(path)
    except ModuleNotFoundError as error:
        raise InputError(f"model {name!r}: no module named {error.name!r}") from error
    except ANY_FAILURE as error:  # an import runs anyone's code, which may raise anything
        raise InputError(f"model {name!r}: importing {path} failed: {one_line(error)}") from error


@contextmanager
def _working_directory_importable() -> Iterator[None]:
    """Let modules beside the user be found, as `python -m` does; last, so that none is hidden."""
    here = str(Path.cwd())
    sys.path.append(here)
    try:
        yield
    finally:
        sys.path.remove(here)


def _parameters_of(build: Callable[..., object]) -> Collection[str]:
    try:
        return inspect.signature(build).parameters
    except ValueError:  # some builtins have no signature
        return ()


def _call(build: Callable[..., object], taken: Collection[str], request: ModelRequest) -> Any:
    asked = {"batch_size": request.batch_size, "num_classes": request.num_classes}
    given = {n: v for n, v in asked.items() if n in taken and v is not None}
    if request.num_classes is not None and "num_classes" not in given:
        raise InputError(f"{request.name!r} takes no num_classes")
    return build(**given)


def _spelled(value: object) -> str:
    if isinstance(value, tuple):
        return "(" + ", ".join(type(item).__name__ for item in value) + ")"
    return type(value).__name__
