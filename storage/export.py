"""Documents for others to read: a shard of Parquet, or of lines of JSON in one zstd frame with a checksum."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import orjson
import pyarrow as pa
from backports import zstd

from gristmill.storage import files, parquet

SUFFIXES = {"parquet": "parquet", "jsonl": "jsonl.zst"}
_ZSTD: Mapping[int, int] = {zstd.CompressionParameter.compression_level: 3, zstd.CompressionParameter.checksum_flag: 1}


def shard_name(shard: int, format: str) -> str:
    """The name of a shard within the folder of an export; `format`: one of SUFFIXES."""
    return f"data/part-{shard:05d}.{SUFFIXES[format]}"


@contextmanager
def create(folder: str, shard: int, format: str, schema: pa.Schema) -> Iterator[Callable[[pa.Table], None]]:
    """Gives what writes a table of the schema behind the others. The shard appears under its name when the block ends
    without an error. Null is `null` in JSON, and so is a number that is not finite."""
    path = files.join(folder, shard_name(shard, format))
    if format == "parquet":
        with parquet.create(path, schema) as out:
            yield out.write_table
        return
    # not ZstdFile, which makes no frame where nothing is written
    packed = zstd.ZstdCompressor(options=_ZSTD)
    with files.create(path) as f:

        def write(table: pa.Table) -> None:
            for row in table.to_pylist():
                f.write(packed.compress(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE)))

        yield write
        f.write(packed.flush())
