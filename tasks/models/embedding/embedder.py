"""How a text becomes a vector by a sentence embedder, besides the embedder's files."""

from typing import Literal

from pydantic import Field

from gristmill.tasks.documents.step import Settings


class Embedder(Settings):
    """What decides a vector, besides the text and the files of the embedder."""

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

    @property
    def libraries(self) -> tuple[str, ...]:
        """The distributions whose release decides a vector."""
        return ("onnxruntime-gpu" if self.device == "cuda" else "onnxruntime", "tokenizers")
