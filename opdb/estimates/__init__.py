"""Estimates of operators that were never measured, learned from those that were.

`features` shows a configuration as numbers, `roofline` is what its time is held against, `process`
says what lies between measured points and how far to trust it, `estimator` joins them, `training`
(which alone needs scikit-learn) learns one from costs, `holdout` tests it on what it was not shown.
"""
