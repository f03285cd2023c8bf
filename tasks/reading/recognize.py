"""What a file is, by its content: a bounded look at its beginning."""

import codecs
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

import orjson
from resiliparse.extract.html2text import extract_plain_text

from gristmill.storage.remote.config import DEFAULT
from gristmill.tasks.reading import archives, charset
from gristmill.tasks.reading.headers import LINE, begins_record
from gristmill.tasks.reading.members import open_content
from gristmill.tasks.reading.repositories.archives import members
from gristmill.tasks.reading.sources import Columns
from gristmill.tasks.source_code.names import by_name

Kind = Literal["warc", "jsonl", "parquet", "text", "pages", "code"]

_HEAD = 1 << 20
_RECORDS = 400
_TEXTS = 40
_CHARACTERS = 2000
_MOST_BYTES = 1 << 20
# Languages that archives without source code have, too; by the names that `by_name` gives.
_TEXTS_AND_DATA = frozenset(
    ("BibTeX", "CSS", "CSV", "Gettext Catalog", "HTML", "INI", "JSON", "Java Properties", "Markdown", "Roff", "SVG")
) | {"TOML", "TSV", "TeX", "Text", "XML", "YAML", "reStructuredText"}
_PACKED = (b"BZh", b"\xfd7zXZ")  # bzip2 and xz, which hold archives
_FILES = 2000  # of an archive that are looked at
_UNPACKED = 64 << 20  # bytes of an archive that are looked at
_CONTROLS = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_NO_TEXTS = {
    "csv": "a table of separated values: convert it to Parquet or lines of JSON",
    "tsv": "a table of separated values: convert it to Parquet or lines of JSON",
    "html": "a page beside no archive: name it in a recipe, as `pages: [FILE]`",
    "htm": "a page beside no archive: name it in a recipe, as `pages: [FILE]`",
    "xml": "XML",
    "yaml": "YAML",
    "yml": "YAML",
    "paths": "a list of files: name it in a recipe, as `warc: [LIST]`",
}
# Names of columns, the likeliest first; in either case.
_TEXT = (
    *("text", "content", "body", "raw_content", "page_content", "contents", "article", "document", "passage"),
    *("plain_text", "raw_text", "maintext", "markdown", "story", "abstract"),
)
_URL = ("url", "uri", "source_url", "page_url", "link", "permalink", "target_uri", "warc_target_uri")
_ID = (
    "id",
    "doc_id",
    "docid",
    "dockey",
    "doc_key",
    "document_id",
    "_id",
    "uuid",
    "guid",
    "record_id",
    "warc_record_id",
    "key",
)
_DATE = (
    *("date", "crawl_date", "date_download", "timestamp", "published", "published_at", "date_publish", "created"),
    *("created_at", "created_date", "pubdate", "pub_date", "when", "time", "warc_date", "added", "year"),
)


@dataclass(frozen=True)
class Look:
    """What a file is. `kind`: the key of a source that reads it, or None, and `trouble` is the reason; `columns`: of
    tables, and `others` that there are; `texts`: the beginnings of some documents; `pages`: how many were HTML. A PDF
    document has the kind `pages`; it is not read here, as that needs a guarded process."""

    kind: Kind | None
    columns: Columns = Columns()
    texts: tuple[str, ...] = ()
    pages: int = 0
    trouble: str = ""
    others: tuple[str, ...] = ()


def look(path: str) -> Look:
    """Look at the first MiB of a file's content, at 400 records of an archive, or at 40 rows. Raises OSError for a file
    that cannot be opened."""
    head, whole, stored = _head(path)
    if stored.startswith(b"PAR1"):
        return _parquet(path)
    if begins_record(head[:LINE]):
        return _archive(path)
    if not head.strip():
        return Look(None, trouble="empty")
    lines = head.removeprefix(codecs.BOM_UTF8).split(b"\n")
    if head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"["):
        return _lines(lines if whole else lines[:-1])
    if reason := _NO_TEXTS.get(_suffix(path)):
        return Look(None, trouble=reason)
    if head.startswith(b"%PDF-"):
        return Look("pages")
    if head.startswith(b"PK\x03\x04") or head[257:262] == b"ustar" or head.startswith(_PACKED):
        return _repository(path)
    if _CONTROLS.search(head) and not head.startswith(codecs.BOM_UTF16):
        return Look(None, trouble="not WARC, ARC, Parquet, lines of JSON or text")
    return Look("text", texts=(charset.decode(head, charset.detect(head, None, False))[:_CHARACTERS],))


def _repository(path: str) -> Look:
    """Whether there is source code among the first files of an archive, by their names."""
    found = islice(members(path, _UNPACKED, DEFAULT), _FILES)
    names = [known for member in found if member.problem is None and (known := by_name(member.path))]
    if any(language not in _TEXTS_AND_DATA for language, _ in names):
        return Look("code")
    return Look(None, trouble="an archive of files, among the first of which none is known as source code")


def _suffix(path: str) -> str:
    """The last suffix ahead of that of a compression, without its point."""
    parts = path.rsplit("/", 1)[-1].lower().split(".")[1:]
    while parts and parts[-1] in ("gz", "zst", "lz4"):
        parts.pop()
    return parts[-1] if parts else ""


def _head(path: str) -> tuple[bytes, bool, bytes]:
    """The beginning of the content, whether it is all of it, and the first bytes as they are stored."""
    head = b""
    with open_content(path, DEFAULT) as content:
        stored = content.peek(4)
        try:
            for piece in content.pieces():
                head += piece
                if len(head) > _HEAD:
                    return head[:_HEAD], False, stored
        except OSError:  # damage, behind what is sound
            return head, False, stored
    return head, True, stored


def _archive(path: str) -> Look:
    texts: list[str] = []
    pages = 0
    for record in islice(archives.records(path, _MOST_BYTES), _RECORDS):
        if len(texts) == _TEXTS:
            break
        if not record.payload or record.status not in (None, 200):
            continue
        html = record.content_type in ("text/html", "application/xhtml+xml")
        if html or record.content_type == "text/plain":
            text = charset.decode(record.payload, charset.detect(record.payload, record.charset, html))
            text = extract_plain_text(text, main_content=True) if html else text
            if text.strip():
                texts.append(text[:_CHARACTERS])
                pages += html
    return Look("warc", texts=tuple(texts), pages=pages)


def _lines(lines: Sequence[bytes]) -> Look:
    rows: list[dict[str, Any]] = []
    for line in lines:
        if not line.strip():
            continue
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError:
            row = None
        if not isinstance(row, dict):
            if rows:  # a damaged line in a file of lines
                continue
            return Look(None, trouble="JSON, but not one object a line: write each document on a line of its own")
        rows.append(row)
        if len(rows) == _TEXTS:
            break
    if not rows:
        return Look(None, trouble="its first line has more than 1 MiB")
    names = dict.fromkeys(name for row in rows for name in row)
    return _table("jsonl", {name: [row.get(name) for row in rows] for name in names})


def _parquet(path: str) -> Look:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 16) as file:
            flat = [field.name for field in file.schema_arrow if not pa.types.is_nested(field.type)]
            batch = next(file.iter_batches(_TEXTS, columns=flat), None)
            rows = batch.to_pydict() if batch is not None else {}
    except (OSError, pa.ArrowException) as error:
        return Look(None, trouble=f"a damaged Parquet file: {error}".splitlines()[0])
    return _table("parquet", rows) if rows else Look(None, trouble="without rows")


def _table(kind: Kind, values: Mapping[str, Sequence[Any]]) -> Look:
    """`values`: those of some rows, by column."""
    lengths = {
        name: sum(map(len, texts)) / len(found)
        for name, found in values.items()
        if (texts := [value for value in found if isinstance(value, str)]) and len(texts) * 2 >= len(found)
    }
    lengths = {name: length for name, length in lengths.items() if length}
    if not lengths:
        return Look(None, trouble=f"no column with text; there are {', '.join(values) or 'none'}")
    text = _named(_TEXT, lengths) or max(lengths, key=lambda name: lengths[name])
    others = [
        name for name, found in values.items() if name != text and any(isinstance(each, str | int) for each in found)
    ]
    dates = [name for name, found in values.items() if name != text and any(each is not None for each in found)]
    columns = Columns(text, _named(_URL, others), _named(_ID, others), _named(_DATE, dates))
    begun = tuple(value[:_CHARACTERS] for value in values[text] if isinstance(value, str))
    others = [name for name in values if name not in columns.named]
    return Look(kind, columns, begun, others=tuple(others))


def _named(names: Sequence[str], columns: Sequence[str] | Mapping[str, Any]) -> str | None:
    """The column with the likeliest name."""
    lower = {column.lower().replace("-", "_"): column for column in reversed([*columns])}
    return next((lower[name] for name in names if name in lower), None)


def languages(texts: Sequence[str]) -> Counter[str]:
    """Texts by their most probable language (ISO 639 code of lid.176), those of which it is unsure left out."""
    from gristmill.tasks.models.language.identification import model
    from gristmill.tasks.models.model_files import LABEL

    if not texts:
        return Counter()
    labels, scores = model().predict([" ".join(text[:400].split()) for text in texts], k=1)
    sure = zip(labels, scores, strict=True)
    return Counter(label[0].removeprefix(LABEL) for label, score in sure if score[0] >= 0.5)
