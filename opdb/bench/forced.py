"""Convolutions with a forced algorithm, as calls to be measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any

from torch import Tensor

from opdb.algorithms.convolution import ForcedCall, run
from opdb.algorithms.cudnn import cudnn
from opdb.algorithms.names import DEFAULT, DIRECT, GUESS, Algorithm
from opdb.algorithms.problem import padding_of
from opdb.bench.platform import Platform
from opdb.errors import CannotMeasureError, UnsupportedError
from opdb.operators import BuiltCall, build
from opdb.records import Configuration

KIND = "conv2d"
"""The kind of operator whose algorithm can be forced."""


def check_algorithms(algorithms: Iterable[Algorithm], platform: Platform) -> None:
    """Check that convolutions can be forced to take these algorithms on a platform.

    Raises:
        CannotMeasureError: it is no GPU, or there is no cuDNN, or no Triton where that is needed.
    """
    forced = [algorithm for algorithm in algorithms if algorithm.is_forced]
    if forced and platform.device.type != "cuda":
        named = ", ".join(repr(algorithm.name) for algorithm in forced)
        raise CannotMeasureError(
            f"no algorithm can be forced on {platform.device.name}: {named} "
            f"{'needs' if len(forced) == 1 else 'need'} an NVIDIA GPU; here there is {DEFAULT!r} "
            "alone"
        )
    if any(algorithm.number is not None or algorithm.name == GUESS for algorithm in forced):
        cudnn()
    if any(algorithm.name == DIRECT for algorithm in forced) and find_spec("triton") is None:
        raise CannotMeasureError(
            f"the algorithm {DIRECT!r} needs Triton, which this torch came without"
        )


def forced_call(  # noqa: PLR0913 (the arguments of torch's conv2d, and the algorithm)
    algorithm: str,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | Sequence[int] = 1,
    padding: str | int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> ForcedCall:
    """Return the call of opdb's operator for arguments as torch's conv2d takes them.

    Raises:
        RefusedError: the padding differs from side to side.
    """
    steps = _pair(dilation)
    around = padding if isinstance(padding, str) else _pair(padding)
    high, wide = weight.shape[2:]
    padded = padding_of(around, (high, wide), steps)
    return ForcedCall(input, weight, bias, _pair(stride), padded, steps, groups, algorithm)


def _pair(value: int | Sequence[int]) -> tuple[int, ...]:
    if isinstance(value, int):
        return value, value
    return tuple(value) * (2 // len(value))


def built(configuration: Configuration, algorithm: Algorithm, device: str) -> BuiltCall:
    """Build the call that a configuration describes, its convolution by an algorithm.

    Raises:
        UnsupportedError: it cannot be built, or is no convolution that can be forced.
    """
    if not algorithm.is_forced:
        return build(configuration, device=device)
    if configuration.pass_name != "forward":
        raise UnsupportedError("algorithms are forced in forward passes alone")
    mode = configuration.parameters.get("padding_mode", "zeros")
    if mode != "zeros":
        raise UnsupportedError(
            f"padding {mode!r} is made before the convolution, which is then another configuration"
        )
    call = build(configuration, form="function", device=device)
    return call.with_function(_by(algorithm.name))


def _by(algorithm: str) -> Callable[..., Tensor]:
    call = partial(forced_call, algorithm)

    def conv2d(*args: Any, **kwargs: Any) -> Tensor:
        return run(*call(*args, **kwargs))

    return conv2d


def guess_flags(call: BuiltCall, algorithm: Algorithm) -> tuple[str, ...]:
    """Say which algorithm cuDNN guessed for a call that ran."""
    if algorithm.name != GUESS:
        return ()
    guessed = forced_call(GUESS, *call.bare.args, **call.bare.keywords).ran()
    return (f"cuDNN guessed {guessed}",)
