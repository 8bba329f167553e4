"""How fast opdb is, and how it compares: scripts, each run by itself."""
