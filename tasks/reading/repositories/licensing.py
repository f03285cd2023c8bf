"""The license of a repository's files: of the file's own line, the nearest license file above it, or the metadata."""

import codecs
import re
from dataclasses import dataclass, field

from gristmill.storage.remote.config import RemoteIOConfig
from gristmill.tasks.reading import charset
from gristmill.tasks.reading.repositories.archives import members
from gristmill.tasks.source_code import licenses

_HEAD = 8000  # bytes in which git looks for a zero byte, by which it takes a file for binary
# PEP 263, and what Emacs and Vim read
_DECLARED = re.compile(rb"^[^\n]*?coding[:=][ \t]*([-\w.]+)", re.MULTILINE)
_WIDE = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)
_CONTROLS = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f-\x84\x86-\x9f\ufffd]")
# of characters; form feeds and escapes do not count
_MAX_CONTROLS = 0.001


@dataclass(frozen=True)
class Decoded:
    """A text and the encoding that it was in; or `problem`, (rule, detail)."""

    text: str = ""
    encoding: str = ""
    problem: tuple[str, str] | None = None


def decoded(data: bytes) -> Decoded:
    """The text of a file, by its byte order mark, as UTF-8, by the encoding that it declares in its first two lines, or
    by the one that is most probable. `binary` for a file with a zero byte in its first 8,000, `not_decodable` for one
    that no encoding makes a text of."""
    if data.startswith(_WIDE):
        encoding = "utf-32" if data.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)) else "utf-16"
        return _strictly(data, encoding)
    if b"\0" in data[:_HEAD]:
        return Decoded(problem=("binary", f"a zero byte at {data.index(0)}"))
    try:
        return Decoded(data.decode("utf-8-sig"), "utf-8")
    except UnicodeDecodeError as error:
        place = error.start
    declared = _DECLARED.search(b"\n".join(data[:1000].split(b"\n")[:2]))
    if declared is not None:
        text = _strictly(data, declared[1].decode("ascii", "replace"))
        if text.problem is None:
            return text
    text = _strictly(data, charset.guess(data))
    if text.problem is None and len(_CONTROLS.findall(text.text)) > _MAX_CONTROLS * len(text.text):
        return Decoded(problem=("not_decodable", f"no UTF-8 at byte {place}, and controls as {text.encoding}"))
    return text


def _strictly(data: bytes, encoding: str) -> Decoded:
    try:
        name = codecs.lookup(encoding).name
        text = data.decode(name)
    except (LookupError, ValueError) as error:
        return Decoded(problem=("not_decodable", f"{encoding}: {error}"[:200]))
    if not isinstance(text, str):
        return Decoded(problem=("not_decodable", f"{encoding} is not an encoding of texts"))
    return Decoded(text.removeprefix("\ufeff"), name)


_MAX_BYTES = 1 << 20
_MAX_FILES = 1000  # of a repository that say something of licenses


@dataclass(frozen=True)
class License:
    """`expression`: of SPDX, None where none is known; `by`: `file`, `text`, `metadata` or `none`."""

    expression: str | None
    by: str

    @property
    def kind(self) -> str:
        return licenses.kind(self.expression)


@dataclass
class RepositoryLicenses:
    """What the license files and the metadata of a repository say, by their folders."""

    texts: dict[str, list[str]] = field(default_factory=dict)
    stated: dict[str, str] = field(default_factory=dict)

    def of(self, path: str, text: str, header: str = "") -> License:
        """The license of a file. Its own line, or the notice or text in its license header, comes first; then the
        folders from the file's own up to the repository's root, a license file before metadata. Metadata whose
        expression names the license of the text are more exact than the text, as they say `or-later`, or `OR`."""
        if own := licenses.of_line(text) or (licenses.of_header(header) if header else None):
            return License(own, "file")
        folder = path
        while folder:
            folder = folder.rpartition("/")[0]
            stated = self.stated.get(folder)
            if texts := self.texts.get(folder):
                text_license = licenses.together(texts) or ""
                if stated and (_names(text_license) <= _names(stated) or _later(text_license) == _later(stated)):
                    return License(stated, "metadata")
                return License(text_license, "text")
            if stated:
                return License(stated, "metadata")
        return License(None, "none")


def _names(expression: str) -> set[str]:
    return set(expression.replace("(", " ").replace(")", " ").split()) - {"AND", "OR", "WITH"}


def _later(expression: str) -> str:
    return expression.replace("-or-later", "-only")


def repository_licenses(path: str, most_unpacked: int, remote_io: RemoteIOConfig) -> RepositoryLicenses:
    """Read what a repository's license files and metadata say: the archive is read through once for it. Holds one such
    file."""
    repository = RepositoryLicenses()
    seen = 0
    for member in members(path, most_unpacked, remote_io):
        is_text = licenses.is_license_file(member.path)
        if member.problem or member.size > _MAX_BYTES or not (is_text or licenses.is_metadata(member.path)):
            continue
        try:
            text = decoded(member.read(_MAX_BYTES)).text
        except Exception:  # of several libraries: the file itself goes to the ledger when it is read as one
            continue
        folder, _, name = member.path.rpartition("/")
        if is_text:
            # a folder of licenses licenses its parent folder
            above = folder.rpartition("/")[0] if name and folder.rpartition("/")[2].lower() in _FOLDERS else folder
            if license := licenses.of_text(text):
                repository.texts.setdefault(above, []).append(license)
        elif license := licenses.of_metadata(member.path, text):
            project_folder = folder.rpartition("/")[0] if folder.endswith((".egg-info", ".dist-info")) else folder
            repository.stated.setdefault(project_folder, license)
        seen += 1
        if seen == _MAX_FILES:
            break
    return repository


_FOLDERS = ("licenses", "license", "licence", "licences")
