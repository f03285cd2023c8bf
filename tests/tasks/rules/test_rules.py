"""Each rule on a text whose value can be worked out by hand, and what is marked in it."""

from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from gristmill.tasks.documents.measure import Batch, schema
from gristmill.tasks.documents.step import work_of
from gristmill.tasks.rules.ccnet import CCNet
from gristmill.tasks.rules.fineweb_quality import FineWebQuality
from gristmill.tasks.rules.gopher_quality import GopherQuality
from gristmill.tasks.rules.gopher_repetition import GopherRepetition
from gristmill.tasks.rules.rule import Parts, counted
from gristmill.tasks.rules.textbook import Textbook

DCLM = [GopherQuality(definition="dclm"), GopherRepetition(definition="dclm")]
STEPS = [GopherQuality(), GopherRepetition(), FineWebQuality(), Textbook(), CCNet()]
each_step = pytest.mark.parametrize("step", STEPS + DCLM, ids=lambda step: f"{step.step}-{step in DCLM}")


def batch(*texts, **columns):
    return Batch(pa.table({"text": pa.array(texts, pa.large_string()), **columns}))


def measured(step, *texts, **columns):
    """A mapping from rules to values for each text."""
    found = work_of(step).measure(step, batch(*texts, **columns))
    assert [(name, column.type) for name, column in found.items()] == [(f.name, f.type) for f in schema(step)]
    return [
        {rule.name: column[i].as_py() for rule, column in zip(step.rules, found.values(), strict=True)}
        for i in range(len(texts))
    ]


def value(step, rule, text):
    return measured(step, text)[0][rule]


def marked(step, name, *texts):
    """What is shown as the offending part of each text."""
    documents = batch(*texts)
    (rule,) = [rule for rule in step.rules if rule.name == name]
    found, scan = counted(step, rule, documents), documents.scan
    assert isinstance(found, Parts)
    start, stop = found.spans(scan)
    bounds = found.bounds(scan)
    pieces = [bytes(scan.data[a:b]).decode() for a, b in zip(start, stop, strict=True)]
    return [[pieces[i] for i in range(a, b) if found.where[i]] for a, b in pairwise(bounds)]


# Gopher, quality


def test_words():
    text = "well-known 3% — of 漢, ..."  # well - known 3 % — of 漢 , ...
    assert value(GopherQuality(), "words", text) == 5
    assert marked(GopherQuality(), "words", text, "", "!?") == [["well", "known", "3", "of", "漢"], [], []]


def test_mean_word_length():
    assert value(GopherQuality(), "mean_word_length", "one, three!") == (3 + 5) / 2
    assert value(GopherQuality(), "mean_word_length", "?! ...") == 0


def test_hash_ratio():
    text = "a #b ##c"  # a # b ## c
    assert value(GopherQuality(), "hash_ratio", text) == 3 / 5
    assert marked(GopherQuality(), "hash_ratio", text, "no", "#") == [["#", "##"], [], ["#"]]


def test_ellipsis_ratio():
    text = "one... two…. three.. four......."  # one ... two … . three .. four .......
    assert value(GopherQuality(), "ellipsis_ratio", text) == (1 + 1 + 0 + 2) / 9
    assert marked(GopherQuality(), "ellipsis_ratio", text) == [["...", "…", "......."]]
    assert [row["ellipsis_ratio"] for row in measured(GopherQuality(), "a..", ".b", "", ". c", "....", ".d")] == [
        *(0, 0, 0, 0, 1, 0),
    ]


def test_symbol_ratio():
    text = "#one... two…"  # # one ... two …
    assert value(GopherQuality(), "symbol_ratio", text) == 3 / 5
    assert marked(GopherQuality(), "symbol_ratio", text) == [["#", "...", "…"]]


def test_bullet_lines():
    text = "- one\n \u2022two\nthree - four\n\n-"
    assert value(GopherQuality(), "bullet_lines", text) == 3 / 5
    assert marked(GopherQuality(), "bullet_lines", text) == [["- one", " \u2022two", "-"]]


def test_ellipsis_lines():
    text = "one...\ntwo… \nthree..\n\n... four"
    assert value(GopherQuality(), "ellipsis_lines", text) == 2 / 5
    assert marked(GopherQuality(), "ellipsis_lines", text, ".", "..", "..\n.", "…") == [
        *(["one...", "two… "], [], [], [], ["…"]),
    ]


@pytest.mark.parametrize(
    "text, tokens",
    [
        ("one 2 b3 , é", "one 2 b3 , é"),
        ("(one, 2)", "( one , 2 )"),
        ("a well-known 3-4 mp3-12", "a well - known 3 - 4 mp3 - 12"),
        ("a--b x/y.z f(x)=3 a-", "a--b x/y.z f(x)=3 a -"),
        ("don't it’s '90s 5'6", "don 't it ’s ' 90s 5'6"),
        ("--option /usr/bin @me ~x $5", "--option /usr/bin @me ~x $ 5"),
        ("J. U.S. USA. Mr. 1. (A.)", "J. U.S. USA . Mr . 1 . ( A. )"),
        ("- ... ?!", "- ... ? !"),
        ("村民们把谷物。运到，「这里」！", "村 民 们 把 谷 物 。 运 到 ， 「 这 里 」 ！"),
        ("GPU显卡3块", "GPU 显 卡 3 块"),
        ("CO₂ 10m² ½cup x³", "CO₂ 10m² ½cup x³"),
        ("この村の水車は、", "こ の 村 の 水 車 は 、"),
    ],
)
def test_alpha_words(text, tokens):
    tokens = tokens.split()
    share = sum(any(map(str.isalpha, token)) for token in tokens) / len(tokens)
    assert value(GopherQuality(), "alpha_words", text) == share
    assert value(GopherQuality(), "alpha_words", f"{text} {text}\nx") == (2 * share * len(tokens) + 1) / (
        2 * len(tokens) + 1
    )
    assert marked(GopherQuality(), "alpha_words", "one 2 b3 , é") == [["one", "b3", "é"]]


def test_stop_words():
    text = "the mill, the wheel of The Be"
    assert value(GopherQuality(), "stop_words", text) == 2
    assert marked(GopherQuality(), "stop_words", text, "with") == [["the", "the", "of"], ["with"]]
    assert value(GopherQuality(stop_words=()), "stop_words", text) == 0


def test_stop_words_are_those_of_the_documents_language(tmp_path):
    file = tmp_path / "fr.txt"
    file.write_text("le\nla\nl'\nle\n\n", "utf-8")
    step = GopherQuality(stop_words_by_language={"de": ["der", "und", "der"], "fr": str(file)})
    assert step.reads == ("language",) and GopherQuality().reads == ()
    text = "der Rat und le la the"
    languages = pa.array(["de", "fr", "en", "xx", None])
    rows = measured(step, *[text] * 5, language=languages)
    assert [row["stop_words"] for row in rows] == [2, 2, 1, 1, 1]
    assert step.pinned().stop_words_by_language == {"de": ("der", "und"), "fr": ("le", "la")}
    assert measured(step.pinned(), *[text] * 5, language=languages) == rows


def test_the_words_of_a_file_and_not_its_place_are_in_the_settings_of_the_signals(tmp_path):
    settings = []
    for name, words in (("a", "le\nla\n"), ("b", "le\nla\n"), ("c", "le\n")):
        (tmp_path / name).write_text(words)
        step = GopherQuality(stop_words_by_language={"fr": str(tmp_path / name)})
        settings.append(step.pinned().measuring())
    assert settings[0] == settings[1] != settings[2]
    assert GopherQuality(min_words=1).measuring() == GopherQuality().measuring()


@pytest.mark.parametrize("word", ["of the", "l'", "", " a"])
def test_a_stop_word_that_is_not_one_word_is_an_error(word):
    with pytest.raises(ValidationError, match="never occurs"):
        GopherQuality(stop_words=(word,))
    with pytest.raises(ValidationError, match="never occurs"):
        GopherQuality(stop_words_by_language={"fr": [word]})


def test_comments_and_what_is_no_word_are_passed_over_and_a_changed_file_is_read_again(tmp_path):
    file = tmp_path / "en.txt"
    file.write_text("# English words\nthe\n...\n# of\ntwo words\nof\n", encoding="utf-8")
    step = GopherQuality(stop_words_by_language={"en": str(file)})
    assert step.pinned().stop_words_by_language == {"en": ("the", "of")}
    file.write_text("and\n", encoding="utf-8")
    assert step.pinned().stop_words_by_language == {"en": ("and",)}


def test_a_file_without_stop_words_is_an_error(tmp_path):
    (tmp_path / "none").write_text("\n\n")
    step = GopherQuality(stop_words_by_language={"fr": str(tmp_path / "none")})
    with pytest.raises(ValueError, match="none has no stop words"):
        step.pinned()


# Gopher, repetition


def test_dup_paragraphs():
    text = "a b\nc\n\n\nd\n\na b\nc\n \na b\nc\n"
    assert value(GopherRepetition(), "dup_paragraphs", text) == 2 / 4
    assert marked(GopherRepetition(), "dup_paragraphs", text, "a b\nc") == [["a b\nc", "a b\nc"], []]


def test_dup_paragraph_chars():
    text = "a b\nc\n\nd\n\na b\nc"
    assert value(GopherRepetition(), "dup_paragraph_chars", text) == len("a b\nc") / len(text)


def test_dup_lines():
    text = "one\ntwo\n\none\n\none\n one"
    assert value(GopherRepetition(), "dup_lines", text) == 2 / 5
    assert marked(GopherRepetition(), "dup_lines", text, "one") == [["one", "one"], []]


def test_dup_line_chars():
    text = "é\ntwo\n\ntwo\né"
    assert value(GopherRepetition(), "dup_line_chars", text) == (3 + 1) / len(text)


def test_top_2gram():
    text = "a bb c a bb, a  bb"
    assert value(GopherRepetition(), "top_2gram", text) == 3 * len("a bb") / len(text)
    assert marked(GopherRepetition(), "top_2gram", text) == [["a", "bb"] * 3]


def test_top_3gram():
    text = "x a b c y a b c a b d"  # `a b` is more frequent, but is no 3-gram
    assert value(GopherRepetition(), "top_3gram", text) == 2 * len("a b c") / len(text)


def test_top_4gram_is_the_first_of_those_that_are_as_frequent():
    text = "one two three four five"
    assert value(GopherRepetition(), "top_4gram", text) == len("one two three four") / len(text)
    assert marked(GopherRepetition(), "top_4gram", text, "a b c") == [["one", "two", "three", "four"], []]
    text = "x e f g h y a b c d z a b c d x e f g h"
    assert marked(GopherRepetition(), "top_4gram", text) == [["x", "e", "f", "g", "x", "e", "f", "g"]]


@pytest.mark.parametrize("n", range(5, 11))
def test_dup_grams(n):
    words = [f"w{i}" for i in range(n)]
    text = " ".join([*words, "x", *words, "y", *words[1:]])
    found = {
        row: v for row, v in measured(GopherRepetition(), text)[0].items() if row.startswith("dup_") and "gram" in row
    }
    assert found[f"dup_{n}gram"] == pytest.approx(2 * n / len(text))  # the words without the spaces
    assert all(found[f"dup_{k}gram"] == 0 for k in range(n + 1, 11))
    assert marked(GopherRepetition(), f"dup_{n}gram", text, text[:9]) == [words, []]


def test_behind_a_duplicate_gram_the_count_goes_on_at_its_end():
    # 12 times a: `aaaaa` is new at 0, found at 1, and again at 6; at 11 nothing is left of five
    text = "a " * 12
    assert value(GopherRepetition(), "dup_5gram", text) == 10 / 24
    # `b c d e y` is passed over within the duplicate `a b c d e`: where it comes again, it is new
    text = "a b c d e x a b c d e y b c d e y"
    assert value(GopherRepetition(), "dup_5gram", text) == 5 / len(text)


def test_grams_are_compared_word_by_word():
    assert value(GopherRepetition(), "dup_5gram", "1 11 a b c x 11 1 a b c") == 0


# FineWeb


def test_line_punctuation():
    text = "One.\nTwo! \n\nthree\nfour?)\n五。"
    assert value(FineWebQuality(), "line_punctuation", text) == 3 / 5
    assert marked(FineWebQuality(), "line_punctuation", text) == [["One.", "Two! ", "五。"]]


def test_documents_without_terminal_punctuation_may_be_excluded():
    assert [row["line_punctuation"] for row in measured(FineWebQuality(exclude_zero=True), "a\nb", "a.\nb", "")] == [
        *(1, 1 / 2, 1),
    ]
    assert "exclude_zero" in FineWebQuality().signal_fields


def test_short_lines():
    text = "\n".join(["é" * 30, "x" * 31, "", "y"])
    assert value(FineWebQuality(), "short_lines", text) == 2 / 3
    assert value(FineWebQuality(short_line_characters=31), "short_lines", text) == 1
    assert marked(FineWebQuality(), "short_lines", text) == [["é" * 30, "y"]]


def test_char_dup_lines():
    text = "one\r\ntwo\n\ntwo\ntwo"
    assert value(FineWebQuality(), "char_dup_lines", text) == 6 / 12
    assert marked(FineWebQuality(), "char_dup_lines", text) == [["two", "two"]]


def test_newlines():
    text = "one two\r\nthree\u2028four\n\n,"
    assert value(FineWebQuality(), "newlines", text) == 3 / 5
    assert marked(FineWebQuality(), "newlines", text, "a", "\n") == [["one two", "four", ""], [], [""]]


# the textbook's, and CCNet's


def test_characters():
    assert [value(step, "characters", "a 漢\n") for step in (Textbook(), CCNet())] == [4, 4]


def test_special_characters():
    text = "ab!\n=> 1 \u200d"
    assert value(Textbook(), "special_characters", text) == 4 / 10
    assert marked(Textbook(), "special_characters", text + "\na") == [["ab!", "=> 1 \u200d"]]


def test_symbol_word_ratio():
    text = "a | => b! *** (c)"
    assert value(Textbook(), "symbol_word_ratio", text) == 3 / 3
    assert value(Textbook(), "symbol_word_ratio", "| |") == 2
    assert marked(Textbook(), "symbol_word_ratio", text) == [["|", "=", "***"]]  # the first words of these fields


def test_repeated_lines():
    text = "x\nsame\n same\n\nsame \r\nother\nsame"
    assert value(Textbook(), "repeated_lines", text) == 3
    assert marked(Textbook(), "repeated_lines", text) == [[" same", "same "]]


# what all have in common


def test_the_thresholds_are_the_published_ones():
    ends = {f"{step.step}.{b.rule}": (b.low, b.high) for step in STEPS for b in step.decisions()}
    assert ends == {
        "gopher_quality.words": (50, 100_000),
        "gopher_quality.mean_word_length": (3, 10),
        "gopher_quality.hash_ratio": (None, 0.1),
        "gopher_quality.ellipsis_ratio": (None, 0.1),
        "gopher_quality.symbol_ratio": (None, None),
        "gopher_quality.bullet_lines": (None, 0.9),
        "gopher_quality.ellipsis_lines": (None, 0.3),
        "gopher_quality.alpha_words": (0.8, None),
        "gopher_quality.stop_words": (2, None),
        "gopher_repetition.dup_paragraphs": (None, 0.3),
        "gopher_repetition.dup_paragraph_chars": (None, 0.2),
        "gopher_repetition.dup_lines": (None, 0.3),
        "gopher_repetition.dup_line_chars": (None, 0.2),
        "gopher_repetition.top_2gram": (None, 0.2),
        "gopher_repetition.top_3gram": (None, 0.18),
        "gopher_repetition.top_4gram": (None, 0.16),
        "gopher_repetition.dup_5gram": (None, 0.15),
        "gopher_repetition.dup_6gram": (None, 0.14),
        "gopher_repetition.dup_7gram": (None, 0.13),
        "gopher_repetition.dup_8gram": (None, 0.12),
        "gopher_repetition.dup_9gram": (None, 0.11),
        "gopher_repetition.dup_10gram": (None, 0.1),
        "fineweb_quality.line_punctuation": (0.12, None),
        "fineweb_quality.short_lines": (None, 0.67),
        "fineweb_quality.char_dup_lines": (None, 0.01),
        "fineweb_quality.newlines": (None, 0.3),
        "textbook.characters": (200, None),
        "textbook.special_characters": (None, 0.3),
        "textbook.symbol_word_ratio": (None, 0.1),
        "textbook.repeated_lines": (None, 3),
        "ccnet.characters": (300, None),
    }


def test_a_threshold_of_null_does_not_bind():
    step = GopherQuality(min_words=None, max_words=None, max_hash_ratio=None)
    bounds = {b.rule: (b.low, b.high) for b in step.decisions()}
    assert bounds["words"] == bounds["hash_ratio"] == (None, None)
    assert bounds["ellipsis_ratio"] == (None, 0.1)


def test_thresholds_by_language():
    step = FineWebQuality(languages={"fr": {"max_short_lines": 0.9}, "de": {"max_newlines": None}})
    bounds = {b.rule: b.languages for b in step.decisions()}
    assert bounds["short_lines"] == {"fr": (None, 0.9)} and bounds["newlines"] == {"de": (None, None)}
    with pytest.raises(ValidationError, match="fr: no threshold max_shortlines"):
        FineWebQuality(languages={"fr": {"max_shortlines": 0.9}})


@each_step
def test_a_text_without_words_has_no_undefined_value(step):
    empty, blank, _ = measured(step, "", " \n\t\n", "a")
    assert set(empty.values()) == {0}
    assert all(v == v for v in blank.values())


@each_step
def test_a_document_has_its_values_in_any_company(step):
    texts = [
        "- a ...\n- a ...\n",
        "",
        "..",
        ".",
        " ".join(f"w{i % 700} the" for i in range(9000)),
        "漢字 😀\n漢字 😀",
        "#",
    ]
    alone = [measured(step, text)[0] for text in texts]
    assert measured(step, *texts) == alone
    assert measured(step, *texts[::-1]) == alone[::-1]
    table = pa.table({"text": pa.array(texts)})
    for part, rows in ((table.slice(2, 3), alone[2:5]), (table.slice(5), alone[5:]), (table.slice(0, 0), [])):
        columns = work_of(step).measure(step, Batch(part))
        assert [list(row) for row in zip(*(c.to_pylist() for c in columns.values()), strict=True)] == [
            list(row.values()) for row in rows
        ]


WORDS = [
    "a",
    "b",
    "aa",
    "the",
    "The",
    "#",
    "12",
    "...",
    "…",
    "•",
    "-",
    "--",
    "wait…",
    "漢字",
    "é",
    "e\u0301",
    "😀",
    "|",
    ".",
]
GAPS = [" "] * 8 + ["\n"] * 5 + ["\n\n", "\n\n\n", "\r\n", "\r", "\u2028", "\t", "\u3000", "\u200b", "", " \n "]
TEXTS = st.one_of(
    st.lists(st.sampled_from(WORDS + GAPS), max_size=100).map("".join),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=60),
)
FRACTIONS = {
    *("bullet_lines", "ellipsis_lines", "alpha_words", "line_punctuation", "short_lines", "char_dup_lines"),
    *("dup_paragraphs", "dup_paragraph_chars", "dup_lines", "dup_line_chars", "special_characters"),
    *(f"dup_{n}gram" for n in range(5, 11)),
}


@settings(max_examples=60, deadline=None)
@given(TEXTS)
def test_fractions_are_fractions_and_repeating_a_document_repeats(text):
    twice = text + "\n\n" + text
    some_word = batch(text).scan.words[-1] > 0
    for step in STEPS + DCLM:
        once, again = measured(step, text, twice)
        for name in FRACTIONS & once.keys():
            assert 0 <= once[name] <= 1
        for name in ("dup_lines", "dup_paragraphs"):
            if name in once and some_word:
                assert again[name] >= max(0.5, once[name])
        if "words" in once:
            assert again["words"] == 2 * once["words"]
            assert again["stop_words"] == once["stop_words"] * (2 if step in DCLM else 1)
