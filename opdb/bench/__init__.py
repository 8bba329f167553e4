"""Measuring: operators replayed, timed and metered, their samples kept raw."""
