"""Table 1 of the paper: seconds by (s_l, m, n), measured there on a Core i7-13700 and an RTX 4070. None: cut off."""

PAPER: dict[tuple[float, int, int], tuple[float, float | None, float]] = {
    (0.6, 100_000, 2_000): (1.1, 374.5, 2.7),
    (0.6, 200_000, 2_000): (1.7, 313.2, 5.5),
    (0.6, 300_000, 2_000): (2.2, 300.1, 7.3),
    (0.6, 100_000, 4_000): (1.8, None, 8.9),
    (0.6, 200_000, 4_000): (3.0, None, 19.2),
    (0.6, 300_000, 4_000): (4.0, None, 77.6),
    (0.9, 100_000, 2_000): (1.1, 250.5, 2.7),
    (0.9, 200_000, 2_000): (1.7, 241.8, 5.0),
    (0.9, 300_000, 2_000): (2.2, 230.2, 7.4),
    (0.9, 100_000, 4_000): (1.9, None, 9.3),
    (0.9, 200_000, 4_000): (2.9, None, 17.4),
    (0.9, 300_000, 4_000): (4.1, None, 70.1),
}


def published(level: float, m: int, n: int) -> list[str]:
    """Seconds of Bi-cADMM, Gurobi and the lasso as printed in the paper; empty where it has no such cell."""
    if (level, m, n) not in PAPER:
        return ["", "", ""]
    return ["cut off" if seconds is None else f"{seconds:g}" for seconds in PAPER[level, m, n]]
