"""Speed of the removal of repeated lines, paragraphs and sentences, in MB of text per second of one core.

Prints, asserts nothing about time. The text is that of the pages in `warc/web` of the folder that GRISTMILL_TEST_DATA
names, followed by copies of them, up to 50 MB, with the words of every other line in another order.
"""

import os
import random
import time
from pathlib import Path

import pyarrow as pa
import pytest
from fastwarc.warc import ArchiveIterator, WarcRecordType
from resiliparse.extract.html2text import extract_plain_text
from resiliparse.parse.encoding import bytes_to_str, detect_encoding

from gristmill.storage import parquet
from gristmill.storage.schema import DOCUMENTS, SELECTION
from gristmill.tasks.dedup import passages
from gristmill.tasks.dedup.exchange import CollectedShards, KeyRanges, collect_shards
from gristmill.tasks.dedup.passages import LineDedup, ParagraphDedup, SentenceDedup

SHARDS, PARTITIONS = 4, 16
BYTES = 50 << 20

pytestmark = pytest.mark.bench


def pages() -> list[str]:
    if not (data := os.environ.get("GRISTMILL_TEST_DATA")):
        pytest.skip("GRISTMILL_TEST_DATA does not name the folder of the data sets")
    (path,) = sorted(Path(data, "warc", "web").glob("*.warc.gz"))[:1]
    found = []
    with open(path, "rb") as stream:
        for record in ArchiveIterator(stream, record_types=WarcRecordType.response, parse_http=True):
            payload = record.reader.read()
            found.append(extract_plain_text(bytes_to_str(payload, detect_encoding(payload)), main_content=True))
    return [text for text in found if text]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> tuple[str, int]:
    """A folder with the documents of four shards, and the bytes of their texts."""
    draw, texts, real = random.Random(1), [], pages()
    size = 0
    while size < BYTES:
        for text in real:
            lines = text.split("\n")
            if len(texts) >= len(real):
                lines = [
                    " ".join(draw.sample(w := line.split(), len(w))) if n % 2 else line for n, line in enumerate(lines)
                ]
            texts.append("\n".join(lines))
            size += len(texts[-1].encode())
    folder = str(tmp_path_factory.mktemp("passages"))
    rows = [{"id": f"{draw.getrandbits(128):032x}", "source": "s", "text": t, "characters": len(t)} for t in texts]
    for s in range(SHARDS):
        table = pa.Table.from_pylist(rows[s::SHARDS], DOCUMENTS)
        parquet.write_table(f"{folder}/documents-{s}.parquet", table)
        parquet.write_table(f"{folder}/kept-{s}.parquet", table.select(SELECTION.names))
    return folder, size


@pytest.mark.parametrize("step", [LineDedup(), ParagraphDedup(), SentenceDedup()], ids=lambda step: step.step)
def test_speed(corpus, step, tmp_path):
    folder, size = corpus
    given = {
        s: {"documents": f"{folder}/documents-{s}.parquet", "kept": f"{folder}/kept-{s}.parquet", "step": step}
        for s in range(SHARDS)
    }
    ranges, shards = KeyRanges(PARTITIONS), KeyRanges(1, SHARDS)

    def through(where: str) -> tuple[list[float], list[list[dict]]]:
        among, repeated = passages.passages_files(where, SHARDS), passages.repeated_files(where, PARTITIONS)
        cuts = CollectedShards(f"{where}/cuts", shards)
        phases = (
            lambda: [passages.hash_shard(where, s, **given[s], ranges=ranges) for s in given],
            lambda: [passages.find_partition(where, p, ranges, among, shards) for p in range(PARTITIONS)],
            lambda: [collect_shards(where, 0, repeated, "cuts", shards, "shard")],
            lambda: [passages.cut_shard(where, s, **given[s], cuts=cuts) for s in given],
        )
        seconds, records = [], []
        for phase in phases:
            start = time.process_time()
            records.append(phase())
            seconds.append(time.process_time() - start)
        return seconds, records

    through(str(tmp_path / "compiled"))
    seconds, (hashed, found, _, cut) = through(str(tmp_path / "measured"))
    total = sum(record["passages"] for record in hashed)
    repeated = sum(record["repeated"] for record in found)
    left = sum(record["steps"][0]["characters_out"] for record in cut)
    whole = sum(record["steps"][0]["characters_in"] for record in cut)
    print(
        f"\n{step.step}: {size / 1e6:.0f} MB, {total:,} passages, {repeated:,} repeated, {left / whole:.0%} of the text"
        f" stays; hash {seconds[0]:.2f} s, find {seconds[1]:.2f} s, collect {seconds[2]:.2f} s, cut {seconds[3]:.2f} s,"
        f" {size / 1e6 / sum(seconds):.0f} MB/s of one core"
    )
