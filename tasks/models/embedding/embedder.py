"""How a text becomes a vector, and vectors in Parquet: `id`, and `vector` as a list of a fixed size of float16."""

from collections.abc import Sequence
from typing import Literal, Self

import numpy as np
import pyarrow as pa
from pydantic import Field, model_validator

from gristmill.tasks.documents.step import Settings


def vector_table(ids: Sequence[str] | pa.ChunkedArray, vectors: np.ndarray) -> pa.Table:
    """`vectors`: float16 (n, dimension)."""
    flat = pa.array(vectors.reshape(-1), pa.float16())
    return pa.table({"id": ids, "vector": pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])})


def vectors_of(table: pa.Table) -> np.ndarray:
    """The column `vector`: float16 (n, dimension)."""
    column = table["vector"].combine_chunks()
    return column.flatten().to_numpy().reshape(len(column), column.type.list_size)


class Embedder(Settings):
    """What decides a vector, besides the text and the files of the embedder."""

    kind: Literal["onnx", "static"] = Field(
        "onnx",
        description="onnx: a model, in model.onnx; static: a table of vectors of tokens, as model2vec saves it in "
        "model.safetensors, whose mean is taken: far faster, and blind to the order of words",
    )
    pooling: Literal["mean", "cls", "none"] = Field(
        "mean",
        description="what is made of the vectors of a text's tokens: their mean, the first, or nothing where the model "
        "gives one vector itself",
    )
    normalize: bool = Field(True, description="whether vectors are divided by their length")
    prefix: str = Field("", description="is put before every text, as the embedder's makers say: `query: ` for E5")
    max_tokens: int = Field(512, ge=4, description="of each document are read, special ones included")
    characters: int = Field(20_000, gt=0, description="of each document are read before it is cut into tokens")
    device: Literal["cpu", "cuda"] = Field("cpu", description="where the model runs; cuda needs onnxruntime-gpu")

    @model_validator(mode="after")
    def _of_static(self) -> Self:
        if self.kind == "static":
            for name, value in (("pooling", self.pooling), ("device", self.device)):
                if value != (only := type(self).model_fields[name].default):
                    raise ValueError(f"has {name}: {value}, but `kind: static` has {name}: {only} alone; leave it out")
        return self

    @property
    def libraries(self) -> tuple[str, ...]:
        """The distributions whose release decides a vector."""
        if self.kind == "static":
            return ("tokenizers",)
        return ("onnxruntime-gpu" if self.device == "cuda" else "onnxruntime", "tokenizers")
