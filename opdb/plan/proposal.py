"""Which operators are significant: those that bring every workload to its target, and why."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from opdb.compose.sizes import SharesByKey
from opdb.plan.survey import Survey
from opdb.records import Workload
from opdb.significance import (
    KEY_SHOWN,
    ConfigurationEntry,
    KindEntry,
    Proposal,
    Significance,
    in_words,
)
from opdb.units import plural

MOST_LISTED = 30
"""Configurations that the list spells out: a person reads it. The plan's JSON holds them all."""


def proposal(survey: Survey, significance: Significance, target: float) -> Proposal:
    """Return the list that reaches the target for every workload, as if nothing were measured.

    Sizes are those of now: what is measured counts as measured.
    """
    blank = replace(survey, costs={}, failed={})
    steps = blank.plan(dict.fromkeys((w.key for w in survey.workloads), target), significance)
    keys = [
        step.key
        for step in steps
        if step.gain or significance.is_always(survey.configurations[step.key])
    ]
    means, largest = _means(survey)
    return Proposal(
        rests_on=(
            f"{plural(len(survey.workloads), 'workload')} on {survey.device}: {len(keys)} of "
            f"{plural(len(survey.configurations), 'configuration')} for {target:g}"
        ),
        kinds=_kinds(survey, keys, means),
        configurations=_configurations(survey, keys, means, largest),
    )


def _means(survey: Survey) -> tuple[SharesByKey, Mapping[str, tuple[float, Workload]]]:
    """Return each configuration's mean shares over all workloads, and its largest with whose."""
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    largest: dict[str, tuple[float, Workload]] = {}
    for workload in survey.workloads:
        for key, both in (survey.shares(workload) or {}).items():
            sums[key] = [total + share for total, share in zip(sums[key], both, strict=True)]
            if key not in largest or max(both) > largest[key][0]:
                largest[key] = max(both), workload
    count = len(survey.workloads)
    return {key: (time / count, energy / count) for key, (time, energy) in sums.items()}, largest


def _kinds(survey: Survey, keys: Sequence[str], means: SharesByKey) -> list[KindEntry]:
    of_kind: dict[str, list[str]] = defaultdict(list)
    for key in keys:
        of_kind[survey.configurations[key].kind].append(key)
    entries = [
        KindEntry(
            kind=kind,
            configurations=len(some),
            models=len({name for key in some for name in survey.models_of[key]}),
            share_time=_share(means, some, 0),
            share_energy=_share(means, some, 1),
        )
        for kind, some in of_kind.items()
    ]
    shown = [entry for entry in entries if entry.share_time or entry.share_energy]
    return sorted(shown, key=lambda entry: (-entry.share_time, entry.kind))


def _configurations(
    survey: Survey,
    keys: Sequence[str],
    means: SharesByKey,
    largest: Mapping[str, tuple[float, Workload]],
) -> list[ConfigurationEntry]:
    known = [key for key in keys if key in means]
    found = []
    for key in sorted(known, key=lambda key: (-means[key][0], key))[:MOST_LISTED]:
        share, workload = largest[key]
        others = len(survey.models_of[key]) - 1
        more = f" and {others} more model{'s' * (others > 1)}" if others else ""
        where = f"{workload.name}, batch {workload.batch_size} {workload.dtype}"
        configuration = survey.configurations[key]
        found.append(
            ConfigurationEntry(
                key=key[:KEY_SHOWN],
                kind=configuration.kind,
                what=in_words(configuration),
                share_time=_share(means, [key], 0),
                share_energy=_share(means, [key], 1),
                most=f"{100 * share:.1f} % of {where}{more}",
            )
        )
    return found


def _share(means: SharesByKey, keys: Sequence[str], quantity: int) -> float:
    return min(1.0, round(sum(means[key][quantity] for key in keys if key in means), 4))
