"""Costs of operators composed into the time and energy of a model. Pure: no torch, no database."""

from opdb.compose.composer import Prediction, Share, compose
from opdb.compose.grounds import Grounds, Known

__all__ = ["Grounds", "Known", "Prediction", "Share", "compose"]
