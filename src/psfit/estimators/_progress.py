"""What exact mode prints while it searches."""

import time

from psfit.certificate import Progress


class ProgressPrinter:
    """Prints a line when the incumbent improves, and otherwise one a second."""

    def __init__(self) -> None:
        self._last = -float("inf")
        self._upper = float("inf")

    def __call__(self, state: Progress) -> None:
        now = time.perf_counter()
        if now - self._last < 1 and state.upper >= self._upper:
            return
        self._last, self._upper = now, state.upper
        gap = (state.upper - state.lower) / max(abs(state.upper), 1e-300)
        print(
            f"  incumbent {state.upper:.8g}  bound {state.lower:.8g}  gap {gap:.2e}  "
            f"open {state.open:,}  explored {state.explored:,}",
            flush=True,
        )
