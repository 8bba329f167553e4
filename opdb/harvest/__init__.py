"""Find the stored workload of a model, or harvest it: run it and write down every operator call.

`finding` imports no torch; `passes` runs models.
"""
