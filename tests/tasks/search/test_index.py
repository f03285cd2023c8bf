"""Phrases found by the index are those of a search through all bytes."""

import random
from pydoc_data import topics

import numpy as np
import pyarrow as pa
import pytest

from gristmill.storage import files, layout, ledger, parquet
from gristmill.storage.token_shards import PHASE
from gristmill.tasks.search import index
from gristmill.tasks.search.index import DROPPED, index_shard, order_path, pieces
from gristmill.tasks.search.look_ups import ShardIndex
from gristmill.tasks.tokens.encoding import encode_shard
from gristmill.tasks.tokens.mixture import Mixture
from gristmill.tasks.tokens.tokenizer import Tokenizer
from gristmill.tasks.url.step import Url
from tests import trained_tokenizers
from tests.recorded import recorded

CHINESE = "統計學是應用數學的一個分支，通過收集數據來作推斷。数据库索引加快查询速度。"
URL = "https://a.example.org/"


def texts() -> list[str]:
    """Of English, Chinese, emoji, and some that are in others."""
    draw = random.Random(3)
    english = [topics.topics[name][:3_000] for name in sorted(topics.topics)[:60]]
    others = ["".join(draw.choices(CHINESE + "🙂é ", k=draw.randint(1, 400))) for _ in range(30)]
    short = ["a", "aa", "aaaaaaaa", " ", "\n\n", "the", "▁the▁", "0x00 <0x00> </s>"]
    return english + others + short + [english[0] + others[0]]


@pytest.fixture(scope="module", params=("bpe", "unigram", "byte_bpe"))
def shard(request, tmp_path_factory):
    """Folder, tokenizer, and the texts that are kept and dropped, of one shard in several blocks."""
    folder = tmp_path_factory.mktemp(request.param)
    every = texts()
    ids = [f"{i:032x}" for i in range(len(every))]
    documents, kept = str(folder / "documents.parquet"), str(folder / "kept.parquet")
    parquet.write_table(
        documents, pa.table({"id": ids, "url": [URL] * len(ids), "text": pa.array(every, "large_string")})
    )
    parquet.write_table(kept, pa.table({"id": ids[::2]}))
    rows = [{"id": name, "step": "rules", "rule": "rules.words"} for name in ids[1::4]]
    parquet.write_table(layout.ledger_part(str(folder / "rules"), 0), ledger.from_rows(rows))
    made = Tokenizer(kind=request.param, vocab_size=700, sample_bytes=150_000)
    record = trained_tokenizers.train(str(folder), {"a": [(documents, documents)]}, Mixture(weights={"a": 1}), made, 3)
    tokenizer = recorded(folder / record["file"])
    tokens = str(folder / "tokens")
    with files.recording(tokens) as facts:
        counts = encode_shard(tokens, 0, documents, kept, tokenizer)
    layout.mark_done(tokens, PHASE, 0, {"record": counts, "files": facts})
    taken = str(folder / "taken.txt")
    (folder / "taken.txt").write_text(ids[3] + "\n")
    lists = Url(takedowns=(taken,)).pinned()
    return folder, tokenizer, every, (documents, kept, [str(folder / "rules")], lists)


def opened(folder, split: str, record: dict, tokenizer) -> ShardIndex:
    where = folder / "tokens" if split == "train" else folder / "index"
    dtype = "<u2"
    tokens = np.fromfile(where / f"{split}-00000.bin", dtype)
    order = np.fromfile(order_path(str(folder / "index"), split, 0), "<u4")
    assert sorted(order.tolist()) == list(range(len(tokens)))
    return ShardIndex(tokens, order, record[split]["blocks"], pieces(tokenizer))


def brute(data: bytes, phrase: bytes) -> list[int]:
    found, at = [], data.find(phrase)
    while at >= 0:
        found.append(at)
        at = data.find(phrase, at + 1)
    return found


def spans(data: bytes, draw: random.Random, count: int):
    for _ in range(count):
        size = draw.choice((1, 2, 3, 5, 8, 13, 40, 200))
        at = draw.randrange(len(data) - size)
        yield data[at : at + size]


@pytest.mark.extended
@pytest.mark.parametrize(
    ("block_tokens", "count"), [(5_000, 1_000), (1 << 20, 1_000), pytest.param(1 << 20, 10_000, marks=pytest.mark.slow)]
)
def test_every_span_is_found_where_it_is(shard, block_tokens, count):
    folder, tokenizer, every, (documents, kept, deciding, lists) = shard
    record = index_shard(
        str(folder / "index"), 0, str(folder / "tokens"), documents, kept, deciding, lists, tokenizer, block_tokens
    )
    draw = random.Random(block_tokens + count)
    known = pieces(tokenizer)
    for split in ("train", DROPPED):
        index = opened(folder, split, record, tokenizer)
        data = b"".join(known.each[token] for token in index.tokens.tolist())
        starts = np.cumsum([0, *np.diff(known.bounds)[index.tokens]])
        checked = 0
        for phrase in [*spans(data, draw, count), b"nowhere in it", CHINESE.encode()]:
            if b"\xff" in phrase:  # over the end of a document, which no text has
                phrase = phrase.replace(b"\xff", b"")
            if not phrase:
                continue
            places = index.places(phrase)
            assert (starts[places.token] + places.offset).tolist() == brute(data, phrase), phrase
            assert index.has(phrase) == bool(len(places))
            checked += 1
        assert checked > count / 2
        own = every[::2] if split == "train" else [text for i, text in enumerate(every) if i % 2 and i != 3]
        assert data == b"".join(text.encode() + b"\xff" for text in own)


def test_what_was_dropped_has_its_rule_and_what_was_taken_down_is_not_there(shard):
    folder, tokenizer, every, (documents, kept, deciding, lists) = shard
    index_shard(str(folder / "index"), 0, str(folder / "tokens"), documents, kept, deciding, lists, tokenizer)
    rows = parquet.read_table(index.documents_path(str(folder / "index"), DROPPED, 0)).to_pylist()
    numbers = [int(row["id"], 16) for row in rows]
    assert numbers == [i for i in range(1, len(every), 2) if i != 3]
    for number, row in zip(numbers, rows, strict=True):
        assert (row["step"], row["rule"]) == (("rules", "rules.words") if number % 4 == 1 else ("", ""))
