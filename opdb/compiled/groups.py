"""A model as torch.compile makes it: its fused groups in the order in which they run."""

from __future__ import annotations

import math
import operator
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import Any

import torch
from torch import Tensor
from torch.fx.node import Node

from opdb.compiled.fused import FORCE, VIEWS, dense, encode_node, layout_of, spec_of
from opdb.compiled.inductor import (
    EXTERN,
    NOTHING,
    Kernel,
    Lowered,
    Outside,
    PassItem,
    cause_of,
    steps_of_pass,
)
from opdb.errors import InputError, NotCompiledError, OpdbError, UnsupportedError
from opdb.kinds.fused import ENTRY, NAME, arguments, packet, words
from opdb.kinds.view import strides_of, walk
from opdb.models import LoadedModel, load
from opdb.models.construction import ANY_FAILURE, ModelFailureError, one_line
from opdb.models.inputs import dtype_name
from opdb.records import Call, Configuration, Json, Workload
from opdb.spec import ModelSpec

NOT_FUSED = " (compiled)"
BETWEEN = " (between compiled graphs)"

# Operators between graphs that most often give the device nothing to do.
_FREE = words(
    "view detach alias as_strided t transpose permute select slice reshape unsqueeze squeeze "
    "expand empty empty_strided empty_like lift_fresh result_type contiguous to unbind split"
)

# An operator's name and the shape of its first input.
_CallSite = tuple[str, tuple[tuple[int, ...], ...]]


def harvest_compiled(request: ModelSpec, workload: Workload, device: str, slug: str) -> Workload:
    """Return a harvested workload as inductor compiles it for a device, in its default mode.

    The model is run once on the device ("cuda", "cpu"), whose `slug` the workload then bears;
    nothing is generated and nothing is measured.

    Raises:
        InputError: the model cannot be compiled, or is not inference without autocast.
        NotCompiledError: dynamo captures no graph of it.
        CannotMeasureError: this version of torch does not show what inductor makes.
    """
    if request.training is not None or request.autocast is not None:
        raise InputError(
            f"{request.name!r}: what is compiled is known of inference without autocast alone"
        )
    loaded = load(request, device=device)
    steps = _steps(loaded)
    graphs = {id(step): fused_calls(step) for step in steps if isinstance(step, Lowered)}
    if not graphs:
        raise NotCompiledError(f"{request.name!r} is not compiled: dynamo captures no graph of it")
    own = _own_calls([step for step in steps if isinstance(step, Outside)], workload)
    calls: list[Call] = []
    unsupported: Counter[str] = Counter()
    for step in steps:
        if isinstance(step, Lowered):
            found, unplaced = graphs[id(step)]
            calls += [Call(each, "function") for each in (_entry(len(step.weights)), *found)]
            unsupported.update({f"{name}{NOT_FUSED}": count for name, count in unplaced.items()})
        elif (call := next(own)) is not None:
            calls.append(call)
        elif step.name.removeprefix("aten::") not in _FREE:
            unsupported[step.name + BETWEEN] += 1
    return replace(
        workload,
        source_version=f"{workload.source_version}, torch {torch.__version__}",
        calls=tuple(calls),
        containers=0,
        foreign_leaves={},
        unsupported=dict(unsupported),
        compiled_for=slug,
    )


def _entry(weights: int) -> Configuration:
    given = {"shape": [2, 2], "dtype": "float32"}
    return Configuration(ENTRY, {"weights": weights}, {"input": given})


def _steps(loaded: LoadedModel) -> Sequence[PassItem]:
    try:
        return steps_of_pass(loaded.module, loaded.args, loaded.kwargs)
    except ANY_FAILURE as error:  # a compiler's inside may raise anything
        cause = cause_of(error)
        if isinstance(cause, NotCompiledError):
            raise NotCompiledError(f"{loaded.name!r} is not compiled: {cause}") from error
        if isinstance(cause, OpdbError):
            raise cause from error
        raise ModelFailureError(f"{loaded.name!r} is not compiled: {one_line(cause)}") from error


def _own_calls(outside: Sequence[Outside], workload: Workload) -> Iterator[Call | None]:
    """Yield for each operator between graphs the model's own call: of that name, on an equal input.

    Where the model has different ones, as many as ran between graphs, they are taken in order; None
    where it is ambiguous which one it is.
    """
    of_model: dict[_CallSite, list[Call]] = defaultdict(list)
    for call in workload.calls:
        specs = [spec for value in call.configuration.inputs.values() for spec in walk(value)]
        shapes = (tuple(specs[0]["shape"]),) if specs else ()
        of_model[f"aten::{call.configuration.kind}", shapes].append(call)
    places = [(each.name, each.shapes[:1]) for each in outside]
    sources: dict[_CallSite, Iterator[Call | None]] = {}
    for place, count in Counter(places).items():
        found = of_model.get(place, [])
        sources[place] = iter(found) if len(found) == count else repeat(None)
        if len({call.configuration.key for call in found}) == 1:
            sources[place] = repeat(found[0])
    for place in places:
        yield next(sources[place])


# From a graph that a compiler fused to the calls it is made of: fused groups, each by itself.

# Operators whose output has the value class of their first argument.
_KEEPS_VALUES = words(
    "view reshape permute unsqueeze squeeze expand slice select transpose t clone alias getitem "
    "_low_memory_max_pool_with_offsets _low_memory_max_pool2d_with_offsets "
    "max_pool2d_with_indices convert_element_type _unsafe_view"
)

# Operators that may give their first argument anew, or parts of it, and compute nothing.
_SPLITS = words("split split_with_sizes unbind")

# Operators that reach into their first argument by indices.
_INDEXING = words(
    "embedding index _unsafe_index gather index_select index_put index_add "
    "index_copy scatter scatter_add scatter_reduce"
)


# A node whose value a group gives, the buffer that it gives it into, and whether as a copy.
_Root = tuple[Node, str, bool]


def fused_calls(lowered: Lowered) -> tuple[list[Configuration], Counter[str]]:
    """Return the fused groups of a graph in the order in which they run, and the work in none."""
    reader = _Reader(lowered)
    found: list[Configuration] = []
    unplaced: Counter[str] = Counter()
    for kernels in _joined(lowered):
        try:
            found.append(reader.configuration(kernels))
        except UnsupportedError as error:
            unplaced[str(error)] += 1
    return found, unplaced


def _joined(lowered: Lowered) -> list[list[Kernel]]:
    """Return the kernels that do something, in order, and together those that share memory.

    Memory counts as shared if it is not a node's value, or if one makes it and another changes it.
    """
    named = set(lowered.buffers.values())
    given = {name for node, name in lowered.buffers.items() if node.op != "call_function"}
    writer = {name: i for i, kernel in enumerate(lowered.kernels) for name in kernel.writes}
    group = list(range(len(lowered.kernels)))

    def of(place: int) -> int:
        while group[place] != place:
            place = group[place]
        return place

    for place, kernel in enumerate(lowered.kernels):
        if kernel.sort == NOTHING:
            continue
        for name in kernel.reads:
            if name in writer and name not in named and name not in lowered.aliases:
                group[of(writer[name])] = of(place)
        for name in set(kernel.writes) - given:
            group[of(writer[name])] = of(place)
    found: dict[int, list[Kernel]] = {}
    for place, kernel in enumerate(lowered.kernels):
        if kernel.sort != NOTHING:
            found.setdefault(of(place), []).append(kernel)
    return [found[place] for place in sorted(found)]


class _Reader:
    def __init__(self, lowered: Lowered) -> None:
        self._lowered = lowered
        self._given = {n for node, n in lowered.buffers.items() if node.op != "call_function"}
        self._changed_in_part = set(self._changed_through_views())
        writes = Counter(n for k in lowered.kernels for n in k.writes)
        self._first: dict[str, Node] = {}
        for node, name in lowered.buffers.items():
            if name not in self._first or writes[name] > 1:  # what was changed is the last of them
                self._first[name] = node
        self._before = dict(self._copied_concatenations())
        self._first |= {name: node for node, name in self._before.items()}
        self.extern = {n for k in lowered.kernels if k.sort == EXTERN for n in k.writes}
        self._parts = dict(self._concatenated())

    def configuration(self, kernels: Sequence[Kernel]) -> Configuration:
        """Return the configuration of what kernels compute together.

        Raises:
            UnsupportedError: it is not a graph of operators that a group may hold.
        """
        own = {name for kernel in kernels for name in kernel.writes}
        reads = {name for kernel in kernels for name in kernel.reads} - own
        if any(self._is_seen_before_a_change(name, kernels) for name in own):
            raise UnsupportedError("a tensor changed in place")
        walk = _Walk(self, own, reads)
        roots = list(self._roots(kernels))
        outputs = [walk.output(*root) for root in roots]
        read = {name for kernel in kernels for name in kernel.reads}
        for place, (node, buffer, copied) in enumerate(roots):
            computed_anew = buffer not in read and self.buffer(node) in (None, buffer)
            if computed_anew and not copied:
                outputs[place] = walk.apart(outputs[place])
        if not outputs:
            raise UnsupportedError("a kernel that gives no node's value")
        parameters: dict[str, Json] = {"nodes": walk.nodes, "outputs": outputs}
        if any(packet(n) == "convolution" for n in walk.nodes):
            walk.without_steps({name for kernel in kernels for name in kernel.stepless})
            if self._lowered.layout_optimized:
                parameters["layout_optimized"] = True
        walk.bound()
        return Configuration(NAME, parameters, {"inputs": walk.inputs})

    def _roots(self, kernels: Sequence[Kernel]) -> Iterator[_Root]:
        """Yield what a group gives to others, each value first as itself, then as copies."""
        own = {name for kernel in kernels for name in kernel.writes}
        outside = {n for k in self._lowered.kernels if k not in kernels for n in k.reads}
        wanted = {**self._lowered.outputs, **self._parts}
        given: set[Node] = set()
        copies: list[tuple[Node, str]] = []
        for name in (n for kernel in kernels for n in kernel.writes):
            if name in self._first:
                if name in outside or name in wanted:
                    given.add(self._first[name])
                    yield self._first[name], name, False
            elif name in wanted:
                copies.append((wanted[name], name))
            elif name in self._lowered.aliases:
                raise UnsupportedError("a tensor changed in place")
        for node, name in copies:
            inner = self.buffer(node)
            first = node not in given and (inner is None or inner in own)
            first = first and node.op == "call_function" and not _is_view(node)
            given.add(node)
            yield node, name, not first

    def _copied_concatenations(self) -> Iterator[tuple[Node, str]]:
        """Yield concatenations that are copied into another layout, with what they are copied from.

        Inductor tells the copy alone to be the node's value.
        """
        for kernel in self._lowered.kernels:
            for name in kernel.writes if kernel.sort == NOTHING else ():
                parts = sum(to == name for to in self._lowered.aliases.values())
                if name in self._first or not parts:
                    continue
                copied = [n for k in self._lowered.kernels if name in k.reads for n in k.writes]
                for node in {self._first[n]: None for n in copied if n in self._first}:
                    if packet_of(node) == "cat" and len(node.args[0]) == parts:  # type: ignore[arg-type]
                        yield node, name

    def _changed_through_views(self) -> Iterator[str]:
        for node in self._lowered.module.graph.nodes:
            schema = getattr(node.target, "_schema", None)
            changed = node.args[0] if schema is not None and schema.is_mutable else None
            while isinstance(changed, Node) and _is_view(changed):
                changed = changed.args[0]
                if isinstance(changed, Node) and (name := self.buffer(changed)) is not None:
                    yield name

    def _is_seen_before_a_change(self, name: str, kernels: Sequence[Kernel]) -> bool:
        """Return whether something else sees a buffer before kernels changed it for good."""
        every = self._lowered.kernels
        writers = [place for place, kernel in enumerate(every) if name in kernel.writes]
        if name in self._given or name in self._changed_in_part:
            return True
        between = [k for k in every[writers[0] : writers[-1] + 1] if k not in kernels]
        allocates = Kernel(NOTHING, frozenset(), (name,))
        return any(name in {*k.reads, *k.writes} for k in between if k != allocates)

    def _concatenated(self) -> Iterator[tuple[str, Node]]:
        """Yield the buffers that are parts of a concatenation, each with the node it is a copy of.

        A buffer that holds a node's own value is a part as well.
        """
        parts: dict[str, list[str]] = {}
        for kernel in self._lowered.kernels:
            for name in kernel.writes if kernel.sort == NOTHING else ():
                parts[name] = [n for n, to in self._lowered.aliases.items() if to == name]
        for whole, names in parts.items():
            node = self._first.get(whole)
            if node is None or packet_of(node) != "cat":
                continue
            given = [a for a in node.args[0] if 0 not in a.meta["val"].shape]  # type: ignore[union-attr]
            if len(given) == len(names):
                yield from zip(names, given, strict=True)

    # what the walk asks

    def stops(self, node: Node, own: set[str], reads: set[str]) -> bool:
        """Return whether a group finds a node's value in memory instead of computing it."""
        if node.op != "call_function":
            return True
        if self._before.get(node) in reads:
            return True
        name = self.buffer(node)
        return name is not None and name not in own and (name in reads or name in self.extern)

    def spec(self, node: Node, reads: set[str]) -> tuple[str, dict[str, Json]]:
        """Return the buffer that holds a node's value for a group that reads these, and its spec.

        Raises:
            UnsupportedError: its layout is not known.
        """
        name = self._lowered.buffers.get(node, node.name)
        name = before if (before := self._before.get(node)) in reads else name
        layout = self._lowered.layouts.get(name)
        held = self._lowered.constants.get(node)
        if layout is None and held is not None:  # inductor may write it into its code
            layout = tuple(held.shape), held.stride(), held.dtype
        if layout is None:
            raise UnsupportedError(f"{node.name}: a tensor whose layout is not known")
        spec = spec_of(layout)
        if node in self._lowered.weights:
            spec["role"] = "weight"
        elif self._is_rectified(node):
            spec["values"] = "rectified"
        return name, spec

    def buffer(self, node: Node) -> str | None:
        return self._lowered.buffers.get(node)

    def layout(self, buffer: str) -> Json | None:
        """Return how a buffer lies; None for contiguous, or where it is a part of another."""
        layout = self._lowered.layouts.get(buffer)
        return None if layout is None else layout_of(layout[0], layout[1])

    def _is_rectified(self, node: Any) -> bool:
        """Return whether a node's value is of the class of a ReLU's outputs."""
        value, name = node.meta.get("val"), packet_of(node)
        if isinstance(value, Tensor) and not value.is_floating_point():
            return False
        if name == "cat":
            return all(map(self._is_rectified, node.args[0]))
        if name in _KEEPS_VALUES or node.target is operator.getitem:
            return self._is_rectified(node.args[0])
        return name == "relu"


def _is_view(node: Node) -> bool:
    """Return whether a node gives its first argument anew, or a part of it, without computing."""
    if node.target is operator.getitem:
        return packet_of(node.args[0]) in _SPLITS  # type: ignore[arg-type]
    return packet_of(node) in VIEWS


def packet_of(node: Node) -> str:
    return packet({"op": str(node.target)}) if node.op == "call_function" else ""


@dataclass
class _Walk:
    """Walks back from what a group gives to what it finds in memory."""

    reader: _Reader
    own: set[str]
    reads: set[str]
    nodes: list[Json] = field(default_factory=list)
    inputs: list[dict[str, Json]] = field(default_factory=list)
    _known: dict[Any, Json] = field(default_factory=dict)

    def reference(self, node: Node) -> Json:
        """Return what stands for a node's value: an input of the group, or a node of it."""
        if node not in self._known:
            if self.reader.stops(node, self.own, self.reads):
                self._known[node] = self._input(node)
            else:
                found = self._variance(node)
                found = found or self._node(encode_node(node, self.reference))
                self._known[node] = self._laid_out(node, found)
        return dict(self._known[node])

    def _skip_copies(self, node: Node) -> None:
        """Have the copies between views of what lies in memory stand for what they copy.

        A copy of such a copy is not a kernel where a compiler drops both.
        """
        copies: list[Node] = []
        while not self.reader.stops(node, self.own, self.reads):
            if packet_of(node) == "clone" and self.reader.buffer(node) is None:
                copies.append(node)
            elif not _is_view(node):
                return
            node = node.args[0]  # type: ignore[assignment]
        for copy in reversed(copies):
            self._known.setdefault(copy, self.reference(copy.args[0]))  # type: ignore[arg-type]

    def _laid_out(self, node: Node, found: Json) -> Json:
        """Return what stands for a view that lies in memory of its own, which the group writes."""
        name = self.reader.buffer(node)
        if name not in self.own or name in self.reader.extern or not _is_view(node):
            return found
        return self._copy(found, list(node.meta["val"].shape), self.reader.layout(name))

    def _copy(self, found: Json, shape: list[int], layout: Json | None) -> Json:
        """Return a copy in memory of its own, which is laid out so."""
        strides = dense(shape, strides_of({"shape": shape, "layout": layout}))
        return self._node({"op": FORCE, "args": [found, strides], "shape": shape})

    def _node(self, encoded: Json) -> Json:
        self.nodes.append(encoded)
        return {"node": len(self.nodes) - 1}

    def _variance(self, node: Node) -> Json | None:
        """Return what computes a variance from a mean that lies in memory; None of other nodes.

        Inductor may compute the two by two kernels: the second of them is not a `var_mean`.
        """
        if node.target is not operator.getitem or packet_of(node.args[0]) != "var_mean":  # type: ignore[arg-type]
            return None
        both: Any = node.args[0]
        means = [n for n in both.users if n.args[1] == 1 and n.target is operator.getitem]
        if node.args[1] != 0 or not means or not self.reader.stops(means[0], self.own, self.reads):
            return None
        given, dims = (*both.args, None)[:2]
        value: Tensor = given.meta["val"]
        exact = value.dtype in (torch.float32, torch.float64)
        if not dims or not both.kwargs.get("keepdim") or not exact:
            return None
        correction = both.kwargs.get("correction")
        count = math.prod(value.shape[d] for d in dims) - (1 if correction is None else correction)
        one, mean = self.reference(given), self.reference(means[0])
        shape, reduced = list(value.shape), list(node.meta["val"].shape)
        apart = self._node({"op": "aten.sub.Tensor", "args": [one, mean], "shape": shape})
        squared = self._node({"op": "aten.mul.Tensor", "args": [apart, apart], "shape": shape})
        summed = {"op": "aten.sum.dim_IntList", "args": [squared, list(dims), True]}
        total = self._node({**summed, "shape": reduced})
        return self._node({"op": "aten.div.Tensor", "args": [total, count], "shape": reduced})

    def _input(self, node: Node) -> Json:
        name, spec = self.reader.spec(node, self.reads)
        if name not in self._known:
            self._known[name] = {"input": len(self.inputs)}
            self.inputs.append(spec)
        return self._known[name]

    def output(self, node: Node, buffer: str, copied: bool) -> Json:
        """Return what stands for a value that the group gives."""
        if copied:
            self._skip_copies(node)
        found = self.reference(node)
        if copied or "input" in found:
            shape = list(node.meta["val"].shape)
            found = self._node({"op": "aten.clone.default", "args": [found], "shape": shape})
        output = {**found, "dtype": dtype_name(node.meta["val"].dtype)}
        layout = self.reader.layout(buffer)
        return output if layout is None else {**output, "layout": layout}

    def apart(self, output: Json) -> Json:
        """Return an output as a copy where other nodes of the group take the same value."""
        used = {name: output[name] for name in ("node", "input") if name in output}
        if not any(used in arguments([n["args"], n.get("kwargs")]) for n in self.nodes):
            return output
        shape = self.nodes[used["node"]]["shape"]
        return {**output, **self._copy(used, shape, output.get("layout"))}

    def without_steps(self, buffers: set[str]) -> None:
        """Have these buffers lie with strides of 0 along dimensions of one element.

        What a convolution gives lies otherwise then: torch takes its input for no image in
        channels last.
        """
        for name in buffers & self._known.keys():
            spec = self.inputs[self._known[name]["input"]]
            if 1 in spec["shape"]:
                pairs = zip(spec["shape"], strides_of(spec), strict=True)
                spec["layout"] = [0 if size == 1 else stride for size, stride in pairs]

    def bound(self) -> None:
        """Keep whole-numbered inputs below the size of what is read by indices."""
        shapes = [s["shape"] for s in self.inputs]
        bounds = []
        for node in self.nodes:
            if packet(node) in _INDEXING:
                read = node["args"][0]
                shape = (
                    self.nodes[read["node"]]["shape"] if "node" in read else shapes[read["input"]]
                )
                bounds.append(shape[0] if packet(node) == "embedding" else min(shape, default=1))
        for spec in self.inputs if bounds else ():
            if spec["dtype"].startswith(("int", "uint")):
                spec["values"] = {"range": [0, max(min(bounds), 1)]}
