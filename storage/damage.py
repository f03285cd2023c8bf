"""A file of ours that is not what was written, and the digest that tells: compared before anything reads the file."""

from dataclasses import dataclass

from gristmill.storage import files
from gristmill.storage.remote.redact import redact_url


class DamagedFileError(RuntimeError):
    """A file that was written by this project differs from its digest; the message names the file and the remedy."""


def damaged(path: str, trouble: str) -> DamagedFileError:
    """The error for a file: a stage's file is made again once the stage's folder is gone, any other once it is gone
    itself."""
    home, stages, inner = path.rpartition("/stages/")
    remove = f"the stage's folder {home}{stages}{inner.partition('/')[0]}" if stages else path
    return DamagedFileError(f"{redact_url(path)} {trouble}; remove {redact_url(remove)} and run the recipe again")


@dataclass(frozen=True)
class RecordedFile:
    """`path`: any address; `digest`: xxh3-128 of its content, hexadecimal."""

    path: str
    digest: str

    def local(self) -> str:
        """A local path with the content, for libraries that read local files only: itself, or a copy in the user's
        cache folder. Reads the file once. Raises FileNotFoundError, and DamagedFileError."""
        local = files.local_copy(self.path)
        if files.checksum(local) == self.digest:
            return local
        if not files.is_local(self.path):
            files.remove(local)
            if files.checksum(files.local_copy(self.path)) == self.digest:
                return local
            files.remove(local)
        raise damaged(self.path, "is not what was written")

    def read(self) -> bytes:
        """The content. Raises FileNotFoundError, and DamagedFileError."""
        data = files.read_bytes(self.path)
        if files.digest(data) != self.digest:
            raise damaged(self.path, "is not what was written")
        return data
