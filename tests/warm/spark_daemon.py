"""The process from which Spark forks Python workers, with PsFiT imported (``spark.python.daemon.module`` names it)."""

from pyspark.daemon import manager

import psfit.spark  # noqa: F401

if __name__ == "__main__":
    manager()
