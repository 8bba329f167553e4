"""A predicted pass as a trace, in the form in which profilers of PyTorch write theirs."""

from opdb.trace.chrome import as_bytes, chrome_trace

__all__ = ["as_bytes", "chrome_trace"]
