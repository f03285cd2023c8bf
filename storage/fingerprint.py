"""What a source file is, for a key: its content where it is local, its address and the server's tags elsewhere."""

import os

import fsspec

from storage import files, transfer

_TAGS = ("ETag", "etag", "checksum", "md5", "LastModified", "Last-Modified", "last_modified", "mtime")


def fingerprint(path: str, notes: str) -> str:
    """A local file: xxh3-128 of its content, computed once while size and modification time stay the same (noted in
    the folder `notes`). A remote one: address, size and the tags that its server gives; Common Crawl's files
    never change under an address.
    """
    fs, inner = fsspec.core.url_to_fs(path)
    if not files.is_local(path):
        info = transfer.info(path)
        tags = [f"{tag}={info[tag]}" for tag in _TAGS if info.get(tag)]
        return f"{path} size={info.get('size')} {' '.join(tags)}".strip()
    status = os.stat(inner)
    note = files.join(notes, files.digest(f"{inner}\n{status.st_size}\n{status.st_mtime_ns}".encode()))
    if not files.exists(note):
        files.write_bytes(note, f"{inner.rsplit('/', 1)[-1]} {files.checksum(inner)}".encode())
    return files.read_bytes(note).decode()
