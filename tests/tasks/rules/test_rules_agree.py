"""Every rule set against the plain Python of `reference`, on random documents and, marked slow, on real pages."""

import math
import random
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill.tasks.documents.edits import applied
from gristmill.tasks.documents.measure import Batch
from gristmill.tasks.documents.step import work_of
from gristmill.tasks.rules import refinedweb
from gristmill.tasks.rules.c4 import C4
from gristmill.tasks.rules.ccnet import CCNet
from gristmill.tasks.rules.fineweb_quality import FineWebQuality
from gristmill.tasks.rules.gopher_quality import GopherQuality
from gristmill.tasks.rules.gopher_repetition import GopherRepetition
from gristmill.tasks.rules.madlad import Madlad
from gristmill.tasks.rules.refinedweb import RefinedWebLines
from gristmill.tasks.rules.textbook import Textbook
from tests.tasks.rules import dclm_reference, reference
from tests.tasks.rules.web import web_texts

BATCH = 20

WORDS = (
    *("a", "be", "the", "of", "and", "That", "with", "well-known", "don't", "it’s", "O'Neil", "U.S.", "J.", "e.g."),
    *("12", "3.5", "12:30", "1/2", "١٢", "Ⅳ", "²", "x_y", "and/or", "--help", "/usr/bin", "@me", "a@b.example", "C++"),
    *("http://a.example/?q=1", "NASA", "ABC", "İstanbul", "ǅ", "été", "e\u0301te\u0301", "\u0301", "Москва", "кг."),
    *("שלום", "א'", "مرحبا", "में", "ไทยไป", "ລາວ", "ខ្មែរ", "漢字", "かな", "カナ", "한국어", "a\u200bb", "x\xady"),
    *("\U0001f44d\U0001f3fd", "\U0001f469\u200d\U0001f469\u200d\U0001f467", "\U0001f1eb\U0001f1f7", "Ωμέγα", "\x00"),
    *("lorem ipsum", "JavaScript", "cookie policy", " items in cart ", " Read more...", "Sign-in ", "3 likes", "[1]"),
    *("[edit]", "mp3", "Episode", "A B C D E F G H I", "x" * 31),
)
SYMBOLS = (
    *("#", "##", "…", "...", "....", "..", "•", "-", "--", "—", "|", "||", "*", "***", "===", "=>", "$", "%", "(", ")"),
    "{",
)
MARKS = (".", "!", "?", "?!", ",", ":", ";", "。", "؟", "।", '"', "”", "'", ")", "]", ".)", '."')
SPACES = (" ",) * 12
BREAKS = ("\n", "\n", "\n", "\n", "\n\n", "\n\n\n", "\n \n", "\r\n", "\r", "\u2028", "\x85")
GAPS = (*SPACES, *BREAKS, "\t", "\u3000", "\xa0", "\u200b", "", "")

PARTS = (*WORDS * 2, *SYMBOLS, *MARKS, *GAPS * 3, "y" * 1001)

# short ones, that hypothesis makes as simple as it can where they fail
short = st.one_of(
    st.lists(st.sampled_from(PARTS), min_size=1, max_size=30).map("".join),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
)


def long(seed: int) -> str:
    """Up to fifty parts, or lines or n-grams that come again and again; here and there any character at all."""
    draw = random.Random(seed)

    def drawn(parts: Sequence[str], most: int) -> list[str]:
        return [draw.choice(parts) for _ in range(draw.randint(1, most))]

    def anything() -> str:
        c = chr(draw.randrange(draw.choice((0x250, 0x3400, 0x20000))))
        return " " if "\ud800" <= c <= "\udfff" else c

    words = drawn(WORDS, 40) + drawn(SYMBOLS + MARKS, 10)
    match draw.randrange(4):
        case 0:
            return "".join(drawn([*PARTS, anything(), anything()], 50))
        case 1:
            lines = ["".join(drawn([*words, " ", " ", *drawn(MARKS, 3)], 12)) for _ in range(draw.randint(1, 6))]
            return draw.choice(BREAKS).join(drawn(lines, 10)) + draw.choice(("", "\n"))
        case 2:
            return draw.choice((" ", "  ", "\n", "")).join(drawn(words[: draw.randint(1, 6)], 50))
        case _:
            return " ".join(word + draw.choice(("",) * 12 + MARKS + ("\n",)) for word in drawn(words, 50))


batches = st.tuples(
    st.lists(short, min_size=5, max_size=5),
    st.integers(0, 2**63).map(lambda seed: [long(seed + i) for i in range(BATCH - 5)]),
).map(lambda drawn: drawn[0] + drawn[1])


def batch(texts: list[str]) -> Batch:
    return Batch(pa.table({"id": list(map(str, range(len(texts)))), "text": pa.array(texts, pa.large_string())}))


def filled(lines: list[str]) -> list[str]:
    return [line for line in lines if line.strip()]


def same(found: object, expected: object) -> bool:
    if isinstance(found, float) or isinstance(expected, float):
        return math.isclose(found, expected, rel_tol=1e-12)
    return found == expected


def rule_set(step, rules: Mapping[str, Callable] | None = None, **given_to: dict) -> Callable[[list[str]], None]:
    """A check of all signals of a rule set; `given_to` has, by rule, what its reference needs to know."""
    rules = rules or reference.RULES[step.step]
    assert [signal.name for signal in step.signals] == [f"{step.step}_{rule}" for rule in rules]

    def check(texts: list[str]) -> None:
        found = pa.table(work_of(step).measure(step, batch(texts))).to_pylist()
        for text, row in zip(texts, found, strict=True):
            document = reference.Document(text)
            for rule, measure in rules.items():
                expected = measure(document, **given_to.get(rule, {}))
                assert same(row[f"{step.step}_{rule}"], expected), (rule, row[f"{step.step}_{rule}"], expected, text)

    return check


def check_c4(texts: list[str]) -> None:
    for step in (C4(), C4(terminal_punctuation=()), C4(min_words_per_line=5, citation_words=False)):
        documents = batch(texts)
        edits, signals = work_of(step).edit(step, documents)
        left = applied(documents["text"], edits).to_pylist()
        for i, text in enumerate(texts):
            expected = reference.c4(text, step.terminal_punctuation, step.min_words_per_line, step.citation_words)
            kept = [reference.stripped(line) for line in left[i].splitlines()]
            assert filled(kept) == filled(expected.kept), text
            for name in ("lorem_ipsum", "curly_bracket", "sentences", "long_lines"):
                assert signals[f"c4_{name}"][i].as_py() == getattr(expected, name), (name, text)


def check_refinedweb(texts: list[str]) -> None:
    documents = batch(texts)
    edits, signals = refinedweb.edit(RefinedWebLines(), documents)
    left = applied(documents["text"], edits).to_pylist()
    for i, text in enumerate(texts):
        expected = reference.refinedweb(text)
        # a line of U+200B alone is blank: it belongs to no word
        kept, wanted = (
            [line for line in lines if reference.stripped(line)] for lines in (left[i].splitlines(), expected)
        )
        assert kept == wanted, text
        share = signals["refinedweb_lines_removed_words"][i].as_py()
        assert same(share, reference.removed_words(text, left[i])), text


CHECKS = {
    "gopher_quality": rule_set(GopherQuality()),
    "gopher_repetition": rule_set(GopherRepetition()),
    "gopher_quality, dclm": rule_set(GopherQuality(definition="dclm"), dclm_reference.QUALITY),
    "gopher_repetition, dclm": rule_set(GopherRepetition(definition="dclm"), dclm_reference.REPETITION),
    "fineweb_quality": rule_set(FineWebQuality()),
    "textbook": rule_set(Textbook()),
    "ccnet": rule_set(CCNet()),
    "madlad": rule_set(Madlad(), questionable={"cursed": Madlad().cursed}),
    "c4": check_c4,
    "refinedweb_lines": check_refinedweb,
}
each = pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)


@each
def test_random_documents(check):
    @settings(max_examples=6, deadline=None)
    @given(batches)
    def agrees(texts):
        check(texts)

    agrees()


@pytest.mark.slow
@pytest.mark.timeout(3600)
@each
def test_ten_thousand_random_documents(check):
    @settings(max_examples=10_000 // BATCH, deadline=None)
    @given(batches)
    def agrees(texts):
        check(texts)

    agrees()


@pytest.fixture(scope="module")
def pages(tmp_path_factory) -> list[str]:
    return web_texts(tmp_path_factory.mktemp("web"))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@each
def test_real_pages(check, pages):
    for i in range(0, len(pages), 64):
        check(pages[i : i + 64])
