"""Text in one form: Unicode, invisible characters, white space; and repair of wrongly decoded text."""

from typing import ClassVar, Literal

from pydantic import Field

from gristmill.tasks.documents.step import Step


class Normalize(Step):
    r"""Text in Unicode form NFC, without invisible characters, its white space tidied up.

    All line ends become \n, all spaces that look like one become one. Of a run of spaces inside a line one is left;
    the indentation of a line stays as it is, for code and lists; white space at its end goes. Between paragraphs stays
    one blank line, at the beginning and the end of the text none. A normalized text is left as it is. Where the text is
    that of the extraction engine `blocks`, or plain text passed as it is (`text`), spaces inside of lines and blank
    lines stay: there they are those of code and of aligned columns.

    With `mojibake`, text that was decoded with the wrong encoding is first repaired by ftfy, which also takes the C1
    controls for the characters of Windows-1252; nothing else of ftfy is used. A repaired text can look wrongly
    decoded once more, so that only without `mojibake` a second pass surely changes nothing.
    """

    work: ClassVar = "gristmill.tasks.documents.normalize_work"

    step: Literal["normalize"] = "normalize"
    mojibake: bool = Field(
        False, description="repair of wrongly decoded text by ftfy: 2 to 3 MB/s where it is not ASCII"
    )

    @property
    def libraries(self) -> tuple[str, ...]:  # type: ignore[override]  # they depend on the settings
        return ("ftfy",) if self.mojibake else ()
