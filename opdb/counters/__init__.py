"""Hardware counters: Nsight Compute as a program, its reports, and what they say of a call."""
