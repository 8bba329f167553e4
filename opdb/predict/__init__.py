"""Answers from the database: a workload predicted, and predictions held against measured runs.

`boards` is what a device's boards know of operators, `truths` the models that they ran.
"""

from opdb.predict.answer import Answer, Transfer
from opdb.predict.device import choose_device
from opdb.predict.predictor import MODES, PLAIN_MODES, Predictor, check_forced, check_mode

__all__ = [
    "MODES",
    "PLAIN_MODES",
    "Answer",
    "Predictor",
    "Transfer",
    "check_forced",
    "check_mode",
    "choose_device",
]
