"""Estimates of operators that were never measured, learned from those that were.

`features` turns a configuration into numbers, `roofline` gives the time that its own is compared
with, `process` interpolates between measured points and says how far to trust the result,
`estimator` joins them, `training` learns an estimator from costs (`tuning` its kernels),
and `baselines` are simple rules to compare it with.
"""
