"""Token shards hold every document of a selection once, in one of the two splits."""

import os
from pydoc_data import topics

import numpy as np
import pyarrow as pa
import pytest

from storage import parquet
from storage.recorded_file import RecordedFile
from storage.token_shards import bin_path
from tasks.documents.sampling import Heldout
from tasks.tokens.encode import SPLITS, encode_shard
from tasks.tokens.tokenizer import Tokenizer
from tasks.tokens.tokenizer_work import EOS, load, train_tokenizer
from tests.recorded import recorded

TEXTS = {name: topics.topics[name] for name in sorted(topics.topics)} | {"odd": "▁ \0 <s> </s> \ud7ff🦀\r\n"}
SEED = 3


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> RecordedFile:
    folder = tmp_path_factory.mktemp("tokenizer")
    path = str(folder / "documents.parquet")
    parquet.write_table(path, pa.table({"id": list(TEXTS), "text": list(TEXTS.values())}))
    settings = Tokenizer(vocab_size=500, sample_bytes=100_000)
    train_tokenizer(str(folder), 0, {"a": [(path, path)]}, {"a": 1}, settings, SEED, Heldout(seed=SEED, fraction=0.1))
    return recorded(folder / "tokenizer.model")


def documents(folder, split: str, shard: int) -> dict[str, np.ndarray]:
    """The tokens of each document, by the index that lies beside them."""
    path = bin_path(str(folder), split, shard)
    tokens = np.fromfile(path, "<u2")
    index = parquet.read_table(path.removesuffix(".bin") + ".parquet").to_pylist()
    assert [row["offset"] for row in index] == np.cumsum([0, *(row["length"] for row in index)])[:-1].tolist()
    assert sum(row["length"] for row in index) == len(tokens)
    return {row["id"]: tokens[row["offset"] : row["offset"] + row["length"]] for row in index}


@pytest.mark.parametrize("fraction", [0.1, 0.5, 0.001])
def test_both_splits_together_are_all_documents_and_decode_to_their_texts(tmp_path, shard, model, fraction):
    kept = list(TEXTS)[::2] + ["odd"]
    parts = shard("web", TEXTS, kept)
    record = encode_shard(str(tmp_path), 7, *parts, model, Heldout(seed=SEED, fraction=fraction))
    processor = load(model)
    found = {split: documents(tmp_path, split, 7) for split in SPLITS}
    assert not found["train"].keys() & found["heldout"].keys()
    both = found["train"] | found["heldout"]
    assert both.keys() == set(kept)
    for name, tokens in both.items():
        assert tokens[-1] == EOS and (tokens == EOS).sum() == 1
        assert processor.decode(tokens.tolist()) == TEXTS[name]
    mask = Heldout(seed=SEED, fraction=fraction).mask(pa.table({"text": [TEXTS[name] for name in kept]}))
    assert found["heldout"].keys() == {name for name, out in zip(kept, mask, strict=True) if out}
    counts = {
        split: {"tokens": sum(map(len, found[split].values())), "documents": len(found[split])} for split in SPLITS
    }
    assert record == {"rows_in": len(set(kept)), **counts}


def test_a_document_is_in_the_same_split_whatever_shard_it_is_in(tmp_path, shard, model):
    names = list(TEXTS)
    parts = [shard("one", TEXTS), shard("two", TEXTS, names[::3]), shard("three", dict(reversed(TEXTS.items())))]
    for i, part in enumerate(parts):
        encode_shard(str(tmp_path), i, *part, model, Heldout(seed=SEED, fraction=0.3))
    first, second, third = (set(documents(tmp_path, "heldout", i)) for i in range(3))
    assert first == third and second == first & set(names[::3])
    assert 0 < len(first) < len(names)


def test_the_same_bytes_twice(tmp_path, shard, model):
    parts = shard("web", TEXTS)
    for folder in ("a", "b"):
        encode_shard(str(tmp_path / folder), 0, *parts, model, Heldout(seed=SEED, fraction=0.1))
    names = sorted(p.name for p in (tmp_path / "a").iterdir())
    assert len(names) == 6
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_an_empty_selection(tmp_path, shard, model):
    record = encode_shard(str(tmp_path), 0, *shard("web", TEXTS, []), model, Heldout(seed=SEED, fraction=0.1))
    assert record == {"rows_in": 0, **{split: {"tokens": 0, "documents": 0} for split in SPLITS}}
    for split in SPLITS:
        assert documents(tmp_path, split, 0) == {}
        assert os.path.getsize(bin_path(str(tmp_path), split, 0)) == 0
