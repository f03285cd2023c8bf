"""Bytes at rest, by fsspec path: a local path, `s3://...`, `https://...`, `memory://...`.

A file that exists is whole. Locally it is written without a name, or under a temporary one, fsynced and renamed; an
object store publishes an object only when its upload is complete, so there it is written in place, from a local copy.
Remote bytes are asked for and sent again as `gristmill.storage.remote.streams` has it, which is imported when an
address needs it: its libraries take longer to import than a local home to read.
"""

import errno
import io
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import IO, Any, TypeVar

import orjson
import xxhash
from fsspec.implementations.local import LocalFileSystem

from gristmill.storage import leftovers
from gristmill.storage.printable import redact_url
from gristmill.storage.remote import traffic
from gristmill.storage.remote.addresses import file_system
from gristmill.storage.remote.config import configured

T = TypeVar("T")

CHUNK = 1 << 20
_PARQUET = b"PAR1"

# The folder whose files are recorded in this thread, what is recorded of them, and the logical digests of those that
# are still being written.
_Recording = tuple[str, dict[str, dict[str, Any]], dict[str, str]]
_recording: ContextVar[_Recording | None] = ContextVar("recording", default=None)


def join(*parts: str) -> str:
    """Parts of a path put together by `/`, which every fsspec file system takes."""
    return "/".join([parts[0].rstrip("/"), *(p.strip("/") for p in parts[1:])])


def absolute(path: str) -> str:
    """A local path from the root, with the user's home folder for `~`; an address as it is."""
    return path if "://" in path else str(Path(path).expanduser().resolve())


def is_local(path: str) -> bool:
    return _local(path) is not None


def _local(path: str) -> str | None:
    """The path on this machine; None for an address elsewhere."""
    protocol, separator, _ = path.partition("://")
    if separator and protocol not in LocalFileSystem.protocol and "::" not in path:
        return None  # without its file system, for which a library would be imported
    fs, inner = file_system(path)
    return inner if isinstance(fs, LocalFileSystem) else None


def _streams() -> ModuleType:
    from gristmill.storage.remote import streams

    return streams


def info(path: str) -> dict[str, Any]:
    """Metadata of a file, at least its `size`, which is None where a server does not tell.

    Raises FileNotFoundError; of a local file any OSError, also where it cannot be read; else RemoteIOError.
    """
    if (inner := _local(path)) is None:
        return _streams().info(path)
    with open(inner, "rb") as f:
        return {"size": os.fstat(f.fileno()).st_size}


def glob(pattern: str) -> list[str]:
    """Paths that match a pattern, sorted, as their file system returns them: without a protocol, except HTTP."""
    fs, inner = file_system(pattern)
    fs.invalidate_cache()  # a process that lives for months must see this month's files
    return sorted(_call(fs, lambda: fs.glob(inner), redact_url(pattern)))


def exists(path: str) -> bool:
    return _info_or_none(path) is not None


def is_folder(path: str) -> bool:
    """Whether the folder exists. An address of HTTP is a file: its servers know no folders."""
    entry = _info_or_none(path)
    return entry is not None and entry["type"] == "directory"


def _info_or_none(path: str) -> dict[str, Any] | None:
    """What the file system says of a path, None if there is nothing. A store that refuses is asked again."""
    fs, inner = file_system(path)
    try:
        if "http" in fs.protocol:
            return {**_streams().info(path), "type": "file"}
        return _call(fs, lambda: fs.info(inner), redact_url(path))
    except FileNotFoundError:
        return None


def _call(fs: Any, call: Callable[[], T], what: str) -> T:
    """A call that may be made again: to a store until it succeeds, to a local disk once."""
    return call() if isinstance(fs, LocalFileSystem) else _streams().retrying_call(call, what)


def names(folder: str) -> list[str]:
    """Names in a folder, sorted; empty if the folder does not exist."""
    fs, inner = file_system(folder)
    if not exists(folder):
        return []
    entries = _call(fs, lambda: fs.ls(inner, detail=False), f"listing {redact_url(folder)}")
    return sorted(entry.rstrip("/").rsplit("/", 1)[-1] for entry in entries)


def modified(path: str) -> float:
    """When a file was last written, in seconds since 1970."""
    fs, inner = file_system(path)
    return _call(fs, lambda: fs.modified(inner), redact_url(path)).timestamp()


def size_of(folder: str) -> tuple[int, float]:
    """The bytes of all files below a folder, and when the last of them was written, in seconds since 1970."""
    fs, inner = file_system(folder)
    fs.invalidate_cache()
    entries = _call(fs, lambda: fs.find(inner, detail=True), f"listing {redact_url(folder)}")
    times = []
    for path, entry in entries.items():
        if isinstance(modified_at := entry.get("LastModified"), datetime):  # of S3; to ask would be a request for each
            times.append(modified_at.timestamp())
        else:
            times.append(modified(path if "://" in path else fs.unstrip_protocol(path)))
    return sum(entry["size"] for entry in entries.values()), max(times, default=0.0)


def remove(folder: str) -> None:
    """Remove a folder with all that is in it; nothing happens if there is none."""
    fs, inner = file_system(folder)
    if exists(folder):
        _call(fs, lambda: fs.rm(inner, recursive=True), f"removing {redact_url(folder)}")


def open_file(path: str) -> IO[bytes]:
    """A seekable binary file to read; of a remote one a block is read ahead."""
    traffic.count_opened()
    if (inner := _local(path)) is not None:
        return traffic.open_local(inner)
    return io.BufferedReader(_streams().open_ranges(path), configured().block_bytes)


def open_stream(path: str) -> IO[bytes]:
    """A file to be read forwards."""
    traffic.count_opened()
    inner = _local(path)
    return traffic.open_local(inner) if inner is not None else _streams().open_stream(path)


def read_bytes(path: str) -> bytes:
    """A whole file, from a store by one request."""
    if (inner := _local(path)) is None:
        traffic.count_opened()
        return _streams().read_at_once(path)
    with open_stream(inner) as f:
        return f.read()


def read_json(path: str) -> Any:
    return orjson.loads(read_bytes(path))


@contextmanager
def recording(folder: str) -> Iterator[dict[str, dict[str, Any]]]:
    """What `create` writes below a folder in this thread, within the block: by name, see `facts`."""
    written: dict[str, dict[str, Any]] = {}
    token = _recording.set((folder.rstrip("/") + "/", written, {}))
    try:
        yield written
    finally:
        _recording.reset(token)


def facts(f: IO[bytes]) -> dict[str, Any]:
    """The facts by which a damaged file is recognized: `bytes`; `content`, the xxh3-128 of all of it; and of a Parquet
    file, whose pages have checksums of their own, `footer`, the digest of the end that says where they are. Reads the
    file once."""
    size = f.seek(0, os.SEEK_END)
    f.seek(0)
    digest = xxhash.xxh3_128()
    while piece := f.read(CHUNK):
        digest.update(piece)
    file_facts = {"bytes": size, "content": digest.hexdigest()}
    if size >= 12:
        f.seek(size - 8)
        tail = f.read(8)
        length = int.from_bytes(tail[:4], "little") + 8
        if tail[4:] == _PARQUET and length <= size - 4:
            f.seek(size - length)
            file_facts["footer"] = xxhash.xxh3_128_hexdigest(f.read(length))
    return file_facts


def record(path: str, values: str | None = None) -> None:
    """Note a file that is there, as `create` notes those that it writes. `values`: see `record_values`."""
    if (recorded := _recording.get()) is not None:
        with open_file(path) as f:
            recorded[1][path.removeprefix(recorded[0])] = facts(f) | _of_values(values)


def record_values(path: str, values: str) -> None:
    """Note the logical digest of a file that is being written (`gristmill.storage.contents`), which replaces
    its bytes where contents are compared. An empty one: the file is not part of the contents."""
    if (recorded := _recording.get()) is not None:
        recorded[2][path] = values


def _of_values(values: str | None) -> dict[str, str]:
    return {} if values is None else {"values": values}


def _record(path: str, f: IO[bytes]) -> None:
    """Note a file of which all is written, but which nobody sees yet."""
    if (recorded := _recording.get()) is not None and path.startswith(recorded[0]):
        with reopened(f) as whole:
            recorded[1][path.removeprefix(recorded[0])] = facts(whole) | _of_values(recorded[2].pop(path, None))


def reopened(f: IO[bytes]) -> IO[bytes]:
    """What has been written to a file of `create` and flushed, to be read."""
    return open(f.name if isinstance(f.name, str) else f"/proc/self/fd/{f.fileno()}", "rb")


@contextmanager
def create(path: str) -> Iterator[IO[bytes]]:
    """A binary file to write; it appears under its name only when the block ends without an error."""
    fs, inner = file_system(path)
    if not isinstance(fs, LocalFileSystem):
        with tempfile.NamedTemporaryFile(prefix=leftovers.scratch_prefix()) as local:
            yield local
            local.flush()
            _record(path, local)
            # an upload in parts that fails is aborted; closing a half-written remote file would publish the half
            _streams().retrying_call(lambda: fs.put_file(local.name, inner), f"writing {redact_url(path)}")
        return
    final = Path(inner)
    _make_folder(final.parent)
    temporary = final.with_name(leftovers.temporary_name(final.name))
    try:
        with _unnamed(final.parent) or open(temporary, "wb") as target:
            yield target
            target.flush()
            _record(path, target)
            os.fsync(target.fileno())
            if not temporary.exists():
                # with any src_dir_fd Python follows the link in /proc to the file, without one it does not
                os.link(f"/proc/self/fd/{target.fileno()}", temporary, src_dir_fd=target.fileno())
        os.replace(temporary, final)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync(final.parent)


def _make_folder(folder: Path) -> None:
    """A folder and those above it, with their names on the disk: or a job's mark would outlast a crash of the machine,
    and a folder with what the job wrote would not."""
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync(folder.parent)


def _unnamed(folder: Path) -> IO[bytes] | None:
    """A file without a name, which goes with its writer however that ends; None where the disk has no such files.

    Network file systems have none: there a writer that is killed leaves its temporary file.
    """
    if not os.path.isdir("/proc/self/fd"):
        return None
    try:
        return open(os.open(folder, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o666), "wb")
    except (OSError, AttributeError):
        return None


def write_bytes(path: str, data: bytes) -> None:
    with create(path) as f:
        f.write(data)


def write_json(path: str, value: Any) -> None:
    """Sorted keys and two-space indents: the same value gives the same bytes."""
    write_bytes(path, orjson.dumps(value, option=orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2))


def checksum(path: str) -> str:
    """xxh3-128 of the content, hexadecimal; reads the file once in 1 MiB pieces."""
    digest = xxhash.xxh3_128()
    with open_stream(path) as f:
        while piece := f.read(CHUNK):
            digest.update(piece)
    return digest.hexdigest()


Digest = xxhash.xxh3_128  # of bytes that come piece by piece; `digest` is the same of all bytes at once


def digest(data: bytes) -> str:
    """xxh3-128, hexadecimal."""
    return xxhash.xxh3_128_hexdigest(data)


def local_copy(path: str) -> str:
    """A local path with the content of `path`: itself if it is local, else a copy in the user's cache folder.

    For libraries that read models from local files only. Stage files never change under their name, so a copy that
    exists is right.
    """
    fs, inner = file_system(path)
    if isinstance(fs, LocalFileSystem):
        return inner
    target = join(str(Path.home() / ".cache" / "gristmill"), f"{digest(path.encode())}-{path.rsplit('/', 1)[-1]}")
    copy(path, target)
    return target


def copy(source: str, target: str) -> None:
    """Copy a file unless the target exists."""
    if not exists(target):
        with create(target) as f, open_stream(source) as data:
            shutil.copyfileobj(data, f, CHUNK)


def upload_file(path: str, target: str) -> None:
    """Copy a local file to an object store or another folder, where it appears when all of it is there."""
    fs, inner = file_system(target)
    if isinstance(fs, LocalFileSystem):
        with create(inner) as f, open(path, "rb") as data:
            return shutil.copyfileobj(data, f, CHUNK)
    _call(fs, lambda: fs.put_file(path, inner), f"writing {redact_url(target)}")


def sync(path: str | Path) -> None:
    """Make a local file, or the names in a local folder, outlast a crash of the machine."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# A full disk as one sentence, whether Python, Arrow, a C++ library, SQLite or one of our processes reported it.

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# strerror(3) of these, and what SQLite says
_WORDS = ("No space left on device", "Disk quota exceeded", "File too large", "database or disk is full")


class DiskFullError(OSError):
    """There is no space left where a stage is made; the message names the folder, the free space and the remedy."""


def is_full(error: BaseException) -> bool:
    """Whether an error, or one of its causes, reports that a disk is full or that a file may not grow."""
    seen: BaseException | None = error
    while seen is not None:
        if getattr(seen, "errno", None) in _FULL or any(word in str(seen) for word in _WORDS):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


@contextmanager
def said_of(folder: str) -> Iterator[None]:
    """Raise DiskFullError, which names the folder, instead of an error within the block that a disk is full."""
    try:
        yield
    except DiskFullError:
        raise
    except Exception as error:
        if is_full(error):
            raise disk_full(folder) from error
        raise


def disk_full(folder: str) -> DiskFullError:
    """The error for a stage's folder: the free space there, and for temporary files."""
    scratch = tempfile.gettempdir()
    free = f"{_free(scratch)} for temporary files in {scratch}"
    if is_local(folder):
        free = f"{_free(folder)} there, {free}"
    return DiskFullError(
        f"{folder}: a file could not be written, because the disk is full or a limit is reached (free: "
        f"{free}): free some space and run the same command again, which resumes"
    )


def _free(path: str) -> str:
    """The free space at a path, which need not exist yet."""
    there = next(folder for folder in (Path(path), *Path(path).parents) if folder.exists())
    return f"{shutil.disk_usage(there).free / 1e6:,.1f} MB"
