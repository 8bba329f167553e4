"""Costs of operators composed into the time and energy of a model. Pure: no torch, no database."""

from opdb.compose.calls import Pass, is_one_graph
from opdb.compose.composer import Prediction, compose, composed, found_by, judged
from opdb.compose.grounds import Estimated, Grounds, Known, with_estimates
from opdb.compose.shares import EstimatedShare, Share

__all__ = [
    "Estimated",
    "EstimatedShare",
    "Grounds",
    "Known",
    "Pass",
    "Prediction",
    "Share",
    "compose",
    "composed",
    "found_by",
    "is_one_graph",
    "judged",
    "with_estimates",
]
