"""The results of torch.compile: dynamo's graphs, inductor's kernels, and what it requires."""
