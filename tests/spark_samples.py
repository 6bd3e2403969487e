"""Sessions of Spark for its tests, and the samples of all engines as its tables."""

import os
import sys

import numpy as np
from engine_jobs import CUTS, JOBS, X
from jobs import ENGINES
from launch import environment
from pyspark.ml.linalg import SparseVector, Vectors, VectorUDT
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, DoubleType, LongType, StringType, StructField, StructType

SCHEMA = StructType(
    [
        StructField("features", VectorUDT()),
        StructField("numbers", ArrayType(DoubleType())),
        StructField("squared", DoubleType()),
        StructField("logistic", StringType()),
        StructField("softmax", LongType()),
        StructField("weight", DoubleType()),
    ]
)


def start_session(master, real):
    """A session; its Python processes are forked from one that has imported PsFiT, unless they must be `real` ones."""
    os.environ.update(environment(PYSPARK_PYTHON=sys.executable))
    builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.shuffle.partitions", "3").config("spark.ui.showConsoleProgress", "false")
    if not real:
        # Compilers of Java that find the fastest code take longer than what is run here.
        builder = builder.config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        builder = builder.config("spark.python.daemon.module", "warm.spark_daemon")
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


def rows_of(features=X):
    """A row for each sample: every second vector is sparse."""
    names = [JOBS[name].y for name in ENGINES]
    for k, (squared, logistic, softmax) in enumerate(zip(*names, strict=True)):
        row = np.asarray(features[k])
        vector = Vectors.dense(row) if k % 2 else SparseVector(len(row), np.arange(len(row)), row)
        yield vector, row.tolist(), float(squared), str(logistic), int(softmax), float(k % 3)


def table(spark, features=X, cuts=CUTS):
    """The samples in partitions of uneven sizes, one of them empty."""
    rows = list(rows_of(features))
    parts = [rows[a:b] for a, b in cuts]
    rdd = spark.sparkContext.parallelize(parts, len(parts)).flatMap(lambda part: part)
    return spark.createDataFrame(rdd, SCHEMA)
