"""Estimates of operators that were never measured, learned from those that were."""
