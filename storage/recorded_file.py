"""A file with the digest that was recorded when it was written, compared before anything reads it."""

from dataclasses import dataclass

from gristmill.storage import files
from gristmill.storage.damage import damaged


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
