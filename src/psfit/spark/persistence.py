"""Saved estimators and models: parameters as JSON beside Spark's own, and the model as PsFiT's model file."""

import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pyspark.ml.util import DefaultParamsReader, DefaultParamsWriter

from psfit.admm.bicadmm import BiCADMM
from psfit.comm import GridSpec
from psfit.estimators.persistence.model_file import load, save

# Parameters that are objects, and their types; all their fields are plain values.
OBJECTS = {"solver": BiCADMM, "grid": GridSpec}


def encode(name: str, value: Any) -> Any:
    """A parameter as JSON can hold it."""
    if value is None:
        return None
    if name == "class_weight" and isinstance(value, dict):
        return [[label, weight] for label, weight in value.items()]
    if name in OBJECTS:
        fields = asdict(value)
        if name == "solver" and not isinstance(value.local, (str, type(None))):
            raise ValueError("solver: a local solver that is an object cannot be saved; name it, or save without it")
        return {field: str(one) if isinstance(one, Path) else one for field, one in fields.items()}
    return value


def decode(name: str, value: Any) -> Any:
    """The parameter from JSON."""
    if value is None:
        return None
    if name == "class_weight" and isinstance(value, list):
        return dict(value)
    return OBJECTS[name](**value) if name in OBJECTS else value


class Writer(DefaultParamsWriter):
    """Writes parameters, and the model if there is one."""

    def saveImpl(self, path: str) -> None:
        parameters = {param.name: encode(param.name, value) for param, value in self.instance._paramMap.items()}
        DefaultParamsWriter.saveMetadata(self.instance, path, self.sparkSession, paramMap=parameters)
        model = getattr(self.instance, "model", None)
        if model is not None:
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder, "model.psfit")
                save(model, file)
                content = bytearray(file.read_bytes())
            frame = self.sparkSession.createDataFrame([(content,)], "model binary")
            frame.coalesce(1).write.parquet(f"{path}/model")


class Reader(DefaultParamsReader):
    """Reads what a `Writer` has written."""

    def load(self, path: str) -> Any:
        metadata = DefaultParamsReader.loadMetadata(path, self.sparkSession)
        for kind in ("paramMap", "defaultParamMap"):
            metadata[kind] = {name: decode(name, value) for name, value in metadata[kind].items()}
        instance: Any = self.cls()
        instance._resetUid(metadata["uid"])
        DefaultParamsReader.getAndSetParams(instance, metadata)
        if hasattr(instance, "model"):
            content = bytes(self.sparkSession.read.parquet(f"{path}/model").first()[0])
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder, "model.psfit")
                file.write_bytes(content)
                instance.model = load(file)
        return instance
