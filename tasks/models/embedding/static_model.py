"""A static embedder: a table of one vector a token, of which a text's vector is the mean.

As model2vec makes them of a sentence embedder (Tulkens and van Dongen 2024, github.com/MinishLab/model2vec). Its
release 0.10 defines the file: `embeddings`, (rows, dimension); where there are any, `mapping`, the row of each token,
and `weights`, one a token. Tokens that the tokenizer does not know are left out, then the first `max_tokens` are taken.
"""

import json

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load
from tokenizers import Encoding, Tokenizer

from gristmill.storage.damage import RecordedFile
from gristmill.tasks.models.embedding.embedder import Embedder
from gristmill.tasks.models.model_files import ModelFileError

# As model2vec calls the table, and as sentence-transformers does.
_TABLES = ("embeddings", "embedding.weight")


class StaticModel:
    """A table that is loaded, in memory as it is in the file. Raises ModelFileError for another file."""

    special_tokens = False

    def __init__(self, file: RecordedFile, settings: Embedder, tokenizer: Tokenizer) -> None:
        self._path, self._most = file.path, settings.max_tokens
        tokenizer.no_truncation()
        self._unknown = _unknown(tokenizer)
        try:
            tensors = load(file.read())
        except (SafetensorError, ValueError, KeyError) as error:
            raise ModelFileError(f"{file.path} is no safetensors file: {error}; copy it again") from error
        table = next((tensors[name] for name in _TABLES if name in tensors), None)
        if table is None or table.ndim != 2:
            raise ModelFileError(
                f"{file.path} has no table {' or '.join(_TABLES)}, but {', '.join(sorted(tensors)) or 'nothing'}; give "
                "a static embedder as model2vec saves it"
            )
        self.dimension = table.shape[1]
        self._table, self._rows, self._weights = table, tensors.get("mapping"), tensors.get("weights")

    def pooled(self, encoded: Encoding) -> np.ndarray | None:
        """The mean, float64 (dimension,), of the vectors of a text's known tokens; None where it has none."""
        ids = np.array([token for token in encoded.ids if token != self._unknown][: self._most], np.int64)
        if not len(ids):
            return None
        try:
            vectors = self._table[ids if self._rows is None else self._rows[ids]].astype(np.float64)
            if self._weights is not None:
                vectors *= self._weights[ids][:, None]
        except IndexError as error:
            raise ModelFileError(
                f"{self._path} has no vector for some tokens of the tokenizer.json with it ({error}); take both files "
                "from one embedder"
            ) from error
        return vectors.mean(axis=0)


def _unknown(tokenizer: Tokenizer) -> int | None:
    """The token that stands for what the tokenizer does not know; None where it has none."""
    model = json.loads(tokenizer.to_str())["model"]
    if model.get("unk_id") is not None:
        return model["unk_id"]
    return None if model.get("unk_token") is None else tokenizer.token_to_id(model["unk_token"])
