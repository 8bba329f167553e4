"""A generation as the sum of its passes: the quantities that it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from opdb.api.documents import memory_document
from opdb.api.shares import SHARES
from opdb.errors import InputError
from opdb.growth import cached
from opdb.records import Json, Mode, Phase, Workload
from opdb.tables import MISSING
from opdb.units import show

if TYPE_CHECKING:
    from opdb.compose import Prediction
    from opdb.compose.generation import Total
    from opdb.memory import Memory
    from opdb.predict import Answer


@dataclass(frozen=True)
class Amounts:
    """How much is generated: tokens of a prompt, and new tokens of each sequence of the batch."""

    prompt: int
    tokens: int

    def check(self) -> None:
        """Check both.

        Raises:
            InputError: one is less than 1.
        """
        for option, value in (("--prompt", self.prompt), ("--tokens", self.tokens)):
            if value < 1:
                raise InputError(f"{option} {value}: give 1 token or more")


@dataclass(frozen=True, repr=False)
class Generation:
    """A generation in one mode: its prefill, and the steps that stand for all others.

    `steps` pairs each predicted step with how many steps it stands for. The first new token comes
    from the prefill, so that there is one step fewer than new tokens.
    """

    amounts: Amounts
    prefill: Answer
    steps: Sequence[tuple[float, Answer]]

    @property
    def mode(self) -> Mode:
        """How its kernels are launched."""
        return self.prefill.prediction.mode

    @property
    def batch_size(self) -> int:
        """How many sequences are generated at once."""
        return self.prefill.prediction.workload.batch_size

    @property
    def cache(self) -> str:
        """The cache: static or dynamic."""
        return str(self.prefill.prediction.workload.inputs["generation"]["cache"])

    @property
    def passes(self) -> list[tuple[float, Prediction]]:
        """Every predicted pass, with how often it is run."""
        return [(1.0, self.prefill.prediction), *((n, s.prediction) for n, s in self.steps)]

    @property
    def reading(self) -> Total:
        """The prefill: until the first new token."""
        from opdb.compose.generation import Total

        return Total.of(self.passes[:1])

    @property
    def decoding(self) -> Total | None:
        """All steps; None where the prefill's token is the only one."""
        from opdb.compose.generation import Total

        return Total.of(self.passes[1:]) if self.steps else None

    @property
    def whole(self) -> Total:
        """The prefill and all steps."""
        from opdb.compose.generation import Total

        return Total.of(self.passes)

    @property
    def power_w(self) -> float | None:
        """Mean power over the whole; None where a part is left out."""
        whole = self.whole
        if whole.energy_j is None or not whole.time_s or not self.complete:
            return None
        return whole.energy_j / whole.time_s

    @property
    def new_tokens(self) -> int:
        """The new tokens of all sequences."""
        return self.batch_size * self.amounts.tokens

    @property
    def shares(self) -> dict[str, float]:
        """The shares of the device's time: weights, attention, rest."""
        from opdb.compose.generation import work_shares

        return work_shares(self.passes)

    @property
    def coverage(self) -> dict[str, float | None]:
        """The measured shares of all passes' time and energy; None where no energy is known."""
        times = [_weighed(n, p.time_s, p.coverage_time, p.complete) for n, p in self.passes]
        energies = [_weighed(n, p.energy_j, p.coverage_energy, p.complete) for n, p in self.passes]
        return {"time": _mean(times), "energy": _mean(energies)}

    @property
    def complete(self) -> bool:
        """Whether every pass is measured or estimated as a whole."""
        return all(found.complete for _, found in self.passes)

    @property
    def cache_bytes(self) -> int:
        """The memory of the cache as it is at the end: keys and values of all layers."""
        return cache_bytes(self.steps[-1][1].prediction.workload) if self.steps else 0

    @property
    def memory(self) -> Memory:
        """The memory of the pass that needs most."""
        found = [self.prefill.memory, *(each.memory for _, each in self.steps)]
        return max(found, key=lambda memory: memory.needed_bytes)

    @property
    def largest_batch(self) -> int | None:
        """The largest batch that fits, estimated: cache and activations grow with it."""
        memory = self.memory
        if memory.device_bytes is None or memory.reason is not None:
            return None
        fixed = memory.seen.weight_bytes - self.cache_bytes
        grows = memory.needed_bytes - fixed
        return max(0, int((memory.device_bytes - fixed) * self.batch_size // max(grows, 1)))

    def document(self) -> dict[str, Json]:
        """Return the generation as data."""
        missing = SHARES.documents(s for _, found in self.passes for s in found.missing)
        estimated = SHARES.documents(s for _, found in self.passes for s in found.estimated)
        return {
            "mode": self.mode,
            "device": self.prefill.prediction.device.slug,
            "board": self.prefill.prediction.board,
            "complete": self.complete,
            "source_version": self.passes[-1][1].workload.source_version,
            **{name: value for each in FIGURES for name, value in each.document(self).items()},
            "power_w": self.power_w,
            "time_shares": self.shares,
            "coverage": self.coverage,
            "missing": list({s["configuration"]: s for s in missing}.values()),
            "estimated": list({s["configuration"]: s for s in estimated}.values()),
            "weight_bytes": self.memory.seen.weight_bytes - self.cache_bytes,
            "cache_bytes": self.cache_bytes,
            "largest_batch": self.largest_batch,
            "experts": None if self.experts is None else self.experts[0],
            "active_experts": None if self.experts is None else self.experts[1],
            "memory": memory_document(self.memory),
            "steps": [
                {
                    "context": found.prediction.workload.inputs["generation"]["context"],
                    "stands_for": count,
                    "time_s": found.prediction.time_s,
                    "energy_j": found.prediction.energy_j,
                }
                for count, found in self.steps
            ],
            "notes": self.notes,
        }

    @property
    def experts(self) -> tuple[int, float] | None:
        """The experts of a layer, and how many a step uses on average; None without experts."""
        step = self.steps[-1][1] if self.steps else self.prefill
        return experts_of(step.prediction.workload)

    @property
    def notes(self) -> list[str]:
        """What the predictions had to assume, each said once; of which passes, where not of all."""
        made = list(dict.fromkeys(found.workload.source_version for _, found in self.passes))
        mixed = f"the passes are those of several versions of the library: {', '.join(made)}"
        noted: dict[str, dict[str, None]] = {}
        for _, found in self.passes:
            for note in found.notes:
                noted.setdefault(note, {})[_PASSES[found.workload.phase]] = None
        every = {_PASSES[found.workload.phase] for _, found in self.passes}
        notes = (
            note if of.keys() == every else f"{', '.join(of)}: {note}" for note, of in noted.items()
        )
        return [*([mixed] if len(made) > 1 else []), *notes]


_PASSES: Mapping[Phase, str] = {"prefill": "prefill", "decode": "steps"}


def cache_bytes(step: Workload) -> int:
    """Return the bytes of the keys and values that a decoding step finds in its cache."""
    from opdb.kinds.view import spec_bytes

    return sum(map(spec_bytes, cached(step)))


def experts_of(workload: Workload) -> tuple[int, float] | None:
    """Return the experts of a layer, and how many of them the rows of a pass use on average.

    A router draws the expert of each row: all as likely, or as unevenly as the pass says.
    """
    from opdb.compose.generation import gathers_experts
    from opdb.kinds.linear import active_groups

    imbalance = float(workload.inputs["generation"].get("imbalance", 0.0))
    for call in workload.calls:
        inputs = call.configuration.inputs
        if call.configuration.kind == "grouped_mm":
            experts, rows = inputs["mat2"]["shape"][0], inputs["input"]["shape"][0]
        elif gathers_experts(call.configuration):
            experts, rows = inputs["input"]["shape"][0], inputs["index"][0]["shape"][0]
        else:
            continue
        return int(experts), active_groups(int(experts), int(rows), imbalance)
    return None


def _weighed(
    count: float, value: float | None, coverage: float | None, complete: bool
) -> tuple[float, float | None]:
    """Return the weight and the coverage of a pass: what is missing of it has a weight as well.

    The coverage is None where nothing of the pass is known, so that it has no weight.
    """
    if complete or not coverage:
        return count * (value or 0.0), coverage if complete else None
    return count * (value or 0.0) / coverage, coverage


def _mean(parts: Sequence[tuple[float, float | None]]) -> float | None:
    whole = sum(weight for weight, _ in parts)
    if not whole or any(value is None for _, value in parts):
        return None
    return sum(weight * value for weight, value in parts if value is not None) / whole


@dataclass(frozen=True)
class Figure:
    """A quantity of a generation: part of it (reading, decoding or whole), divided by a number."""

    name: str
    title: str
    unit: str
    part: str
    of: str
    per: Callable[[Generation], float] | None = None
    inverse: bool = False

    def value(self, found: Generation) -> tuple[float | None, tuple[float, float] | None]:
        """Return the value and its interval; None where they are not known."""
        total: Total | None = getattr(found, self.part)
        if total is None:
            return None, None
        value = getattr(total, f"{self.of}_{'s' if self.of == 'time' else 'j'}")
        within = getattr(total, f"{self.of}_interval_{'s' if self.of == 'time' else 'j'}")
        per = 1 if self.per is None else self.per(found)
        if value is None or not per:
            return None, None
        if self.inverse:
            return per / value, within and (per / within[1], per / within[0])
        return value / per, within and (within[0] / per, within[1] / per)

    def is_bound(self, found: Generation) -> bool:
        """Return whether something of its part is missing, so that the value is a bound."""
        passes = {"reading": found.passes[:1], "decoding": found.passes[1:]}
        return not all(each.complete for _, each in passes.get(self.part, found.passes))

    def shown(self, found: Generation, *, unit: bool = True) -> str:
        """Return the value as people read it; a lower bound after ≥, an upper one after ≤."""
        value, _ = self.value(found)
        if value is None:
            return MISSING
        sign = "" if not self.is_bound(found) else "≤ " if self.inverse else "≥ "
        if "/" in self.unit:
            return f"{sign}{value:.4g}{f' {self.unit}' if unit else ''}"
        return sign + show(value, self.unit)

    def document(self, found: Generation) -> dict[str, Json]:
        """Return value and interval as JSON: of `energy_j`, `energy_interval_j`."""
        value, within = self.value(found)
        of_value, of_interval = self.columns()
        return {of_value: value, of_interval: within and list(within)}

    def columns(self) -> tuple[str, str]:
        """Return the names of the value and of its interval."""
        unit = self.unit.lower().replace("/", "_per_")
        return self.name, f"{self.name.removesuffix(f'_{unit}')}_interval_{unit}"


def _steps(found: Generation) -> int:
    return found.amounts.tokens - 1


FIGURES = (
    Figure("time_to_first_token_s", "time to first token", "s", "reading", "time"),
    Figure("time_per_output_token_s", "time per output token", "s", "decoding", "time", _steps),
    Figure(
        "throughput_tokens_per_s",
        "throughput",
        "tokens/s",
        "whole",
        "time",
        lambda found: found.new_tokens,
        inverse=True,
    ),
    Figure("time_s", "time of the batch", "s", "whole", "time"),
    Figure(
        "energy_per_prompt_token_j",
        "energy, prompt token",
        "J",
        "reading",
        "energy",
        lambda found: found.batch_size * found.amounts.prompt,
    ),
    Figure(
        "energy_per_output_token_j",
        "energy, output token",
        "J",
        "decoding",
        "energy",
        lambda found: found.batch_size * _steps(found),
    ),
    Figure(
        "energy_per_output_token_with_prompt_j",
        "the same with the prompt's",
        "J",
        "whole",
        "energy",
        lambda found: found.new_tokens,
    ),
    Figure(
        "energy_per_request_j",
        "energy, request",
        "J",
        "whole",
        "energy",
        lambda found: found.batch_size,
    ),
    Figure("energy_j", "energy of the batch", "J", "whole", "energy"),
)
"""The quantities of a generation; `energy_per_output_token_j` is of the steps alone."""
