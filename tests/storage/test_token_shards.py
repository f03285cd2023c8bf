"""Token shards: what is written is mapped back, document by document."""

import importlib
import struct
import sys
import types

import numpy as np
import pytest

from gristmill.storage import files, parquet, token_shards
from gristmill.storage.training_manifest import token_dtype

U2, U4 = np.dtype("<u2"), np.dtype("<u4")


def test_documents_are_found_by_the_index(tmp_path):
    documents = [np.array(d, np.uint16) for d in ([5, 6, 2], [2], [65535, 9, 9, 2])]
    path = token_shards.bin_path(str(tmp_path), "train", 3)
    written = token_shards.write_tokens(path, ["a", "b", "c"], documents, U2)
    mapped = np.memmap(path, U2, mode="r")
    assert written == token_shards.TokenShard(path, 8, 3)
    assert mapped.tobytes() == np.concatenate(documents).astype("<u2").tobytes()
    assert path.endswith("train-00003.bin")
    for row, document in zip(parquet.read_table(written.index).to_pylist(), documents, strict=True):
        assert mapped[row["offset"] : row["offset"] + row["length"]].tolist() == document.tolist()


def test_an_empty_shard(tmp_path):
    path = token_shards.bin_path(str(tmp_path), "heldout", 0)
    assert token_shards.write_tokens(path, [], [], U2).tokens == 0
    assert files.read_bytes(path) == b""


def test_tokens_that_do_not_fit_are_refused(tmp_path):
    with pytest.raises(TypeError, match="int64"):
        token_shards.write_tokens(str(tmp_path / "x.bin"), ["a"], [np.array([70_000])], U2)


DOCUMENTS = [np.array(d, np.uint16) for d in ([5, 6, 2], [2], [65535, 9, 9, 2])]


@pytest.mark.parametrize("documents", [DOCUMENTS, []])
def test_the_index_of_megatron_says_where_each_document_is(tmp_path, documents):
    path = token_shards.bin_path(str(tmp_path), "train", 0)
    token_shards.write_tokens(path, [str(i) for i in range(len(documents))], documents, U2)
    content = files.read_bytes(path.removesuffix(".bin") + ".idx")
    assert content[:9] == b"MMIDIDX\0\0"
    version, code, sequences, entries = struct.unpack_from("<QBQQ", content, 9)
    assert (version, code, sequences, entries) == (1, 8, len(documents), len(documents) + 1)
    lengths = struct.unpack_from(f"<{sequences}i", content, 34)
    starts = struct.unpack_from(f"<{sequences}q", content, 34 + 4 * sequences)
    begins = struct.unpack_from(f"<{entries}q", content, 34 + 12 * sequences)
    assert len(content) == 34 + 12 * sequences + 8 * entries
    tokens = files.read_bytes(path)
    found = [np.frombuffer(tokens, "<u2", n, at).tolist() for n, at in zip(lengths, starts, strict=True)]
    assert found == [document.tolist() for document in documents]
    assert list(begins) == list(range(len(documents) + 1))


def test_megatrons_own_reader_finds_the_documents(tmp_path, request, monkeypatch):
    folder = request.config.getoption("--megatron")
    if not folder:
        pytest.skip("Megatron-LM's code: pass --megatron FOLDER, a checkout of github.com/NVIDIA/Megatron-LM")
    # the packages' own __init__ need a GPU's libraries; the reader needs a logging function of them alone
    for name in ("megatron", "megatron.core", "megatron.core.datasets"):
        package = types.ModuleType(name)
        package.__path__ = [f"{folder}/{name.replace('.', '/')}"]
        monkeypatch.setitem(sys.modules, name, package)
    logs = types.ModuleType("megatron.core.utils")
    logs.log_single_rank = lambda logger, *args: logger.log(*args)
    monkeypatch.setitem(sys.modules, "megatron.core.utils", logs)
    reader = importlib.import_module("megatron.core.datasets.indexed_dataset")

    path = token_shards.bin_path(str(tmp_path), "train", 0)
    token_shards.write_tokens(path, ["a", "b", "c"], DOCUMENTS, U2)
    dataset = reader.IndexedDataset(path.removesuffix(".bin"))
    assert [dataset[i].tolist() for i in range(len(dataset))] == [document.tolist() for document in DOCUMENTS]
    assert dataset.document_indices.tolist() == [0, 1, 2, 3]


def test_four_bytes_a_token_where_the_vocabulary_asks_for_them(tmp_path):
    assert [token_dtype(size) for size in (1 << 16, (1 << 16) + 1)] == ["<u2", "<u4"]
    documents = [np.array(d, np.uint32) for d in ([5, 128_000, 2], [65_536, 2])]
    path = token_shards.bin_path(str(tmp_path), "train", 0)
    token_shards.write_tokens(path, ["a", "b"], documents, U4)
    assert files.read_bytes(path) == struct.pack("<5I", 5, 128_000, 2, 65_536, 2)
    index = files.read_bytes(path.removesuffix(".bin") + ".idx")
    assert index[17] == 4  # int32, as Megatron-LM reads ids
    assert struct.unpack_from("<2q", index, 34 + 8) == (0, 12)
    assert parquet.read_table(path.removesuffix(".bin") + ".parquet").schema.metadata[b"dtype"] == b"<u4"
