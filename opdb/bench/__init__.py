"""What opdb exists for: operators replayed, timed and metered, and kept raw."""
