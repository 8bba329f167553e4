"""Runs of whole models: their specs, states and claims, and making those that are left."""
