"""Notes of a prediction: what its figures rest on, and what they leave out."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from opdb.compose.calls import HostTimes, Pass, is_one_graph
from opdb.compose.inputs import PeerRatios, PredictionInputs
from opdb.compose.shares import Share, Shares
from opdb.derive.costs import HOT_ALONE
from opdb.footprint import is_kept, may_be_kept_in_part
from opdb.kinds import get_kind
from opdb.records import CAPTURED_MODE, Mode
from opdb.records.cost import BETWEEN, OTHER_DTYPE, OTHER_KINDS, ROOFLINE_ALONE
from opdb.units import plural, show

PRIOR = (
    "no other model was measured on this device in this mode: the interval rests "
    "on a prior of 2 % for the error of a sum"
)

PRIOR_OF_HOSTS = (
    "no other model's pass that waits for the host was measured on this device in this mode: the "
    "interval rests on a prior of 10 % for the host's time"
)

DOUBTS = {
    ROOFLINE_ALONE: "on a roofline alone, for nothing like it was measured",
    OTHER_KINDS: "on measured operators of other kinds",
    OTHER_DTYPE: "on measured operators in another dtype",
}
"""What a flagged estimate rests on, in words."""

UNEVEN = 0.05
"""A note says so where the host alone makes an interval wider than this share, either way, and
where it was mostly slower than in quiet moments by more than that."""


def notes(pass_: Pass, mode: Mode, inputs: PredictionInputs, clock_share: float) -> tuple[str, ...]:
    """Note substitutes and omissions; `clock_share` is of the highest clock."""
    return (
        *inputs.notes,
        *_weight_notes(pass_, inputs),
        *_cache_notes(pass_, inputs),
        *_clock_notes(inputs, clock_share),
        *(_host_notes(pass_, inputs) if _waits(mode, inputs) else ()),
        *_foreign_notes(pass_, inputs),
        *_unsupported_notes(pass_),
        *_sizes_notes(pass_, mode),
    )


def _waits(mode: Mode, inputs: PredictionInputs) -> bool:
    """Whether a pass may wait for the host."""
    return inputs.device.type != "cpu" and not is_one_graph(mode)


def notes_of_parts(
    parts: Shares, missing: tuple[Share, ...], inputs: PredictionInputs
) -> tuple[str, ...]:
    """Note the parts whose time or energy was not measured."""
    return (
        *_dark_notes(parts),
        *_estimate_notes(parts, missing, inputs),
    )


def notes_of_host(share: float, inputs: PredictionInputs) -> tuple[str, ...]:
    """Note that an uneven host makes a time uncertain, by this share of it."""
    if share < UNEVEN:
        return ()
    if not inputs.host_ratios:
        return (PRIOR_OF_HOSTS,)
    errors = [abs(math.log(ratio)) for ratio in inputs.host_ratios]
    apart = 100 * math.expm1(math.sqrt(math.fsum(e * e for e in errors) / len(errors)))
    return (
        f"{plural(len(errors), 'pass', 'passes')} of other models that wait for the host took "
        f"{apart:.0f} % more or less than predicted; the time of this pass is as uncertain",
    )


def notes_of_ratios(ratios: PeerRatios) -> tuple[str, ...]:
    """Note that no other model's error is known."""
    return () if ratios.time else (PRIOR,)


def _weight_notes(pass_: Pass, inputs: PredictionInputs) -> Iterator[str]:
    """Note how many configurations were not measured in the weights' state in this pass."""
    hot = is_kept(pass_.touched_bytes, inputs.resident_bytes)
    costs = [inputs.costs.get(c.key) for c in pass_.weighted]
    other = [
        cost
        for cost in costs
        if cost is not None
        and not cost.is_estimated
        and (cost.hot is None if hot else HOT_ALONE in cost.flags)
    ]
    if other:
        measured, found = ("cold", "hot") if hot else ("hot", "cold")
        yield (
            f"measured only with {measured} weights, while this pass finds them {found}: "
            f"{plural(len(other), 'configuration')}"
        )


def _cache_notes(pass_: Pass, inputs: PredictionInputs) -> Iterator[str]:
    """Note that a pass touches little more than the L2 keeps."""
    if pass_.weighted and may_be_kept_in_part(pass_.touched_bytes, inputs.resident_bytes):
        yield (
            f"this pass touches {show(pass_.touched_bytes, 'B')}, little more than the L2 surely "
            "keeps: it takes less where a part of its weights stays there"
        )


def _clock_notes(inputs: PredictionInputs, share: float) -> Iterator[str]:
    if share != 1:
        yield (
            f"the power limit, kept at {inputs.limit_w:.0f} W, lowers the clock to "
            f"{100 * share:.1f} % of its highest"
        )


def _host_notes(pass_: Pass, inputs: PredictionInputs) -> Iterator[str]:
    host = HostTimes(pass_, inputs)
    usual = unheard = 0
    quiet_s = median_s = 0.0
    for call, times in zip(pass_.calls, pass_.times, strict=True):
        if own := host.own(call):
            quiet_s += times * own.mean
            median_s += times * own.median
        else:
            heard = host.of(call) is not None
            usual += times * heard
            unheard += times * (not heard)
    if median_s > (1 + UNEVEN) * quiet_s:
        yield (
            "host times are those of quiet moments; when they were measured, the host took "
            f"{median_s / quiet_s:.2f} times as long at the median"
        )
    if usual:
        yield f"host time not measured, the usual of its kind taken: {plural(usual, 'call')}"
    if unheard:
        yield (
            "host time unknown, so a pass that waits for the host may take longer: "
            f"{plural(unheard, 'call')}"
        )


def _foreign_notes(pass_: Pass, inputs: PredictionInputs) -> Iterator[str]:
    costs = (inputs.costs.get(key) for key in pass_.configurations)
    if foreign := sum(cost is not None and cost.board != inputs.board for cost in costs):
        yield (
            "measured only on another board of the device, costs used unchanged: "
            f"{plural(foreign, 'configuration')}"
        )


def _unsupported_notes(pass_: Pass) -> Iterator[str]:
    if unsupported := pass_.workload.unsupported:
        names = ", ".join(f"{name} ×{count}" for name, count in unsupported.items())
        yield (
            f"calls that no operator describes: {names}; their cost is not known, so time, energy "
            "and coverage leave them out"
        )


def _sizes_notes(pass_: Pass, mode: Mode) -> Iterator[str]:
    """Note the calls that return as much as values say."""
    found: Counter[str] = Counter()
    for call, times in zip(pass_.calls, pass_.times, strict=True):
        if get_kind(call.configuration.kind).sized_by_values(call.configuration):
            found[call.configuration.title] += times
    if found:
        names = ", ".join(f"{name} ×{count}" for name, count in sorted(found.items()))
        yield (
            f"calls whose results are as large as values say: {names}; the sizes of what follows "
            "them are those that the harvest found, with random weights and inputs unless others "
            "were given"
        )
    if found and mode == CAPTURED_MODE:
        yield "no CUDA graph captures such calls: the model as it stands cannot run in this mode"


def _dark_notes(parts: Shares) -> Iterator[str]:
    if parts.dark:
        kinds = ", ".join(dict.fromkeys(share.configuration.title for share in parts.dark))
        configurations = plural(len(parts.dark), "configuration")
        yield f"time measured, but not the energy: {configurations} ({kinds})"


def _estimate_notes(
    parts: Shares, missing: tuple[Share, ...], inputs: PredictionInputs
) -> Iterator[str]:
    between = [s for s in parts.estimated if BETWEEN in s.cost.flags]
    others = [s for s in parts.estimated if BETWEEN not in s.cost.flags]
    for what, found in (
        ("never measured, costs estimated", others),
        ("costs interpolated between measured sizes of the same calls", between),
    ):
        if found:
            share = math.fsum(s.share_time for s in found)
            yield f"{what}: {plural(len(found), 'configuration')} ({100 * share:.1f} % of the time)"
    for flag, words in DOUBTS.items():
        if flagged := [s for s in parts.estimated if flag in s.cost.flags]:
            share = math.fsum(s.share_time for s in flagged)
            kinds = ", ".join(sorted({s.configuration.title for s in flagged}))
            yield f"{100 * share:.1f} % of the time rests {words}: {kinds}"
    refused = inputs.estimates.refused if inputs.estimates is not None else {}
    reasons = dict.fromkeys(
        why for s in missing if (why := refused.get(s.configuration.key)) is not None
    )
    if reasons:
        yield f"not estimated: {'; '.join(reasons)}"
