"""The step `stack_v2`: the rules by which StarCoder2's training set was taken from The Stack v2."""

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field

from gristmill.tasks.documents.step import Bound, DocumentStep
from gristmill.tasks.source_code.language import CODE_LANGUAGE

Ends = tuple[float | None, float | None]


def bound(
    rule: str,
    signal: str,
    low: float | None = None,
    high: float | None = None,
    languages: Mapping[str, Ends] | None = None,
) -> Bound:
    """A bound of a signal of code, which documents without a path do not have; other ends for some languages."""
    return Bound(rule, signal, low, high, languages or {}, keeps_null=True, by=CODE_LANGUAGE)


class StackV2(DocumentStep):
    """StarCoder2's filters of files (Lozhkov et al. 2024, arXiv 2402.19173, section 2.1), on the signals of the steps
    `code_language` and `code`, which stand before it. `generated` is what `code` says, after Linguist, where the paper
    has go-enry's port of the same and five phrases.
    """

    work: ClassVar = "gristmill.tasks.source_code.signals"

    step: Literal["stack_v2"] = "stack_v2"
    max_lines: int | None = Field(100_000, description="most lines; null: any")
    max_mean_line: float | None = Field(100, description="most characters of a line on average; null: any")
    max_line: int | None = Field(1000, description="most characters of a line; null: any")
    max_line_of_texts: int | None = Field(
        100_000, description="most characters of a line in `texts`, whose mean is not bound; null: any"
    )
    texts: tuple[str, ...] = Field(
        ("HTML", "JSON", "Markdown", "Roff", "Roff Manpage", "SMT", "TeX", "Text", "XML"),
        description="languages whose lines may be long",
    )
    generated: bool = Field(False, description="files that a tool has written stay")
    min_alphabetic: float | None = Field(
        0.25,
        description="fewest letters, as a fraction of all characters, but of assembly letters and numbers; null: any",
    )
    assembly: tuple[str, ...] = Field(
        ("Motorola 68K Assembly", "WebAssembly"), description="languages in which numbers count as letters do"
    )
    max_longest_encoded: int | None = Field(1024, description="most characters of a run of encoded data; null: any")
    max_encoded: float | None = Field(0.5, description="most characters in encoded data, as a fraction; null: any")
    max_lines_of_data: int | None = Field(512, description="most lines of a file of `data`; null: any")
    data: tuple[str, ...] = Field(
        ("Text", "JSON", "YAML", "Web Ontology Language", "Graphviz (DOT)"), description="languages of short files"
    )
    min_html_text: int | None = Field(100, description="fewest characters of visible text of HTML; null: any")
    min_html_share: float | None = Field(0.2, description="fewest of them, as a fraction of the file; null: any")
    named_texts: bool = Field(
        True,
        description="of plain texts those stay whose name has `requirement`, or is readme, notes, todo, description or "
        "cmakelists",
    )

    @property
    def reads(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((CODE_LANGUAGE, *(bound.signal for bound in self.decisions()))))

    def decisions(self) -> list[Bound]:
        free: dict[str, Ends] = dict.fromkeys(self.texts, (None, None))
        by_numbers: dict[str, Ends] = dict.fromkeys(self.assembly, (None, None))
        return [
            bound("lines", "code_lines", high=self.max_lines),
            bound("mean_line", "code_mean_line", high=self.max_mean_line, languages=free),
            bound(
                "max_line",
                "code_max_line",
                high=self.max_line,
                languages=dict.fromkeys(self.texts, (None, self.max_line_of_texts)),
            ),
            bound("generated", "code_generated", high=None if self.generated else 0),
            bound("alphabetic", "code_alphabetic", low=self.min_alphabetic, languages=by_numbers),
            bound(
                "alphanumeric",
                "code_alphanumeric",
                languages=dict.fromkeys(self.assembly, (self.min_alphabetic, None)),
            ),
            bound("longest_encoded", "code_longest_encoded", high=self.max_longest_encoded),
            bound("encoded", "code_encoded", high=self.max_encoded),
            bound("lines_of_data", "code_lines", languages=dict.fromkeys(self.data, (None, self.max_lines_of_data))),
            bound("html_text", "code_html_text", low=self.min_html_text),
            bound("html_share", "code_html_share", low=self.min_html_share),
            bound("named_text", "code_named_text", languages={"Text": (1 if self.named_texts else None, None)}),
        ]
