"""An orthonormal basis of what a support can predict: Newton's method in it is safe where columns nearly depend."""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import block_diag, qr, svd

# Directions below this share of the largest one are rounding errors.
NEGLIGIBLE = 1e-14


@dataclass(frozen=True)
class Unknowns:
    """The numbers that a support leaves free: what each is multiplied by, its output and its ridge.

    `columns` is ``(m, d)``, `outputs` and `ridge` are ``(d,)``.
    """

    columns: np.ndarray
    outputs: np.ndarray
    ridge: np.ndarray

    def predictors(self, theta: np.ndarray, width: int) -> np.ndarray:
        """``(m, width)``."""
        spread = np.zeros((len(theta), width))
        spread[np.arange(len(theta)), self.outputs] = theta
        return self.columns @ spread

    def products(self, other: "Unknowns", bend: np.ndarray) -> np.ndarray:
        """Second derivatives ``(d, d')`` of the losses, whose curvature is ``bend (m, c, c)``."""
        table = np.empty((len(self.outputs), len(other.outputs)))
        for k in np.unique(self.outputs):
            mine = self.outputs == k
            table[mine] = self.columns[:, mine].T @ (bend[:, k, other.outputs] * other.columns)
        return table


@dataclass(frozen=True)
class Basis:
    """New unknowns ``u`` with ``theta = back @ u`` and the ridge ``u' penalty u / 2``.

    With ``S`` the columns of an output above the diagonal matrix of the roots of their ridges, ``S back`` has
    orthonormal columns. So the Hessian of squared loss is nearly the identity, and the condition of any other one
    comes from the curvature of its losses alone. A constant column beside the intercept needs no special case: the
    ridge tells them apart.
    """

    unknowns: Unknowns
    penalty: np.ndarray
    back: np.ndarray

    def start(self, theta: np.ndarray) -> np.ndarray:
        """The ``u`` of given unknowns."""
        return np.linalg.lstsq(self.back, theta, rcond=None)[0]


def basis_of(unknowns: Unknowns) -> Basis:
    """One block for each output, by a QR factorisation and the singular values of its small factor."""
    m, parts = len(unknowns.columns), []
    order = np.argsort(unknowns.outputs, kind="stable")
    back = np.zeros((0, 0))
    for k in np.unique(unknowns.outputs):
        mine = unknowns.outputs == k
        stacked = np.vstack([unknowns.columns[:, mine], np.diag(np.sqrt(unknowns.ridge[mine]))])
        # Columns of very different units would hide a small one; a column of zeros without a ridge keeps its zeros.
        size = np.maximum(np.linalg.norm(stacked, axis=0), np.finfo(float).tiny)
        Q, R = qr(stacked / size, mode="economic", overwrite_a=True)
        U, scale, V = svd(R)
        kept = scale > NEGLIGIBLE * scale[0]
        parts.append((k, Q @ U[:, kept]))
        back = block_diag(back, V[kept].T / scale[kept] / size[:, None])
    columns = np.hstack([part[:m] for _, part in parts])
    outputs = np.concatenate([np.full(part.shape[1], k) for k, part in parts])
    penalty = block_diag(*(part[m:].T @ part[m:] for _, part in parts))
    return Basis(Unknowns(columns, outputs, np.zeros(len(outputs))), penalty, back[np.argsort(order)])
