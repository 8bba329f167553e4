"""Convolution algorithms × input sizes: cells, what their runs say, files and figures of it."""
