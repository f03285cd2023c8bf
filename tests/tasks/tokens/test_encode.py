"""Token shards hold every document of a selection once."""

import os
from pathlib import Path
from pydoc_data import topics

import numpy as np
import pyarrow as pa
import pytest

from gristmill.storage import layout, parquet
from gristmill.storage.damage import RecordedFile
from gristmill.storage.token_shards import bin_path
from gristmill.tasks.tokens import encoding
from gristmill.tasks.tokens.encoding import encode_shard
from gristmill.tasks.tokens.mixture import Mixture
from gristmill.tasks.tokens.tokenizer import EOS, Tokenizer, load
from tests.recorded import recorded
from tests.trained_tokenizers import train

TEXTS = {name: topics.topics[name] for name in sorted(topics.topics)} | {"odd": "▁ \0 <s> </s> \ud7ff🦀\r\n"}
SEED = 3


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> RecordedFile:
    folder = tmp_path_factory.mktemp("tokenizer")
    path = str(folder / "documents.parquet")
    parquet.write_table(path, pa.table({"id": list(TEXTS), "text": list(TEXTS.values())}))
    settings = Tokenizer(vocab_size=500, sample_bytes=100_000)
    train(str(folder), {"a": [(path, path)]}, Mixture(weights={"a": 1}), settings, SEED)
    return recorded(folder / "tokenizer.model")


def documents(folder, split: str, shard: int) -> dict[str, np.ndarray]:
    """The tokens of each document, by the index that lies beside them."""
    path = bin_path(str(folder), split, shard)
    tokens = np.fromfile(path, "<u2")
    index = parquet.read_table(path.removesuffix(".bin") + ".parquet").to_pylist()
    assert [row["offset"] for row in index] == np.cumsum([0, *(row["length"] for row in index)])[:-1].tolist()
    assert sum(row["length"] for row in index) == len(tokens)
    return {row["id"]: tokens[row["offset"] : row["offset"] + row["length"]] for row in index}


def written(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}


def stage_of(folder: Path) -> str:
    """The folder, whose shard 0 is marked done."""
    facts = {path.name: {"content": recorded(path).digest} for path in sorted(folder.iterdir()) if path.is_file()}
    layout.mark_done(str(folder), "encode", 0, {"record": {}, "files": facts})
    return str(folder)


def test_a_shard_has_its_documents_and_decodes_to_their_texts(tmp_path, shard, model):
    kept = [*list(TEXTS)[::2], "odd"]
    record = encode_shard(str(tmp_path), 7, *shard("web", TEXTS, kept), model)
    processor = load(model)
    found = documents(tmp_path, "train", 7)
    assert found.keys() == set(kept)
    for name, tokens in found.items():
        assert tokens[-1] == EOS and (tokens == EOS).sum() == 1
        assert processor.decode(tokens.tolist()) == TEXTS[name]
    counts = {"tokens": sum(map(len, found.values())), "documents": len(found)}
    assert record == {"rows_in": len(set(kept)), "train": counts}


def test_the_same_bytes_twice(tmp_path, shard, model):
    parts = shard("web", TEXTS)
    for folder in ("a", "b"):
        encode_shard(str(tmp_path / folder), 0, *parts, model)
    assert len(written(tmp_path / "a")) == 3 and written(tmp_path / "a") == written(tmp_path / "b")


def test_a_shard_with_the_documents_of_an_earlier_one_is_taken_from_there(tmp_path, shard, model, monkeypatch):
    names = list(TEXTS)
    same, fewer = shard("same", TEXTS), shard("fewer", TEXTS, names[:-1])
    moved = shard("moved", TEXTS, names[1:])
    record = encode_shard(str(tmp_path / "first"), 0, *same, model)
    earlier = (stage_of(tmp_path / "first"),)
    for name, parts in {"fewer": fewer, "moved": moved}.items():
        encode_shard(str(tmp_path / name), 0, *parts, model, earlier)
        encode_shard(str(tmp_path / f"{name}-alone"), 0, *parts, model)
        assert written(tmp_path / name) == written(tmp_path / f"{name}-alone") != written(tmp_path / "first")
    monkeypatch.setattr(encoding, "encoder", None)  # nothing is encoded
    earlier = (stage_of(tmp_path / "fewer"), *earlier)
    assert encode_shard(str(tmp_path / "again"), 0, *same, model, earlier) == record
    assert written(tmp_path / "again") == written(tmp_path / "first")


def test_a_damaged_earlier_shard_is_not_taken(tmp_path, shard, model, caplog):
    parts = shard("web", TEXTS)
    encode_shard(str(tmp_path / "first"), 0, *parts, model)
    earlier, whole = stage_of(tmp_path / "first"), written(tmp_path / "first")
    path = tmp_path / "first" / "train-00000.bin"
    path.write_bytes(b"\1" + path.read_bytes()[1:])
    encode_shard(str(tmp_path / "again"), 0, *parts, model, (earlier,))
    assert written(tmp_path / "again") == whole and "is not what was written" in caplog.text


def test_an_empty_selection(tmp_path, shard, model):
    record = encode_shard(str(tmp_path), 0, *shard("web", TEXTS, []), model)
    assert record == {"rows_in": 0, "train": {"tokens": 0, "documents": 0}}
    assert documents(tmp_path, "train", 0) == {}
    assert os.path.getsize(bin_path(str(tmp_path), "train", 0)) == 0
