"""The index of a shard beside its encoding, and look-ups in it.

Texts are those of a synthetic crawl (`tools.harvest`). Compared is the CPU time in one process that has done another
shard before: gigatoken encodes a text that it has seen in half the time, and no shard is seen twice. A look-up is timed
with the files read from the disk again, where the system lets them be dropped from memory.
"""

import os
import random
import subprocess
import sys
import time
from functools import partial

import numpy as np
import pyarrow.parquet as pq
import pytest

from gristmill.storage import files, layout, ledger, parquet
from gristmill.storage.token_shards import PHASE, SPLIT
from gristmill.tasks.search.index import index_shard, order_path, pieces
from gristmill.tasks.search.look_ups import ShardIndex
from gristmill.tasks.tokens.encoding import encode_shard
from gristmill.tasks.tokens.mixture import Mixture
from gristmill.tasks.tokens.tokenizer import Tokenizer
from gristmill.tasks.url.step import Url
from tests import trained_tokenizers
from tests.recorded import recorded

pytestmark = pytest.mark.bench

DOCUMENTS = 28_000  # of a shard, some 70 MB of text
MOST_TIMES = 3.0  # of the CPU time of encoding
MOST_BYTES = 6  # of a token, beyond the tokens
LOOK_UPS = 200


def cpu(work) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def test_an_index_costs_little_more_than_encoding_and_a_look_up_next_to_nothing(tmp_path):
    options = ["--documents", str(2 * DOCUMENTS), "--files", "1"]
    subprocess.run([sys.executable, "-m", "tools.harvest", "parquet", str(tmp_path / "crawl"), *options], check=True)
    [crawl] = sorted((tmp_path / "crawl").glob("*.parquet"))
    table = pq.read_table(crawl).select(["text", "url"])
    table = table.append_column("id", [[f"{i:032x}" for i in range(len(table))]])
    parts = [str(tmp_path / f"documents-{shard}.parquet") for shard in range(2)]
    for shard, part in enumerate(parts):
        parquet.write_table(part, table.slice(shard * DOCUMENTS, DOCUMENTS))
        parquet.write_table(layout.ledger_part(str(tmp_path / "rules"), shard), ledger.from_rows([]))
    table = table.slice(DOCUMENTS)
    given = Tokenizer(kind="byte_bpe", vocab_size=16_000, sample_bytes=20_000_000)
    mixture = Mixture(weights={"a": 1})
    record = trained_tokenizers.train(str(tmp_path), {"a": [(parts[0], parts[0])]}, mixture, given, 3)
    tokenizer, tokens, index = recorded(tmp_path / record["file"]), str(tmp_path / "tokens"), str(tmp_path / "index")
    counts: dict = {}

    def encode(shard: int) -> None:
        with files.recording(tokens) as facts:
            encoded = encode_shard(tokens, shard, parts[shard], parts[shard], tokenizer)
        layout.mark_done(tokens, PHASE, shard, {"record": encoded, "files": facts})

    def make(shard: int) -> None:
        with files.recording(index):
            part, deciding = parts[shard], [str(tmp_path / "rules")]
            counts.update(index_shard(index, shard, tokens, part, part, deciding, Url(), tokenizer))

    encode(0)  # compiled, and in memory
    make(0)
    encoding = cpu(partial(encode, 1))
    times = cpu(partial(make, 1)) / encoding
    count = counts[SPLIT]["tokens"]
    order = order_path(index, SPLIT, 1)
    size = os.path.getsize(order)
    print(f"index of {count:,} tokens: {times:.1f} times the CPU time of encoding, {size / count:.2f} bytes a token")
    assert times < MOST_TIMES and size <= MOST_BYTES * count

    for path in (order, f"{tokens}/train-00001.bin"):
        with open(path, "rb") as f:
            os.fsync(f.fileno())
            os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    found = ShardIndex(
        np.asarray(np.memmap(f"{tokens}/train-00001.bin", "<u2", "r")),
        np.asarray(np.memmap(order, "<u4", "r")),
        counts[SPLIT]["blocks"],
        pieces(tokenizer),
    )
    draw = random.Random(1)
    texts = draw.sample(table["text"].to_pylist(), LOOK_UPS)
    seconds = []
    small = ShardIndex(found.tokens[:100], np.arange(100, dtype="<u4"), [100], found.pieces)
    small.places(b"the compiled kernels")
    for text in texts:
        at = draw.randrange(max(1, len(text) - 60))
        begun = time.perf_counter()
        assert len(found.places(text[at : at + 60].encode()))
        seconds.append(time.perf_counter() - begun)
    print(
        f"look-ups of 60 characters, cold at first: {seconds[0] * 1e3:.0f} ms, then {np.median(seconds) * 1e3:.1f} ms"
    )
