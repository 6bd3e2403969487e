"""From a support to a better one: exact refits, swaps, restarts, neighbours on a path."""
