"""Results derived from raw records: statistics, costs, truths of model runs. Pure, no torch."""
