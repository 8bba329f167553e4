"""opdb: what a PyTorch model costs in time and energy, operator by operator."""

__version__ = "0.1.0"
