"""Costs of operators composed into the time and energy of a model. Pure: no torch, no database."""

from opdb.compose.calls import Pass, is_one_graph
from opdb.compose.composer import (
    Breakdown,
    Prediction,
    break_down,
    compose,
    compose_pass,
    inputs_in_pass,
    time_on_host_s,
    with_intervals,
)
from opdb.compose.inputs import EstimatedCosts, PeerRatios, PredictionInputs, with_estimates
from opdb.compose.intervals import PeerRatio
from opdb.compose.schedule import CallCost, Schedule, Slot, schedule
from opdb.compose.shares import EstimatedShare, Share
from opdb.compose.shortfall import shortfall

__all__ = [
    "Breakdown",
    "CallCost",
    "EstimatedCosts",
    "EstimatedShare",
    "Pass",
    "PeerRatio",
    "PeerRatios",
    "Prediction",
    "PredictionInputs",
    "Schedule",
    "Share",
    "Slot",
    "break_down",
    "compose",
    "compose_pass",
    "inputs_in_pass",
    "is_one_graph",
    "schedule",
    "shortfall",
    "time_on_host_s",
    "with_estimates",
    "with_intervals",
]
