"""The largest of some numbers, without a sort: a helper of other kernels."""

import numpy as np

from psfit.kernels.cpu.compiler import compile_loops


@compile_loops
def move_largest_first(values: np.ndarray, count: int) -> None:
    """Change the order of `values`: first the `count` largest, the least of them at place ``count - 1``.

    `count` is at least one and at most the number of values, and all of them are numbers that can be ordered.
    """
    place, low, high = count - 1, 0, len(values) - 1
    while low < high:
        # Larger values move to the left of the pivot; then only the side where the place lies is divided further.
        pivot = values[(low + high) // 2]
        i, j = low, high
        while i <= j:
            while values[i] > pivot:
                i += 1
            while values[j] < pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i, j = i + 1, j - 1
        if place <= j:
            high = j
        elif place >= i:
            low = i
        else:
            break
