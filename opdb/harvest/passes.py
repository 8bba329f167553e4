"""Watch a model at work and write down every operator call it makes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from opdb.capturing import answering
from opdb.errors import InputError, OpdbError, UnsupportedError
from opdb.growth import Growth, NotAlikeError
from opdb.harvest.autograd import BackwardWatch
from opdb.harvest.digest import fingerprint
from opdb.harvest.recorder import LiveMemory, Recorder
from opdb.models import LoadedModel, load
from opdb.models.construction import ANY_FAILURE, ModelFailureError, bytes_of, check_fits, one_line
from opdb.models.inputs import make, seeded, tensors
from opdb.models.meta import autocast_refused
from opdb.models.steps import Loss, calibrate_batch_norms
from opdb.models.transformers import BrokenOffError
from opdb.operators import describe_update
from opdb.records import Call, Harvest, Json, PassMemory, Workload
from opdb.spec import ModelSpec

WITH_VALUES = (
    "without values it fails, so it ran on the CPU, with random weights and inputs of a fixed "
    "seed: how often it calls what, and of which sizes, may depend on them"
)
"""What is said of a pass on the CPU."""

AS_ON_A_CPU = "told that it is on a GPU it fails, so these are the calls that it makes on a CPU"
"""What is said of a pass that was not told so."""


def harvest(request: ModelSpec) -> Workload:
    """Return the workload of a model: its operator calls in order, found without its weights.

    The pass runs on the meta device, with values for indices and masks (see
    `opdb.models.known.KnownValues`); a model that asks for others (`.item()`, shapes that depend on
    data) runs on the CPU instead, with inputs of the declared value classes, and is told that it
    runs on a GPU.

    Raises:
        InputError: the model cannot be built or run; the message names the last call.
        UnsupportedError: the model enters autocast by itself, or autocast is asked for of a model
            that asks for values: what it casts on a GPU is known on meta alone.
    """
    return _first_pass(request).workload


def harvest_in_both(request: ModelSpec) -> Harvest:
    """Return the workload of a model, and what it calls while a CUDA graph captures it.

    A model of inference that asks whether it is captured is run a second time, and is answered yes;
    but for a whole generation, which no graph captures.

    Raises:
        InputError, UnsupportedError: as `harvest` does, of the first pass.
    """
    first = _first_pass(request)
    workload = first.workload
    # What is found on the CPU depends on how it rounds, too.
    known = fingerprint(request) if first.device == "meta" else None
    if not first.asked or request.training is not None or request.phase == "generate":
        return Harvest(workload, fingerprint=known, notes=first.notes)
    try:
        # Loaded anew: the first pass may have left something in the model.
        captured = first.again(request, capturing=True).workload
    except (OpdbError, MemoryError) as error:
        failure = str(error) or type(error).__name__
        return Harvest(workload, failure=failure, notes=first.notes)
    if (captured.calls, captured.unsupported) == (workload.calls, workload.unsupported):
        return Harvest(workload, fingerprint=known, notes=first.notes)
    return Harvest(workload, captured, fingerprint=known, notes=first.notes)


class _ToldGpu(Recorder):
    told_gpu = True


@dataclass(frozen=True)
class _Pass:
    """The result of one pass, where it ran, and whether the model asked if it is being captured.

    With `told_gpu` the model was told that it runs on a GPU, though it did on the CPU.
    """

    workload: Workload
    device: str
    asked: bool
    told_gpu: bool
    notes: tuple[str, ...] = ()

    def again(self, request: ModelSpec, *, capturing: bool) -> _Pass:
        if self.device == "cpu":
            return _with_values(request, told_gpu=self.told_gpu, capturing=capturing)
        return _recorded(request, load(request, device=self.device), capturing=capturing)


def _first_pass(request: ModelSpec) -> _Pass:
    loaded = None
    try:
        loaded = load(request, device="meta")
        return _recorded(request, loaded)
    except ModelFailureError as on_meta:
        # Any failure may come from missing values: only the CPU shows whether that was the reason.
        check_fits(_weights_bytes(loaded, on_meta), on_meta)
        if request.autocast is not None:
            raise UnsupportedError(
                f"{request.name!r} under autocast ({request.autocast}) cannot be harvested, for it "
                f"does not run on meta: {on_meta}"
            ) from on_meta
        try:
            try:
                return _with_values(request, told_gpu=True)
            except ModelFailureError:  # it may have asked for what only a GPU has
                return _with_values(request, told_gpu=False)
        except (MemoryError, RuntimeError) as error:  # there is no room for its inputs
            said = f"{on_meta}; on the CPU it fails too: {one_line(error)}"
            raise ModelFailureError(said) from error


def _with_values(request: ModelSpec, *, told_gpu: bool, capturing: bool = False) -> _Pass:
    """Run a pass on the CPU, its batch norms calibrated as in a measured run."""
    loaded = load(request, device="cpu")
    notes = [WITH_VALUES] if told_gpu else [WITH_VALUES, AS_ON_A_CPU]
    if request.training is None:
        try:
            with seeded("cpu"):
                calibrate_batch_norms(loaded)
        except ANY_FAILURE as error:  # a forward is anyone's code
            notes.append(f"its batch norms could not be calibrated: {one_line(error)}")
    found = _recorded(request, loaded, "cpu", told_gpu=told_gpu, capturing=capturing)
    return replace(found, notes=(*found.notes, *notes))


def _weights_bytes(loaded: LoadedModel | None, failure: ModelFailureError) -> int:
    """Return the memory of a model's weights; of those made so far, if it could not be built."""
    if loaded is None:
        return failure.weights_bytes
    return bytes_of({*loaded.module.parameters(), *loaded.module.buffers()})


def _recorded(
    request: ModelSpec,
    loaded: LoadedModel,
    device: str = "meta",
    *,
    told_gpu: bool = False,
    capturing: bool = False,
) -> _Pass:
    training = request.training
    frame = Workload(
        name=loaded.name,
        source=loaded.source,
        source_version=loaded.source_version,
        inputs=loaded.inputs if training is None else {**loaded.inputs, "training": training},
        batch_size=loaded.batch_size,
        dtype=loaded.dtype,
        memory_format=loaded.memory_format,
        phase=request.phase,
        gradient=request.phase == "training",
        autocast=request.autocast,
        captured=capturing,
    )
    with seeded(device):
        if request.phase == "generate":
            found, asked, notes = _generated(loaded, frame, device)
        else:
            recorder = record(
                loaded,
                training=training,
                autocast=request.autocast,
                capturing=capturing,
                recorder_type=_ToldGpu if told_gpu else None,
            )
            found, asked, notes = recorder.into(frame), recorder.asked, ()
    found = replace(found, calls=tuple(_filled(found.calls, request.imbalance)))
    return _Pass(found, device, asked, told_gpu, notes)


def _filled(calls: Iterable[Call], imbalance: float | None) -> Iterator[Call]:
    """Yield calls, the groups of grouped products filled as unevenly as is asked for."""
    for call in calls:
        inputs = dict(call.configuration.inputs)
        if imbalance and "offs" in inputs:
            inputs["offs"] = {**inputs["offs"], "values": {"imbalance": imbalance}}
            call = replace(call, configuration=replace(call.configuration, inputs=inputs))
        yield call


# Run a loaded model under a recorder.


def record(
    loaded: LoadedModel,
    *,
    training: Json | None = None,
    autocast: str | None = None,
    capturing: bool = False,
    recorder_type: Callable[[nn.Module], Recorder] | None = None,
    observer: Callable[[Recorder], TorchDispatchMode] | None = None,
) -> Recorder:
    """Run the loaded model under a recorder, and return the recorder with what a pass calls.

    Where the first pass leaves something in the model, a second one is what counts, unless the
    recorder knows that the model is `settled`.

    `training` (see `ModelSpec.training`) asks for a whole training step, `autocast` for a
    pass on meta as it casts to that dtype on a GPU. A model that asks whether a CUDA graph is being
    captured gets the answer `capturing`, and the recorder keeps that it asked. `recorder_type` may
    keep more than a Recorder does. `observer` makes a dispatch mode that runs inside the
    recorder's own, for a second opinion.

    Raises:
        InputError: the pass fails; the message names the last call.
        UnsupportedError: the model enters autocast by itself, or returns an iterator.
    """
    recorder = (recorder_type or Recorder)(loaded.module)
    recorder.autocast = autocast
    recorder.declare(loaded)
    modes = {module: module.training for module in loaded.module.modules()}
    try:
        with torch.set_grad_enabled(training is not None):
            if _is_lazy(loaded.module):  # the first call replaces classes and makes parameters
                loaded.module(*loaded.args, **loaded.kwargs)
                recorder.know_weights()
            before = held(loaded.module)
            _watch(recorder, loaded, before, training, capturing, observer)
            if not recorder.settled and differ(before, held(loaded.module)):
                recorder.forget()
                _watch(recorder, loaded, before, training, capturing, observer)
    except OpdbError:
        raise
    except ANY_FAILURE as error:  # a model's forward is anyone's code and may raise anything
        device = next((str(t.device) for t in tensors(loaded.args)), "its own device")
        raise ModelFailureError(
            f"{loaded.name!r} fails on {device}: {one_line(error)}; "
            f"the last call was {recorder.last()}"
        ) from error
    finally:
        for module, mode in modes.items():
            module.training = mode
    return recorder


def _watch(
    recorder: Recorder,
    loaded: LoadedModel,
    before: Sequence[object],
    training: Json | None,
    capturing: bool,
    observer: Callable[[Recorder], TorchDispatchMode] | None,
) -> None:
    """Run one pass, or one training step, under a recorder; `before` as of `LiveMemory`."""
    recorder.memory = LiveMemory(loaded, before)
    with ExitStack() as stack:
        stack.enter_context(recorder.watching())  # one thread at a time
        stack.enter_context(autocast_refused(loaded.name))
        seen = stack.enter_context(answering(capturing))
        if recorder.told_gpu:
            stack.enter_context(ToldGpu())
        if observer is not None:
            stack.enter_context(observer(recorder))
        if training is None:
            _check_done(loaded.name, loaded.module(*loaded.args, **loaded.kwargs))
        else:
            train(recorder, loaded, training)
    recorder.asked |= seen.asked


def _check_done(name: str, output: object) -> None:
    if isinstance(output, Iterator):
        raise UnsupportedError(
            f"{name!r} returns a {type(output).__name__}: what it computes runs after its pass; "
            "let it return a list"
        )


def _is_lazy(module: nn.Module) -> bool:
    return any(
        isinstance(m, LazyModuleMixin) and m.has_uninitialized_params() for m in module.modules()
    )


# One training step, watched: forward pass, loss, backward pass, optimizer step.


def train(recorder: Recorder, loaded: LoadedModel, training: Json) -> None:
    """Run one training step of a loaded model under a recorder that is watching.

    `training` names the optimizer, and of how many batches gradients add up before it steps.

    Raises:
        InputError: no output of the model can be trained on.
    """
    optimizer, accumulation = training["optimizer"], training["accumulation"]
    parameters = list(loaded.module.parameters())
    backward = recorder.backward = BackwardWatch(
        recorder.calls, recorder.unsupported, recorder.aside
    )
    loss_of = None
    try:
        for _ in range(accumulation):
            outputs = loaded.module(*loaded.args, **loaded.kwargs)
            with recorder.aside():
                loss_of = loss_of or _loss(loaded, outputs)
                if loss_of.targets is not None:
                    recorder.set_values(loss_of.targets, {"range": [0, loss_of.classes]})
            loss = loss_of(outputs)
            backward.run(loss / accumulation if accumulation > 1 else loss)
        if recorder.memory is not None:
            recorder.memory.saw_gradients(parameters)
        with recorder.aside():
            updated = [p for p in parameters if p.grad is not None]
            update = describe_update(optimizer, updated)
        recorder.calls.append(Call(update, "function", ""))
    finally:
        recorder.backward = None
        for parameter in parameters:
            parameter.grad = None


def _loss(loaded: LoadedModel, outputs: Any) -> Loss:
    try:
        return Loss.of(outputs)
    except InputError as error:
        raise InputError(f"{loaded.name!r} {error}") from error


# Objects that a pass leaves in a model: a table of positions, a cache that the first call fills.

_BY_VALUE = (int, float, str)


def held(model: nn.Module) -> list[object]:
    """Return what the attributes of a model's modules hold, with what their containers hold.

    While the list is kept, no object that is made later can be taken for one of these.
    """
    found: list[object] = []
    for module in model.modules():
        for value in vars(module).values():
            found.append(value)
            if isinstance(value, dict):
                found += (*value, *value.values())
            elif isinstance(value, (list, tuple, set)):
                found += value
    return found


def differ(before: list[object], after: list[object]) -> bool:
    """Whether two times a model held other objects; numbers and texts count by their value."""
    return len(before) != len(after) or not all(map(_same, before, after))


def _same(one: object, other: object) -> bool:
    if one is other:
        return True
    # of one type: a tensor in the place of a number has no answer to whether it equals it
    return type(one) is type(other) and isinstance(one, _BY_VALUE) and one == other


# What a model is told of where its tensors are, when a pass on the CPU stands for one on a GPU.

_GPU, _CPU = torch.device("cuda"), torch.device("cpu")

_ANSWERS: dict[Any, Any] = {
    Tensor.device.__get__: _GPU,
    Tensor.is_cuda.__get__: True,  # type: ignore[attr-defined]
    Tensor.is_cpu.__get__: False,  # type: ignore[attr-defined]
}


class ToldGpu(TorchFunctionMode):
    """Tells a model that its tensors are on a GPU; what it then makes or moves there stays here.

    A model may call something else on the CPU: torchvision's `batched_nms` goes class by class
    there from 1,000 boxes on, on a GPU from 25,000 on.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in _ANSWERS:
            return _ANSWERS[func]
        args, kwargs = pytree.tree_map_only(torch.device, _kept_here, (args, kwargs or {}))
        return func(*args, **kwargs)


def _kept_here(device: torch.device) -> torch.device:
    return _CPU if device.type == _GPU.type else device


# A whole generation from a few of its steps, where these show how all others grow.

FEW = 16
"""As many steps are recorded all: to record some of them would take as long."""

AHEAD = 2
"""The passes before a pair of steps that is not the first: a prefill, and the step after it."""


_Found: TypeAlias = tuple[Workload, bool, tuple[str, ...]]
"""What a pass calls, whether the model asked if it is captured, and what is unusual about that."""


def _generated(loaded: LoadedModel, frame: Workload, device: str) -> _Found:
    """Return what a whole generation calls, `frame` filled in.

    Few of its steps are recorded, if these show what the others call; a note says where not.
    """
    tokens = loaded.inputs["generation"]["max_new_tokens"]
    notes: tuple[str, ...] = ()
    if tokens > FEW:
        try:
            return _Generation(loaded, frame, device).whole()
        except NotAlikeError as error:
            notes = (
                f"all {tokens} passes of the generation were recorded, for few of them do not show "
                f"what the others call: {error}",
            )
    recorder = record(loaded)
    return recorder.into(frame), recorder.asked, notes


def longer(loaded: LoadedModel, by: int, device: str) -> LoadedModel:
    """Return a generation with a prompt that is so many tokens longer, and drawn anew."""
    [spec] = loaded.inputs["args"]
    batch, prompt = spec["shape"]
    spec = {**spec, "shape": [batch, prompt + by]}
    with seeded(device):
        tokens = make(spec, device)
    return replace(loaded, args=(tokens,), inputs={**loaded.inputs, "args": [spec]})


@dataclass(frozen=True)
class _Mark:
    calls: int
    counts: Counter[tuple[str, str]]
    memory: int


class Passes(Recorder):
    """Records a generation, notes where each pass begins, and breaks off before one too many."""

    def __init__(self, model: nn.Module, passes: int, settled: bool) -> None:
        super().__init__(model)
        self.settled = settled
        self.marks: list[_Mark] = []
        self._passes = passes
        self._decoder = model.get_submodule("decoder")

    def forget(self) -> None:
        super().forget()
        self.marks.clear()

    def enter_module(self, module: nn.Module, args: Any) -> None:
        """Note that a module call begins; that of the decoder is a pass."""
        mark = self.mark() if module is self._decoder else None
        super().enter_module(module, args)
        if mark is not None:
            self.marks.append(mark)
            if len(self.marks) > self._passes:
                raise BrokenOffError

    def mark(self) -> _Mark:
        assert self.memory is not None
        counts = Counter({("containers", ""): self.containers})
        for name in _COUNTED:
            counts.update({(name, key): n for key, n in getattr(self, name).items()})
        return _Mark(len(self.calls), counts, self.memory.mark())


_COUNTED = ("foreign_leaves", "unsupported")
"""What a recorder counts by name."""


@dataclass(frozen=True)
class _GenerationPart:
    """A part of a generation: its calls, what was counted in it, and the memory that it took."""

    calls: tuple[Call, ...]
    counts: Counter[tuple[str, str]]
    memory: PassMemory

    @classmethod
    def between(cls, recorder: Passes, begin: _Mark | None, end: _Mark) -> _GenerationPart:
        """Return what was recorded between two marks, or from the beginning."""
        assert recorder.memory is not None
        begin = begin or _Mark(0, Counter(), 0)
        return cls(
            tuple(recorder.calls[begin.calls : end.calls]),
            end.counts - begin.counts,
            recorder.memory.seen(begin.memory, end.memory),
        )


class _Generation:
    """A whole generation: the parts of it that were recorded, and those that follow from these.

    Step `number` (from 1) is the pass that gives one more than so many new tokens.
    """

    def __init__(self, loaded: LoadedModel, frame: Workload, device: str) -> None:
        self._loaded, self._frame, self._device = loaded, frame, device
        self._prompt = loaded.inputs["args"][0]["shape"][1]
        self._tokens = loaded.inputs["generation"]["max_new_tokens"]
        self._recorded = 0
        self._steps: dict[int, _GenerationPart] = {}

    def whole(self) -> _Found:
        """Return what the generation calls.

        Raises:
            NotAlikeError: few steps do not show what the others call.
        """
        first = self._pair(1)
        last = self._pair(self._tokens - 4, to_the_end=True)
        self._fill(1, self._tokens - 4)
        steps = [self._steps[number] for number in range(1, self._tokens - 1)]
        parts = [_GenerationPart.between(first, None, first.marks[1]), *steps]
        parts.append(_GenerationPart.between(last, last.marks[-2], last.marks[-1]))
        counts: Counter[tuple[str, str]] = Counter()
        for each in parts:
            counts.update(each.counts)
        leaves, unsupported = (
            {name: n for (of, name), n in counts.items() if of == what} for what in _COUNTED
        )
        found = replace(
            self._frame,
            calls=tuple(call for each in parts for call in each.calls),
            containers=counts["containers", ""],
            foreign_leaves=leaves,
            unsupported=unsupported,
            memory=_most([each.memory for each in parts]),
        )
        return found, first.asked, ()

    def _pair(self, number: int, *, to_the_end: bool = False) -> Passes:
        """Record a step and the next one, and with `to_the_end` the last two after these.

        When its cache is nearly full, a model may need no padding, and call less.
        What the prompt lacks for that is taken for a part of it.

        Raises:
            NotAlikeError: as many passes were recorded as there are tokens.
        """
        ahead = min(number, AHEAD)
        steps = 3 if to_the_end else 2
        passes = ahead + steps + to_the_end
        self._recorded += passes
        if self._recorded > self._tokens:
            raise NotAlikeError("they change too often")
        watched = partial(Passes, passes=passes, settled=number > 1)
        recorder = record(longer(self._loaded, number - ahead, self._device), recorder_type=watched)
        assert isinstance(recorder, Passes)
        if to_the_end:
            recorder.marks.append(recorder.mark())
        if len(recorder.marks) != passes + 1:
            raise NotAlikeError(f"{len(recorder.marks)} passes for {passes} tokens")
        for each, (begin, end) in enumerate(
            pairwise(recorder.marks[ahead : ahead + steps + 1]), number
        ):
            self._steps.setdefault(each, _GenerationPart.between(recorder, begin, end))
        return recorder

    def _fill(self, low: int, high: int) -> None:
        """Find the steps between two pairs that were recorded, each begun by one of these.

        Raises:
            NotAlikeError: too many have to be recorded for that.
        """
        if high - low <= 2:
            return
        middle = (low + high) // 2
        self._pair(middle)
        try:
            self._steps |= dict(self._between(low, middle, high))
        except NotAlikeError:
            self._fill(low, middle)
            self._fill(middle, high)

    def _between(self, *pairs: int) -> Iterator[tuple[int, _GenerationPart]]:
        """Yield the steps that lie between pairs and follow from these.

        Raises:
            NotAlikeError: they do not follow.
        """
        known = [number for pair in pairs for number in (pair, pair + 1)]
        if len({str(sorted(self._steps[each].counts.items())) for each in known}) > 1:
            raise NotAlikeError("other modules are called")
        growth = Growth([self._as_pass(each) for each in dict.fromkeys(known)])
        growth.grows()  # each size follows a rule
        for number in range(known[0], known[-1]):
            if number not in self._steps:
                context = self._prompt + number - 1
                step = growth.at({"batch": self._frame.batch_size, "context": context})
                yield number, replace(self._steps[known[-1]], calls=step.calls)

    def _as_pass(self, number: int) -> Workload:
        inputs = {"args": [], "generation": {"context": self._prompt + number - 1}}
        calls = self._steps[number].calls
        return replace(self._frame, phase="decode", inputs=inputs, calls=calls)


def _most(every: list[PassMemory]) -> PassMemory:
    """Return the memory of parts of one pass, which are never live at once."""
    return replace(
        every[0],
        activation_bytes=max(each.activation_bytes for each in every),
        peak_bytes=max(each.peak_bytes for each in every),
    )
