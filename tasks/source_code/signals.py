"""The step `code`: what is measured of a file of code, by which rule sets decide."""

from typing import ClassVar, Literal

from pydantic import Field

from gristmill.tasks.documents.step import Bound, DocumentStep, Kind, Signal
from gristmill.tasks.source_code.language import CODE_LANGUAGE, PATH

LINGUIST = "after Linguist's generated.rb and vendor.yml"
STACK = "Lozhkov et al. 2024 (arXiv 2402.19173), section 2.1"
OPENCODER = "Huang et al. 2024 (arXiv 2411.04905); OpenCoder-llm/opc_data_filtering, quality_signals/code.py"


def signal(name: str, kind: Kind, unit: str, source: str, description: str) -> Signal:
    return Signal(f"code_{name}", kind, unit, source, description=description)


class CodeSignals(DocumentStep):
    """Measures of a file of code, and of these the usual bounds, which do not bind unless they are given.

    They are null for a document without a path, which is not code and stays. `code_comments` is null, too, for
    a language whose marks of comments are not known.
    """

    work: ClassVar = "gristmill.tasks.source_code.signals_work"

    step: Literal["code"] = "code"
    generated: bool = Field(True, description="files that a tool has written stay")
    vendored: bool = Field(True, description="files of others, by their folders and names, stay")
    minified: bool = Field(True, description="scripts and styles whose lines a tool has joined stay")
    data: bool = Field(True, description="files of data stay: formats for data, long or mostly numbers")
    max_mean_line: float | None = Field(None, ge=0, description="most characters of a line on average; null: any")
    max_line: int | None = Field(None, ge=0, description="most characters of a line; null: any")
    min_alphanumeric: float | None = Field(
        None, ge=0, le=1, description="fewest characters that are letters or numbers, as a fraction; null: any"
    )
    min_comments: float | None = Field(
        None, ge=0, le=1, description="fewest characters in comments, as a fraction; null: any"
    )
    max_comments: float | None = Field(
        None, ge=0, le=1, description="most characters in comments, as a fraction; null: any"
    )

    signals: ClassVar = (
        signal("generated", "bool", "label", LINGUIST, "Whether a tool has written the file."),
        signal("vendored", "bool", "label", LINGUIST, "Whether the path is one where projects keep others' code."),
        signal("minified", "bool", "label", LINGUIST, "Whether a tool has joined the lines of a script or style."),
        signal("data", "bool", "label", STACK, "Whether it is data: a format for it, long or mostly numbers."),
        signal("characters", "int64", "characters", OPENCODER, "Characters of the file."),
        signal("lines", "int64", "lines", STACK, "Lines of the file."),
        signal("mean_line", "float64", "characters", STACK, "Characters of a line on average."),
        signal("max_line", "int64", "characters", STACK, "Characters of the longest line."),
        signal("alphanumeric", "float64", "fraction of characters", STACK, "Characters that are letters or numbers."),
        signal("alphabetic", "float64", "fraction of characters", STACK, "Characters that are letters."),
        signal("comments", "float64", "fraction of characters", OPENCODER, "Characters in comments, marks included."),
        signal("longest_encoded", "int64", "characters", STACK, "The longest run of encoded data (base64, hex, \\u)."),
        signal("encoded", "float64", "fraction of characters", STACK, "Characters in runs of encoded data."),
        signal("digits", "float64", "fraction of characters", OPENCODER, "Of what is no white space: digits."),
        signal("white_space", "float64", "fraction of characters", OPENCODER, "Characters that are white space."),
        signal("words", "int64", "words", OPENCODER, "Runs of letters, numbers and `_`."),
        signal("mean_word", "float64", "characters", OPENCODER, "Characters of such a word on average."),
        signal("repeated_lines", "float64", "fraction of lines", OPENCODER, "Lines that occur more than once."),
        signal("html_text", "int64", "characters", STACK, "Visible text of a file of HTML; null of others."),
        signal("html_share", "float64", "fraction of characters", STACK, "Visible text of HTML, of the whole file."),
        signal("visible_alphabetic", "float64", "fraction of characters", OPENCODER, "Letters, of no white space."),
        signal("hex", "float64", "fraction of characters", OPENCODER, "Characters of numbers like 0x1F."),
        signal("xml_start", "bool", "label", OPENCODER, "Whether the first 100 characters declare XML."),
        signal("named_text", "bool", "label", STACK, "Whether the name is of a readme, notes, todo or requirements."),
    )

    @property
    def considers(self) -> tuple[str, ...]:
        return (PATH, CODE_LANGUAGE)

    def decisions(self) -> list[Bound]:
        kinds = ("generated", "vendored", "minified", "data")
        stay = {kind: None if getattr(self, kind) else 0 for kind in kinds}
        bounds = [Bound(kind, f"code_{kind}", high=high, keeps_null=True) for kind, high in stay.items()]
        return [
            *bounds,
            Bound("mean_line", "code_mean_line", high=self.max_mean_line, keeps_null=True),
            Bound("max_line", "code_max_line", high=self.max_line, keeps_null=True),
            Bound("alphanumeric", "code_alphanumeric", low=self.min_alphanumeric, keeps_null=True),
            Bound("comments", "code_comments", self.min_comments, self.max_comments, keeps_null=True),
        ]
