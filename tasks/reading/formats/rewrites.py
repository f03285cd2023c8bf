"""Sources whose documents a language model writes from the documents of another recipe."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import Field
from wrapt import lazy_import

from gristmill.storage import files, layout, parquet
from gristmill.tasks.language_model.rewrite import CARRIED, Rewrite, file_name
from gristmill.tasks.reading.formats.source import Inspection, ReadOptions, SourceSettings
from gristmill.tasks.reading.listing import Shard, together
from gristmill.tasks.reading.range_plan import Reading
from gristmill.tasks.reading.record import Columns, Record

if TYPE_CHECKING:
    from gristmill.tasks.reading import own_columns
else:
    own_columns = lazy_import("gristmill.tasks.reading.own_columns")

_SHARD_BYTES = 16 << 20


class Rewrites(SourceSettings):
    """Documents that a language model writes from the curated documents of another recipe.

    A rewrite has the URL, date and place of its document, and `derived_from`, its id. The server is a setting of the
    machine (`GRISTMILL_LM__BASE_URL`). Answers are kept in the home, and are never paid for twice.
    """

    key: ClassVar = "rewrite"
    file_format: ClassVar = "rewrites"
    packages: ClassVar = ("openai",)
    examples: ClassVar = {
        "name": "questions",
        "rewrite": {"recipe": "web.yaml", "model": "Qwen/Qwen3-8B", "prompt": "question_answer", "of": 20_000},
    }

    rewrite: Rewrite = Field(description="Which documents are rewritten, and how.")

    @property
    def needs_extraction(self) -> bool:
        return False

    @property
    def read_columns(self) -> Columns:
        return Columns(url="url", id="id", date="date", own=tuple((name, name) for name in CARRIED.names))

    def rewritten_shards(self, folder: str, characters: Sequence[int]) -> tuple[list[Shard], list[range]]:
        """The parts of the stage in a folder as files, and which of them are read together. `characters`: of the
        rewrites in each part; parts without one are left out."""
        there = [(number, count) for number, count in enumerate(characters) if count]
        read = [
            Shard(self.file_format, path, path.rpartition("/")[2], self.read_columns, folder)
            for path in (layout.part(folder, number) for number, _ in there)
        ]
        return read, together(read, [count for _, count in there], _SHARD_BYTES)

    def inspect(self, deep: bool) -> Inspection:
        return Inspection(self, None, None, False, True, tuple(self.rewrite.problems(("rewrite",), deep)))

    @classmethod
    def named_records(cls, shard: Shard, options: ReadOptions, reading: Reading) -> Iterator[tuple[str, Record]]:
        """Every rewrite of a part, named by source and file of its document, so that its id depends neither on the
        part nor on other rewrites."""
        for table in parquet.groups(shard.path):
            for row in table.to_pylist():
                yield _name(row), _record(row)

    @classmethod
    def record_at(cls, shard: Shard, file: str, offset: int, length: int | None, options: ReadOptions) -> Record:
        """The rewrite of the document at a place, in any part of the stage: parts are read together."""
        paths = [files.join(shard.base, name) for name in files.names(shard.base) if name.startswith("part-")]
        for path in dict.fromkeys([*(each for each in paths if each == shard.path), *paths]):
            places = parquet.read_table(path, ["derived_source", "file", "offset", "length"]).to_pylist()
            for number, row in enumerate(places):
                if (_name(row), row["offset"], row["length"]) == (file, offset, length):
                    return _record(parquet.read_table(path).slice(number, 1).to_pylist()[0])
        raise LookupError(f"{shard.base} has no rewrite of the document at {offset} of {file}")

    @classmethod
    def column_types(cls, shard: Shard, max_bytes: int) -> Iterator[tuple["own_columns.Types", list[str]]]:
        return own_columns.types_of_footer(shard)

    @classmethod
    def column_names(cls, path: str, columns: Columns) -> list[str]:
        return own_columns.names_of_footer(path, columns)


def _name(row: dict[str, Any]) -> str:
    return file_name(row["derived_source"], row["file"])


def _record(row: dict[str, Any]) -> Record:
    return Record(
        "row",
        row["offset"],
        row["length"],
        record_id=row["id"],
        url=row["url"] or "",
        date=row["date"] or "",
        content_type="text/plain",
        charset="utf-8",
        payload=row["text"].encode(),
        own={name: row[name] for name in CARRIED.names},
    )
