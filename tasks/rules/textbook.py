"""The step `textbook`."""

from typing import ClassVar, Literal

from gristmill.tasks.rules.rule import RuleStep, rule, rule_set

SOURCE = "tasks/rules/textbook.py"
RULES = (
    rule("characters", "characters", "Characters of the text, white space included.", low=200),
    rule(
        "special_characters",
        "fraction of characters",
        "Characters that are neither letter, mark or number (general categories L, M, N) nor white space.",
        high=0.3,
    ),
    rule(
        "symbol_word_ratio",
        "symbols per word",
        """Fields without letter, mark or number, such as `|`, `=>`, `***`, for each other field.

        A field is what stands between white space. The threshold is that of Gopher's rule of the same name, which
        counts `#` and ellipses (see `gopher_quality`). A document of symbols only counts as having one other field.
        """,
        high=0.1,
    ),
    rule(
        "repeated_lines",
        "lines",
        "The most equal lines in a row, compared without white space at their ends; blank ones are passed over.",
        high=3,
    ),
)


@rule_set(SOURCE, RULES)
class Textbook(RuleStep):
    """The four rules that introductions to pretraining data teach first."""

    work: ClassVar = "gristmill.tasks.rules.textbook_work"

    step: Literal["textbook"] = "textbook"
