"""RefinedWeb's lines: each correction by hand, and all of them against the words of DCLM's code."""

import re

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill.tasks.documents.decisions import decide
from gristmill.tasks.documents.edits import applied, merged, rows
from gristmill.tasks.documents.measure import Batch
from gristmill.tasks.documents.step import work_of
from gristmill.tasks.rules.refinedweb import RefinedWebLines

GOOD = "This is a line of text"


def through(texts, step=None):
    """(what is left of each text, rows of the edits, the share of words removed)"""
    step = step or RefinedWebLines()
    table = pa.table({"id": [str(i) for i in range(len(texts))], "text": pa.array(texts, pa.large_string())})
    batch = Batch(table)
    edits, signals = work_of(step).edit(step, batch)
    edits = merged(edits)
    assert {*signals, "refinedweb_lines_characters"} == {signal.name for signal in step.signals}
    found = rows(batch["id"].combine_chunks(), step.step, batch.scan, edits, step.keeps_removed)
    left = applied(batch["text"], edits).to_pylist()
    return left, found.to_pylist(), signals["refinedweb_lines_removed_words"].to_pylist()


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        (GOOD, None),
        ("ABC de", None),  # 3 of 6 characters
        ("ABCD de", "uppercase"),
        ("ÉÀÜ é", "uppercase"),
        ("A B C D", "uppercase"),
        ("A  B  C", None),
        ("20250102", "numeric"),
        ("2025 01 02", None),
        ("2,5", "few_words"),
        ("٢٠٢٥", "numeric"),
        ("3 likes", "counter"),
        ("- 1.2K Followers -", "counter"),
        ("1,000,000 views!", "counter"),
        ("٣ shares", "counter"),
        ("3 likes of it", None),
        ("about 3 likes", None),
        ("3 like", None),
        ("3K+ views", None),
        ("word", "few_words"),
        ("two words", None),
    ],
)
def test_a_line_goes_by_its_first_rule(line, rule):
    text = f"{GOOD}\n{line}\n{GOOD}"
    left, found, _ = through([text])
    assert left == [f"{GOOD}\n{GOOD}" if rule else text]
    assert [(row["rule"], row["first_line"], row["removed"]) for row in found] == (
        [(rule, 1, line + "\n")] if rule else []
    )


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ("you have 3 items in cart now", "you have 3 now"),
        ("3 Items In Cart", "3"),
        ("items in cart", None),
        ("some words Read more...", "some words"),
        ("some words read more at", "some words"),  # any three characters
        ("some words Read more... of it", "some words Read more... of it"),
        ("Sign-in to the site", "to the site"),
        ("sign-in sign-in", "sign-in"),
        ("go to Sign-in", "go to Sign-in"),
        ("é Sign-in items in cart, read more…..", "é Sign-in,"),
        ("Sign-in read more...", None),
        (" items in cartSign-in here", "here"),
        ("one two three four five six seven items in cart", "one two three four five six seven"),
        (
            "one two three four five six seven eight items in cart",
            "one two three four five six seven eight items in cart",
        ),
    ],
)
def test_phrases_are_cut_from_short_lines(line, left):
    text = f"{GOOD}\n{line}\n{GOOD}"
    after, found, _ = through([text])
    assert after == [text.replace(f"{line}\n", "" if left is None else f"{left}\n")]
    assert {row["rule"] for row in found} <= {"phrase"}
    assert through([text], RefinedWebLines(phrases=False))[0] == [text]


def test_blank_lines_are_tidied():
    text = f"WORD\n\n\n{GOOD}\n\nWORD\n\n{GOOD}\n\n \n\nWORD"
    left, found, _ = through([text, "\n\n", ""])
    assert left == [f"{GOOD}\n\n{GOOD}", "", ""]
    assert [(row["rule"], row["first_line"], row["last_line"]) for row in found] == [
        ("uppercase", 0, 0),
        ("blank_line", 1, 2),
        ("uppercase", 5, 5),
        ("blank_line", 6, 6),
        ("blank_line", 8, 10),
        ("uppercase", 11, 11),
        ("blank_line", 0, 1),
    ]


def test_documents_that_lose_too_many_words_drop():
    nineteen = "\n".join(["one two three"] * 5 + ["one two three four"])
    texts = [nineteen + "\nword] ", nineteen + "\nMore words\nword", nineteen + "\n2 likes", "...", "W", ""]
    left, _, share = through(texts)
    assert share == [1 / 20, 1 / 22, 2 / 21, 0, 1, 0]
    assert left[0] == nineteen
    step = RefinedWebLines()
    table = pa.table(
        {
            "id": list("abcdef"),
            "refinedweb_lines_removed_words": share,
            "refinedweb_lines_characters": list(map(len, left)),
        }
    )
    dropped = {
        row["id"]: row["rule"] for _, found in decide(table, [("s", step.decisions())]) for row in found.to_pylist()
    }
    assert dropped == {"c": "removed_words", "d": "empty_text", "e": "removed_words", "f": "empty_text"}


def test_settings():
    text = "WORDS HERE\n3 likes\n1234\nword"
    assert through([text])[0] == [""]
    nothing = RefinedWebLines(max_uppercase=None, max_numeric=None, counters=False, min_words_per_line=0)
    assert through([text], nothing)[0] == [text]
    assert through([text], RefinedWebLines(max_uppercase=None))[0] == ["WORDS HERE"]
    assert "max_removed_words" not in RefinedWebLines().signal_fields


def in_words(text):
    """A transcription of DCLM's modifiers, with one blank line at most between lines."""
    lines = text.split("\n")
    lines = [line for line in lines if not line or sum(map(str.isupper, line)) / len(line) <= 0.5]
    lines = [line for line in lines if not line or sum(map(str.isdigit, line)) / len(line) <= 0.999999]
    nouns = "likes|shares|comments|retweets|reposts|quotes|bookmarks|upvotes|downvotes|downloads|views|followers"
    counter = rf"^\W*\d(?:,|\.|\d)*(?:K|k|M|m|B|b)?\s+(?:{nouns})\W*$"
    lines = [line for line in lines if not re.search(counter, line.lower())]
    lines = [line for line in lines if not line or len(line.split()) >= 2]
    for phrase in [r"\s?items in cart", r"\s?Read more...$", r"^Sign-in\s?"]:
        kept = []
        for line in lines:
            if len(line.split()) <= 10:
                changed = re.sub(phrase, "", line, flags=re.IGNORECASE)
                if line and not changed.strip():
                    continue
                line = changed
            kept.append(line)
        lines = kept
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines).strip("\n"))


PIECES = st.sampled_from(
    [
        "a",
        "B",
        "ABC",
        "É",
        "é",
        " ",
        " ",
        "12",
        "3",
        ".",
        ",",
        "k",
        "M",
        " likes",
        "Views",
        "\n",
        "\n",
        "\n\n",
        "漢",
        "...",
    ]
    + ["items in cart", "Read more", "read more...", "sign-in", "Sign-in ", " of the words", "-"]
)


@pytest.mark.extended
@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(PIECES, max_size=30).map("".join), min_size=1, max_size=4))
def test_what_is_left_is_what_the_code_leaves(texts):
    texts = [re.sub(r"^ +$", "", text, flags=re.MULTILINE) for text in texts]  # as normalized texts are
    left, _, _ = through(texts)
    assert [text.removesuffix("\n") for text in left] == list(map(in_words, texts))


@pytest.mark.parametrize(
    "line", ["Sign-in" * 3000, "items in cart" * 300, "1," * 20_000 + " likes", "-" * 50_000 + " views"]
)
def test_odd_lines(line):
    assert through([f"{GOOD}\n{line}"])[0] == [in_words(f"{GOOD}\n{line}")]
