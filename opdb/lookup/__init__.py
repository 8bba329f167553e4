"""From what a user names to what is meant: names and options → requests → stored workloads.

`options` is what is said of a model, `requests` finds the model (or the summary file) of a name,
`workloads` the stored workload that a request means, and `words` tells workloads apart in text.
Importing it imports no torch; only a harvest does.
"""
