"""The search for better supports: exact refits, swaps, restarts, and neighbours on a path."""
