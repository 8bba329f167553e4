"""Whether a workload fits on a device, and whether its weights stay in the L2.

A harvest records all of it (`PassMemory`) but the optimizer's state. The libraries' workspaces, the
driver's context and the allocator's rounding are not counted (docs/predict.md). Every command
states the memory that `memory_of` finds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, cached_property

from opdb.growth import cache_bytes
from opdb.kinds import KINDS, get_kind
from opdb.kinds.view import is_spec, spec_bytes
from opdb.records import Configuration, Device, Json, PassMemory, Workload

# What one pass of a workload touches, and whether its weights stay in the L2 until the next.
#
# Weights are read once a pass. Where all that a pass touches fits into the part of the L2 that
# keeps data from one pass to the next, they are found there again, hot; else each comes from
# memory, cold.

# Share of the L2 that keeps data from pass to pass: one of two halves, each of which keeps its own
# copy, keeps half. Reading kernels see more, models do not (docs/measuring.md).
RESIDENT_SHARE = 0.5


def weight_bytes(configuration: Configuration) -> int:
    return _traffic(configuration)[1] if configuration.kind in KINDS else 0


def bytes_moved(configuration: Configuration) -> int:
    return _traffic(configuration)[0]


def _activation_bytes(configuration: Configuration) -> int:
    if configuration.kind not in KINDS:
        return 0
    moved, weights = _traffic(configuration)
    return moved - weights


@cache
def _traffic(configuration: Configuration) -> tuple[int, int]:
    return get_kind(configuration.kind).traffic(configuration)


def touched_bytes(workload: Workload) -> int:
    """Return the bytes that one pass touches.

    Each call's weights once, and the inputs and outputs of the largest call: the memory of
    activations is used over and over. A training step keeps those of all calls.
    """
    counts = workload.occurrences()
    weights = sum(count * weight_bytes(c) for c, count in counts.items())
    if workload.phase == "training":
        kept = (count * _activation_bytes(c) for c, count in counts.items())
        return weights + sum(kept)
    return weights + max((_activation_bytes(c) for c in counts), default=0)


def resident_bytes(device: Device) -> float | None:
    """Return how much the device's L2 keeps from one pass to the next; None where it is unknown."""
    return None if device.l2_bytes is None else RESIDENT_SHARE * device.l2_bytes


def is_kept(touched: int, resident: float | None) -> bool:
    """Whether the L2, of which `resident` bytes keep their data, keeps what a pass touches."""
    return resident is not None and touched <= resident


NOT_RECORDED = "harvested before memory was recorded; opdb harvest --anew records it"


@dataclass(frozen=True)
class Memory:
    """The memory of a workload on a device, in bytes.

    `device_bytes` is None where the device's memory is not known. `cache_bytes` of the weights and
    buffers seen have the batch in their shape: keys and values, above all. `optimizer_bytes` are
    beside parameters and gradients, `step_bytes` the temporaries of one step. Where a harvest
    recorded no memory, `reason` says so and nothing of it is known.
    """

    seen: PassMemory
    cache_bytes: int
    optimizer_bytes: int
    step_bytes: int
    batch_size: int
    device_bytes: int | None
    reason: str | None = None

    @property
    def weight_bytes(self) -> int:
        return self.seen.weight_bytes - self.cache_bytes

    @cached_property
    def needed_bytes(self) -> int:
        seen = self.seen
        at_peak = max(seen.peak_bytes, seen.gradient_bytes + self.step_bytes)
        return seen.weight_bytes + seen.input_bytes + self.optimizer_bytes + at_peak

    @property
    def fits(self) -> bool | None:
        if self.device_bytes is None or self.reason is not None:
            return None
        return self.needed_bytes <= self.device_bytes

    @property
    def largest_batch(self) -> int | None:
        """The largest batch that fits, estimated; 0: none does. None where that is not known.

        Inputs, activations and caches grow with the batch; weights, gradients and the optimizer's
        state do not.
        """
        if self.reason is not None or self.device_bytes is None:
            return None
        seen = self.seen
        left = self.device_bytes - self.weight_bytes - self.optimizer_bytes
        # at the pass's own peak, and as the optimizer steps
        in_pass = left - (seen.peak_bytes - seen.activation_bytes)
        in_step = left - seen.gradient_bytes - self.step_bytes
        held = seen.input_bytes + self.cache_bytes
        growing = ((in_pass, held + seen.activation_bytes), (in_step, held))
        if in_pass < 0 or in_step < 0:
            return 0
        largest = [room * self.batch_size // grows for room, grows in growing if grows]
        return min(largest, default=None)


def memory_of(workload: Workload, device: Device) -> Memory:
    """Return the memory of a workload on a device.

    A step with a dynamic cache makes a longer one and drops what it found, which opdb alone keeps,
    to repeat the step: the cache counts once.
    """
    seen = workload.memory
    held = 0 if seen is None else cache_bytes(workload)
    if seen is not None and workload.inputs.get("generation", {}).get("cache") == "dynamic":
        seen = replace(
            seen,
            activation_bytes=max(0, seen.activation_bytes - held),
            peak_bytes=max(0, seen.peak_bytes - held),
        )
    state_bytes, step_bytes = _optimizer(workload)
    return Memory(
        seen=seen or PassMemory(0, 0, 0, 0, 0),
        cache_bytes=held,
        optimizer_bytes=state_bytes,
        step_bytes=step_bytes,
        batch_size=workload.batch_size,
        device_bytes=device.memory_bytes,
        reason=NOT_RECORDED if seen is None else None,
    )


def _optimizer(workload: Workload) -> tuple[int, int]:
    """Return the bytes that the optimizer steps of a workload hold, and what one makes meanwhile.

    They hold momentum, or averages of gradients. An AdamW step makes the roots of all averages at
    once (`_multi_tensor_adamw` of torch.optim).
    """
    found = (0, 0)
    for call in workload.calls:
        if call.configuration.pass_name == "update":
            said = call.configuration.parameters
            trained = sum(map(spec_bytes, _specs(list(call.configuration.inputs["params"]))))
            if call.configuration.kind == "adamw":
                found = (3 if said.get("amsgrad") else 2) * trained, trained
            elif said.get("momentum"):
                found = trained, 0
    return found


def _specs(value: Json) -> list[dict[str, Json]]:
    if is_spec(value):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return [spec for item in value for spec in _specs(item)] if isinstance(value, list) else []
