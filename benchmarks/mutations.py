"""Small faults of a module's source, each a change of one token or one expression."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Break: ast.Continue,
    ast.Continue: ast.Break,
}
"""What stands for each operator in a faulty module."""

Change = Callable[[Any], ast.AST]
"""Changes a node in place and returns it, or returns another for its place."""

Way = tuple[tuple[str, int | None], ...]
"""From the root of a syntax tree to a node: fields, with an index where one is a list."""

SYMMETRIC = ("max", "min", "math.hypot", "math.dist", "math.gcd", "np.maximum")
"""Functions whose first two arguments may change places."""

IN_ANY_ORDER = ("where", "group_by")
"""Methods of a query that mean the same whatever the order of their arguments."""

SKIPPED = ("decorator_list", "annotation", "returns", "type_params")
"""Fields of the syntax tree that say nothing of what a function computes."""


@dataclass(frozen=True)
class Mutant:
    """One fault: where it is and what it does.

    `function` is the outermost function that holds it, as (qualified name, first line); None where
    it takes effect as the module is imported. `lines` are those of the statement changed.
    """

    path: Path
    line: int
    lines: range
    function: tuple[str, int] | None
    before: str
    after: str
    way: Way
    change: Change

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.before}  ->  {self.after}"

    def tree(self) -> ast.Module:
        """Return the module with the fault."""
        tree = ast.parse(self.path.read_text())
        _make(tree, self.way, self.change)
        ast.fix_missing_locations(tree)
        return tree


def mutants(path: Path) -> list[Mutant]:
    """Return every fault of a module that is made here, in the order of its lines."""
    tree = ast.parse(path.read_text())
    found = []
    for place in _places(tree):
        for change in _changes(place.node):
            shown = place.way[: place.shown]
            statement = ast.Module([copy.deepcopy(_at(tree, shown))], [])
            before = ast.unparse(statement)
            _make(statement, (("body", 0), *place.way[place.shown :]), change)
            found.append(
                Mutant(
                    path,
                    place.node.lineno,
                    range(place.statement, (place.node.end_lineno or 0) + 1),
                    place.function,
                    *_apart(before, ast.unparse(statement)),
                    place.way,
                    change,
                )
            )
    return found


def _make(tree: ast.AST, way: Way, change: Change) -> None:
    node = _at(tree, way)
    if (changed := change(node)) is not node:
        _put(tree, way, changed)


@dataclass(frozen=True)
class _Place:
    """A node, the way to it from the root, and the statement around it (line; length of way)."""

    node: Any
    way: Way
    statement: int
    shown: int
    function: tuple[str, int] | None


def _places(tree: ast.Module) -> Iterator[_Place]:
    def walk(node: ast.AST, at: _Place, names: tuple[str, ...]) -> Iterator[_Place]:
        for name, value in ast.iter_fields(node):
            if name in SKIPPED or _only_typing(node, name):
                continue
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                inner = (*names, node.name)
            else:
                inner = names
            function = at.function
            if isinstance(node, ast.FunctionDef) and name == "body" and function is None:
                first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
                function = (".".join(inner), first)
            for index, child in enumerate(value if isinstance(value, list) else [value]):
                if not isinstance(child, ast.AST) or _is_docstring(child):
                    continue
                way = (*at.way, (name, index if isinstance(value, list) else None))
                place = _Place(
                    child,
                    way,
                    child.lineno if isinstance(child, ast.stmt) else at.statement,
                    len(way) if isinstance(child, ast.stmt) else at.shown,
                    function,
                )
                if hasattr(child, "lineno"):
                    yield place
                yield from walk(child, place, inner)

    yield from walk(tree, _Place(tree, (), 1, 0, None), ())


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _only_typing(node: ast.AST, name: str) -> bool:
    """Whether a field holds what a type checker alone reads, or what is asserted."""
    if isinstance(node, ast.If) and isinstance(node.test, ast.Name):
        return node.test.id == "TYPE_CHECKING"
    if isinstance(node, ast.Assert):
        return True
    if isinstance(node, ast.keyword) and node.arg == "strict":
        return True
    return isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) == "TypeAlias"


def _changes(node: ast.AST) -> Iterator[Change]:
    """Yield what can be made of a node: each changes a copy in place or returns another node."""
    if isinstance(node, ast.Compare):
        for index in range(len(node.ops)):
            yield partial(_compared_otherwise, index)
    elif isinstance(node, ast.BinOp | ast.AugAssign | ast.BoolOp) and type(node.op) in SWAPPED:
        if not _is_of_types(node):
            yield lambda n: _set(n, "op", _swapped(n.op))
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield lambda n: n.operand
    elif isinstance(node, ast.Break | ast.Continue):
        yield lambda n: ast.copy_location(_swapped(n), n)
    elif isinstance(node, ast.Constant):
        yield from _constants(node)
    elif isinstance(node, ast.Return):
        if node.value is not None and ast.unparse(node.value) != "None":
            yield lambda n: _set(n, "value", ast.Constant(None))
    elif isinstance(node, ast.Call):
        for index, keyword in enumerate(node.keywords):
            if keyword.arg not in (None, "strict"):  # of zip: what it asserts, nothing computes
                yield partial(_without_keyword, index)
        first = node.args[:2]
        is_plain = len(first) == 2 and not any(isinstance(each, ast.Starred) for each in first)
        alike = is_plain and ast.dump(first[0]) == ast.dump(first[1])
        if is_plain and not alike and not _is_symmetric(node.func):
            yield lambda n: _set(n, "args", [n.args[1], n.args[0], *n.args[2:]])
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        yield lambda n: ast.copy_location(ast.Pass(), n)
    if isinstance(node, ast.If | ast.While | ast.IfExp) and _is_plain(node.test):
        yield lambda n: _set(n, "test", ast.UnaryOp(ast.Not(), n.test))


def _is_symmetric(function: ast.expr) -> bool:
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Call):
        return function.attr in IN_ANY_ORDER
    return ast.unparse(function) in SYMMETRIC


def _constants(node: ast.Constant) -> Iterator[Change]:
    if isinstance(node.value, bool):
        yield lambda n: _set(n, "value", not n.value)
    elif isinstance(node.value, int | float):
        yield lambda n: _set(n, "value", n.value + 1)


def _is_plain(test: ast.expr) -> bool:
    """Whether nothing else changes what a condition says, and it decides something."""
    if isinstance(test, ast.Name) and test.id == "TYPE_CHECKING":
        return False
    return isinstance(test, ast.Name | ast.Attribute | ast.Call | ast.Subscript | ast.NamedExpr)


def _is_of_types(node: ast.BinOp | ast.AugAssign | ast.BoolOp) -> bool:
    """Whether it joins types (`int | None`), which nothing computes with."""
    words = ast.unparse(node)
    return isinstance(node.op, ast.BitOr) and ("None" in words or "Callable" in words)


def _swapped(node: ast.AST) -> ast.AST:
    return SWAPPED[type(node)]()


def _set(node: ast.AST, name: str, value: Any) -> ast.AST:
    setattr(node, name, value)
    return node


def _compared_otherwise(index: int, node: Any) -> ast.AST:
    return _set(node, "ops", [_swapped(op) if i == index else op for i, op in enumerate(node.ops)])


def _without_keyword(index: int, node: Any) -> ast.AST:
    return _set(node, "keywords", [*node.keywords[:index], *node.keywords[index + 1 :]])


def _at(tree: ast.AST, way: Way) -> Any:
    node: Any = tree
    for name, index in way:
        node = getattr(node, name)
        node = node if index is None else node[index]
    return node


def _put(tree: ast.AST, way: Way, value: ast.AST) -> None:
    parent, (name, index) = _at(tree, way[:-1]), way[-1]
    if index is None:
        setattr(parent, name, value)
    else:
        getattr(parent, name)[index] = value


def _apart(before: str, after: str) -> tuple[str, str]:
    """Return the lines in which two texts differ."""
    old, new = before.splitlines(), after.splitlines()
    if len(old) == len(new):
        for one, other in zip(old, new, strict=True):
            if one != other:
                return one.strip(), other.strip()
    return old[0].strip(), new[0].strip()
