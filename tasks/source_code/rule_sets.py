"""The step `opencoder`: OpenCoder's rules for code, data and texts."""

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


class OpenCoder(DocumentStep):
    """OpenCoder's rules (Huang et al. 2024, arXiv 2411.04905; `pipeline/code_filter_config.py`: `others`, `data`,
    `sql`, `html`, and `en` of texts) on the signals of the steps `code_language` and `code`, which stand before it.

    Left out: rules on strings, asserts, `todo` comments, n-grams (see `gopher_repetition`) and syntax (see
    `code_syntax`); files over 3,000,000 bytes are `extract.max_bytes`. `generated` is what the step `code` says;
    OpenCoder's code drops every file whose first 200 characters have the word `generate`. Repeated lines and numbers
    like 0x1F are counted in the whole file, in OpenCoder's without its comments.
    """

    work: ClassVar = "gristmill.tasks.source_code.signals"

    step: Literal["opencoder"] = "opencoder"
    min_words: int | None = Field(30, description="fewest words; null: any")
    min_characters: int | None = Field(50, description="fewest characters; null: any")
    max_characters_of_data: int | None = Field(5000, description="most characters of a file of `data`; null: any")
    data: tuple[str, ...] = Field(
        (
            *("BibTeX", "CSS", "CSV", "Go Checksums", "Go Module", "GraphQL", "Graphviz (DOT)", "INI", "JSON"),
            *("Java Properties", "Protocol Buffer", "SCSS", "SVG", "TOML", "TSV", "XML", "YAML"),
        ),
        description="languages of data",
    )
    texts: tuple[str, ...] = Field(
        ("Gettext Catalog", "Markdown", "Roff", "TeX", "Text", "reStructuredText"),
        description="languages of texts, which may have any lines, comments and encoded data, and be generated",
    )
    min_words_of_texts: int | None = Field(50, description="fewest words of `texts`; null: any")
    min_mean_word_of_texts: float | None = Field(
        3, description="fewest characters of a word of `texts` on average; null: any"
    )
    max_repeated_lines_of_texts: float | None = Field(
        0.6, description="most lines of `texts` that repeat, as a fraction; null: any"
    )
    min_mean_word: float | None = Field(2, description="fewest characters of a word on average; null: any")
    max_mean_word: float | None = Field(10, description="most characters of a word on average; null: any")
    max_repeated_lines: float | None = Field(0.7, description="most lines that repeat, as a fraction; null: any")
    min_lines: int | None = Field(10, description="fewest lines; null: any")
    max_lines: int | None = Field(100_000, description="most lines; null: any")
    max_line: int | None = Field(1000, description="most characters of a line; null: any")
    min_mean_line: float | None = Field(5, description="fewest characters of a line on average; null: any")
    max_mean_line: float | None = Field(100, description="most characters of a line on average; null: any")
    min_alphabetic: float | None = Field(0.5, description="fewest letters, of what is no white space; null: any")
    max_digits: float | None = Field(0.2, description="most digits, of what is no white space; null: any")
    max_digits_of_sql: float | None = Field(0.3, description="the same of SQL; null: any")
    max_white_space: float | None = Field(0.5, description="most white space, as a fraction; null: any")
    max_comments: float | None = Field(
        0.8, description="most characters in comments, as a fraction; not of HTML; null: any"
    )
    xml_start: bool = Field(False, description="files that begin with XML's declaration stay")
    generated: bool = Field(False, description="files that a tool has written stay")
    max_longest_encoded: int | None = Field(1024, description="most characters of a run of encoded data; null: any")
    max_encoded: float | None = Field(0.5, description="most characters in encoded data, as a fraction; null: any")
    max_hex: float | None = Field(0.4, description="most characters in numbers like 0x1F, as a fraction; null: any")
    min_html_text: int | None = Field(100, description="fewest characters of visible text of HTML; null: any")
    min_html_share: float | None = Field(0.2, description="fewest of them, as a fraction of the file; null: any")

    @property
    def reads(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((CODE_LANGUAGE, *(bound.signal for bound in self.decisions()))))

    def decisions(self) -> list[Bound]:
        of_sql: dict[str, Ends] = {"SQL": (None, self.max_digits_of_sql)}
        free: dict[str, Ends] = dict.fromkeys(self.texts, (None, None))

        def of_texts(low: float | None, high: float | None) -> dict[str, Ends]:
            return dict.fromkeys(self.texts, (low, high))

        return [
            bound("words", "code_words", low=self.min_words, languages=of_texts(self.min_words_of_texts, None)),
            bound("characters", "code_characters", low=self.min_characters),
            bound(
                "characters_of_data",
                "code_characters",
                languages=dict.fromkeys(self.data, (None, self.max_characters_of_data)),
            ),
            bound(
                "mean_word",
                "code_mean_word",
                self.min_mean_word,
                self.max_mean_word,
                of_texts(self.min_mean_word_of_texts, self.max_mean_word),
            ),
            bound(
                "repeated_lines",
                "code_repeated_lines",
                high=self.max_repeated_lines,
                languages=of_texts(None, self.max_repeated_lines_of_texts),
            ),
            bound("lines", "code_lines", self.min_lines, self.max_lines, of_texts(self.min_lines, None)),
            bound("max_line", "code_max_line", high=self.max_line, languages=free),
            bound("mean_line", "code_mean_line", self.min_mean_line, self.max_mean_line, free),
            bound("alphabetic", "code_visible_alphabetic", low=self.min_alphabetic),
            bound("digits", "code_digits", high=self.max_digits, languages=of_sql),
            bound("white_space", "code_white_space", high=self.max_white_space),
            bound("comments", "code_comments", high=self.max_comments, languages={**free, "HTML": (None, None)}),
            bound("xml_start", "code_xml_start", high=None if self.xml_start else 0, languages=free),
            bound("generated", "code_generated", high=None if self.generated else 0, languages=free),
            bound("longest_encoded", "code_longest_encoded", high=self.max_longest_encoded, languages=free),
            bound("encoded", "code_encoded", high=self.max_encoded, languages=free),
            bound("hex", "code_hex", high=self.max_hex),
            bound("html_text", "code_html_text", low=self.min_html_text),
            bound("html_share", "code_html_share", low=self.min_html_share),
        ]
