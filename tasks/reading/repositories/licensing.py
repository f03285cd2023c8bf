"""The licence of a repository's files: of the file's own line, the nearest licence file above it, or the metadata."""

from dataclasses import dataclass, field

from gristmill.storage.remote.config import RemoteIOConfig
from gristmill.tasks.reading.repositories.archives import members
from gristmill.tasks.reading.repositories.decoding import decoded
from gristmill.tasks.source_code import licenses

_MAX_BYTES = 1 << 20
_MAX_FILES = 1000  # of a repository that say something of licences


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
    """What the licence files and the metadata of a repository say, by their folders."""

    texts: dict[str, list[str]] = field(default_factory=dict)
    stated: dict[str, str] = field(default_factory=dict)

    def of(self, path: str, text: str, header: str = "") -> License:
        """The licence of a file. Its own line, or the notice or text in its licence header, comes first; then the
        folders from the file's own up to the repository's root, a licence file ahead of metadata. Metadata whose
        expression names what the text is are more exact than this, as they say `or-later`, or `OR`."""
        if own := licenses.of_line(text) or (licenses.of_header(header) if header else None):
            return License(own, "file")
        folder = path
        while folder:
            folder = folder.rpartition("/")[0]
            stated = self.stated.get(folder)
            if texts := self.texts.get(folder):
                text_license = licenses.together(texts) or ""
                if stated and (
                    not texts or _names(text_license) <= _names(stated) or _later(text_license) == _later(stated)
                ):
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
    """Read what a repository's licence files and metadata say: the archive is read through once for it. Holds one such
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
            # a folder of licences is that of what is beside it
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
