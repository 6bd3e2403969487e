"""Kernels in Triton, each a module with a function of the same name."""
