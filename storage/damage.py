"""A file of ours that is not what was written."""

from gristmill.storage.remote.redact import redact_url


class DamagedFileError(RuntimeError):
    """A file that was written by this project differs from its digest; the message names the file and the remedy."""


def damaged(path: str, trouble: str) -> DamagedFileError:
    """The error for a file: a stage's file is made again once the stage's folder is gone, any other once it is gone
    itself."""
    home, stages, inner = path.rpartition("/stages/")
    remove = f"the stage's folder {home}{stages}{inner.partition('/')[0]}" if stages else path
    return DamagedFileError(f"{redact_url(path)} {trouble}; remove {redact_url(remove)} and run the recipe again")
