"""What a source file is, for a key: its content where it is local, its address and the server's tags elsewhere."""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass

from gristmill.storage import checked_json, files
from gristmill.storage.damage import DamagedFileError
from gristmill.storage.printable import redact_url
from gristmill.storage.remote.addresses import file_system
from gristmill.storage.remote.config import RemoteIOConfig

_OF_CONTENT = ("ETag", "etag", "checksum", "md5")
_TAGS = (*_OF_CONTENT, "LastModified", "Last-Modified", "last_modified", "mtime")


@dataclass(frozen=True)
class Stated:
    """What is known of a file that is not read. `size`: None where a server does not tell. `state`: of a local file its
    path, size and modification time, of a remote one its fingerprint; `marks`: of a local file what else changes when
    it is written, only on this disk."""

    path: str
    size: int | None
    state: str
    local: bool
    marks: str = ""


def fingerprint(path: str, notes: str, remote_io: RemoteIOConfig | None = None) -> str:
    """A local file: xxh3-128 of its content, computed once while size and modification time stay the same (noted in
    the folder `notes`). A remote one: address, size and the tags that its server gives; Common Crawl's files
    never change under an address. The address is without user and query, as in `gristmill.storage.printable`; where
    no tag names the content, a hash of the query replaces it, since two queries may be two files.
    """
    return of_files([stated(path, remote_io)], notes)


def stated(path: str, remote_io: RemoteIOConfig | None = None) -> Stated:
    """The size and state of a file, or of all files in a local folder; one request for a remote one. Raises OSError of
    a local file that is not there, RemoteIOError."""
    if not files.is_local(path):
        from gristmill.storage.remote import streams  # its libraries take long to import

        info = streams.info(path, remote_io)
        tags = [f"{tag}={info[tag]}" for tag in _TAGS if info.get(tag)]
        query = path.partition("?")[2]
        if query and not any(info.get(tag) for tag in _OF_CONTENT):
            tags.append(f"query={hashlib.sha256(query.encode()).hexdigest()[:32]}")
        size = info.get("size")
        return Stated(path, size, f"{redact_url(path)} size={size} {' '.join(tags)}".strip(), False)
    _, inner = file_system(path)
    status = os.stat(inner)
    if os.path.isdir(inner):
        inside = [os.path.join(inner, name) for name in folder_files(inner)]
        statuses = [(path, os.lstat(path)) for path in inside]
        lines = [f"{path}\n{each.st_size}\n{each.st_mtime_ns}" for path, each in statuses]
        return Stated(inner, sum(each.st_size for _, each in statuses), "\n".join([inner, *lines]), True)
    marks = f"{status.st_ctime_ns} {status.st_ino}"
    return Stated(inner, status.st_size, f"{inner}\n{status.st_size}\n{status.st_mtime_ns}", True, marks)


def states_of(paths: Sequence[str]) -> str:
    """A digest of the states of the local files among some, "" if there are none: it changes when one is written."""
    states = [
        f"{current.state}\n{current.marks}" for path in paths if files.is_local(path) and (current := stated(path))
    ]
    return _digest(states) if states else ""


def of_files(stated_files: Sequence[Stated], notes: str) -> str:
    """One fingerprint of files that are read together. Local ones are read again where the state of one has changed:
    there is one note for all of them."""
    states = [file.state for file in stated_files if not file.local]
    if local := [file for file in stated_files if file.local]:
        note = files.join(notes, _digest([f"{file.state}\n{file.marks}" for file in local]))
        try:
            states.append(checked_json.read(note)["fingerprint"])
        except (FileNotFoundError, DamagedFileError):
            # a note only spares the reading
            read = [f"{file.path.rsplit('/', 1)[-1]} {_content(file.path)}" for file in local]
            states.append(read[0] if len(read) == 1 else _digest(read))
            with files.said_of(notes):
                checked_json.write(note, {"fingerprint": states[-1]})
    return states[0] if len(states) == 1 else _digest(states)


def folder_files(folder: str) -> list[str]:
    """The paths of what is below a folder but folders, sorted; links are not followed, and `.git` is passed over."""
    paths = []
    for here, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name != ".git")
        inside = os.path.relpath(here, folder)
        links = [name for name in folders if os.path.islink(os.path.join(here, name))]
        paths += [os.path.normpath(os.path.join(inside, name)) for name in (*names, *links)]
    return sorted(paths)


def _content(path: str) -> str:
    """The content of a file, or the names and contents of a folder's files, and where its links lead."""
    if not os.path.isdir(path):
        return files.checksum(path)
    lines = []
    for name in folder_files(path):
        whole = os.path.join(path, name)
        plain = os.path.isfile(whole) and not os.path.islink(whole)
        lines.append(f"{name}\n{files.checksum(whole) if plain else os.path.islink(whole) and os.readlink(whole)}")
    return _digest(lines)


def _digest(lines: Sequence[str]) -> str:
    """The digest of lines with names of files, which need not be UTF-8."""
    return files.digest("\n".join(lines).encode("utf-8", "surrogateescape"))
