"""The files at the address of a list."""

from collections.abc import Iterator

from gristmill.storage import files
from gristmill.storage.remote.redact import redact_url
from gristmill.tasks.documents.file_problems import error_sentence, file_problems
from gristmill.tasks.documents.step import Problem

# Names of a blocklist's files in UT1's layout; the ledger calls a list by the name of its folder.
KINDS = ("domains", "urls", "expressions")


class ListError(ValueError):
    """A list cannot be used: what it is, why, and what to do."""


def list_files(address: str, categories: tuple[str, ...] = ()) -> list[str]:
    """The files behind an address of a blocklist, sorted by category: of a folder's categories, of a category, itself.

    `categories` chooses among a folder's; none means all. An address of HTTP is a file's. Raises ListError if there is
    nothing to read.
    """
    if not files.exists(address):
        raise ListError(f"the list {redact_url(address)} does not exist")
    if not files.is_folder(address):
        return [address]
    if found := _kinds(address):
        return found
    chosen = [name for name in files.names(address) if not categories or name in categories]
    found = [path for name in chosen for path in _kinds(files.join(address, name))]
    if not found:
        which = f" for the categories {', '.join(categories)}" if categories else ""
        raise ListError(
            f"the folder {redact_url(address)} has no files {', '.join(KINDS)}{which}; name a folder in UT1's layout"
        )
    return found


def list_problems(
    address: str, key: tuple[str | int, ...], deep: bool, categories: tuple[str, ...] | None = None
) -> Iterator[Problem]:
    """Problems with the files of a list. `categories`: those of a blocklist, which may be a folder; None for a list
    that is a file."""

    def check() -> None:
        if categories is None and files.is_local(address) and files.is_folder(address):
            raise ListError(f"the list {address} is a folder; name a file")
        for path in list_files(address, categories or ()):
            files.info(path)

    return file_problems(address, key, deep, check, _sentence)


def _sentence(error: Exception, address: str) -> str:
    sentence = error_sentence(error, address)
    return sentence if ";" in sentence else f"{sentence}; correct the address"


def _kinds(folder: str) -> list[str]:
    return [files.join(folder, kind) for kind in KINDS if kind in files.names(folder)]
