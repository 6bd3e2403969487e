"""A session of Spark for each test; the modules that need it are imported where Spark is installed."""

import pytest


@pytest.fixture
def spark(request):
    """A session; a test that stops it leaves the next one a new session in the same Java process."""
    from spark_samples import start_session

    return start_session("local[3]", real=request.node.get_closest_marker("long") is not None)


@pytest.fixture(scope="module", autouse=True)
def end():
    yield
    from pyspark.sql import SparkSession

    if SparkSession.getActiveSession() is not None:
        SparkSession.getActiveSession().stop()
