"""The history of an iteration: a record for each step."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Record:
    """One outer iteration: the paper's residuals p, d, b and other measurements.

    Parameters
    ----------
    iteration : int
        Its number, from one.
    primal, dual, bilinear : float
        The residuals ``p = sum_i ||x_i - z||``, ``d = sqrt(N) rho_c ||z - z_old||`` and ``b = |s'z - t|``, as shares of
        the sizes of the numbers that they compare. They are within tolerance if they are at most `tol`; the units of
        the data do not matter.
    nonzeros : int
        Nonzero items of z.
    seconds : float
        Time since the start of the fit.
    objective : float or None
        The objective at z, if ``BiCADMM(record_objective=True)`` asked for it.
    sent_bytes, sent_seconds, fetched_bytes, fetched_seconds : int, float
        What was sent to the device and fetched from it since the data were placed there; zero if the device is the
        host.
    """

    iteration: int
    primal: float
    dual: float
    bilinear: float
    nonzeros: int
    seconds: float
    objective: float | None = None
    sent_bytes: int = 0
    sent_seconds: float = 0.0
    fetched_bytes: int = 0
    fetched_seconds: float = 0.0
