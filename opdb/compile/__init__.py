"""What torch.compile makes of a model: dynamo's graphs, inductor's kernels, and what it needs."""
