"""Saved estimators and models: parameters as JSON beside Spark's own, and the model as PsFiT's model file."""

import tempfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.ml.util import DefaultParamsReader, DefaultParamsWriter

from psfit.admm.bicadmm import BiCADMM
from psfit.comm import GridSpec
from psfit.estimators.persistence.model_file import load, save

# Parameters that are objects, and their types; all their fields are plain values.
OBJECTS = {"solver": BiCADMM, "grid": GridSpec}
# The fields of a dict, or of a pandas Series, in JSON.
PAIRS, BY_INDEX = "pairs", "by_index"


def encode(name: str, value: Any) -> Any:
    """A parameter as JSON can hold it."""
    if name not in OBJECTS or value is None:
        return _encode_plain(value)
    if name == "solver" and not isinstance(value.local, (str, type(None))):
        raise ValueError("solver: a local solver that is an object cannot be saved; name it, or save without it")
    return {field: str(one) if isinstance(one, Path) else _encode_plain(one) for field, one in asdict(value).items()}


def decode(name: str, value: Any) -> Any:
    """The parameter from JSON."""
    if name in OBJECTS and value is not None:
        return OBJECTS[name](**value)
    if not isinstance(value, dict):
        return value
    found = dict(value[PAIRS])
    if not value[BY_INDEX]:
        return found
    import pandas as pd

    return pd.Series(found)


def _encode_plain(value: Any) -> Any:
    """Numbers, texts and what holds them; the keys of JSON are texts, but those of dicts may be numbers."""
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    is_series = hasattr(value, "index") and hasattr(value, "items")
    if isinstance(value, Mapping) or is_series:
        pairs = [[_encode_plain(key), _encode_plain(one)] for key, one in value.items()]
        return {PAIRS: pairs, BY_INDEX: is_series}
    return [_encode_plain(one) for one in value] if isinstance(value, (list, tuple)) else value


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
