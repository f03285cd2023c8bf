"""The rules against plain Python, and each threshold against a document at either side of it."""

import re
import sysconfig
import unicodedata
from collections import Counter
from importlib.metadata import distributions
from itertools import cycle, islice
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from tasks.rules.gopher_quality import GopherQuality
from tasks.rules.gopher_repetition import GopherRepetition
from tasks.rules.textbook import Textbook

STEPS = [GopherQuality(), GopherRepetition(), Textbook()]


def ratio(a, b):
    return a / b if b else 0.0


GOPHER_STOP_WORDS = "the be to of and that have with".split()


def quality(text, stop_words=GOPHER_STOP_WORDS):
    words, lines = text.split(), text.splitlines()
    real = [w for w in words if any(unicodedata.category(c)[0] in "LMN" for c in w)]
    ellipses = text.count("...") + text.count("\u2026")
    return {
        "gopher_words": len(real),
        "gopher_stop_words": len(set(words) & set(stop_words)),
        "gopher_mean_word_length": ratio(sum(map(len, real)), len(real)),
        "gopher_hash_ratio": ratio(text.count("#"), len(words)),
        "gopher_ellipsis_ratio": ratio(ellipses, len(words)),
        "gopher_bullet_line_fraction": ratio(sum(x.lstrip().startswith(("\u2022", "-")) for x in lines), len(lines)),
        "gopher_ellipsis_line_fraction": ratio(sum(x.rstrip().endswith(("...", "\u2026")) for x in lines), len(lines)),
        "gopher_alpha_word_fraction": ratio(sum(any(map(str.isalpha, w)) for w in words), len(words)),
    }


def repetition(text):
    def again(parts):
        before = set()
        return [p for p in parts if p in before or before.add(p)]

    paragraphs, lines, words = re.split(r"\n{2,}", text.strip()), re.split(r"\n+", text), text.split()
    out = {}
    for name, parts in (("paragraph", paragraphs), ("line", lines)):
        out[f"gopher_dup_{name}_fraction"] = len(again(parts)) / len(parts)
        out[f"gopher_dup_{name}_char_fraction"] = ratio(sum(map(len, again(parts))), len(text))
    for n in (2, 3, 4):
        count = Counter(zip(*(words[i:] for i in range(n)), strict=False))
        gram, times = count.most_common(1)[0] if count else ((), 0)
        out[f"gopher_top_{n}gram_fraction"] = ratio(len(" ".join(gram)) * times, len(text))
    for n in range(5, 11):
        before, chars, i = set(), 0, 0
        while i + n <= len(words):
            gram = "".join(words[i : i + n])
            if gram in before:
                chars += len(gram)
                i += n
            else:
                before.add(gram)
                i += 1
        out[f"gopher_dup_{n}gram_fraction"] = ratio(chars, len(text))
    return out


def textbook(text):
    def plain(c):
        return unicodedata.category(c)[0] in "LMN"

    symbols = [w for w in text.split() if not any(map(plain, w))]
    run = best = 0
    last = None
    for line in filter(None, map(str.strip, text.splitlines())):
        run = run + 1 if line == last else 1
        last, best = line, max(best, run)
    return {
        "textbook_characters": len(text),
        "textbook_special_fraction": ratio(sum(not plain(c) and not c.isspace() for c in text), len(text)),
        "textbook_symbol_word_ratio": len(symbols) / max(1, len(text.split()) - len(symbols)),
        "textbook_repeated_lines": best,
    }


REFERENCES = dict(zip([s.step for s in STEPS], [quality, repetition, textbook], strict=True))


def measured(step, column):
    columns = step.measure(pa.table({"text": column}))
    assert list(columns) == step.signals.names
    assert [c.type for c in columns.values()] == step.signals.types
    return pa.table(columns).to_pylist()


def failing(step, text):
    """The rules of the step that the document breaks, in order."""
    (row,) = measured(step, pa.array([text]))
    bounds = [(b, row[b.signal]) for b in step.decisions()]
    inside = [(b.low is None or v >= b.low) and (b.high is None or v <= b.high) for b, v in bounds]
    return [b.rule for (b, _), ok in zip(bounds, inside, strict=True) if not ok]


WORDS = [
    "a",
    "b",
    "aa",
    "the",
    "of",
    "be",
    "The",
    "a.",
    "#",
    "#x",
    "12",
    "3.4",
    "...",
    "....",
    "no......",
    "\u2026",
]
WORDS += [
    "\u2022",
    "-",
    "--",
    "x-",
    "wait\u2026",
    "wait...",
    "漢",
    "漢字",
    "é",
    "e\u0301",
    "\u0301",
    "😀",
    "|",
    "²",
    "\x00",
]
GAPS = [" "] * 8 + ["\n"] * 5 + ["\n\n", "\n\n\n", "\r\n", "\r", "\u2028", "\x85", "\t", "\u3000", "", " \n "]
DOCUMENTS = st.one_of(
    st.lists(st.sampled_from(WORDS + GAPS), max_size=120).map("".join),
    st.lists(st.tuples(st.sampled_from(WORDS[:6]), st.sampled_from(GAPS[:12])), max_size=80).map(
        lambda pairs: "".join(w + g for w, g in pairs)
    ),
    st.tuples(st.lists(st.sampled_from(WORDS + GAPS), max_size=20).map("".join), st.integers(0, 8)).map(
        lambda pair: pair[0] * pair[1]
    ),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=80),
)


@settings(max_examples=100, deadline=None)
@given(st.lists(DOCUMENTS, max_size=6))
def test_signals_are_those_of_plain_python(texts):
    for step in STEPS:
        assert measured(step, pa.array(texts, pa.large_string())) == [REFERENCES[step.step](t) for t in texts]


def installed_texts():
    """Metadata of installed packages and sources of the standard library, at most 8,000 characters each."""
    texts = [d.read_text("METADATA") or "" for d in distributions()]
    sources = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))[:120]
    texts += [path.read_text("utf-8", "replace") for path in sources]
    return [t[start : start + 8000] for t in texts for start in (0, 8000) if t[start:]]


def test_signals_of_real_documents_are_those_of_plain_python():
    texts = installed_texts()
    assert len(texts) > 200
    for step in STEPS:
        for text, row in zip(texts, measured(step, pa.array(texts)), strict=True):
            assert row == REFERENCES[step.step](text), text[:200]


@pytest.mark.parametrize("step", STEPS, ids=lambda s: s.step)
def test_slices_and_chunks_measure_the_same(step):
    texts = ["", "one two two", "- a\n- a\n\n- a", "the end of it ...", "漢字 😀", ""]
    rows = [REFERENCES[step.step](t) for t in texts]
    array = pa.array(texts, pa.large_string())
    assert measured(step, array[2:5]) == rows[2:5]
    assert measured(step, pa.array(texts)[1:]) == rows[1:]
    assert measured(step, pa.chunked_array([array[:1], array[3:], array[1:2]])) == rows[:1] + rows[3:] + rows[1:2]
    assert measured(step, array[:0]) == []


@pytest.mark.parametrize("step", STEPS, ids=lambda s: s.step)
def test_scratch_of_one_document_does_not_reach_the_next(step):
    short, long = "- a ...\n- a ...\n", " ".join(f"w{i % 700} the" for i in range(9000))
    rows = [REFERENCES[step.step](t) for t in (short, long)]
    assert measured(step, pa.array([short, long, short, "", long, short])) == [
        *rows,
        rows[0],
        REFERENCES[step.step](""),
        rows[1],
        rows[0],
    ]


@pytest.mark.parametrize("step", STEPS, ids=lambda s: s.step)
def test_an_empty_document_has_zero_everywhere(step):
    (row,) = measured(step, pa.array([""]))
    assert set(row.values()) == {0}
    (row,) = measured(step, pa.array([" \n\t\n"]))
    assert all(v == v for v in row.values())


def test_stop_words_are_a_signal_and_thresholds_are_not():
    assert GopherQuality(min_words=1).signal_settings() == GopherQuality().signal_settings()
    german = GopherQuality(stop_words=("der", "und", "für", "der"))
    assert german.stop_words == ("der", "und", "für")
    text = "der Rat und die für und der Derwisch"
    assert measured(german, pa.array([text])) == [quality(text, german.stop_words)]
    assert measured(GopherQuality(stop_words=()), pa.array(["the of"]))[0]["gopher_stop_words"] == 0
    with pytest.raises(ValidationError, match="never occurs"):
        GopherQuality(stop_words=("of the",))


def test_a_threshold_of_null_does_not_bind():
    step = Textbook(min_characters=None, max_special_fraction=None)
    assert failing(step, "#!") == ["symbol_word_ratio"]


def unique(n, length=5, alphabet="bcdfghjklmnpqrstvwxz"):
    """n different words of one length."""
    words, base = [], len(alphabet)
    for i in range(n):
        digits = [alphabet[i // base**k % base] for k in range(length)]
        words.append("".join(digits))
    return words


def prose(n):
    """n words of mean length above 3 and below 10, with stop words."""
    return list(islice(cycle(["the", "river", "runs", "and", "of", "course", "turns", "below"]), n))


def marked(words, n, mark):
    return [w + mark if i < n else w for i, w in enumerate(words)]


def starred(n, mark):
    """Ten lines of ten words, of which n begin with the mark."""
    return "\n".join((mark if i < n else "") + " ".join(prose(10)) for i in range(10))


def ended(n, mark):
    return "\n".join(" ".join(prose(10)) + (mark if i < n else "") for i in range(10))


QUALITY = [
    ("word_count", " ".join(prose(49)), " ".join(prose(50))),
    ("word_count", " ".join(prose(100_001)), " ".join(prose(100_000))),
    ("mean_word_length", "of to " + "and " * 60 + "to", "of to " + "and " * 60 + "with have"),
    (
        "mean_word_length",
        "and the " + "abcdefghij " * 60 + "x" * 25,
        "and the " + "abcdefghij " * 60 + "x" * 24,
    ),
    ("hash_ratio", " ".join(marked(prose(100), 11, "#")), " ".join(marked(prose(100), 10, "#"))),
    ("ellipsis_ratio", " ".join(marked(prose(100), 11, "...")), " ".join(marked(prose(100), 10, "..."))),
    (
        "ellipsis_ratio",
        " ".join(marked(prose(100), 11, "\u2026")),
        " ".join(marked(prose(100), 10, "\u2026")),
    ),
    ("bullet_lines", starred(10, " \u2022 "), starred(9, " \u2022 ")),
    ("bullet_lines", starred(10, "-"), starred(9, "-")),
    ("ellipsis_lines", ended(4, "... "), ended(3, "... ")),
    ("ellipsis_lines", ended(4, "\u2026"), ended(3, "\u2026")),
    ("alpha_words", " ".join(prose(79) + ["12345"] * 21), " ".join(prose(80) + ["12345"] * 20)),
    ("stop_words", "the " + " ".join(unique(60)), "the of " + " ".join(unique(60))),
]


@pytest.mark.parametrize("rule, dropped, kept", QUALITY)
def test_each_quality_rule_drops_its_planted_document_alone(rule, dropped, kept):
    assert failing(GopherQuality(), dropped) == [rule]
    assert failing(GopherQuality(), kept) == []


def repeat_top(n, fillers):
    """One n-gram eleven times, between words that occur once."""
    gram = " ".join(unique(n, 6, "aeiouy"))
    words = unique(fillers)
    return " ".join(f"{gram} {words[i]}" for i in range(11)) + " " + " ".join(words[11:])


def repeat_grams(n, fillers):
    """Twelve different n-grams twice each, between words that occur once."""
    vowels, words = unique(12 * n, 5, "aeiouy"), unique(fillers)
    grams = [" ".join(vowels[i * n : i * n + n]) for i in range(12)] * 2
    return " ".join(f"{words[i]} {gram}" for i, gram in enumerate(grams)) + " " + " ".join(words[24:])


def repeat_lines(fillers):
    """Thirty short lines, then the same in reverse order, among long lines that occur once."""
    short, long = unique(30, 3, "aeiouy"), unique(fillers, 25)
    return "\n".join(long[:1] + short + long[1:2] + short[::-1] + long[2:])


def repeat_long_lines(fillers):
    long, short = unique(10, 60, "aeiouy"), unique(fillers)
    return "\n".join(short[:9] + long + short[9:10] + long[::-1] + short[10:])


def repeat_paragraphs(fillers):
    """Thirty short paragraphs, in reverse order again, among paragraphs of five long lines."""
    short, long = (
        unique(30, 3, "aeiouy"),
        ["\n".join(unique(5 * fillers, 25)[5 * i : 5 * i + 5]) for i in range(fillers)],
    )
    return "\n\n".join(long[:1] + short + long[1:2] + short[::-1] + long[2:])


def repeat_line_breaks(fillers):
    """Paragraphs of four lines of one character, so that the breaks between the lines make the difference."""
    signs = [chr(0x4E00 + i) for i in range(4 * (30 + fillers))]
    blocks = ["\n".join(signs[i : i + 4]) for i in range(0, len(signs), 4)]
    return "\n\n".join(blocks[:30] + blocks[30:31] + blocks[:30][::-1] + blocks[31:])


REPETITION = {
    "dup_paragraph": (repeat_paragraphs, 30),
    "dup_paragraph_char": (repeat_line_breaks, 39),
    "dup_line": (repeat_lines, 30),
    "dup_line_char": (repeat_long_lines, 60),
    **{f"top_{n}gram": (lambda k, n=n: repeat_top(n, k), 12) for n in (2, 3, 4)},
    **{f"dup_{n}gram": (lambda k, n=n: repeat_grams(n, k), 25) for n in range(5, 11)},
}


@pytest.mark.parametrize("rule", REPETITION)
def test_each_repetition_rule_drops_its_planted_document_alone(rule):
    """Two documents that differ by one filler: plain Python puts them at either side of the threshold."""
    make, fillers = REPETITION[rule]
    step = GopherRepetition()
    (bound,) = [b for b in step.decisions() if b.rule == rule]

    def kept(k):
        return repetition(make(k))[bound.signal] <= bound.high

    assert not kept(fillers)
    low, high = fillers, 2 * fillers
    while not kept(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if kept(middle) else (middle, high)
    assert failing(step, make(low)) == [rule]
    assert failing(step, make(high)) == []


TEXTBOOK = [
    ("characters", "漢" * 199, "漢" * 200),
    ("special_characters", "abcdef!!!x" * 30 + "!", "abcdef!!!x" * 30),
    ("symbol_word_ratio", "word " * 100 + "| " * 11, "word " * 100 + "| " * 10),
    (
        "repeated_lines",
        "x" * 200 + "\n\nsame\n same\n\nsame \r\nsame",
        "x" * 200 + "\n\nsame\n same\n\nsame \r\n",
    ),
]


@pytest.mark.parametrize("rule, dropped, kept", TEXTBOOK)
def test_each_textbook_rule_drops_its_planted_document_alone(rule, dropped, kept):
    assert failing(Textbook(), dropped) == [rule]
    assert failing(Textbook(), kept) == []


def test_every_rule_has_a_planted_document():
    planted = [{r for r, *_ in QUALITY}, set(REPETITION), {r for r, *_ in TEXTBOOK}]
    assert planted == [{b.rule for b in step.decisions()} for step in STEPS]
