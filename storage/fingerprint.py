"""What a source file is, for a key: its content where it is local, its address and the server's tags elsewhere."""

import hashlib
import os

from gristmill.storage import checked_json, files
from gristmill.storage.damage import DamagedFileError
from gristmill.storage.remote import streams
from gristmill.storage.remote.config import RemoteIOConfig
from gristmill.storage.remote.opening import file_system
from gristmill.storage.remote.redact import redact_url

_OF_CONTENT = ("ETag", "etag", "checksum", "md5")
_TAGS = (*_OF_CONTENT, "LastModified", "Last-Modified", "last_modified", "mtime")


def fingerprint(path: str, notes: str, remote_io: RemoteIOConfig | None = None) -> str:
    """A local file: xxh3-128 of its content, computed once while size and modification time stay the same (noted in
    the folder `notes`). A remote one: address, size and the tags that its server gives; Common Crawl's files
    never change under an address. The address is without user and query, as in `gristmill.storage.remote.redact`; where
    no tag names the content, a hash of the query stands for it, since two queries may be two files.
    """
    fs, inner = file_system(path)
    if not files.is_local(path):
        info = streams.info(path, remote_io)
        tags = [f"{tag}={info[tag]}" for tag in _TAGS if info.get(tag)]
        query = path.partition("?")[2]
        if query and not any(info.get(tag) for tag in _OF_CONTENT):
            tags.append(f"query={hashlib.sha256(query.encode()).hexdigest()[:32]}")
        return f"{redact_url(path)} size={info.get('size')} {' '.join(tags)}".strip()
    status = os.stat(inner)
    note = files.join(notes, files.digest(f"{inner}\n{status.st_size}\n{status.st_mtime_ns}".encode()))
    try:
        return checked_json.read(note)["fingerprint"]
    except (FileNotFoundError, DamagedFileError):
        # a note only spares the reading
        found = f"{inner.rsplit('/', 1)[-1]} {files.checksum(inner)}"
        checked_json.write(note, {"fingerprint": found})
        return found
