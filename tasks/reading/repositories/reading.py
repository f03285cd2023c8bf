"""Settings of a code source as its jobs have them. Separate: stages read them without the readers."""

from dataclasses import dataclass
from typing import Literal

Kept = Literal["generated", "vendored", "minified", "data"]
# whose releases decide what licences are recognized
LIBRARIES = ("identify", "license-expression")
# The columns that documents of code carry, and what they are.
COLUMNS = {
    "path": "of the file in its repository; of a document of several files that of the first",
    "repository": "the name of the archive or folder, without its ending",
    "license": "as an SPDX expression; null where none is known",
    "license_type": "permissive, non_permissive or no_license",
    "license_by": "what says so: file, text, metadata, or none",
    "header_characters": "of the licence header that was left out, as an earlier file of the repository has it",
    "files": "how many the document has",
}


@dataclass(frozen=True)
class Repositories:
    """`unit`: what a document is; `document_bytes`: of a document of several files at most, in UTF-8, one larger file
    aside; `file_header`: the line ahead of each file in such a document; `leave_out`: what files are dropped as;
    `repeated_headers`: licence headers that an earlier file of the repository has are kept; `archive_bytes`: that an
    archive may unfold to."""

    unit: Literal["file", "repository"] = "file"
    document_bytes: int = 1 << 20
    file_header: str = "<file_sep>{path}"
    leave_out: tuple[Kept, ...] = ()
    repeated_headers: bool = False
    archive_bytes: int = 8 << 30
