"""A pipeline of Spark in which CrossValidator chooses how many features a sparse classifier may use.

pip install 'psfit-toolbox[spark]'          # and Java 17 or newer
python examples/spark_pipeline.py
spark-submit --master spark://...:7077 examples/spark_pipeline.py
"""

import os
import sys

from pyspark.ml import Pipeline, PipelineModel
from pyspark.ml.evaluation import BinaryClassificationEvaluator
from pyspark.ml.feature import StringIndexer, VectorAssembler
from pyspark.ml.tuning import CrossValidator, ParamGridBuilder
from pyspark.sql import SparkSession
from sklearn.datasets import load_breast_cancer

from psfit import GridSpec
from psfit.spark import SparkSparseLogisticRegression

# The Python processes of Spark's tasks must have PsFiT: on one machine, they are those of this Python.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def main(folder: str) -> None:
    builder = SparkSession.builder.config("spark.ui.showConsoleProgress", "false")
    if "SPARK_ENV_LOADED" not in os.environ:
        builder = builder.master("local[2]")
    spark = builder.getOrCreate()
    data = load_breast_cancer(as_frame=True)
    columns = [name.replace(" ", "_") for name in data.feature_names]
    names = data.target_names[data.target]
    rows = [(*map(float, row), str(name)) for row, name in zip(data.data.to_numpy(), names, strict=True)]
    patients = spark.createDataFrame(rows, [*columns, "diagnosis"]).repartition(2)

    classifier = SparkSparseLogisticRegression(gamma=1.0, standardize=True, grid=GridSpec(device="cpu"))
    pipeline = Pipeline(
        stages=[
            StringIndexer(inputCol="diagnosis", outputCol="label"),
            VectorAssembler(inputCols=columns, outputCol="features"),
            classifier,
        ]
    )
    tuned = CrossValidator(
        estimator=pipeline,
        estimatorParamMaps=ParamGridBuilder().addGrid(classifier.kappa, [1, 4]).build(),
        evaluator=BinaryClassificationEvaluator(),
        numFolds=2,
        seed=1,
    ).fit(patients)

    tuned.bestModel.write().overwrite().save(folder)
    model = PipelineModel.load(folder)
    local = model.stages[-1].to_local()
    print("areas under the curve:", ", ".join(f"{area:.3f}" for area in tuned.avgMetrics))
    print("features:", ", ".join(columns[j] for j in local.support_))
    right = model.transform(patients).where("label = prediction").count()
    print(f"right: {right} of {len(rows)}")
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "breast-cancer-pipeline")
