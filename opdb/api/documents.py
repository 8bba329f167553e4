"""Predictions as plain data, under the names that every command uses, in SI units."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opdb.lookup.words import identity
from opdb.records import Json, Quantity

if TYPE_CHECKING:
    from opdb.compose import EstimatedShare, Share
    from opdb.memory import Memory
    from opdb.predict import Answer


def answer_document(answer: Answer, target: float | None) -> dict[str, Json]:
    """Return a prediction, and the measured truth beside it, as JSON."""
    prediction, measured = answer.prediction, answer.measured
    workload = prediction.workload
    return {
        **identity(workload),
        "device": prediction.device.slug,
        "board": prediction.board,
        "setting": dict(answer.setting),
        "mode": prediction.mode,
        "complete": prediction.complete,
        "time_s": prediction.time_s,
        "time_interval_s": _listed(prediction.time_interval_s),
        "energy_j": prediction.energy_j,
        "energy_interval_j": _listed(prediction.energy_interval_j),
        "power_w": prediction.power_w,
        "coverage": {
            "calls": prediction.coverage_calls,
            "time": prediction.coverage_time,
            "energy": prediction.coverage_energy,
        },
        "target": target,
        "target_met": None if target is None else answer.meets(target),
        "measured": None
        if measured is None
        else {
            "time_s": measured.time_s.mean,
            "energy_j": measured.energy_j.mean if measured.energy_j else None,
            "attribution_time": answer.attribution_time,
            "attribution_energy": answer.attribution_energy,
        },
        "missing": [share_document(share) for share in prediction.missing],
        "estimated": [_estimated_document(share) for share in prediction.estimated],
        "unsupported": dict(workload.unsupported),
        "fits": answer.memory.fits,
        "memory": memory_document(answer.memory),
        "notes": list(prediction.notes),
    }


def share_document(share: Share) -> dict[str, Json]:
    """Return a configuration's share of a prediction as JSON."""
    return {
        "kind": share.configuration.kind,
        "pass": share.configuration.pass_name,
        "configuration": share.configuration.key,
        "count": share.count,
        "share_time": share.share_time,
        "share_energy": share.share_energy,
    }


def quantity_document(quantity: Quantity | None) -> Json:
    """Return a quantity with its 95 % interval as JSON; None where there is none."""
    if quantity is None:
        return None
    return {"mean": quantity.mean, "interval": [quantity.low, quantity.high]}


def memory_document(memory: Memory) -> Json:
    """Return a workload's memory as JSON; of bounds, `needed_bytes` is the lower one."""
    seen = memory.seen
    return {
        "weight_bytes": seen.weight_bytes,
        "input_bytes": seen.input_bytes,
        "activation_bytes": seen.activation_bytes,
        "gradient_bytes": seen.gradient_bytes,
        "optimizer_bytes": memory.optimizer.state_bytes,
        "needed_bytes": memory.needed_bytes,
        "at_most_bytes": memory.at_most_bytes,
        "device_bytes": memory.device_bytes,
        "largest_batch": memory.largest_batch,
        "bounds": memory.reason,
    }


def _listed(interval: tuple[float, float] | None) -> list[float] | None:
    return None if interval is None else list(interval)


def _estimated_document(share: EstimatedShare) -> Json:
    cost = share.cost
    return {
        **share_document(share),
        "rests_on": next((flag for flag in cost.flags if flag != "estimated"), "alike"),
        "time_s": quantity_document(cost.time_s),
        "dynamic_energy_j": quantity_document(cost.dynamic_energy_j),
        "host_time_s": {form: quantity_document(q) for form, q in cost.host_time_s.items()},
    }
