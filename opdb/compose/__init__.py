"""Costs of operators composed into the time and energy of a model. Pure: no torch, no database."""

from opdb.compose.composer import Grounds, Known, Prediction, Share, compose

__all__ = ["Grounds", "Known", "Prediction", "Share", "compose"]
