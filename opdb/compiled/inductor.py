"""What dynamo captures and inductor makes of it: graphs, breaks, kernels, the layouts between them.

Almost nothing of inductor is documented: every name of it that opdb uses stands in this file, and
one message says so where a version of torch lacks one."""

from __future__ import annotations

import errno
import logging
import os
import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pkgutil import resolve_name
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.fx import GraphModule
from torch.fx.node import Node
from torch.profiler import ProfilerActivity, profile, record_function

from opdb.compiled import check_works, lacking
from opdb.errors import CannotMeasureError, NotCompiledError

NO_REASON = "dynamo does not say why"
# Passes after which a model that still captures something is taken to do so in every pass.
PASSES = 20
# Matches dynamo's reason for a function that it compiled again and again and gave up.
_TOO_OFTEN = re.compile(r"recompile.limit|cache_size_limit")
# Loggers that warn of graph breaks, of recompiling, and, without a GPU, of the lack of one.
_WARNING = ("torch._dynamo", "torch.utils.cpp_extension")
# Matches the address of an object in a reason, which differs from process to process.
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


@dataclass(frozen=True)
class Break:
    """A graph break: the reason in one line, and the line of code where it is known."""

    reason: str
    place: str | None


@dataclass(frozen=True)
class Captured:
    """The graphs of one pass in the order of their capture, and what broke it into pieces.

    `breaks` lists the breaks that ended a graph, then those with an empty graph before them. After
    `passes` nothing more is captured. `given_up` says that a pass then enters no graph: dynamo runs
    the model as it stands.
    """

    graphs: tuple[GraphModule, ...]
    breaks: tuple[Break, ...]
    passes: int = 1
    given_up: bool = False

    @property
    def graph_breaks(self) -> int:
        """The number of breaks between graphs, counted as torch._dynamo.explain does."""
        return max(len(self.graphs) - 1, 0)

    @property
    def why(self) -> str:
        return "; ".join(self.reasons) or NO_REASON

    @property
    def reasons(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(each.reason for each in self.breaks))


@contextmanager
def compiling() -> Iterator[None]:
    """Make torch.compile raise what it cannot compile, whatever the environment says, and once.

    opdb reports dynamo's warnings with the graphs, not on stderr; TORCH_LOGS shows them there.

    Raises:
        CannotMeasureError: the environment keeps torch.compile from compiling.
    """
    check_works("torch.compile")
    from torch._dynamo import config  # torch.compile itself imports it no sooner

    loggers = [] if os.environ.get("TORCH_LOGS") else [logging.getLogger(n) for n in _WARNING]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with config.patch(suppress_errors=False):
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


class _Backend:
    """The backend that dynamo hands its graphs to: keeps them, and counts how often one is entered.

    `run` runs a graph on its inputs, None for the graph's own code.
    """

    def __init__(self, run: Callable[[GraphModule, tuple[Any, ...]], Any] | None) -> None:
        self.run = run
        self.graphs: list[GraphModule] = []
        self.entered = 0

    def __call__(self, graph: GraphModule, _inputs: list[Any]) -> Callable[..., Any]:
        self.graphs.append(graph)
        _ = graph.code  # made now: what is raised in a call that has it made, torch prints, too

        def enter(*inputs: Any) -> Any:
            self.entered += 1
            return self.run(graph, inputs) if self.run else graph.forward(*inputs)

        return enter


def capture_graphs(
    module: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    run: Callable[[GraphModule, tuple[Any, ...]], Any] | None = None,
) -> Captured:
    """Run one pass under dynamo and keep the graphs that it captures, in a fresh state.

    `run` runs a graph on its inputs in place of the graph's own code. Passes are then repeated
    until they capture nothing more, or PASSES are over. Whatever the module raises is raised here
    too.

    Raises:
        CannotMeasureError: the environment keeps torch.compile from compiling.
    """
    backend = _Backend(run)
    breaks_seen, refused = counted("graph_break"), counted("unimplemented")
    try:
        with compiling(), torch.no_grad():
            torch.compiler.reset()
            breaks_seen.clear()
            refused.clear()
            compiled = torch.compile(module, backend=backend)
            compiled(*args, **kwargs)
            found, others = tuple(backend.graphs), list(breaks_seen)
            backend.run, passes, known = None, 1, 0
            while known < len(backend.graphs) and passes <= PASSES:
                known, backend.entered = len(backend.graphs), 0
                compiled(*args, **kwargs)
                passes += known < len(backend.graphs)
        if not (backend.graphs or others):
            others = list(refused)
        others += [reason for reason in refused if _TOO_OFTEN.search(reason)]
    finally:
        torch.compiler.reset()
    ended = [each for graph in found if (each := _break_of(graph)) is not None]
    seen = {each.reason for each in ended}
    short = dict.fromkeys(map(in_short, others))
    breaks = (*ended, *(Break(reason, None) for reason in short if reason not in seen))
    return Captured(found, breaks, passes, bool(found) and not backend.entered)


def _break_of(graph: GraphModule) -> Break | None:
    """Return the break at which a graph ended; None where the code ended with it.

    The attribute that dynamo sets on a graph is not documented: without it, no reason is given.
    """
    ended = getattr(graph, "compile_subgraph_reason", None)
    if not getattr(ended, "graph_break", False):
        return None
    frames = getattr(ended, "user_stack", None) or [None]
    frame = frames[-1]
    place = None if frame is None else f"{frame.filename}:{frame.lineno} in {frame.name}"
    return Break(in_short(str(getattr(ended, "reason", NO_REASON))), place)


def counted(what: str) -> Counter[str]:
    from torch._dynamo.utils import counters

    return counters[what]


def in_short(reason: str) -> str:
    title = next((line.strip() for line in reason.splitlines() if line.strip()), NO_REASON)
    return _ADDRESS.sub("", title)


# A compiled graph; it takes its inputs as a list, which it may empty.
Compiled = Callable[[list[Any]], Sequence[Any]]

# Sizes, strides in elements, and the type of what lies there.
Layout = tuple[tuple[int, ...], tuple[int, ...], torch.dtype]

# Beginnings of the profiler's names of compiled graphs, which end with a number, and operators.
_INSIDE, _ATEN = "opdb: compiled graph ", "aten::"

# The variable that silences the profiler's library, which reads it when it is first used.
_QUIET = ("KINETO_LOG_LEVEL", "99")

# Error numbers that mean that nothing can be written to a disk.
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)

# Passes after the first that may still compile something.
SETTLING_PASSES = 4

GENERATED, EXTERN, NOTHING = "generated", "extern", "nothing"


@dataclass(frozen=True)
class Kernel:
    """One step of a compiled graph: a kernel that inductor generates, a library's, or nothing.

    `reads` and `writes` name buffers; what is read may be what the same kernel wrote. A step is
    nothing where it only names memory. `stepless` are those of `reads` that a library's kernel is
    given with a stride of 0 along a dimension of one element.
    """

    sort: str
    reads: frozenset[str]
    writes: tuple[str, ...]
    stepless: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Lowered:
    """A graph as inductor lowered and fused it.

    `buffers` says which buffer holds a node's value, for those nodes whose value is a whole buffer;
    `layouts` how each buffer lies in memory; `constants` the tensors that the graph itself holds;
    `aliases` which buffer a buffer lies in. A kernel that changes a buffer writes it once more.
    `weights` are the inputs that stay from call to call, `outputs` the buffers that the graph
    returns and the nodes that it returns them for. `layout_optimized` says that convolutions were
    brought to channels last.
    """

    module: GraphModule
    kernels: tuple[Kernel, ...]
    buffers: Mapping[Node, str]
    layouts: Mapping[str, Layout]
    constants: Mapping[Node, Tensor]
    aliases: Mapping[str, str]
    weights: frozenset[Node]
    outputs: Mapping[str, Node]
    layout_optimized: bool


class _FusedError(Exception):
    """Raised where inductor has fused, to keep it from generating code."""


@dataclass(frozen=True)
class Outside:
    """An aten operator that ran between compiled graphs: "aten::lstm", and its inputs' shapes."""

    name: str
    shapes: tuple[tuple[int, ...], ...]


# The next step of a pass under torch.compile: a compiled graph, or an operator outside all.
PassItem = Lowered | Outside


def steps_of_pass(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Sequence[PassItem]:
    """Run a module under torch.compile, and return what inductor would make of it.

    Graphs are lowered and fused for the device that the module is on, no code is made; they run as
    they were captured. Returns what one pass runs when all is compiled, in order: a graph as often
    as it is entered, and what runs outside, where dynamo breaks off or skips a module's code.

    Raises:
        CannotMeasureError: this version of torch does not show it, or the environment
            switches torch.compile off. Dynamo wraps what is raised while it compiles: `cause_of`.
        NotCompiledError: each pass is compiled anew.
    """
    made: list[Lowered] = []
    names = _inductor()

    def inner(graph: GraphModule, inputs: Sequence[Any], **options: Any) -> Any:
        entered = f"{_INSIDE}{len(made)}"
        made.append(_lowered(names.compile_fx_inner, graph, inputs, options))

        def run(*given: Any) -> Any:
            with record_function(entered):
                return graph.forward(*given)

        return names.make_boxed_func(run)

    def backend(graph: GraphModule, inputs: list[Any]) -> Any:
        return names.compile_fx(graph, inputs, inner_compile=inner)

    torch.compiler.reset()
    try:
        with compiling(), torch.no_grad(), names.functorch.patch(enable_autograd_cache=False):
            run = torch.compile(module, backend=backend, dynamic=False)
            run(*args, **kwargs)
            return _settled(lambda: run(*args, **kwargs), made)
    finally:
        torch.compiler.reset()


def _settled(step: Callable[[], Any], made: Sequence[Lowered]) -> Sequence[PassItem]:
    """Return what a pass runs that compiles nothing more; `made` grows where one does.

    Raises:
        NotCompiledError: passes go on to compile.
    """
    os.environ.setdefault(*_QUIET)
    for _ in range(SETTLING_PASSES):
        before = len(made)
        with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as seen:
            step()
        if len(made) == before:
            return list(_steps(seen.events(), made))
    raise NotCompiledError(f"torch.compile compiles it anew in each of {SETTLING_PASSES} passes")


def _steps(events: Iterable[Any], made: Sequence[Lowered]) -> Iterator[PassItem]:
    """Yield the compiled graphs and the aten operators that no other event holds, in order."""
    for event in sorted(events, key=lambda each: each.time_range.start):
        if not event.name.startswith((_INSIDE, _ATEN)):
            continue
        above, held = event.cpu_parent, False
        while above is not None and not held:
            held = above.name.startswith((_INSIDE, _ATEN))
            above = above.cpu_parent
        if held:
            continue
        if event.name.startswith(_INSIDE):
            yield made[int(event.name.removeprefix(_INSIDE))]
        else:
            yield Outside(event.name, tuple(tuple(shape) for shape in event.input_shapes))


def cause_of(error: BaseException) -> BaseException:
    """Return what was raised inside of a compiler; dynamo and inductor wrap it."""
    return getattr(error, "inner_exception", None) or error


def check_compiles(device: str) -> None:
    """Check, where something failed to compile, that this machine has what compiling takes.

    A part that seems missing counts only if it keeps a sine from being compiled for the device
    ("cpu", "cuda").

    Raises:
        CannotMeasureError: it is missing.
    """
    lacks, advice = lacking(device)
    if not lacks:
        return
    anew = random.SystemRandom().random()  # not to be found in a cache from when it was there
    try:
        with torch.no_grad():
            torch.compile(lambda x: x.sin() + anew)(torch.ones(8, device=device))
    except Exception as error:  # a compiler's inside may raise anything
        raise CannotMeasureError(
            f"torch.compile does not compile anything for {device} here: {', '.join(lacks)}; "
            + "; ".join(advice)
        ) from error


@contextmanager
def silent_tuning() -> Iterator[None]:
    """Keep inductor from printing the variants that it tries, and those too large for a device.

    The switch is not documented: where a version of torch names it otherwise, they are printed.
    """
    from torch._inductor import select_algorithm

    log = logging.getLogger(select_algorithm.__name__)
    level = log.level
    log.setLevel(logging.CRITICAL)
    silent: dict[str, Any] = {
        "PRINT_AUTOTUNE": False,
        "_log_autotune_choices_stats": lambda *_: None,
    }
    try:
        with patch.multiple(select_algorithm, create=True, **silent):
            yield
    finally:
        log.setLevel(level)


def compiled(graph: GraphModule, inputs: Sequence[Tensor], *, layout_optimized: bool) -> Compiled:
    """Compile a graph of aten operators, as it stands, for the device of its inputs.

    Raises:
        CannotMeasureError: this version of torch does not let it, the disk is full, or this machine
            lacks what compiling takes.
    """
    names = _inductor()
    try:
        with torch.no_grad(), _layouts(layout_optimized):
            found: Compiled = names.compile_fx_inner(graph, list(inputs), **_options())
    except Exception as error:  # a compiler's inside may raise anything
        said = str(cause_of(error))
        full = next((why for why in map(os.strerror, _NO_ROOM) if why in said), None)
        if full is not None:
            raise CannotMeasureError(
                f"torch.compile cannot write what it makes: {full}; free some, or name another "
                "folder in TORCHINDUCTOR_CACHE_DIR"
            ) from error
        check_compiles(next((tensor.device.type for tensor in inputs), "cpu"))
        raise
    return found


def entered(module: nn.Module, given: Tensor) -> Callable[[Tensor], Any]:
    """Compile a module so that a call of it does all but run its graph: guards, inputs, outputs.

    The module gives one tensor, as its input is; that is then always the same one.

    Raises:
        CannotMeasureError: this version of torch does not let it.
    """
    names = _inductor()
    output = torch.empty_like(given)  # no tensor can be made while a graph is compiled

    def inner(_: GraphModule, __: Sequence[Any], **___: Any) -> Any:
        def run(inputs: list[Any]) -> list[Tensor]:
            inputs.clear()
            return [output]

        run._boxed_call = True  # type: ignore[attr-defined]
        return run

    def backend(graph: GraphModule, inputs: list[Any]) -> Any:
        return names.compile_fx(graph, inputs, inner_compile=inner)

    compiled_module = torch.compile(module, backend=backend, dynamic=False)
    with compiling(), torch.no_grad(), names.functorch.patch(enable_autograd_cache=False):
        compiled_module(given)
    return compiled_module


def keep_layouts(returned: Node, outputs: int) -> None:
    """Have inductor keep a graph's outputs out of channels last where their nodes do not say so.

    `returned` is the graph's output node.
    """
    returned.meta["user_visible_output_idxs"] = list(range(outputs))


@contextmanager
def _layouts(optimized: bool) -> Iterator[None]:
    switches = {"layout_optimization": optimized, "force_layout_optimization": optimized}
    with _inductor().config.patch(switches):
        yield


def _options() -> dict[str, Any]:
    return {"cudagraphs": _inductor().BoxedBool(False), "is_inference": True}


@contextmanager
def _shown() -> Iterator[None]:
    """Say in one message that inductor has other names than those used here.

    Raises:
        CannotMeasureError: a name is missing.
    """
    try:
        yield
    except (ImportError, AttributeError) as error:
        raise CannotMeasureError(
            f"torch {torch.__version__} does not show what inductor makes of a model ({error}); "
            "opdb knows 2.11 to 2.15"
        ) from error


_NAMES = {
    "functorch": "torch._functorch.config",
    "make_boxed_func": "torch._functorch.aot_autograd:make_boxed_func",
    "config": "torch._inductor.config",
    "ir": "torch._inductor.ir",
    "compile_fx": "torch._inductor.compile_fx:compile_fx",
    "compile_fx_inner": "torch._inductor.compile_fx:compile_fx_inner",
    "WeakDep": "torch._inductor.dependencies:WeakDep",
    "GraphLowering": "torch._inductor.graph:GraphLowering",
    "ExternKernelSchedulerNode": "torch._inductor.scheduler:ExternKernelSchedulerNode",
    "NopKernelSchedulerNode": "torch._inductor.scheduler:NopKernelSchedulerNode",
    "BoxedBool": "torch._inductor.utils:BoxedBool",
    "V": "torch._inductor.virtualized:V",
}


@cache
def _inductor() -> Any:
    """Return the names of inductor that are used here; importing them takes seconds."""
    with _shown():
        return SimpleNamespace(**{name: resolve_name(where) for name, where in _NAMES.items()})


def _lowered(
    compile_inner: Callable[..., Any],
    graph: GraphModule,
    inputs: Sequence[Any],
    options: Mapping[str, Any],
) -> Lowered:
    """Lower and fuse one graph; inductor makes no kernels of a graph that calls nothing."""
    static = options.get("static_input_idxs") or ()
    if all(node.op in ("placeholder", "get_attr", "output") for node in graph.graph.nodes):
        given = [node for node in graph.graph.nodes if node.op == "placeholder"]
        weights = frozenset(given[i] for i in static)
        return Lowered(graph, (), {}, {}, {}, {}, weights, {}, layout_optimized=False)
    names = _inductor()
    lowering = names.GraphLowering
    run_node = lowering.run_node
    values: dict[Node, Any] = {}
    seen: list[Lowered] = []

    def noting(self: Any, node: Node) -> Any:
        values[node] = value = run_node(self, node)
        return value

    def fused(nodes: Sequence[Any]) -> Sequence[Any]:
        with _shown():
            seen.append(_read(names.V.graph, values, nodes, static))
        raise _FusedError

    lowering.run_node = noting
    try:
        with names.config.patch(_post_fusion_custom_pass=fused, fx_graph_cache=False):
            compile_inner(graph, inputs, **options)
    except Exception:  # inductor wraps the error that breaks it off, in a way of each version's
        if not seen:
            raise
    finally:
        lowering.run_node = run_node
    return seen[-1]


def _read(
    graph: Any, values: Mapping[Node, Any], nodes: Sequence[Any], static: Sequence[int]
) -> Lowered:
    held = {**graph.name_to_buffer, **graph.graph_inputs, **graph.constants}
    placeholders = [n for n in values if n.op == "placeholder"]
    changed = {b.get_name(): to for n in nodes for b in n.get_outputs() for to in b.get_mutations()}
    kernels = tuple(_kernel(node, changed) for node in nodes)
    buffers = {
        n: name
        for n, value in values.items()
        if (name := _buffer_of(value, views=False)) is not None
    }
    returned = next(n for n in values if n.op == "output")
    outputs = {
        name: node
        for node in returned.all_input_nodes
        if (name := _buffer_of(values[node], views=True)) is not None
    }
    return Lowered(
        module=graph.module,
        kernels=kernels,
        buffers=buffers,
        layouts={name: layout for name in held if (layout := _layout(held[name])) is not None},
        constants={n: value for n in values if (value := _constant(graph.module, n)) is not None},
        aliases={name: to for name in held if (to := _lies_in(held[name])) is not None},
        weights=frozenset(placeholders[i] for i in static),
        outputs=outputs,
        layout_optimized=bool(graph.layout_opt),
    )


def _constant(module: GraphModule, node: Node) -> Tensor | None:
    if node.op != "get_attr":
        return None
    found = getattr(module, str(node.target), None)
    return found if isinstance(found, Tensor) else None


def _kernel(node: Any, changed: Mapping[str, str]) -> Kernel:
    """Read a kernel; `changed` says which buffer another one stands for after a change."""

    def named(name: str) -> str:
        while name in changed:
            name = changed[name]
        return name

    names = _inductor()
    sort = GENERATED
    if isinstance(node, names.ExternKernelSchedulerNode):
        sort = EXTERN
    elif isinstance(node, names.NopKernelSchedulerNode):
        sort = NOTHING
    # A kernel that must only run after another depends on it weakly, and reads nothing of it.
    steps = node.get_nodes()
    depends = [
        d for step in steps for d in step.read_writes.reads if not isinstance(d, names.WeakDep)
    ]
    reads = frozenset(named(each.name) for each in depends)
    writes = dict.fromkeys(named(buffer.get_name()) for buffer in node.get_outputs())
    given = [each for step in steps for each in step.node.inputs] if sort == EXTERN else []
    stepless = frozenset(named(each.get_name()) for each in given if _is_stepless(each))
    return Kernel(sort, reads, tuple(writes), stepless)


def _is_stepless(given: Any) -> bool:
    ir = _inductor().ir
    if not isinstance(given, ir.ReinterpretView):
        return False
    return any(n == 1 and s == 0 for n, s in zip(given.get_size(), given.get_stride(), strict=True))


def _buffer_of(value: Any, *, views: bool) -> str | None:
    """Return the buffer that a value fills, or with `views` lies in; None where it has none."""
    ir = _inductor().ir
    boxes = (ir.TensorBox, ir.StorageBox, ir.BaseView) if views else (ir.TensorBox, ir.StorageBox)
    while isinstance(value, boxes):
        value = value.data
    return value.get_name() if isinstance(value, ir.Buffer) else None


def _layout(held: Any) -> Layout | None:
    """Return a buffer's layout; None where it has none, or a size that varies."""
    if isinstance(held, Tensor):
        return tuple(held.shape), held.stride(), held.dtype
    try:
        sizes, strides = held.get_size(), held.get_stride()
        return tuple(map(int, sizes)), tuple(map(int, strides)), held.get_dtype()
    except (AttributeError, NotImplementedError, TypeError, AssertionError):
        return None


def _lies_in(held: Any) -> str | None:
    ir = _inductor().ir
    layout = getattr(held, "layout", None)
    return _buffer_of(layout.view, views=True) if isinstance(layout, ir.NonOwningLayout) else None
