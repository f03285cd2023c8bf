"""Benchmarks as they are published: files with a row for each item, of which some fields are its texts."""

import gzip
import io
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from gristmill.storage import files
from gristmill.storage.remote.redact import redact_url
from gristmill.tasks.decontamination.step import Fields

_PARQUET = b"PAR1"
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


class BenchmarkError(ValueError):
    """A benchmark cannot be used: which file, why, and what to do."""


@dataclass(frozen=True)
class Item:
    """`row`: the item as it stands in the file, as JSON."""

    id: str
    question: str
    answers: tuple[str, ...]
    passage: str
    row: bytes


def read_items(path: str, fields: Fields) -> list[Item]:
    """The items of a benchmark in the order of its file, which is known by its first bytes: Parquet, or JSON lines,
    these also in gzip or zstd. Holds the file.

    Raises BenchmarkError for a file that is missing, damaged or empty, a field that a row lacks, a question without a
    text, or an id that comes twice; RemoteIOError.
    """
    shown = redact_url(path)
    try:
        with files.open_file(path) as stream:
            rows = list(_rows(stream, shown))
    except FileNotFoundError:
        raise BenchmarkError(f"the benchmark {shown} does not exist; correct the path") from None
    except (OSError, EOFError, zlib.error, pa.ArrowException) as error:
        raise BenchmarkError(f"the benchmark {shown} cannot be read ({error}); copy or make it again") from None
    if not rows:
        raise BenchmarkError(f"the benchmark {shown} has no item; give a file with rows, or take it out of the recipe")
    items = [_item(row, line, number, fields, shown) for number, (row, line) in enumerate(rows)]
    known: dict[str, int] = {}
    for number, item in enumerate(items):
        if (first := known.setdefault(item.id, number)) != number:
            raise BenchmarkError(
                f"the benchmark {shown} has the id {item.id} in row {first} and in row {number}; name another field "
                "as `id`, or none"
            )
    return items


def _rows(stream: IO[bytes], shown: str) -> Iterator[tuple[Any, bytes]]:
    begin = stream.read(4)
    stream.seek(0)
    if begin == _PARQUET:
        for row in pq.read_table(pa.PythonFile(stream)).to_pylist():
            yield row, orjson.dumps(row, default=str)
        return
    lines: IO[bytes] = stream
    if begin[:2] == _GZIP:
        lines = io.BytesIO(gzip.GzipFile(fileobj=stream).read())
    elif begin == _ZSTD:
        lines = io.BytesIO(pa.CompressedInputStream(pa.PythonFile(stream), "zstd").read())
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise BenchmarkError(
                f"the benchmark {shown} has no JSON in line {number} ({error}); give JSON lines or Parquet"
            ) from None
        yield row, line.strip()


def _item(row: Any, line: bytes, number: int, fields: Fields, shown: str) -> Item:
    def texts(field: str | None) -> tuple[str, ...]:
        if field is None:
            return ()
        try:
            return _texts(_value(row, field))
        except (KeyError, TypeError):
            has = ", ".join(row) if isinstance(row, dict) else f"a {type(row).__name__}"
            raise BenchmarkError(
                f"the benchmark {shown} has no text in the field {field} of row {number}, whose fields are {has}; "
                "correct the names of its fields in the recipe"
            ) from None

    question = "\n".join(text for field in fields.question for text in texts(field))
    if not question.strip():
        raise BenchmarkError(
            f"the benchmark {shown} has an empty question ({', '.join(fields.question)}) in row {number}; remove the "
            "row, or name another field"
        )
    identity = texts(fields.id)
    answers = tuple(dict.fromkeys(text for text in texts(fields.answer) if text.strip()))
    return Item(identity[0] if identity else str(number), question, answers, "\n".join(texts(fields.passage)), line)


def _value(row: Any, field: str) -> Any:
    if field in row:
        return row[field]
    for name in field.split("."):
        row = row[name]
    return row


def _texts(value: Any) -> tuple[str, ...]:
    """The texts of a value. Raises TypeError for one without, KeyError for null."""
    if isinstance(value, list | tuple):
        return tuple(text for each in value for text in _texts(each))
    if isinstance(value, str):
        return (value,)
    if isinstance(value, bool | int | float):
        return (orjson.dumps(value).decode(),)
    raise TypeError(type(value).__name__)
