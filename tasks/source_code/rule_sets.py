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
    """StarCoder2's file filters (Lozhkov et al. 2024, arXiv 2402.19173, section 2.1). They use the signals of
    `code_language` and `code`, which must come first. `generated` comes from the step `code`, which follows Linguist;
    the paper uses go-enry's port of the same and five phrases."""

    work: ClassVar = "gristmill.tasks.source_code.signals"

    step: Literal["stack_v2"] = "stack_v2"
    max_lines: int | None = Field(100_000, description="Maximum number of lines; null: no limit.")
    max_mean_line: float | None = Field(100, description="Maximum mean line length (characters); null: no limit.")
    max_line: int | None = Field(1000, description="Maximum length of a line (characters); null: no limit.")
    max_line_of_texts: int | None = Field(
        100_000,
        description="Maximum length of a line in `texts` (characters), whose mean has no limit; null: no limit.",
    )
    texts: tuple[str, ...] = Field(
        ("HTML", "JSON", "Markdown", "Roff", "Roff Manpage", "SMT", "TeX", "Text", "XML"),
        description="Languages that may have long lines.",
    )
    generated: bool = Field(False, description="Keep generated files.")
    min_alphabetic: float | None = Field(
        0.25,
        description="Minimum fraction of letters among all characters; for assembly, of letters and "
        "numbers. null: no limit.",
    )
    assembly: tuple[str, ...] = Field(
        ("Motorola 68K Assembly", "WebAssembly"), description="Languages in which numbers count as letters."
    )
    max_longest_encoded: int | None = Field(
        1024, description="Maximum length of a run of encoded data (characters); null: no limit."
    )
    max_encoded: float | None = Field(
        0.5, description="Maximum fraction of characters in encoded data; null: no limit."
    )
    max_lines_of_data: int | None = Field(
        512, description="Maximum number of lines in a file of `data`; null: no limit."
    )
    data: tuple[str, ...] = Field(
        ("Text", "JSON", "YAML", "Web Ontology Language", "Graphviz (DOT)"),
        description="Data languages, whose files must be short.",
    )
    min_html_text: int | None = Field(
        100, description="Minimum visible text in an HTML file (characters); null: no limit."
    )
    min_html_share: float | None = Field(
        0.2, description="Minimum visible text in an HTML file, as a fraction of the file; null: no limit."
    )
    named_texts: bool = Field(
        True,
        description="Keep plain text files only if the name contains `requirement`, or is readme, notes, "
        "todo, description or cmakelists.",
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
    `sql`, `html`, and `en` for texts). They use the signals of `code_language` and `code`, which must come first.

    Left out: rules on strings, asserts, `todo` comments, n-grams (see `gopher_repetition`) and syntax (see
    `code_syntax`); files over 3,000,000 bytes are `extract.max_bytes`. `generated` is what the step `code` says;
    OpenCoder's code drops every file whose first 200 characters have the word `generate`. Repeated lines and numbers
    like 0x1F are counted in the whole file, in OpenCoder's without its comments.
    """

    work: ClassVar = "gristmill.tasks.source_code.signals"

    step: Literal["opencoder"] = "opencoder"
    min_words: int | None = Field(30, description="Minimum number of words; null: no limit.")
    min_characters: int | None = Field(50, description="Minimum number of characters; null: no limit.")
    max_characters_of_data: int | None = Field(
        5000, description="Maximum number of characters in a file of `data`; null: no limit."
    )
    data: tuple[str, ...] = Field(
        (
            *("BibTeX", "CSS", "CSV", "Go Checksums", "Go Module", "GraphQL", "Graphviz (DOT)", "INI", "JSON"),
            *("Java Properties", "Protocol Buffer", "SCSS", "SVG", "TOML", "TSV", "XML", "YAML"),
        ),
        description="Data languages.",
    )
    texts: tuple[str, ...] = Field(
        ("Gettext Catalog", "Markdown", "Roff", "TeX", "Text", "reStructuredText"),
        description="Text languages. Rules on lines, comments, encoded data and generated files do not apply to them.",
    )
    min_words_of_texts: int | None = Field(50, description="Minimum number of words in `texts`; null: no limit.")
    min_mean_word_of_texts: float | None = Field(
        3, description="Minimum mean word length in `texts` (characters); null: no limit."
    )
    max_repeated_lines_of_texts: float | None = Field(
        0.6, description="Maximum fraction of repeated lines in `texts`; null: no limit."
    )
    min_mean_word: float | None = Field(2, description="Minimum mean word length (characters); null: no limit.")
    max_mean_word: float | None = Field(10, description="Maximum mean word length (characters); null: no limit.")
    max_repeated_lines: float | None = Field(0.7, description="Maximum fraction of repeated lines; null: no limit.")
    min_lines: int | None = Field(10, description="Minimum number of lines; null: no limit.")
    max_lines: int | None = Field(100_000, description="Maximum number of lines; null: no limit.")
    max_line: int | None = Field(1000, description="Maximum length of a line (characters); null: no limit.")
    min_mean_line: float | None = Field(5, description="Minimum mean line length (characters); null: no limit.")
    max_mean_line: float | None = Field(100, description="Maximum mean line length (characters); null: no limit.")
    min_alphabetic: float | None = Field(
        0.5, description="Minimum fraction of letters among non-space characters; null: no limit."
    )
    max_digits: float | None = Field(
        0.2, description="Maximum fraction of digits among non-space characters; null: no limit."
    )
    max_digits_of_sql: float | None = Field(
        0.3, description="Maximum fraction of digits among non-space characters of SQL files; null: no limit."
    )
    max_white_space: float | None = Field(0.5, description="Maximum fraction of white space; null: no limit.")
    max_comments: float | None = Field(
        0.8, description="Maximum fraction of characters in comments, except in HTML; null: no limit."
    )
    xml_start: bool = Field(False, description="Keep files that begin with an XML declaration.")
    generated: bool = Field(False, description="Keep generated files.")
    max_longest_encoded: int | None = Field(
        1024, description="Maximum length of a run of encoded data (characters); null: no limit."
    )
    max_encoded: float | None = Field(
        0.5, description="Maximum fraction of characters in encoded data; null: no limit."
    )
    max_hex: float | None = Field(
        0.4, description="Maximum fraction of characters in numbers such as 0x1F; null: no limit."
    )
    min_html_text: int | None = Field(
        100, description="Minimum visible text in an HTML file (characters); null: no limit."
    )
    min_html_share: float | None = Field(
        0.2, description="Minimum visible text in an HTML file, as a fraction of the file; null: no limit."
    )

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
