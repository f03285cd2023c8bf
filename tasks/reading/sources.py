"""The table of source formats. From it follow the sources of a recipe, and how their files are listed, read, checked
and recognized.

A source is known by which key it has: `warc`, `jsonl`, `parquet`, `text`, `pages`, `code`, `reader`, `snapshot`,
`index` or `rewrite`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Union

import pyarrow as pa
import wrapt
from pydantic import Discriminator, Tag

from gristmill.storage.remote.config import DEFAULT
from gristmill.tasks.documents.step import UNKNOWN
from gristmill.tasks.reading.formats.crawls import Archives, Selection, Snapshot
from gristmill.tasks.reading.formats.own import Own
from gristmill.tasks.reading.formats.rewrites import Rewrites
from gristmill.tasks.reading.formats.rows import Lines, Pages, Tables, Texts
from gristmill.tasks.reading.formats.source import Beginning, Look, SourceSettings
from gristmill.tasks.reading.formats.source_code import Code

if TYPE_CHECKING:
    from gristmill.tasks.reading import members
else:
    members = wrapt.lazy_import("gristmill.tasks.reading.members")

FORMATS: tuple[type[SourceSettings], ...] = (
    Archives,
    Lines,
    Tables,
    Texts,
    Pages,
    Code,
    Own,
    Snapshot,
    Selection,
    Rewrites,
)
BY_KEY = {kind.key: kind for kind in FORMATS}
# A snapshot's files are archives.
_BY_FORMAT = {kind.file_format: kind for kind in reversed(FORMATS)}


def format_of(name: str) -> type[SourceSettings]:
    """The class that reads the files of a shard, by the name of their format, or the address of a user's reader."""
    return Own if ":" in name else _BY_FORMAT[name]


def _key(value: Any) -> str | None:
    keys = value if isinstance(value, Mapping) else getattr(type(value), "model_fields", ())
    matching_keys = [key for key in BY_KEY if key in keys]
    return matching_keys[0] if len(matching_keys) == 1 else None


if TYPE_CHECKING:
    Source = SourceSettings  # a type checker cannot follow a union made of a table
else:
    Source = Annotated[
        Union[tuple(Annotated[kind, Tag(key)] for key, kind in BY_KEY.items())],  # noqa: UP007  (the table's)
        Discriminator(
            _key,
            custom_error_type="source",
            custom_error_message=f"a source has exactly one of the keys {', '.join(BY_KEY)}",
        ),
    ]


# What a file is, by its content: a bounded look at its beginning.

_HEAD = 1 << 20
# Formats whose files are known by little: a suffix says more. A file of none of the others is a text, or nothing.
_AFTER_SUFFIXES = (Pages, Code, Texts)
_NO_TEXTS = {
    "csv": "a table of separated values: convert it to Parquet or lines of JSON",
    "tsv": "a table of separated values: convert it to Parquet or lines of JSON",
    "html": "a single page: list it in a recipe, as `pages: [FILE]`",
    "htm": "a single page: list it in a recipe, as `pages: [FILE]`",
    "xml": "XML",
    "yaml": "YAML",
    "yml": "YAML",
    "paths": "a list of files: use it in a recipe, as `warc: [LIST]`",
}


def look(path: str) -> Look:
    """Look at the first MiB of a file's content, at 400 records of an archive, or at 40 rows. Raises OSError for a file
    that cannot be opened."""
    beginning = _beginning(path)
    if not beginning.head.strip():
        return Look(None, trouble="empty")
    for kind in FORMATS:
        if kind not in _AFTER_SUFFIXES and (seen := kind.recognize(beginning)):
            return seen
    if reason := _NO_TEXTS.get(_suffix(path)):
        return Look(None, trouble=reason)
    for kind in _AFTER_SUFFIXES:
        if seen := kind.recognize(beginning):
            return seen
    return Look(None, trouble="not WARC, ARC, Parquet, lines of JSON or text")


def _suffix(path: str) -> str:
    """The last suffix before the suffix of a compression, without its dot."""
    parts = path.rsplit("/", 1)[-1].lower().split(".")[1:]
    while parts and parts[-1] in ("gz", "zst", "lz4"):
        parts.pop()
    return parts[-1] if parts else ""


def _beginning(path: str) -> Beginning:
    head = b""
    with members.open_content(path, DEFAULT) as content:
        stored = content.peek(4)
        try:
            for piece in content.pieces():
                head += piece
                if len(head) > _HEAD:
                    return Beginning(path, head[:_HEAD], False, stored)
        except OSError:  # damage after a sound part
            return Beginning(path, head, False, stored)
    return Beginning(path, head, True, stored)


def languages(texts: Sequence[str]) -> Counter[str]:
    """Texts by their most probable language (ISO 639 code), without texts whose language is uncertain."""
    from gristmill.tasks.models.language import Identification, identified

    labels, _ = identified(
        Identification(unknown_below=0.5), pa.array([text[:400] for text in texts], pa.large_string())
    )
    return Counter(label for label in labels if label != UNKNOWN)
