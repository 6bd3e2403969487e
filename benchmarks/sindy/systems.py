"""The systems of the comparison: slopes, initial values, and which terms of the library are true."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.integrate import solve_ivp


@dataclass(frozen=True)
class System:
    """A system of ordinary differential equations.

    `terms` are those of each equation, `start` draws initial values, `duration` is that of a trajectory to fit, and
    `thresholds` are the exponents of ten between which STLSQ looks for its own.
    """

    name: str
    slope: Callable[[float, np.ndarray], list[float]]
    start: Callable[[np.random.Generator], np.ndarray]
    duration: float
    thresholds: tuple[float, float]
    terms: tuple[frozenset[str], ...]

    def trajectory(self, seed: int, duration: float, step: float) -> tuple[np.ndarray, np.ndarray]:
        """Times and values from a random start."""
        times = np.arange(0, duration, step)
        start = self.start(np.random.default_rng(seed))
        path = solve_ivp(self.slope, (0, duration), start, t_eval=times, rtol=1e-10, atol=1e-10)
        return times, path.y.T


def near_attractor(rng: np.random.Generator) -> np.ndarray:
    """A start of the Lorenz system."""
    return rng.uniform([-5, -5, 10], [5, 5, 40])


def near_circle(rng: np.random.Generator) -> np.ndarray:
    """A start of the Hopf system: a point at a distance of about one."""
    angle = rng.uniform(0, 2 * np.pi)
    return rng.uniform(0.75, 1.25) * np.array([np.cos(angle), np.sin(angle)])


def anywhere(rng: np.random.Generator) -> np.ndarray:
    """A start of the MHD system."""
    return 0.5 * rng.normal(size=6)


def lorenz(_: float, x: np.ndarray) -> list[float]:
    """Convection."""
    return [10 * (x[1] - x[0]), x[0] * (28 - x[2]) - x[1], x[0] * x[1] - 8 / 3 * x[2]]


def hopf(_: float, x: np.ndarray) -> list[float]:
    """The normal form of a Hopf bifurcation, beyond its critical point."""
    radius = x[0] ** 2 + x[1] ** 2
    return [-0.05 * x[0] - x[1] - radius * x[0], x[0] - 0.05 * x[1] - radius * x[1]]


def mhd(_: float, x: np.ndarray) -> list[float]:
    """A triad of magnetohydrodynamics without dissipation: velocities v and fields b."""
    v1, v2, v3, b1, b2, b3 = x
    return [
        4 * (v2 * v3 - b2 * b3),
        -7 * (v1 * v3 - b1 * b3),
        3 * (v1 * v2 - b1 * b2),
        2 * (b3 * v2 - v3 * b2),
        5 * (v3 * b1 - b3 * v1),
        9 * (v1 * b2 - b1 * v2),
    ]


SYSTEMS = [
    System(
        "Lorenz",
        lorenz,
        near_attractor,
        8.0,
        (-2, 1),
        (frozenset({"x0", "x1"}), frozenset({"x0", "x1", "x0 x2"}), frozenset({"x2", "x0 x1"})),
    ),
    System(
        "Hopf",
        hopf,
        near_circle,
        8.0,
        (-3, 0),
        (frozenset({"x0", "x1", "x0^3", "x0 x1^2"}), frozenset({"x0", "x1", "x0^2 x1", "x1^3"})),
    ),
    System(
        "MHD",
        mhd,
        anywhere,
        4.0,
        (-1.5, 1.5),
        (
            frozenset({"x1 x2", "x4 x5"}),
            frozenset({"x0 x2", "x3 x5"}),
            frozenset({"x0 x1", "x3 x4"}),
            frozenset({"x1 x5", "x2 x4"}),
            frozenset({"x2 x3", "x0 x5"}),
            frozenset({"x0 x4", "x1 x3"}),
        ),
    ),
]
