"""What raw records say: statistics, costs from visits, truths from model runs. Pure, no torch."""
