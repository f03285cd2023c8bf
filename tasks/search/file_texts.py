"""The texts in any file of a home or an export: tables, token shards, JSON, pages, databases, plain and packed text.

A file is read piece by piece. Files without text (weights, suffix arrays) and unreadable files are reported, so
that a search through all files can list what it has not searched.
"""

import gzip
import html
import json
import re
import sqlite3
import sys
from collections.abc import Callable, Iterator
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from gristmill.storage import files

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd  # the same module, for earlier Pythons

PIECE = 1 << 22  # bytes of text that are held at a time, about
OVERLAP = 4096  # characters that two pieces of one text share, so that no phrase is cut
BATCH = 512  # documents of a token shard that are decoded at a time
UNKNOWN = "an unknown format"
# Files without text of documents, by the ends of their names, and what they have instead.
WITHOUT_TEXT = {
    ".order": "suffix arrays",
    ".idx": "indexes of token shards",
    ".npy": "numbers",
    ".safetensors": "weights",
    ".distcp": "weights",
    ".pt": "weights",
    ".lock": "locks",
}
_MAGIC = {b"\x1f\x8b": gzip.open, b"\x28\xb5\x2f\xfd": zstd.open}
_SQLITE = b"SQLite format 3\0"
_TAG = re.compile(r"<(?:script|style)\b.*?</(?:script|style)>|<[^>]*>", re.DOTALL | re.IGNORECASE)

Decode = Callable[[list[int]], str]


class NotSearchedError(ValueError):
    """A file whose texts cannot be read; the message says why."""


def texts_of(path: str, decoder: Callable[[], Decode | None] = lambda: None) -> Iterator[list[str]]:
    """The texts of a file, some megabytes at a time. `decoder`: gives what decodes the tokens of a token shard.

    Raises NotSearchedError for a file without texts, or of an unknown format, OSError for one that cannot be read.
    """
    name = path.rpartition("/")[2]
    for end, what in WITHOUT_TEXT.items():
        if name.endswith(end):
            raise NotSearchedError(what)
    with files.open_file(path) as f:
        head = f.read(512)
    if head[:4] == b"PAR1":
        yield from _of_table(path)
    elif name.endswith(".bin") and files.exists(f"{path.removesuffix('.bin')}.parquet"):
        yield from _of_tokens(path, decoder())
    elif head.startswith(_SQLITE):
        yield from _of_database(path)
    else:
        packed = next((opened for magic, opened in _MAGIC.items() if head.startswith(magic)), None)
        plain = re.sub(r"\.(gz|zst)$", "", name) if packed else name
        with files.open_file(path) as f:
            stream: IO[bytes] = packed(f) if packed else f  # type: ignore[operator]
            yield from _of_stream(stream, plain)


def _of_table(path: str) -> Iterator[list[str]]:
    with files.open_file(path) as f:
        try:
            table = pq.ParquetFile(f)
            for number in range(table.num_row_groups):
                for column in table.read_row_group(number).columns:
                    yield from _grouped(_strings(column))
        except (pa.ArrowException, UnicodeDecodeError) as error:
            raise NotSearchedError(f"a damaged table: {error}") from error


def _strings(column: pa.ChunkedArray) -> Iterator[str]:
    """All strings in a column, also those in lists and objects."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        yield from (text for text in column.to_pylist() if text)
    elif pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        yield from (data.decode("utf-8", "ignore") for data in column.to_pylist() if data)
    elif pa.types.is_nested(kind):
        yield from (text for value in column.to_pylist() for text in _leaves(value))


def _leaves(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, bytes):
        yield value.decode("utf-8", "ignore")
    elif isinstance(value, dict):
        yield from (text for each in value.values() for text in _leaves(each))
    elif isinstance(value, list | tuple):
        yield from (text for each in value for text in _leaves(each))


def _grouped(texts: Iterator[str]) -> Iterator[list[str]]:
    group: list[str] = []
    size = 0
    for text in texts:
        group.append(text)
        size += len(text)
        if size > PIECE:
            yield group
            group, size = [], 0
    if group:
        yield group


def _of_tokens(path: str, decode: Decode | None) -> Iterator[list[str]]:
    """The documents of a token shard, decoded."""
    if decode is None:
        raise NotSearchedError("tokens of an unknown tokenizer")
    with files.open_file(f"{path.removesuffix('.bin')}.parquet") as f:
        index = pq.ParquetFile(f)
        if not {"offset", "length"} <= {*index.schema_arrow.names}:
            raise NotSearchedError("tokens without an index")
        table = index.read(["offset", "length"])
        dtype = (index.schema_arrow.metadata or {}).get(b"dtype", b"<u2").decode()
    offsets, lengths = (table[name].to_numpy() for name in ("offset", "length"))
    each = np.dtype(dtype).itemsize
    with files.open_file(path) as f:
        for begin in range(0, len(offsets), BATCH):
            texts = []
            for offset, length in zip(offsets[begin : begin + BATCH], lengths[begin : begin + BATCH], strict=True):
                f.seek(int(offset) * each)
                texts.append(decode(np.frombuffer(f.read(int(length) * each), dtype).tolist()))
            yield texts


def _of_database(path: str) -> Iterator[list[str]]:
    """All texts of an SQLite database on a local disk."""
    if not files.is_local(path):
        raise NotSearchedError("a database that is not on a local disk")
    try:
        connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=60)
        try:
            names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            for name in names:
                rows = connection.execute('SELECT * FROM "{}"'.format(name.replace('"', '""')))
                yield from _grouped(text for row in rows for value in row for text in _parsed(value))
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise NotSearchedError(f"a database that cannot be read: {error}") from error


def _parsed(value: Any) -> Iterator[str]:
    """The texts in a value of a database, which may be JSON or HTML."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "ignore")
    if isinstance(value, str):
        yield from _of_text(value)


def _of_text(text: str) -> Iterator[str]:
    """A text; of JSON its texts, of a page what a reader sees."""
    if text[:1] in ("{", "["):
        try:
            yield from _leaves(json.loads(text))
            return
        except ValueError:
            pass
    yield text
    if "<" in text or "&" in text:
        yield visible(text)


def visible(page: str) -> str:
    """The text of a page without its tags."""
    return html.unescape(_TAG.sub(" ", page))


def _of_stream(stream: IO[bytes], name: str) -> Iterator[list[str]]:
    """The texts of plain bytes: lines of JSON one by one, else pieces that overlap."""
    try:
        piece = stream.read(PIECE)
        if b"\0" in piece and not name.endswith((".warc", ".arc", ".wet")):
            raise NotSearchedError(UNKNOWN)
        if name.endswith((".json", ".yaml", ".html", ".htm", ".svg")):
            piece += stream.read()  # written whole, and of the size of a page
            yield [*_of_text(piece.decode("utf-8", "ignore"))]
            return
        before = ""
        while piece:
            text = before + piece.decode("utf-8", "ignore")
            if name.endswith((".jsonl", ".ndjson")):
                *lines, before = text.split("\n")
                yield [part for line in lines for part in _of_text(line)]
            else:
                yield [*_of_text(text)]
                before = text[-OVERLAP:]
            piece = stream.read(PIECE)
        if name.endswith((".jsonl", ".ndjson")) and before:
            yield [*_of_text(before)]
    except (OSError, EOFError, zstd.ZstdError) as error:
        raise NotSearchedError(f"a damaged file: {error}") from error
