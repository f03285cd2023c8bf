"""Problems with files that settings name, as sentences with fixes. Separate: all kinds of steps use it."""

from collections.abc import Callable, Iterator

from gristmill.storage import files
from gristmill.storage.printable import redact_url
from gristmill.tasks.documents.step import Problem


def error_sentence(error: Exception, path: str) -> str:
    """An error of a file as a sentence with its remedy."""
    if isinstance(error, PermissionError):
        return f"the file {redact_url(error.filename or path)} cannot be read by this user; change its permissions"
    if isinstance(error, FileNotFoundError):
        remedy = "correct the path or pattern; relative paths start in the folder of the recipe file"
        if "/harvest/" in path:
            remedy = "write the files by `gristmill demo --crawl-only`"
        return f"{str(error) if error.filename is None else f'{redact_url(path)} does not exist'}; {remedy}"
    return own_sentence(error, path)


def own_sentence(error: Exception, path: str) -> str:
    """The message of an error that has its remedy, on one line."""
    return " ".join(str(error).split())


def file_problems(
    address: str,
    key: tuple[str | int, ...],
    deep: bool,
    check: Callable[[], object],
    sentence: Callable[[Exception, str], str] = error_sentence,
) -> Iterator[Problem]:
    """The error that `check` raises for the file at an address, which settings have in `key`.

    A remote file is checked only if `deep`. `sentence` makes a sentence of the error and the address.
    """
    if not deep and not files.is_local(address):
        return
    try:
        check()
    except (OSError, ValueError, RuntimeError) as error:
        yield key, sentence(error, address)
