"""RefinedWeb's line-wise corrections: shouting, numbers, counters, single words, and the words of shops and menus."""

from typing import ClassVar, Literal

from pydantic import Field

from gristmill.tasks.documents.step import Bound, Cut, EditStep, Signal

_SOURCE = "Penedo et al. 2023 (arXiv 2306.01116), G.2; definition: DCLM modifiers.py, dclm_baseline_refinedweb.yaml"


class RefinedWebLines(EditStep):
    """Lines that RefinedWeb removes or shortens, as DCLM codes it; documents that lose too many words drop.

    Words of a line are what `str.split` gives; those whose loss counts are fastText's that begin with a letter or
    number, as in `word_counter_enricher`. Differences from DCLM's code:

    - what is left is tidied: of several blank lines between the lines that stay one stays, at the ends none (DCLM
      strips all white space at the ends of the text, Dolma 3 does both);
    - a line ends at any line break, and one of white space alone is blank (DCLM: at line feeds; such a line goes);
    - uppercase letters are the categories Lu and Lt, numbers N (DCLM: `str.isupper`, `str.isdigit`).

    A counter is a line like "3 likes" or "1.2K followers". From lines of at most 10 words go "items in cart", "Read
    more..." at the end and "Sign-in" at the beginning, in either case, with a white space beside them; the paper's
    table G.2 has them. DCLM's code takes the three dots for any three characters, as is done here.

    Dolma 3's port (datamap-rs map_fxn.rs) differs from DCLM's code: it measures the uppercase and numeric shares by
    bytes, not characters; its phrases are cut in their own case only; and two settings of its configuration do not
    reach the code under their names (`max_length`, so that phrases are cut from lines of any length, and
    `regex_string`, so that a counter fills its line here as there, though the configuration's expression has no end).
    """

    work: ClassVar = "gristmill.tasks.rules.refinedweb_work"

    step: Literal["refinedweb_lines"] = "refinedweb_lines"
    max_uppercase: float | None = Field(
        0.5, ge=0, description="most characters of a line that are uppercase letters, as a fraction; null: any"
    )
    max_numeric: float | None = Field(
        0.999999, ge=0, description="most characters of a line that are numbers, as a fraction; null: any"
    )
    counters: bool = Field(True, description='lines like "3 likes" go')
    min_words_per_line: int = Field(2, ge=0, description="fewest words of a line")
    phrases: bool = Field(True, description='"items in cart", "Read more..." and "Sign-in" go from short lines')
    max_removed_words: float | None = Field(
        0.05, ge=0, description="most words of a document that go, as a fraction; null: not bound"
    )

    cuts: ClassVar = (
        Cut("uppercase", ("max_uppercase",), description="Lines with a larger part of uppercase letters."),
        Cut("numeric", ("max_numeric",), description="Lines with a larger part of numbers."),
        Cut("counter", ("counters",), description="Lines like `3 likes`."),
        Cut("few_words", ("min_words_per_line",), description="Lines of fewer words."),
        Cut("blank_line", (), description="Blank lines at the ends of what is left, and of several all but one."),
        Cut("phrase", ("phrases",), description="`items in cart`, `Read more...` and `Sign-in`, in short lines."),
    )
    signal_fields: ClassVar = ("max_uppercase", "max_numeric", "counters", "min_words_per_line", "phrases")
    signals: ClassVar = (
        Signal(
            "refinedweb_lines_removed_words",
            "float64",
            "fraction of words",
            _SOURCE,
            description="Words in the lines and phrases that go, of all words of the document.",
        ),
        Signal(
            "refinedweb_lines_characters",
            "int64",
            "characters",
            _SOURCE,
            description="Characters that the step leaves.",
        ),
    )

    def decisions(self) -> list[Bound]:
        return [
            Bound("removed_words", "refinedweb_lines_removed_words", high=self.max_removed_words),
            self.not_empty(),
        ]
