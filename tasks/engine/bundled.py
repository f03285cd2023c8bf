"""Libraries that wheels hold compiled, and their sources. Separate: builds read it before the package can be imported.

`native/build_hook.py` compiles each from the source distribution that is pinned here. The release is part
of the keys of the stages that use the library (`code_version.releases`), as that of an installed distribution is. If
the same release is compiled otherwise and scores change, raise `work_version` of the steps.
"""

from typing import NamedTuple


class Bundled(NamedTuple):
    """A source distribution on PyPI: release, and SHA-256 of the archive in hexadecimal."""

    release: str
    sha256: str


BUNDLED = {
    # fastText 0.9.3 without its reads of uninitialized memory and its errors with NumPy 2
    "fasttext-ng": Bundled("0.9.3", "f80ab07b1f75c4f650401abd79399169b6b79bb027c6645645d98927dfae1e9e"),
    "kenlm": Bundled("0.3.0", "c4628bb9fb63c8a6f9240035b8b037385cfc404cb72e933cf48878291edac1e8"),
}
