"""The algorithms by which a convolution can be run, by the names that people use. No torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from opdb.errors import UnknownNameError
from opdb.records import ALGORITHM_SETTING

DEFAULT = "default"
GUESS = "guess"
WINOGRAD = ("winograd", "winograd nonfused")
DIRECT = "direct"
ALL = "all"


@dataclass(frozen=True)
class Algorithm:
    """A way to run a convolution: its name, cuDNN's number for it where it is one of cuDNN's."""

    name: str
    number: int | None
    words: str

    @property
    def slug(self) -> str:
        return self.name.replace(" ", "_")

    @property
    def is_forced(self) -> bool:
        return self.name != DEFAULT

    @property
    def setting(self) -> Mapping[str, str]:
        """The backend setting under which its measurements are kept; empty for torch's own way."""
        return {ALGORITHM_SETTING: self.name} if self.is_forced else {}


_ALL = (
    Algorithm(DIRECT, None, "opdb's own plain direct convolution in Triton; cuDNN has none"),
    Algorithm("gemm", 2, "cuDNN: matrix product of a matrix that is written out"),
    Algorithm("implicit gemm", 0, "cuDNN: matrix product of a matrix that is never written out"),
    Algorithm("implicit precomp gemm", 1, "cuDNN: the same, its indices computed beforehand"),
    Algorithm("fft", 4, "cuDNN: Fourier transform of whole images"),
    Algorithm("fft tiling", 5, "cuDNN: Fourier transform of tiles"),
    Algorithm(WINOGRAD[0], 6, "cuDNN: Winograd's transform, in one kernel"),
    Algorithm(WINOGRAD[1], 7, "cuDNN: Winograd's transform, in several kernels"),
    Algorithm(GUESS, None, "whichever of these cuDNN's heuristic names first"),
    Algorithm(DEFAULT, None, "what torch runs; nothing is replaced"),
)

# Every algorithm by its name, in the order in which they are listed.
ALGORITHMS: Mapping[str, Algorithm] = {algorithm.name: algorithm for algorithm in _ALL}


# The names of cuDNN's algorithms by their numbers; its direct algorithm (3) was never implemented.
NUMBERED = {algorithm.number: algorithm.name for algorithm in _ALL if algorithm.number is not None}


def algorithm_named(name: str) -> Algorithm:
    """Return the algorithm of a name, underscores and hyphens for its blanks allowed."""
    plain = " ".join(name.lower().replace("_", " ").replace("-", " ").split())
    if plain not in ALGORITHMS:
        listed = ", ".join(ALGORITHMS)
        raise UnknownNameError("algorithm", name, ALGORITHMS, hint=f"(all of them: {listed})")
    return ALGORITHMS[plain]


def algorithms_named(names: Iterable[str]) -> list[Algorithm]:
    """Return the algorithms of these names, each once; `all` names every one."""
    chosen: dict[str, Algorithm] = {}
    for name in names:
        for each in _ALL if name == ALL else (algorithm_named(name),):
            chosen[each.name] = each
    return list(chosen.values())
