"""What of a decoder's passes grows from one size to the next. Pure: no torch, no database."""

from opdb.growth.caches import cached, stands_for, window_of
from opdb.growth.passes import Growth, NotAlikeError, Place, Rule, Sizes, rules, sizes_of
from opdb.growth.steps import (
    CHOICE,
    apart_from,
    benched_calls,
    benched_configurations,
    growing,
    knots,
    lengths,
    steps_of,
    stretches,
)

__all__ = [
    "CHOICE",
    "Growth",
    "NotAlikeError",
    "Place",
    "Rule",
    "Sizes",
    "apart_from",
    "benched_calls",
    "benched_configurations",
    "cached",
    "growing",
    "knots",
    "lengths",
    "rules",
    "sizes_of",
    "stands_for",
    "steps_of",
    "stretches",
    "window_of",
]
