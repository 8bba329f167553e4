"""Convolutions by a named algorithm: what the names mean, and a torch operator that forces one."""
