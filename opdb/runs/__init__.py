"""Runs of whole models: what to run, what came of it, who is at it, and making what is left."""
