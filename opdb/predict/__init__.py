"""Answers from the database: workloads predicted, and predictions compared with measured runs.

`board_data` reads what a device's boards measured, once a question. `compose`, with `timeline`,
`limit`, `intervals`, `sizes` and `generation`, sums it; these are pure: no torch, no database.
`peers` compares sums with other models' runs, and `predictor` joins them.
"""
