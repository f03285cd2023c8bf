"""Sources of source code: folders, archives and single files of repositories."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field
from wrapt import lazy_import

from gristmill.storage.remote.config import DEFAULT
from gristmill.tasks.reading.formats.source import Beginning, Files, Look, Paths, ReadOptions
from gristmill.tasks.reading.listing import Shard, files_of, shards
from gristmill.tasks.reading.range_plan import Reading
from gristmill.tasks.reading.record import COLUMNS, LIBRARIES, Columns, Kept, Record, Repositories
from gristmill.tasks.source_code.recognition import by_name

if TYPE_CHECKING:
    from gristmill.storage import fingerprint
    from gristmill.tasks.reading import own_columns
    from gristmill.tasks.reading.repositories import archives, records
else:
    fingerprint = lazy_import("gristmill.storage.fingerprint")
    own_columns = lazy_import("gristmill.tasks.reading.own_columns")
    archives = lazy_import("gristmill.tasks.reading.repositories.archives")
    records = lazy_import("gristmill.tasks.reading.repositories.records")

# Languages that archives without source code have, too; by the names that `by_name` gives.
_TEXTS_AND_DATA = frozenset(
    ("BibTeX", "CSS", "CSV", "Gettext Catalog", "HTML", "INI", "JSON", "Java Properties", "Markdown", "Roff", "SVG")
) | {"TOML", "TSV", "TeX", "Text", "XML", "YAML", "reStructuredText"}
_PACKED = (b"BZh", b"\xfd7zXZ")  # bzip2 and xz, which hold archives
_FILES = 2000  # of an archive that are looked at
_UNPACKED = 64 << 20  # bytes of an archive that are looked at


class Code(Files):
    """Source code repositories: folders, tar and zip archives (also sdists and wheels), and single files. The format is
    detected from the content. Each folder, also each that matches a glob, is a repository; its `.git` is skipped.

    Documents carry the columns path, repository, license, license_type (permissive, non_permissive, no_license),
    license_by (file, text, metadata, none), header_characters and files.
    """

    key: ClassVar = "code"
    file_format: ClassVar = "code"
    wanted: ClassVar = "a file of source code"
    libraries: ClassVar = LIBRARIES
    examples: ClassVar = {
        "name": "code",
        "code": ["archives/*", "checkouts/*"],
        "leave_out": ["generated", "vendored"],
    }

    code: Paths
    unit: Literal["file", "repository"] = Field(
        "file",
        description="Unit of a document: a file, or all files of a repository, concatenated. A Python "
        "module comes before the modules that import it; other files are sorted by path.",
    )
    document_bytes: int = Field(
        1 << 20,
        gt=0,
        description="Maximum size of a document with several files (bytes). A larger file is a document by itself.",
    )
    file_header: str = Field(
        "<file_sep>{path}",
        description="Line before each file, with `unit: repository`. To make a part of it one token, add "
        "that part to `tokenizer.symbols`.",
    )
    leave_out: tuple[Kept, ...] = Field(
        (),
        description="Kinds of files to drop while reading: generated, vendored, minified, data. For `unit: "
        "repository`, where a document has several kinds of files.",
    )
    repeated_headers: bool = Field(
        False, description="Keep a license header that an earlier file of the repository already has."
    )
    archive_bytes: int = Field(
        8 << 30,
        gt=0,
        description="Maximum unpacked size of an archive (bytes). The rest is dropped as `archive_too_large`.",
    )

    @property
    def read_columns(self) -> Columns:
        return Columns(own=tuple((name, name) for name in COLUMNS))

    @property
    def repositories(self) -> Repositories:
        """How its files are read."""
        return Repositories(
            self.unit, self.document_bytes, self.file_header, self.leave_out, self.repeated_headers, self.archive_bytes
        )

    @property
    def needs_extraction(self) -> bool:
        return False

    def shards(self) -> list[Shard]:
        plain_shards = shards(self.file_format, files_of(self.paths, folders=True), self.read_columns)
        return [replace(shard, repositories=self.repositories) for shard in plain_shards]

    def size_of(self, path: str) -> int | None:
        return fingerprint.stated(path).size  # of a folder, the size of its files

    @classmethod
    def records(cls, shard: Shard, options: ReadOptions, reading: Reading) -> Iterator[Record]:
        how = shard.repositories or Repositories()
        return records.records(shard.path, shard.name, how, options.max_bytes, options.remote_io, reading)

    @classmethod
    def column_types(cls, shard: Shard, max_bytes: int) -> Iterator[tuple["own_columns.Types", list[str]]]:
        return own_columns.types_of_code()

    @classmethod
    def recognize(cls, beginning: Beginning) -> Look | None:
        """Whether there is source code among the first files of an archive, by their names."""
        head = beginning.head
        if not (head.startswith((b"PK\x03\x04", *_PACKED)) or head[257:262] == b"ustar"):
            return None
        first = islice(archives.members(beginning.path, _UNPACKED, DEFAULT), _FILES)
        names = [
            name_language for member in first if member.problem is None and (name_language := by_name(member.path))
        ]
        if any(language not in _TEXTS_AND_DATA for language, _ in names):
            return Look(cls.key)
        return Look(None, trouble="an archive whose first files are not recognized as source code")
