"""The objective around a fitted support, as a quadratic model."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class LocalModel:
    """Second-order model of one problem at a fit, all in float64; ``c'`` outputs, ``d`` fitted variables.

    Parameters
    ----------
    gradient : Tensor (p, c')
    blocks : Tensor (p, c', c')
        Hessian blocks of each feature with itself.
    columns : Tensor (p, c', d)
        Hessian between every coefficient and the fitted variables.
    inner : Tensor (d, d)
        Hessian of the fitted variables.
    x : Tensor (d,)
        The fitted variables.
    item : Tensor (d,)
        The item each fitted variable belongs to; -1 for an intercept.
    """

    gradient: Tensor
    blocks: Tensor
    columns: Tensor
    inner: Tensor
    x: Tensor
    item: Tensor
