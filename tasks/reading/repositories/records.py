"""A repository's files as records: each file one, or several of them one, in the order of their imports."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson
import xxhash

from gristmill.storage.remote.config import RemoteIOConfig
from gristmill.storage.remote.streams import RemoteIOError
from gristmill.tasks.reading import tables
from gristmill.tasks.reading.range_plan import Reading
from gristmill.tasks.reading.record import Kept, Record, Repositories
from gristmill.tasks.reading.repositories.archives import Member, members
from gristmill.tasks.reading.repositories.imports import in_order
from gristmill.tasks.reading.repositories.licensing import License, RepositoryLicenses, decoded, repository_licenses
from gristmill.tasks.source_code import licenses, recognition
from gristmill.tasks.source_code.comments import Span, comment_text, license_header
from gristmill.tasks.source_code.recognition import by_name, by_shebang

_ENDINGS = re.compile(r"(?i)\.(?:tar(?:\.(?:gz|bz2|xz|zst|lz4))?|tgz|tbz2?|txz|zip|whl|egg|jar|crate|gem)$")
# of the texts of a repository that are put in order together
_HELD = 64 << 20
_LEFT_OUT = {
    "generated": recognition.is_generated,
    "vendored": lambda path, text: recognition.is_vendored(path),
    "minified": recognition.is_minified,
    "data": recognition.is_data,
}


@dataclass(frozen=True)
class _File:
    """A file that is a text; `header`: characters of its license header that were left out."""

    path: str
    text: str
    encoding: str
    license: License
    header: int


def records(
    path: str,
    name: str,
    how: Repositories,
    max_bytes: int,
    remote_io: RemoteIOConfig,
    reading: Reading | None = None,
) -> Iterator[Record]:
    """The records of a repository, `offset` being their numbers from 0, `record_id` the paths of the files, and `own`
    the columns of `record.COLUMNS`. `name`: of the archive or folder.

    A file that does not become a document has a problem: `unsafe_path`, `link`, `no_file`, `encrypted`, `too_large`
    (over `max_bytes`), `damaged_file`, `binary`, `not_decodable`, `damaged_notebook`, `git_bundle`, or what
    `how.leave_out` names; an archive that cannot be read on is one record with `damaged_archive` or
    `archive_too_large`. The repository is read twice: the first time for its licenses. Holds a file, of `unit:
    repository` 64 MiB of them, and a hash for each license header. Raises FileNotFoundError, RemoteIOError.
    """
    repository = _ENDINGS.sub("", name.rstrip("/"))
    repository_license = repository_licenses(path, how.archive_bytes, remote_io)
    files_and_problems = _files(
        members(path, how.archive_bytes, remote_io, reading), how, max_bytes, repository_license
    )
    number = 0
    waiting: list[_File] = []
    size = 0
    for each in files_and_problems:
        if isinstance(each, Record) or how.unit == "file":
            yield _numbered(each, number, repository)
            number += 1
            continue
        waiting.append(each)
        size += len(each.text)
        if size >= _HELD:
            for document in _documents(waiting, how):
                yield _joined(document, number, repository, how)
                number += 1
            waiting, size = [], 0
    for document in _documents(waiting, how):
        yield _joined(document, number, repository, how)
        number += 1


def _files(
    archive_members: Iterator[Member], how: Repositories, max_bytes: int, repository_license: RepositoryLicenses
) -> Iterator[_File | Record]:
    """Each member as a file, or as a record with a problem, whose number is set later."""
    headers: set[str] = set()
    for member in archive_members:
        path = member.path
        if member.problem:
            yield _lost(path, *member.problem)
            continue
        if member.size > max_bytes:
            yield _lost(path, "too_large", f"{member.size:,} bytes")
            continue
        try:
            data = member.read(max_bytes + 1)
        except RemoteIOError:
            raise
        except Exception as error:  # of the libraries that unpack archives: of many types
            yield _lost(path, "damaged_file", f"{type(error).__name__}: {error}")
            continue
        if len(data) > max_bytes:
            yield _lost(path, "too_large", f"more than {max_bytes:,} bytes")
            continue
        text = decoded(data)
        if text.problem:
            yield _lost(path, *text.problem)
            continue
        content = text.text
        if path.endswith(".ipynb"):
            try:
                content = rendered(content)
            except NotebookError as error:
                yield _lost(path, "damaged_notebook", str(error))
                continue
        if reason := _left_out(path, content, how.leave_out):
            yield _lost(path, reason, f"left out: {reason}")
            continue
        span = _license_header(path, content)
        license = repository_license.of(path, content, content[span.start : span.stop] if span else "")
        header = 0
        if span and not how.repeated_headers:
            content, header = _without_repeated(content, span, headers)
        yield _File(path, content, text.encoding, license, header)


def _left_out(path: str, text: str, kinds: tuple[Kept, ...]) -> Kept | None:
    return next((kind for kind in kinds if _LEFT_OUT[kind](path, text)), None)


def _license_header(path: str, text: str) -> Span | None:
    name_language = by_name(path)
    language = name_language[0] if name_language else by_shebang(text)
    return license_header(text, language) if language else None


def _without_repeated(text: str, span: Span, seen: set[str]) -> tuple[str, int]:
    """The text without its license header if an earlier file has that, too, and how many characters it had. Years and
    white space do not make another header."""
    words = " ".join(re.sub(r"\d{4}", " ", comment_text(text[span.start : span.stop])).split())
    key = xxhash.xxh3_128_hexdigest(words.encode("utf-8", "replace"))
    if key not in seen:
        seen.add(key)
        return text, 0
    rest = text[span.stop :]
    return text[: span.start] + rest.lstrip("\r\n"), span.stop - span.start


def _documents(files: list[_File], how: Repositories) -> Iterator[list[_File]]:
    """Files in their order, in documents of bounded size."""
    document: list[_File] = []
    size = 0
    for place in in_order([(file.path, file.text) for file in files]):
        length = len(files[place].text.encode("utf-8", "replace")) + len(
            _header(files[place], how).encode("utf-8", "replace")
        )
        if document and size + length > how.document_bytes:
            yield document
            document, size = [], 0
        document.append(files[place])
        size += length
    if document:
        yield document


def _header(file: _File, how: Repositories) -> str:
    return how.file_header.replace("{path}", file.path)


def _numbered(each: _File | Record, number: int, repository: str) -> Record:
    if isinstance(each, Record):
        return Record("row", number, None, record_id=each.record_id, content_type="text/plain", problem=each.problem)
    return _record(number, each.path, each.text, _columns(repository, [each]), each.encoding)


def _joined(files: list[_File], number: int, repository: str, how: Repositories) -> Record:
    text = "\n".join(f"{_header(file, how)}\n{file.text.rstrip()}\n" for file in files)
    return _record(number, files[0].path, text, _columns(repository, files), None)


def _columns(repository: str, files: list[_File]) -> dict[str, Any]:
    whole = licenses.together(sorted({file.license.expression for file in files if file.license.expression}))
    kinds = [file.license.kind for file in files]
    kind = next((one for one in (licenses.NOT_PERMISSIVE, licenses.NONE) if one in kinds), licenses.PERMISSIVE)
    return {
        "path": files[0].path,
        "repository": repository,
        "license": whole,
        "license_type": kind,
        "license_by": files[0].license.by,
        "header_characters": sum(file.header for file in files),
        "files": len(files),
    }


def _record(number: int, path: str, text: str, own: dict[str, Any], encoding: str | None) -> Record:
    note = f"decoded from {encoding}" if encoding not in (None, "utf-8") else None
    payload = text.encode("utf-8", "replace")
    return Record(
        "row",
        number,
        None,
        record_id=path,
        content_type="text/plain",
        charset="utf-8",
        payload=payload,
        note=note,
        own=own,
    )


def _lost(path: str, rule: str, detail: str) -> Record:
    """A member without a document; its number follows."""
    lost = tables.lost(0, rule, detail)
    return Record("row", 0, None, record_id=path[:1000], content_type="text/plain", problem=lost.problem)


# Notebooks of Jupyter as one text: their cells of text, and of code between fences, in turn.


_FENCE = 3  # backticks
_TICKS = re.compile("`+")


class NotebookError(ValueError):
    """A file is not a notebook."""


def rendered(data: bytes | str) -> str:
    """The cells of a notebook (nbformat 3 and 4) in their order: text as it is, code between fences with its language;
    outputs, attachments and empty cells are left out. A fence is longer than any run of backticks in the code. Raises
    NotebookError."""
    try:
        notebook = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise NotebookError(f"no JSON: {error}") from error
    if not isinstance(notebook, dict):
        raise NotebookError(f"no JSON object but a {type(notebook).__name__}")
    language = _language(notebook)
    parts = []
    for cell in _cells(notebook):
        source = _source(cell)
        if not source.strip():
            continue
        if cell.get("cell_type") == "code":
            fence = "`" * max(_FENCE, 1 + max(map(len, _TICKS.findall(source)), default=0))
            parts.append(f"{fence}{language}\n{source.rstrip()}\n{fence}")
        else:
            parts.append(source.strip("\n"))
    return "\n\n".join(parts)


def _cells(notebook: dict[str, Any]) -> list[dict[str, Any]]:
    sheets = notebook.get("worksheets")  # nbformat 3
    lists = [sheet.get("cells") for sheet in sheets if isinstance(sheet, dict)] if isinstance(sheets, list) else []
    cells = notebook.get("cells", [cell for cells in lists if isinstance(cells, list) for cell in cells])
    if not isinstance(cells, list) or not ("cells" in notebook or lists):
        raise NotebookError("it has no list of cells")
    return [cell for cell in cells if isinstance(cell, dict)]


def _source(cell: dict[str, Any]) -> str:
    source = cell.get("source", cell.get("input", ""))
    if isinstance(source, list):
        return "".join(line for line in source if isinstance(line, str))
    return source if isinstance(source, str) else ""


def _language(notebook: dict[str, Any]) -> str:
    """The language of the notebook's kernel; "" if it does not name one."""
    metadata = notebook.get("metadata")
    if isinstance(metadata, dict):
        for key, name in (("language_info", "name"), ("kernelspec", "language")):
            section = metadata.get(key)
            if isinstance(section, dict) and isinstance(section.get(name), str):
                return "".join(
                    character for character in section[name].lower() if character.isalnum() or character in "+#"
                )
    return ""
