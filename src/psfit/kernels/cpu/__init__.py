"""Kernels for CPUs: plain loops that Numba compiles on first use and keeps on disk."""
