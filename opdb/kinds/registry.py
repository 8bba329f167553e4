"""The declaration of a kind of operator, and the registry of all kinds."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import cache, cached_property
from typing import TypeAlias

from opdb.errors import UnknownNameError
from opdb.kinds import view as v
from opdb.kinds.view import Shape, View
from opdb.records import ALGORITHM_SETTING, Configuration, Json, canonical_json

# Rewrite a call's parameters and inputs in place, so that equal calls become equal text.
Canonical: TypeAlias = Callable[[dict[str, Json], dict[str, Json]], None]

# Give the share of nonzero elements in an input's gradient, from that in the outputs' ones.
NonzeroRule: TypeAlias = Callable[[View, float], float]


@cache
def parse_signature(text: str) -> inspect.Signature:
    """Return the signature that a declaration spells: ``"input, other, *, alpha=1"``."""
    return inspect.signature(eval(f"(lambda {text}: None)"))  # a text of opdb's own, never of data


@dataclass(frozen=True)
class Backward:
    """How the backward pass of a call follows from its forward pass; see `opdb.kinds.families`.

    `flops_rule` and `bytes_rule` are asked where the call has a gradient and work in its forward
    pass. `spreads` says that a view's gradient is written anew all the same: it is of another size.
    Without `has_gradient` nothing of the inputs' gradients is in the output.
    """

    flops_rule: Callable[[View], int]
    bytes_rule: Callable[[View], int]
    has_gradient: bool = True
    spreads: bool = False


@dataclass(frozen=True)
class Kind:
    """The function that an operator computes, and all that is known of it without torch.

    This is the one place where a kind is declared. What has no default must be decided, for the
    kind itself or by its family (`opdb.kinds.families`): a kind that leaves it out fails at import.
    The methods take a configuration of this kind; the fields ending in `_rule` hold what they do.

    Attributes:
        name: the kind.
        spelled: its named arguments as the text of a signature.
        flops_rule: operations of one call, a multiply-add counts 2.
        bytes_rule: bytes of one call that must move at least.
        shapes_rule: shapes of the outputs, or others of as many elements, where those are simpler
            to say: nothing but the elements is read.
        dtype_rule: dtype of the outputs; where `then_indices`, those after the first are indices.
        backward: the work of the backward pass.
        nonzero_rule: how zeros among gradients pass through the backward pass.
        functions: the reviewed torch callables that compute it, read by `opdb.operators.functions`,
            the one that `build` calls first; "{0}" stands for the kind's name. Names are looked up
            in `torch`, `Tensor`, `F` (torch.nn.functional), `linalg`, `special` and `fft`; one that
            this torch lacks is left out. After a name, `!` says that the first argument is changed
            in place, `~` that the first two are swapped, `@` that it is an attribute's getter, and
            a signature in parentheses, in the kind's argument names, replaces the kind's own. A
            class of `nn` is called with the input, or what its parentheses have, and has the other
            arguments as attributes; `opdb.operators.describe` has those of which more must be said.
        launches_rule: whether a call gives the device work; a view does not.
        steps_rule: how many steps of a call run one after the other, each of some kernels: those
            of a sequence, in all layers, or the samples of a batch.
        values_rule: the value class of the outputs.
        canonical: rewrites arguments so that equal calls become equal text.
        bound_rule: what the whole numbers in an argument must stay below, None where nothing bounds
            them: sizes that indices point into.
        positive: arguments whose values must lie above 0.
        probabilities: arguments whose values must lie between 0 and 1.
        creates: whether a call makes a tensor from no other, and so takes the device.
        mutates: arguments that a call in place changes.
        waits_rule: whether the host waits for the device in a call, to learn what it returns.
        arithmetic_rule: the dtype that it computes in. A product computes in that of its factors,
            whatever its output, its scales or what is added to it are.
        settings: the backend settings that its time depends on.
        raised: under autocast, whether outputs are float32 although it computes with products,
            whose outputs are halves.
    """

    name: str
    spelled: str
    _: KW_ONLY
    flops_rule: Callable[[View], int]
    bytes_rule: Callable[[View], int]
    shapes_rule: Callable[[View], list[Shape]]
    dtype_rule: Callable[[View], str]
    backward: Backward
    nonzero_rule: NonzeroRule
    functions: str
    then_indices: bool = False
    launches_rule: Callable[[View], bool] = v.always
    steps_rule: Callable[[View], int] = v.one
    values_rule: Callable[[View], Json | None] = v.no_values
    canonical: Canonical | None = None
    bound_rule: Callable[[View, str], int | None] = v.no_bound
    positive: tuple[str, ...] = ()
    probabilities: tuple[str, ...] = ()
    creates: bool = False
    mutates: tuple[str, ...] = ()
    waits_rule: Callable[[View], bool] = v.never
    arithmetic_rule: Callable[[View], str] = v.promoted_dtype
    settings: tuple[str, ...] = ()
    raised: bool = False

    @cached_property
    def signature(self) -> inspect.Signature:
        return parse_signature(self.spelled)

    def view(self, configuration: Configuration) -> View:
        return View(configuration, self)

    def flops(self, configuration: Configuration) -> int:
        if configuration.pass_name == "backward":
            return self.backward_flops(configuration.forward)
        return self.view(configuration).flops()

    def bytes_moved(self, configuration: Configuration) -> int:
        return self.traffic(configuration)[0]

    def traffic(self, configuration: Configuration) -> tuple[int, int]:
        """Return the bytes that one call moves, and those of weights among them.

        Weights are what it moves beyond its inputs and outputs: an embedding reads few of its rows.
        A backward pass has no weights that could stay hot, since the pass before it leaves none in
        the caches.
        """
        if configuration.pass_name == "backward":
            return self.backward_bytes(configuration.forward), 0
        return self.view(configuration).traffic()

    def activation_bytes(self, configuration: Configuration) -> int:
        view = self.view(configuration)
        return 0 if view.inplace or not self.launches_rule(view) else view.output_bytes

    def launches(self, configuration: Configuration) -> bool:
        if configuration.pass_name == "backward":
            return self.bytes_moved(configuration) > 0
        return self.launches_rule(self.view(configuration))

    def waits(self, configuration: Configuration) -> bool:
        if self.waits_rule is v.never:  # most kinds, of which no argument is read
            return False
        return self.waits_rule(self.view(configuration.forward))

    def sized_by_values(self, configuration: Configuration) -> bool:
        return self.waits(configuration) and bool(self.view(configuration).outputs)

    def backward_flops(self, configuration: Configuration) -> int:
        view = self.view(configuration)
        return self.backward.flops_rule(view) if view.is_differentiable else 0

    def backward_bytes(self, configuration: Configuration) -> int:
        view = self.view(configuration)
        if not view.is_differentiable:
            return 0
        if self.launches_rule(view):
            return self.backward.bytes_rule(view)
        return view.output_bytes + view.gradient_bytes if self.backward.spreads else 0

    def nonzero_share(self, configuration: Configuration, given: float) -> float:
        """Return the share of an input's gradient that is not zero, from 0 to 1.

        `configuration` is the call's forward pass, `given` that share of its outputs' gradients.
        """
        return self.nonzero_rule(self.view(configuration), given)


# Every kind, by name.
KINDS: dict[str, Kind] = {}


def register(*kinds: Kind) -> None:
    for kind in kinds:
        if kind.name in KINDS:
            raise ValueError(f"kind {kind.name!r} is registered twice")
        KINDS[kind.name] = kind


def get_kind(name: str) -> Kind:
    try:
        return KINDS[name]
    except KeyError:
        raise UnknownNameError("kind", name, KINDS) from None


# Backend settings, and which of them affect a kind of operator.

# The backend settings of a fresh torch process.
DEFAULT_SETTINGS: Mapping[str, Json] = {
    "tf32_convolution": True,
    "tf32_matmul": False,
    "cudnn_benchmark": False,
    "mha_fastpath": True,
}


def relevant_setting(kind: str, settings: Mapping[str, Json]) -> str:
    """Return, as canonical JSON, the settings that affect this kind, and no others.

    A kind that this version does not know (a newer one's set may hold it) has none.
    """
    touching = KINDS[kind].settings if kind in KINDS else ()
    return canonical_json({name: settings[name] for name in sorted(touching) if name in settings})


def is_forcible(kind: str) -> bool:
    return kind in KINDS and ALGORITHM_SETTING in KINDS[kind].settings
