"""An optimizer for pysindy: equations from data, with a limit on the terms of each.

It needs ``pip install 'psfit-toolbox[sindy]'``.
"""

try:
    import pysindy  # noqa: F401
except ImportError:
    raise ImportError("psfit.sindy needs pysindy: pip install 'psfit-toolbox[sindy]'") from None

from psfit.sindy.optimizer import SparseEquations

__all__ = ["SparseEquations"]
