"""What to solve: the problem, what its answers may be, and both on data."""

from psfit.problem.problem import Layout, Problem, Sparsity, all_supports, are_few, largest

__all__ = ["Layout", "Problem", "Sparsity", "all_supports", "are_few", "largest"]
