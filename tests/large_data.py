"""Code for large data on small problems: thresholds are drawn so that it serves them, and answers are checked.

``python tests/large_data.py FIRST LAST`` draws problems of `constrained` and thresholds by these numbers, and prints
those that fail.
"""

import random
import sys
import traceback
from importlib import import_module

from constrained import check

# Modules of thresholds, and small values for some of them; for a dictionary by kinds of devices, values for a CPU.
THRESHOLDS = {
    "problem.costs": {"CHEAP_PRODUCT": {"cpu": (0.0, 1e2, 1e3, 1e4)}, "MOST_NUMBERS": (1, 100), "FORM_ROWS": (1,)},
    "problem.supports": {"FEW_SUPPORTS": (0,)},
    "problem.exchanges": {"SCORE_ENTRIES": (4,)},
    "search.model_form": {"LEAST_OTHERS": (1, 2), "FREE_DOUBLE": (0.0,)},
    "search.equal_samples": {"FEWEST_SAMPLES": (1,)},
    "search.support_batch": {"MOST_NUMBERS": (1, 200), "MOST_LOOPED": (0,), "MOST_PRODUCTS": (0, 100)},
    "search.restriction": {"MOST_KEPT": {"cpu": (0,)}},
    "search.improve": {"MOST_SQUARES": (1,)},
    "pipeline.candidates": {"BLOCK_NUMBERS": (8, 40)},
    "pipeline.forced_columns": {"MOST_NUMBERS": (0,)},
    "data.matrix": {"STRIP_BYTES": (256, 1024), "MOST_KEPT": (0,)},
    "data.shared_products": {"MOST_KEPT": (0,)},
    "data.strip": {"SMALL_WORK": (0,), "BLOCKS_FROM": {"cpu": (4,)}},
    "admm.local.ridge": {"BATCH_BELOW": (1,)},
    "certificate.dense_slopes": {"MOST_VARIABLES": (0,)},
    "certificate.newton_cases": {
        "LARGE": (0,),
        "MOST_COLUMNS": (0, 5),
        "MOST_TALL_COLUMNS": (0, 5),
        "MOST_GROUPED_COLUMNS": (0,),
    },
    "certificate.node_models": {"MOST_WORK": {"cpu": (1.0,)}, "OWN_WORK": {"cpu": (0.0,)}},
    "certificate.node_points": {"MOST_NUMBERS": {"cpu": (0,)}, "MOST_PAIRS": {"cpu": (0,)}},
    "certificate.wide_slopes": {"MOST_WORK": {"cpu": (0.0,)}},
    "certificate.support_models": {"MOST_NUMBERS": {"cpu": (0,)}},
    "certificate.joint_nodes": {"MOST_DERIVATIVES": (0,)},
    "certificate.exact_form": {"MOST_ITEMS": (1,)},
    "certificate.open_nodes": {"FEWEST_ROWS": (2,)},
}
# How many of the thresholds are changed, on average.
SHARE = 0.3


def draw_thresholds(number):
    """Changes by modules and names: a dictionary with the changed value, or the value itself."""
    rng, drawn = random.Random(number), []
    for module, names in THRESHOLDS.items():
        for name, small in names.items():
            if rng.random() < SHARE:
                by_device = isinstance(small, dict)
                drawn.append((import_module(f"psfit.{module}"), name, rng.choice(small["cpu"] if by_device else small)))
    return drawn


def change(monkeypatch, number):
    """Set the thresholds drawn by a number."""
    for module, name, value in draw_thresholds(number):
        known = getattr(module, name)
        if isinstance(known, dict):
            monkeypatch.setitem(known, "cpu", value)
        else:
            monkeypatch.setattr(module, name, value)


if __name__ == "__main__":
    import pytest

    failed, (first, end) = 0, map(int, sys.argv[1:3])
    for drawn_number in range(first, end):
        with pytest.MonkeyPatch.context() as patch:
            change(patch, drawn_number)
            try:
                text = check(drawn_number, False)
            except Exception:
                text = traceback.format_exc(limit=-3)
        if text:
            failed += 1
            print(f"problem {drawn_number}: {text}", flush=True)
    print(f"{failed} of {end - first} answers are wrong")
