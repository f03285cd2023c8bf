"""Token shards: what is written is mapped back, document by document."""

import numpy as np
import pytest

from storage import files, parquet, token_shards


def test_documents_are_found_by_the_index(tmp_path):
    documents = [np.array(d, np.uint16) for d in ([5, 6, 2], [2], [65535, 9, 9, 2])]
    path = token_shards.bin_path(str(tmp_path), "train", 3)
    written = token_shards.write_tokens(path, ["a", "b", "c"], documents)
    mapped = np.memmap(path, token_shards.DTYPE, mode="r")
    assert written == token_shards.TokenShard(path, 8, 3)
    assert mapped.tobytes() == np.concatenate(documents).astype("<u2").tobytes()
    assert path.endswith("train-00003.bin")
    for row, document in zip(parquet.read_table(written.index).to_pylist(), documents, strict=True):
        assert mapped[row["offset"] : row["offset"] + row["length"]].tolist() == document.tolist()


def test_an_empty_shard(tmp_path):
    path = token_shards.bin_path(str(tmp_path), "heldout", 0)
    assert token_shards.write_tokens(path, [], []).tokens == 0
    assert files.read_bytes(path) == b""


def test_tokens_that_do_not_fit_are_refused(tmp_path):
    with pytest.raises(TypeError, match="int64"):
        token_shards.write_tokens(str(tmp_path / "x.bin"), ["a"], [np.array([70_000])])
