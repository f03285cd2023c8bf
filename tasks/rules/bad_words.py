"""The step `bad_words`."""

from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import Field

from gristmill.storage.address import Address
from gristmill.tasks.documents.step import Problem
from gristmill.tasks.rules.rule import RuleStep, rule, rule_set
from gristmill.tasks.url.list_files import list_problems

ANY = "any"
SOURCE = "Raffel et al. 2020 (arXiv 1910.10683), 2.2; definition: datatrove c4_filters.py"
RULES = (
    rule(
        "hits",
        "hits",
        r"""Words and phrases of the lists in a document, in either case, each time they stand there.

        As C4's code and datatrove's have it, a hit is flanked by what `\w` of Python does not match, of which
        combining marks are a part; not so in languages without spaces. A document in a language without a list has no
        hits, where datatrove stops by default. C4 itself looked only at the lines that its other rules left, and not
        at the ends of a line; datatrove looks at the whole document.
        """,
        high=0,
    ),
    rule(
        "word_share",
        "fraction of words",
        """Words that are part of a hit.

        By itself, with `max_hits: null`, it asks for how much of a document hits are, where one of them in a long text
        says little.
        """,
        high=None,
    ),
)


@rule_set(SOURCE, RULES)
class BadWords(RuleStep):
    """Words and phrases of lists that the user gives, one of which drops a document, as in C4."""

    work: ClassVar = "gristmill.tasks.rules.bad_words_work"
    pins_files: ClassVar = True

    step: Literal["bad_words"] = "bad_words"
    lists: dict[str, Address] = Field(
        min_length=1,
        description=f"address of each language's list, by the column `language`; `{ANY}` holds for every language",
    )
    unspaced: tuple[str, ...] = Field(
        ("ja", "th", "zh"), description="languages without spaces: an entry is found inside of words, too"
    )
    allowed: tuple[str, ...] = Field(
        ("sm", "グロ", "女の子", "性"),
        description="entries left out of all lists; C4's, each of which hits over 10% of the documents in ja or zh",
    )
    checksums: tuple[tuple[Address, str], ...] = Field(
        (), description="(address, xxh3-128) of each list, which must then have this content; see `pinned`"
    )

    signal_fields: ClassVar = ("lists", "unspaced", "allowed", "checksums")

    @property
    def reads(self) -> tuple[str, ...]:
        return ("language",) if self.lists.keys() - {ANY} else ()

    def problems(self, deep: bool) -> Iterator[Problem]:
        for language, address in self.lists.items():
            yield from list_problems(address, ("lists", language), deep)
