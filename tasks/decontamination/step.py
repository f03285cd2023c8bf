"""The step `decontamination`: benchmarks, how documents are compared with them, and what to do with documents that
contain items."""

import gzip
import io
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import IO, Any, ClassVar, Literal, Self

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field, model_validator

from gristmill.storage import files
from gristmill.storage.printable import redact_url
from gristmill.storage.settings import Address
from gristmill.tasks.documents.file_problems import file_problems, own_sentence
from gristmill.tasks.documents.step import CorpusStep, Problem, Settings, Signal

SCORE, BENCHMARK = "contamination", "contamination_benchmark"


class Fields(Settings):
    """Which fields of a row of a benchmark are what. A field within another is written `choices.text`; a value is a
    text, a number, or a list of them."""

    question: tuple[str, ...] = Field(min_length=1, description="Fields of the question. Their texts are joined.")
    answer: str | None = Field(None, description="Field of the answer, or of a list of answers or choices.")
    passage: str | None = Field(None, description="Field of the text that the question is about.")
    id: str | None = Field(None, description="Field of the item's id. None: the row number, from 0.")


class Benchmark(Fields):
    """A file with the items of a benchmark."""

    name: str = Field(
        pattern=r"^[\w.-]+$", description="Name in the report, in columns and in the names of its split files."
    )
    path: Address = Field(description="JSON Lines or Parquet, plain or compressed with gzip or zstd.")


class Indexing(Settings):
    """What decides the index of the benchmarks, besides their content."""

    method: Literal["overlap", "ngrams"] = Field(
        "overlap",
        description="How items are found. overlap: by the share of an item's question, answer and passage, tolerant "
        "of changed words, after decon. ngrams: by any word n-gram of an item, after GPT-3.",
    )
    ngram: int = Field(13, ge=8, le=13, description="With `ngrams`: words per n-gram. One match is enough.")
    overlap_ngram: int = Field(
        3,
        ge=2,
        le=8,
        description="With `overlap`: words per n-gram of a question. These n-grams are looked up to find "
        "candidate items.",
    )
    min_words: int = Field(
        8,
        ge=1,
        description="With `overlap`: minimum length of question and answer together, in words, or 1.6 "
        "times the number of different words without numbers and letters if that is smaller. "
        "Shorter items occur in many texts by chance.",
    )
    threshold: float = Field(
        0.6, gt=0, le=1, description="With `overlap`: minimum score at which a document contains an item."
    )
    strict_words: int = Field(
        6,
        ge=1,
        description="With `overlap`: items of up to this many words need a score of 1; longer items need less.",
    )
    tolerant_words: int = Field(
        12,
        ge=2,
        description="With `overlap`: from this many words on, `threshold` applies. In between, the "
        "required score falls linearly.",
    )
    max_misses: int = Field(
        11,
        ge=0,
        description="With `overlap`: maximum number of consecutive words that are in no n-gram of the "
        "question without ending a match.",
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.strict_words >= self.tolerant_words:
            raise ValueError(
                f"`strict_words` is {self.strict_words} and `tolerant_words` {self.tolerant_words}; give a larger "
                "number for the latter"
            )
        return self

    @property
    def words(self) -> int:
        """Words of the n-grams that are looked up."""
        return self.ngram if self.method == "ngrams" else self.overlap_ngram


class Policy(Settings):
    """What to do with documents that contain items."""

    policy: Literal["drop", "cut", "report"] = Field(
        "drop",
        description="What to do with a document that contains an item. drop: remove the document. cut: "
        "remove the words from the first to the last match. report: only report it.",
    )
    min_characters: int = Field(
        20, ge=1, description="With `cut`: a document that has fewer characters left after a cut is dropped."
    )


class Decontamination(Indexing, Policy, CorpusStep):
    """Find documents that contain items of benchmarks, and drop them or cut the items out.

    `ngrams`: GPT-3 (Brown et al. 2020, arXiv 2005.14165, appendix C) calls a document contaminated that has any 13-gram
    of an item, for shorter items an n-gram of 8 words or more.

    `overlap`: after decon (allenai/decon, doc/simple.md, doc/simple-details.md, version 0.3.0), with these differences:

    - n-grams of 3 words, not of 5 tokens, lead to an item, and its share is the share of the words that are next to one
    of
      their neighbors in the item, weighted by their inverse document frequency, not the share of the n-grams: one
      changed word takes n n-grams with it;
    - every n-gram of a document is looked up, not every tenth: with a fifth of the words changed a question keeps half
      of its 3-grams, of which a sample would miss most;
    - a question counts by itself as well as together with its answer and passage, whose weights are decon's.
    """

    work: ClassVar = "gristmill.tasks.decontamination.find"
    signals: ClassVar = (
        Signal(
            SCORE,
            "float64",
            "share",
            "allenai/decon; Brown et al. 2020",
            description="The highest score of an item of a benchmark that the document holds; 0 if it holds none.",
        ),
        Signal(
            BENCHMARK,
            "string",
            "name",
            "allenai/decon; Brown et al. 2020",
            description="The benchmark of that item; empty if there is none.",
        ),
    )

    step: Literal["decontamination"] = "decontamination"
    benchmarks: tuple[Benchmark, ...] = Field(min_length=1, description="Benchmarks that documents must not contain.")

    @model_validator(mode="after")
    def _own_names(self) -> Self:
        names = [benchmark.name for benchmark in self.benchmarks]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two benchmarks have the name {twice[0]}; give each a different name")
        return self

    def problems(self, deep: bool) -> Iterator[Problem]:
        for index, benchmark in enumerate(self.benchmarks):
            check = partial(read_items, benchmark.path, benchmark)
            yield from file_problems(benchmark.path, ("benchmarks", index), deep, check, own_sentence)


# Benchmarks as they are published: files with a row for each item, of which some fields are its texts.


_PARQUET = b"PAR1"
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


class BenchmarkError(ValueError):
    """A benchmark cannot be used: which file, why, and what to do."""


@dataclass(frozen=True)
class Item:
    """`row`: the item as it is in the file, as JSON."""

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
    label = redact_url(path)
    try:
        with files.open_file(path) as stream:
            rows = list(_rows(stream, label))
    except FileNotFoundError:
        raise BenchmarkError(f"the benchmark {label} does not exist; correct the path") from None
    except (OSError, EOFError, zlib.error, pa.ArrowException) as error:
        raise BenchmarkError(f"the benchmark {label} cannot be read ({error}); copy or make it again") from None
    if not rows:
        raise BenchmarkError(f"the benchmark {label} has no items; give a file with rows, or remove it from the recipe")
    items = [_item(row, line, number, fields, label) for number, (row, line) in enumerate(rows)]
    numbers: dict[str, int] = {}
    for number, item in enumerate(items):
        if (first := numbers.setdefault(item.id, number)) != number:
            raise BenchmarkError(
                f"the benchmark {label} has the id {item.id} in row {first} and in row {number}; use another "
                "field as `id`, or none"
            )
    return items


def _rows(stream: IO[bytes], label: str) -> Iterator[tuple[Any, bytes]]:
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
                f"the benchmark {label} has no JSON in line {number} ({error}); give JSON lines or Parquet"
            ) from None
        yield row, line.strip()


def _item(row: Any, line: bytes, number: int, fields: Fields, label: str) -> Item:
    def texts(field: str | None) -> tuple[str, ...]:
        if field is None:
            return ()
        try:
            return _texts(_value(row, field))
        except (KeyError, TypeError):
            has = ", ".join(row) if isinstance(row, dict) else f"a {type(row).__name__}"
            raise BenchmarkError(
                f"the benchmark {label} has no text in the field {field} of row {number}, whose fields are "
                f"{has}; correct the field names in the recipe"
            ) from None

    question = "\n".join(text for field in fields.question for text in texts(field))
    if not question.strip():
        raise BenchmarkError(
            f"the benchmark {label} has an empty question ({', '.join(fields.question)}) in row {number}; "
            "remove the row, or use another field"
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
