"""The version, at the one place where it is written: the package and its build both read it here."""

__version__ = "0.1.0"
