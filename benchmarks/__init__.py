"""Standing instruments: how sets are measured, and what holds opdb's numbers, tests and speed."""
