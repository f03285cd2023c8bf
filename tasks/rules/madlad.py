"""MADLAD-400's questionable sentences: the step `madlad`."""

from importlib import import_module
from typing import ClassVar, Literal

from pydantic import Field, field_validator

from gristmill.tasks.rules.rule import RuleStep, rule, rule_set

SOURCE = "Kudugunta et al. 2023 (arXiv 2309.04662), 2.3 and dataset card; Dolma 3: datamap-rs map_fxn.rs"
_WORK = "gristmill.tasks.rules.madlad_work"

# The card's list. The last four are for texts like "A N T S P E A K" and lists of codes.
_CURSED = (
    *(" №", "\ufffd\ufffd\ufffd", r"\|\s*$", r" nr\.$", "aute irure dolor ", " sunt in culpa qui ", "orem ipsum "),
    *(" quis nostrud ", " adipisicing ", " dolore eu ", " cupidatat ", "autem vel eum", "wisi enim ad", " sex "),
    *(" porn ", "黄色电影", "mp3", "ownload", r"Vol\.", r" Ep\.", "Episode", r" г\.\s*$", r" кг\.\s*$", r" шт\."),
    *("Develop", "Facebook", " crusher ", " xxx ", " ... ... ... ... ... ... ... ... ..."),
    " .... .... .... .... .... .... .... .... ....",
    " [^ ] [^ ] [^ ] [^ ] [^ ] [^ ] [^ ] [^ ] [^ ]",
    ", ..,,? ..,,? ..,,? ..,,?",
)

RULES = (
    rule("sentences", "sentences", "Sentences of a document.", low=5),
    rule(
        "questionable",
        "fraction of sentences",
        r"""Sentences that are questionable, of all.

        One is if it has at least 12 tokens of which over half begin with a capital (list_case); under 20 or over 500
        characters (length); over 20% characters of [0-9{}+/()>] (technical); or matches one of the expressions
        (cursed). Tokens are words with a letter or number. The fifth check, that its language is not the document's,
        would need a language model for single sentences and is not here.

        Documents with a fifth of such sentences drop in the paper and in Dolma 3's filter (the card, and an
        annotation in Dolma 3's code, say more than a fifth), hence a threshold a little below. Dolma 3's code splits
        texts at `[.!?]+\s+` without regard to lines, see `across_lines`, takes sizes in bytes, and takes all cursed
        expressions but the last four for literal strings, so that those with a backslash never match there. Here a
        sentence keeps the marks at its end, which the expressions ask for.
        """,
        high=0.199999,
    ),
)


@rule_set(SOURCE, RULES)
class Madlad(RuleStep):
    """MADLAD-400's questionable sentences: lists in title case, odd lengths, technical characters, known rubbish."""

    work: ClassVar = _WORK

    step: Literal["madlad"] = "madlad"
    checks: tuple[Literal["list_case", "length", "technical", "cursed"], ...] = Field(
        ("list_case", "length", "technical", "cursed"),
        description="what makes a sentence questionable; Dolma 3: list_case, cursed",
    )
    cursed: tuple[str, ...] = Field(_CURSED, description="regular expressions (RE2) that mark a sentence as cursed")
    across_lines: bool = Field(
        False, description="whether a sentence goes on in the next line if no . ! or ? stands between; Dolma 3: yes"
    )

    signal_fields: ClassVar = ("checks", "cursed", "across_lines")

    @field_validator("cursed")
    @classmethod
    def _compiles(cls, cursed: tuple[str, ...]) -> tuple[str, ...]:
        if cursed != _CURSED:  # RE2 comes with Arrow, which is not loaded for the published expressions
            import_module(_WORK).check_expressions(cursed)
        return cursed
