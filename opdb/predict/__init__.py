"""Answers from the database: workloads predicted, and predictions compared with measured runs.

`snapshot` reads what a device's boards measured, `boards` chooses the costs that count under some
settings, `bases` gathers what a prediction starts from, `measured_runs` and `peers` are what the
boards ran, and `predictor` joins them.
"""

from opdb.predict.answer import Answer, Transfer
from opdb.predict.device import choose_device
from opdb.predict.hosts import CalibratedHost, OnHost, workloads_to_time
from opdb.predict.predictor import (
    MODES,
    PLAIN_MODES,
    Predictor,
    check_compiled,
    check_forced,
    check_mode,
    predictor_for,
)

__all__ = [
    "MODES",
    "PLAIN_MODES",
    "Answer",
    "CalibratedHost",
    "OnHost",
    "Predictor",
    "Transfer",
    "check_compiled",
    "check_forced",
    "check_mode",
    "choose_device",
    "predictor_for",
    "workloads_to_time",
]
