"""Records the calls of one pass of a model, and the memory that is live in it.

Two views of the same pass are joined. Global forward hooks show the modules: a call to one that
the registry rebuilds is one operator, and whatever runs inside belongs to it. A torch function
mode shows the functions: one called outside every such module is an operator of its own. A torch
dispatch mode guards both: what computes outside every recorded call is listed as unsupported."""

from __future__ import annotations

import inspect
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch._C._functorch import TransformType, get_interpreter_stack
from torch._ops import HigherOrderOperator
from torch.nn.modules import module as modules
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakIdKeyDictionary

from opdb.errors import InputError, UnsupportedError
from opdb.harvest.autograd import BackwardWatch
from opdb.kinds import KINDS
from opdb.models import LoadedModel
from opdb.models.inputs import specs, stored, tensors
from opdb.models.meta import (
    Autocast,
    KnownValues,
    Run,
    attended,
    attending,
    fused_attention_on_meta,
    has_fused_kernel,
    recurrent_on_meta,
    trained_attention,
    with_index_known,
)
from opdb.operators import (
    TensorNotes,
    describe_function,
    describe_module,
    function_name,
    is_metadata,
    is_operator_module,
)
from opdb.operators.call import replaced
from opdb.operators.encoding import is_wrapped
from opdb.operators.functions import custom_name
from opdb.records import Call, Configuration, Form, Json, PassMemory, Workload


class LiveMemory:
    """Tracks the memory that a pass makes and frees.

    The model's own parameters and buffers, and the inputs, count apart. `before` is what the model
    held before any pass of it.
    """

    def __init__(self, loaded: LoadedModel, before: Sequence[object]) -> None:
        held = storages((*loaded.module.parameters(), *loaded.module.buffers()))
        self._weights = held
        self._loaded, self._before = loaded, set(map(id, before))
        self._versions = [
            (each, each._version) for each in loaded.module.buffers() if not each.is_inference()
        ]
        self._inputs = {
            cdata: memory
            for cdata, memory in storages(tensors((loaded.args, loaded.kwargs))).items()
            if cdata not in held
        }
        self._live: dict[int, int] = {}
        self._changes: list[tuple[int, int]] = []
        self._made = 0
        self.is_aside = False
        self._gradients: set[int] = set()

    def saw(self, output: Any) -> None:
        if self.is_aside:
            return
        for cdata, memory in storages(_outputs(output)).items():
            if cdata in self._live or cdata in self._weights or cdata in self._inputs:
                continue
            self._made += 1
            self._live[cdata] = self._made
            self._changes.append((self._made, memory.nbytes()))
            weakref.finalize(memory, self._freed, cdata, self._made, memory.nbytes())

    def _freed(self, cdata: int, number: int, nbytes: int) -> None:
        if self._live.get(cdata) == number:
            del self._live[cdata]
        self._changes.append((number, -nbytes))

    def saw_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        given = [p.grad for p in parameters if p.grad is not None]
        self._gradients |= {self._live[c] for c in storages(given) if c in self._live}

    def seen(self) -> PassMemory:
        live = peak = activations = most_activations = gradients = 0
        for number, change in self._changes:
            live += change
            if number not in self._gradients:
                activations += change
            elif change > 0:
                gradients += change
            peak = max(peak, live)
            most_activations = max(most_activations, activations)
        return PassMemory(
            weight_bytes=_bytes(self._weights),
            input_bytes=_bytes(self._inputs),
            activation_bytes=most_activations,
            gradient_bytes=gradients,
            peak_bytes=peak,
            cache_bytes=_bytes(self._caches()),
        )

    def _caches(self) -> dict[int, torch.UntypedStorage]:
        """Return the memory of buffers that have the batch in their shape.

        Many a table has such a size by chance, of 1 above all: a buffer counts where a pass made
        it, or wrote to it, or where the batch, of several, comes first.
        """
        batch, parameters = self._loaded.batch_size, storages(self._loaded.module.parameters())
        found = storages(
            buffer
            for buffer, version in self._versions
            if buffer.dim() > 1
            and buffer.dtype != torch.int64
            and batch in buffer.shape
            and (
                id(buffer) not in self._before
                or buffer._version != version
                or (batch > 1 and buffer.shape[0] == batch)
            )
        )
        return {c: memory for c, memory in found.items() if c not in parameters}


def _outputs(output: Any) -> list[Tensor]:
    if isinstance(output, Tensor):
        return [output]
    return tensors(output) if isinstance(output, list | tuple) else []


def storages(found: Iterable[Tensor]) -> dict[int, torch.UntypedStorage]:
    """Return the memory of tensors by its address, each once; that of some kinds is unknown."""
    plain = (t for t in found if not is_wrapped(t))
    dense = (part for t in plain for part in stored(t) if part.layout == torch.strided)
    memories = (part.untyped_storage() for part in dense)
    return {memory._cdata: memory for memory in memories}


def _bytes(memories: dict[int, torch.UntypedStorage]) -> int:
    return sum(memory.nbytes() for memory in memories.values())


OUTSIDE = " (outside every recorded call)"
ELSEWHERE = " (in another thread)"

_NUMBER_OF, _LIFT = torch.ops.aten._local_scalar_dense.default, torch.ops.aten.lift_fresh.default
_ALLOCATIONS = frozenset(
    f"aten::{name}"
    for name in (
        *("empty", "empty_like", "empty_strided", "empty_permuted"),
        *("new_empty", "new_empty_strided", "lift_fresh", "lift", "_unsafe_view"),
        *("unsafe_split", "unsafe_split_with_sizes", "unsafe_chunk"),
    )
)


class Recorder(TensorNotes):
    """Records the calls of one pass, and what is known of the tensors in it.

    `covered` says that an operator call runs now. `backward` watches the backward pass of a
    training step, and is None where there is none. With `autocast` a pass on meta casts as it would
    on a GPU. `asked` says whether the model asked if a CUDA graph is being captured. `memory`
    tracks what is live, where that is wanted. `mapped` says that a function runs now which
    torch.vmap maps.
    """

    def __init__(self, model: nn.Module) -> None:
        self.calls: list[Call] = []
        self.containers = 0
        self.unsupported: Counter[str] = Counter()
        self.covered = False
        self.mapped = False
        self._ran: set[bool] = set()
        self._numbers: dict[int, tuple[torch.Tensor, Json]] = {}
        self._on_host: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self.asked = False
        self.backward: BackwardWatch | None = None
        self.memory: LiveMemory | None = None
        self.autocast = Autocast(None, self._in_backward)
        self._last: tuple[object, str] = (model, "")
        self._inside = ""
        self._outer: list[str] = []
        self._nested = 0
        self._described: Configuration | None = None
        self._unwatched: Any = None
        self._model = model
        self._paths = {id(module): path for path, module in model.named_modules()}
        self.known_values = KnownValues()
        self._values: WeakIdKeyDictionary = WeakIdKeyDictionary()
        self._known: dict[str, tuple[Configuration, Json | None]] = {}
        self._weights: dict[int, torch.UntypedStorage] = {}
        self._unowned: list[tuple[int | None, list[torch.Tensor]]] = []
        self.know_weights()

    def forget(self) -> None:
        """Forget the calls of a pass before another; what is known of tensors is kept."""
        self.calls.clear()
        self.unsupported.clear()
        self.containers = 0
        self.know_weights()

    def into(self, workload: Workload) -> Workload:
        return replace(
            workload,
            calls=tuple(self.calls),
            containers=self.containers,
            unsupported=dict(self.unsupported),
            memory=None if self.memory is None else self.memory.seen(),
        )

    # -- what describers ask of tensors ------------------------------------------------------

    def values(self, tensor: torch.Tensor) -> Json | None:
        return self._values.get(tensor)

    def is_weight(self, tensor: torch.Tensor) -> bool:
        """Return whether the tensor is a parameter or buffer of the model, or a view of one."""
        return not self._weights.keys().isdisjoint(storages((tensor,)))

    def needs_gradient(self, tensor: torch.Tensor) -> bool | None:
        """Return whether the tensor needs a gradient; None where no gradients are taken."""
        return tensor.requires_grad if torch.is_grad_enabled() else None

    def know_weights(self) -> None:
        """Look anew which memory is the model's: it may replace a buffer as it runs."""
        self._weights = storages((*self._model.parameters(), *self._model.buffers()))

    def declare(self, loaded: LoadedModel) -> None:
        """Note the value classes that the model's inputs are declared to have, and draw indices."""
        for tensor, known in loaded.known:
            self.known_values.keep(tensor, known)
        described = specs([loaded.inputs["args"], loaded.inputs["kwargs"]])
        for tensor, spec in zip(tensors([loaded.args, loaded.kwargs]), described, strict=True):
            self.set_values(tensor, spec.get("values"))
            self.known_values.declare(spec, tensor)

    def set_values(self, tensor: torch.Tensor, values: Json | None) -> None:
        """Note the value class of a tensor, None for normal."""
        self._values.pop(tensor, None)
        if values is not None:
            self._values[tensor] = values

    # -- what the pass shows -----------------------------------------------------------------

    @contextmanager
    def watching(self) -> Iterator[None]:
        with (
            _watched_modules(self),
            fused_attention_on_meta(),
            recurrent_on_meta(),
            _Guard(self),
            _Functions(self),
        ):
            yield

    def enter_module(self, module: nn.Module, args: Any) -> None:
        """Note that a module call begins; an operator covers whatever runs inside it."""
        if self.covered:
            self._nested += 1
            return
        path = self._paths.get(id(module), "")
        self._last = module, path
        if is_operator_module(module):
            self._described = self._described_by(describe_module, module, args, {})
            # A call that lacks arguments has them by keyword, which no global pre-hook is shown.
            if self._described is not None or not _binds(module, args):
                self.covered, self.autocast.has_cast = True, False
                # With the modes off inside, the module takes the paths it takes unwatched.
                self._unwatched = self.autocast.convolutions() or torch._C.DisableTorchFunction()
                self._unwatched.__enter__()
                return
        self.containers += 1
        self._outer.append(self._inside)
        self._inside = path

    def miss_module(self, module: nn.Module) -> None:
        """List a module of the model that another thread calls: what runs there is not seen."""
        ends = is_operator_module(module) or next(module.children(), None) is None
        if ends and id(module) in self._paths:
            self.unsupported[type(module).__name__ + ELSEWHERE] += 1

    def leave_module(
        self, module: nn.Module, args: Any, kwargs: dict[str, Any], output: Any
    ) -> None:
        """Record a module call that has ended; `output` is None where it raised."""
        if self._nested:
            self._nested -= 1
        elif not self.covered:
            self._inside = self._outer.pop()
        else:
            self.end()
            if output is None:
                return
            described = self._described
            if kwargs:
                described = self._described_by(describe_module, module, args, kwargs)
            if described is None:
                self.unsupported[type(module).__name__] += 1
            self._note(described, "module", args, output)

    def end(self) -> None:
        """Watch functions again, also where the pass was broken off inside an operator."""
        if self._unwatched is not None and self.covered:
            self._unwatched.__exit__(None, None, None)
            self.covered = False

    def _described_by(
        self, describe: Callable[..., Configuration], called: Any, args: Any, kwargs: Any
    ) -> Configuration | None:
        try:
            return describe(called, args, kwargs, self)
        except UnsupportedError:
            return None

    def call_function(self, function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        self._last = function, self._inside
        configuration = self._described_by(describe_function, function, args, kwargs)
        attention = attending(function, args, kwargs)

        def run(*args: Any, **kwargs: Any) -> Any:
            output = attention and trained_attention(attention, self.autocast.attended)
            if output is None:
                shown = self.known_values.shown(function, with_index_known(function, args))
                output = function(*shown, **kwargs)
                self.known_values.made(function, args, output)
            on_host = (
                "device" not in kwargs
                and function not in (torch.Tensor.to, torch.Tensor.cuda)
                and all(self._on_host.get(t) for t in tensors((args, kwargs)))
            )
            self._on_host.update((made, on_host) for made in tensors(output))
            return attended(output, attention) if attention else output

        if not (self.memory and attention and has_fused_kernel(attention, attention[0].dtype)):
            return self._run(configuration, run, args, kwargs)
        self.memory.is_aside = True  # what a device does in one kernel
        try:
            output = self._run(configuration, run, args, kwargs)
        finally:
            self.memory.is_aside = False
        self.memory.saw(output)
        return output

    def call_mapped(self, function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        """Run a function that torch.vmap maps; recorded are the operators on whole batches."""
        self.mapped = True
        try:
            return function(*args, **kwargs)
        finally:
            self.mapped = False
            self._own()

    def _in_backward(self) -> bool:
        return self.backward is not None and self.backward.runs

    def last(self) -> str:
        called, path = self._last
        if isinstance(called, nn.Module):
            return f"{path!r} ({type(called).__name__})" if path else type(called).__name__
        return _name(called) + (f" in {path!r}" if path else "")

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Record nothing of what the harvest itself computes, until the block ends."""
        before, self.covered = self.covered, True
        try:
            yield
        finally:
            self.covered = before

    def call_aten(self, operator: Any, args: Any, kwargs: dict[str, Any], kernels: Run) -> Any:
        """Run what computes outside every recorded call; it is a call where a kind describes it.

        So are the operators below a function that torch.vmap maps, on the whole batches that they
        are given, and the number that a tensor in a text asks for without a torch function.
        """
        self._last = operator, self._inside
        configuration = self._described_by(describe_function, operator, args, kwargs)

        def run(*args: Any, **kwargs: Any) -> Any:
            return self.known_values.run(operator, args, kwargs, kernels)

        return self._run(configuration, run, args, kwargs, OUTSIDE)

    def saw_inside(self, operator: Any, args: Any, output: Any) -> None:
        """Note that a dispatcher operator has run inside a call.

        Data from the host are made a tensor by one that is seen on the CPU alone; on a device they
        are copied, unless they stay in NumPy's memory.
        """
        if operator is _NUMBER_OF:
            self._numbers[id(args[0])] = args[0], output
        elif operator is not _LIFT or self._last[0] is torch.from_numpy:
            self._ran.add(computes(operator))

    def _run(
        self,
        configuration: Configuration | None,
        run: Callable[..., Any],
        args: Any,
        kwargs: dict[str, Any],
        where: str = "",
    ) -> Any:
        """Run a call with everything inside it belonging to it.

        One that no operator describes counts as missing where it gives the device work: where a
        dispatcher operator in it computes, or none was seen to make the tensors that it returns.
        """
        self.covered, self.autocast.has_cast = True, False
        self._ran, self._numbers = set(), {}
        try:
            with self.autocast.convolutions() or nullcontext():
                output = run(*args, **kwargs)
        finally:
            self.covered = False
        if self._numbers:
            configuration = self._with_numbers(configuration, args, kwargs, output)
        if configuration is None and (where or any(self._ran or [bool(tensors(output))])):
            self.unsupported[(aten_name if where else _name)(self._last[0]) + where] += 1
        self._note(configuration, "function", args, output)
        return output

    def _with_numbers(
        self, configuration: Configuration | None, args: Any, kwargs: Any, output: Any
    ) -> Configuration | None:
        """Describe a call anew with the numbers that torch took its tensors for.

        The host waits for each as for `Tensor.item`, unless it lies on the CPU already: in a pass
        on the CPU, what was made of numbers alone, and for no device.
        """
        taken, self._numbers = self._numbers, {}
        made = tensors(output)
        if not made and id(args[0]) in taken:  # the number itself was asked for
            return configuration
        given = replaced((args, kwargs), {key: number for key, (_, number) in taken.items()})
        found = self._described_by(describe_function, self._last[0], *given)
        waits = (
            tensor
            for tensor, _ in taken.values()
            if not self._on_host.get(tensor) and all(tensor.device == m.device for m in made)
        )
        for tensor in waits if found != configuration else ():
            self.keep(describe_function(torch.Tensor.item, (tensor,), {}, self), "function")
        return found

    def _note(
        self, configuration: Configuration | None, form: Form, args: Any, output: Any
    ) -> None:
        if configuration is not None and self.autocast.has_cast:
            configuration = replace(configuration, autocast=self.autocast.name)
        values = None if configuration is None else self.keep(configuration, form)
        if self.backward is not None:
            call = None if configuration is None else len(self.calls) - 1
            self._unowned.append((call, tensors(output) or tensors(args)[:1]))
            self._own()
        for tensor in tensors(output):
            rectified = values == "rectified" and not tensor.is_floating_point()
            self.set_values(tensor, None if rectified else values)

    def _own(self) -> None:
        """Give calls their parts of autograd's graph, which those below torch.vmap get later."""
        while self._unowned and self.backward is not None and not self.mapped:
            self.backward.own(*self._unowned.pop(0))

    def keep(self, configuration: Configuration, form: Form) -> Json | None:
        """Write a call down that has returned; returns the value class of its output."""
        text = configuration.json
        if text not in self._known:
            kind = KINDS[configuration.kind]
            values = kind.values_rule(kind.view(configuration))
            self._known[text] = configuration, values
        shared, values = self._known[text]  # one object stands for equal configurations
        self.calls.append(Call(shared, form, self._last[1]))
        return values


def _name(function: Any) -> str:
    return custom_name(function) or resolve_name(function) or function_name(function)


def aten_name(operator: Any) -> str:
    """Return a dispatcher operator's name; one that takes functions has no schema."""
    return str(
        operator.name() if isinstance(operator, HigherOrderOperator) else operator._schema.name
    )


def _binds(module: nn.Module, args: Any) -> bool:
    try:
        inspect.signature(module.forward).bind(*args)
    except TypeError:
        return _is_mapped()  # then the module is never one call
    return True


def _is_mapped() -> bool:
    """Return whether what runs now is transformed, by torch.vmap alone."""
    levels = get_interpreter_stack() or ()
    return bool(levels) and all(each.key() == TransformType.Vmap for each in levels)


_watching = threading.RLock()
_watcher: list[int] = []


@contextmanager
def _watched_modules(recorder: Recorder) -> Iterator[None]:
    """Let the recorder see this thread's module calls; other threads' recorders wait their turn."""
    thread = threading.get_ident()
    with _watching:
        if _watcher:
            raise InputError("a harvest was started inside the forward pass of another")

        def before(module: nn.Module, args: Any) -> None:
            if threading.get_ident() == thread:
                recorder.enter_module(module, args)
            else:
                recorder.miss_module(module)

        def after(module: nn.Module, args: Any, *rest: Any) -> None:
            # After a forward that raised, torch hands the hook no keyword arguments.
            kwargs, output = rest if len(rest) == 2 else ({}, None)
            if threading.get_ident() == thread:
                recorder.leave_module(module, args, kwargs, output)

        _watcher.append(thread)
        entering = register_module_forward_pre_hook(before)
        leaving = register_module_forward_hook(after, with_kwargs=True, always_call=True)
        try:
            yield
        finally:
            entering.remove()
            leaving.remove()
            # Its removal forgets this one entry, by which torch.compile would take hooks to be set.
            getattr(modules, "_global_forward_hooks_with_kwargs", {}).pop(leaving.id, None)
            recorder.end()
            _watcher.clear()


class _Functions(TorchFunctionMode):
    """Shows the recorder every torch function of this thread, once: it is off inside each."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if self._recorder.covered or is_metadata(func) or _is_mark(custom_name(func)):
            return func(*args, **kwargs)
        if _is_mapped():
            return self._recorder.call_mapped(func, args, kwargs)
        return self._recorder.call_function(func, args, kwargs)


class _Guard(TorchDispatchMode):
    """Shows the recorder the operators that reach the dispatcher outside every recorded call."""

    supports_higher_order_operators = True

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._recorder = recorder

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        output = self._called(func, args, kwargs or {})
        if self._recorder.covered:
            self._recorder.saw_inside(func, args, output)
        if self._recorder.memory is not None:
            self._recorder.memory.saw(output)
        return output

    def _called(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        recorder, kernels = self._recorder, self._recorder.autocast
        if recorder.covered:
            return recorder.known_values.run(func, args, kwargs, kernels)
        backward = None if isinstance(func, HigherOrderOperator) else recorder.backward
        if backward is not None and backward.runs:
            if computes(func):
                backward.call_aten(func, args)
        elif computes(func):
            return recorder.call_aten(func, args, kwargs, kernels)
        with recorder.aside():  # what the operator calls is no function of the model's
            return recorder.known_values.run(func, args, kwargs, kernels)


def computes(operator: Any) -> bool:
    """Return whether a dispatcher operator does work: more than a view, allocation or mark."""
    if isinstance(operator, HigherOrderOperator):
        return True
    name = operator._schema.name
    only_views = operator.is_view or torch.Tag.inplace_view in operator.tags
    return not (only_views or name in _ALLOCATIONS or _is_mark(name))


def _is_mark(name: str | None) -> bool:
    """Return whether an operator only asks about a tensor, or marks a part for torch's profiler."""
    marks = ("profiler::", "aten::sym_", "aten::_assert_scalar", "aten::_assert_tensor_metadata")
    return name is not None and name.startswith(marks)
