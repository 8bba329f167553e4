"""Answers from the database: workloads predicted, and predictions compared with measured runs.

`board_data` reads what a device's boards measured, once a question. `compose`, with `timeline`,
`sizes` and `generation`, sums it and makes the interval; these are pure: no torch, no database.
`predictor` compares sums with other models' runs and joins them all.
"""
