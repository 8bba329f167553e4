"""Assigns the nodes of autograd's graph to calls, and records what a backward pass runs.

A call owns the nodes between its outputs and what earlier calls own. The backward pass is then run
for real, on meta: the first node of a call that runs stands for the call's backward pass. What the
engine computes between nodes is an operator of its own: sums of gradients where a tensor fanned
out to several calls, and where a parameter has a gradient already; and a copy where a parameter's
gradient is laid out otherwise than the parameter. Where a call uses a tensor more than once, or an
output of its own, the sum belongs to its own backward pass.

There are no values on meta, so how much of a gradient is zero is followed from call to call. It is
part of a backward pass's configuration: with zeros among its factors a product draws less power.

A call that changes a view in place is differentiated as a change of what the view is of: autograd
puts the view's gradient into one of the whole, copies that, hands the call a copy of the view's
part, and writes the result back there. A call rebuilt from its configuration changes a tensor of
its own, so this is operators of its own too. An assignment (`x[i] = y`) makes its view itself, and
has these copies in its own backward pass.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from opdb.errors import UnsupportedError
from opdb.kinds import KINDS
from opdb.operators import describe_function
from opdb.operators.encoding import Encoder, TensorNotes, layout_of
from opdb.records import GRADIENTS, Call, Configuration, Json

IN_BACKWARD = " (in a backward pass, outside every recorded call)"

_FUNCTIONS: dict[str, tuple[Callable[..., Any], int]] = {
    "aten::add": (torch.add, 2),
    "aten::add_": (Tensor.add_, 2),
    "aten::clone": (torch.clone, 1),
    "aten::copy_": (Tensor.copy_, 2),
    "aten::new_zeros": (Tensor.new_zeros, 2),
}
"""The engine's own computations, as functions, each with how many arguments describe it."""

_CHANGES_A_VIEW = "CopySlices"
"""Autograd's name of the node of a view's base, once the view was changed in place."""

_ASSIGNMENT = "setitem"

_FEW_ZEROS = 0.05
"""Gradients with a smaller share of zeros are described as if they had none."""

_MOST_ZEROS = 0.99


@dataclass
class _Output:
    """One output of a call: its place in the graph, its own spec, and its gradient's, once seen.

    `handed` is the spec of the gradient that a call gets which changed this output, a view.
    `nonzero` is the share of its gradient that is not zero.
    """

    node: Any
    number: int
    usual_layout: Json
    elements: int
    handed: Json = None
    gradient: Json = None
    nonzero: float = 0.0

    @property
    def described(self) -> Json:
        zeros = min(round(1 - self.nonzero, 2), _MOST_ZEROS)
        if self.gradient is None or zeros < _FEW_ZEROS:
            return self.gradient
        return {**self.gradient, "values": {"zeros": zeros}}


@dataclass(eq=False)
class _GraphPart:
    """A call's part of the graph; `place` is the position of its backward pass among the calls.

    `views` are the nodes that work beside the call, where it changed a view.
    """

    call: int
    outputs: list[_Output] = field(default_factory=list)
    views: set[Any] = field(default_factory=set)
    place: int | None = None

    def nonzero(self) -> float:
        elements = sum(output.elements for output in self.outputs)
        nonzero = sum(output.nonzero * output.elements for output in self.outputs)
        return nonzero / elements if elements else 1.0


class BackwardWatch:
    """Watches a pass and its backward pass: knows the owner of every node, and records what runs.

    `runs` says that one is under way. What is found is added to `calls` and counted in
    `unsupported`; within `aside` the harvest records nothing of what it computes itself.
    """

    def __init__(
        self,
        calls: list[Call],
        unsupported: Counter[str],
        aside: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self.runs = False
        self._calls, self._unsupported, self._aside = calls, unsupported, aside
        self._parts: dict[Any, _GraphPart | None] = {}
        self._running: list[_GraphPart | None] = []
        self._hooks: list[Any] = []
        self._given: dict[tuple[Any, int], set[object]] = {}
        self._nonzero: dict[tuple[Any, int], float] = {}
        self._sums: deque[bool] = deque()
        self._copied: list[tuple[str, Any]] | None = None

    def own(self, call: int | None, outputs: Sequence[Tensor]) -> None:
        """Give a call (None: one without description) all nodes up to those that others own."""
        part = None if call is None else _GraphPart(call)
        found: set[Any] = set()
        waiting = [t.grad_fn for t in outputs]
        while waiting:
            node = waiting.pop()
            if node is None or node in self._parts or node.name().endswith("AccumulateGrad"):
                continue
            self._parts[node] = part
            found.add(node)
            self._hooks.append(node.register_prehook(self._begins(node)))
            self._hooks.append(node.register_hook(self._ends(node)))
            waiting += [each for each, _ in node.next_functions]
        if part is not None:
            assigns = self._calls[part.call].configuration.kind == _ASSIGNMENT
            with torch._C.DisableTorchFunction():
                for t in outputs:
                    if t.grad_fn in found:
                        views = _down_to_the_change(t.grad_fn, found)
                        usual = layout_of(torch.empty_like(t.detach()))
                        handed = None
                        if views:
                            handed = _spec(torch.empty(t.shape, dtype=t.dtype, device="meta"))
                        part.outputs.append(
                            _Output(t.grad_fn, t.output_nr, usual, t.numel(), handed)
                        )
                        part.views |= {n for n in views if not (assigns and _changes_a_view(n))}

    def run(self, loss: Tensor) -> None:
        self.runs = True
        try:
            # torch.autograd.backward would be a torch function, with all of this inside it
            with self._aside():
                gradient = torch.ones_like(loss)
            self._calls.append(Call(_described(torch.ones_like, (loss,)), "function", ""))
            engine: Any = torch.autograd.Variable._execution_engine
            engine.run_backward((loss,), (gradient,), False, False, (), True, accumulate_grad=True)
        finally:
            self.runs = False
        for part in dict.fromkeys(p for p in self._parts.values() if p and p.place is not None):
            assert part.place is not None
            path = self._calls[part.place].path
            self._calls[part.place] = Call(self._configuration(part), "function", path)
        for hook in self._hooks:
            hook.remove()

    def call_aten(self, operator: Any, args: Any) -> None:
        """Write down an operator that computes, before it does; one in a call's node is the call's.

        Torch functions are recorded as ever: those of a function's own backward pass, and those of
        a forward pass that a checkpoint runs again.
        """
        name = operator._schema.name
        if self._running:
            if self._running[-1] is None:
                self._unsupported[name + IN_BACKWARD] += 1
            elif self._copied is not None:
                self._copied.append((name, args))
            return
        if name == "aten::_to_copy":
            return  # a gradient that gets its tensor's dtype: of the call that gave it
        if name == "aten::add" and self._sums and not self._sums.popleft():
            return
        if name == "aten::add" and _is_changed(args[0]):
            name = "aten::add_"
        if name == "aten::copy_":  # a gradient that gets its parameter's layout
            self._add(name, partial(_laid_out_as, args[1], args[0]))
        else:
            self._add(name, partial(_engines, name, args))

    def _add(self, name: str, describe: Callable[[], Configuration]) -> None:
        try:
            self._calls.append(Call(describe(), "function", ""))
        except (KeyError, UnsupportedError):
            self._unsupported[name + IN_BACKWARD] += 1

    def _begins(self, node: Any) -> Callable[[Any], None]:
        def before(gradients: Any) -> None:
            part = self._parts.get(node)
            self._running.append(part)
            shares = [self._nonzero.pop((node, n), 1.0) for n in range(len(gradients))]
            givers = [self._given.pop((node, n), set()) for n in range(len(gradients))]
            if part is None:
                return
            if part.place is None:
                part.place = len(self._calls)
                forward = self._calls[part.call]
                self._calls.append(Call(forward.configuration, "function", forward.path))
            alone = {self._inside(node)}  # of an output that nothing but the call itself uses
            for output in part.outputs:
                given = output.node is node and gradients[output.number] is not None
                if given and givers[output.number] != alone:
                    output.gradient = _spec(gradients[output.number])
                    output.nonzero = shares[output.number]
                if output.handed is not None and _changes_a_view(node):
                    output.gradient = output.handed
            if node in part.views:
                self._copied = []

        return before

    def _ends(self, node: Any) -> Callable[[Any, Any], None]:
        def after(gradients: Any, _: Any) -> None:
            giver: object = self._running.pop() or object()
            self._sums.clear()
            self._add_copies(_changes_a_view(node))
            share = self._share_given_on(self._parts.get(node))
            for gradient, (target, number) in zip(gradients, node.next_functions, strict=False):
                if gradient is None or target is None:
                    continue
                held = self._nonzero.get((target, number), 0.0)
                self._nonzero[target, number] = min(1.0, held + share)
                # the engine adds, in this order, to what it holds for a node already
                givers = self._given.setdefault((target, number), set())
                if givers:
                    own = self._inside(target)
                    within = giver is own or giver in givers or givers == {own}
                    self._sums.append(not within)
                givers.add(giver)

        return after

    def _inside(self, node: Any) -> _GraphPart | None:
        """Return the call whose backward pass holds a node; None of one that works beside it."""
        part = self._parts.get(node)
        return None if part is None or node in part.views else part

    def _share_given_on(self, part: _GraphPart | None) -> float:
        if part is None:
            return 1.0
        configuration = self._calls[part.call].configuration
        return KINDS[configuration.kind].nonzero_share(configuration, part.nonzero())

    def _add_copies(self, changes: bool) -> None:
        """Write down what a node beside the call has copied.

        The one that `changes` what the view is of does it before and after the call's own work.
        """
        done, self._copied = self._copied or [], None
        copies = [args for name, args in done if name == "aten::copy_"]
        if not changes:
            for name, args in done:
                self._add(name, partial(_engines, name, args))
        elif copies:
            (to, source, *_), *more = copies
            self._add("aten::copy_", partial(_copied, source, to))
            for args in [args for name, args in done if name == "aten::clone"][:1]:
                self._add("aten::clone", partial(_engines, "aten::clone", args))
            for args in more[-1:]:  # none where nothing flows on to what the view is of
                self._add("aten::copy_", partial(_engines, "aten::copy_", args))

    def _configuration(self, part: _GraphPart) -> Configuration:
        forward = self._calls[part.call].configuration
        backward = replace(forward, pass_name="backward")
        works = KINDS[forward.kind].launches(backward)
        specs = [o.described if works else o.gradient for o in part.outputs]
        if not any(specs):  # its output, a view, was changed in place: that takes its node's place
            return backward
        pairs = zip(specs, part.outputs, strict=True)
        if all(_is_usual(spec, output.usual_layout) for spec, output in pairs):
            return backward
        return replace(backward, inputs={**forward.inputs, GRADIENTS: specs})


def _described(function: Callable[..., Any], args: Sequence[Tensor]) -> Configuration:
    return describe_function(function, tuple(args), {}, TensorNotes())


def _engines(name: str, args: Any) -> Configuration:
    function, count = _FUNCTIONS[name]
    return _described(function, args[:count])


def _copied(source: Tensor, to: Tensor) -> Configuration:
    with torch._C.DisableTorchFunction():
        same = layout_of(source) == layout_of(to)
    return _described(torch.clone, (source,)) if same else _laid_out_as(source, to)


def _laid_out_as(source: Tensor, to: Tensor) -> Configuration:
    with torch._C.DisableTorchFunction():
        layout = layout_of(to)
    if layout is None:
        return _described(Tensor.contiguous, (source,))
    if layout == "channels_last":
        last = {4: torch.channels_last, 5: torch.channels_last_3d}[to.dim()]
        wanted = {"memory_format": last}
        return describe_function(Tensor.contiguous, (source,), wanted, TensorNotes())
    return _described(Tensor.copy_, (to, source))


def _is_usual(gradient: Json, layout: Json) -> bool:
    """Return whether a gradient is there, laid out as is usual, without zeros to speak of."""
    return gradient is not None and gradient.get("layout") == layout and "values" not in gradient


def _spec(tensor: Tensor) -> Json:
    with torch._C.DisableTorchFunction():
        return Encoder(TensorNotes()).encode(tensor)


def _changes_a_view(node: Any) -> bool:
    return bool(node.name().endswith(_CHANGES_A_VIEW))


def _down_to_the_change(node: Any, found: set[Any]) -> set[Any]:
    """Return the nodes of a changed view, the one that changes what it is of the last.

    None where an output is not a changed view, or something other than `found` comes first.
    """
    views = set()
    while node in found:
        views.add(node)
        if _changes_a_view(node):
            return views if len(views) > 1 else set()
        node = next((each for each, _ in node.next_functions), None)
    return set()


def _is_changed(tensor: Tensor) -> bool:
    """Return whether the engine adds to a gradient in place: where it alone holds the memory.

    Under a dispatch mode it never does, and outside it does, so that follows from how many hold
    the gradient here.
    """
    count = torch._C._storage_Use_Count
    with torch._C.DisableTorchFunction():
        fresh, held = torch.UntypedStorage(1), tensor.untyped_storage()
    return bool(count(held._cdata) <= count(fresh._cdata) + 1)  # and the tensor's own
