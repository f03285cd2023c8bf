"""Repeated lines, paragraphs and spans of sentences: against plain Python, and on a planted banner."""

import itertools
import unicodedata
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gristmill.flows.stages.corpus import CorpusPlaces
from gristmill.flows.stages.dedup.exact_duplicates import PassageDeduplication, _cut_passages
from gristmill.storage import layout, parquet
from gristmill.storage.schema import DOCUMENTS, SELECTION
from gristmill.tasks.dedup.passages import LineDedup, ParagraphDedup, SentenceDedup
from gristmill.tasks.documents.by_shard import Names
from gristmill.tasks.kernels.folding import folded, foldings
from gristmill.tasks.kernels.scan import scan
from tests.corpora import Direct, check_balance


def fold(text: str) -> str:
    """The definition in the words of `gristmill.tasks.kernels.folding`, accents known by their names."""
    left = []
    for c in text:
        if c.isspace() or unicodedata.category(c)[0] in "PCZ":
            continue
        if unicodedata.category(c) == "Nd":
            left.append("0")
            continue
        parts = [p for p in unicodedata.normalize("NFD", c.lower()) if not is_accent(p)]
        left.append("".join(parts) if len(parts) < 2 else c.lower() if len(c.lower()) == 1 else c)
    return "".join(left)


# Marks of one script beyond those that readers can do without.
_STAY = (
    "KATAKANA",
    "GLAGOLITIC",
    "DEVANAGARI",
    "GRANTHA",
    "OLD PERMIC",
    "BINDU BELOW",
    "GREEK MUSICAL",
    "JUDEO-SPANISH",
)


def is_accent(c: str) -> bool:
    name = unicodedata.name(c, "")
    return (
        unicodedata.category(c) == "Mn"
        and name.startswith(("COMBINING ", "HEBREW ", "ARABIC "))
        and not any(script in name for script in _STAY)
        and not 0x700 <= ord(c) < 0x1AB0
    )


def blank(line: str) -> bool:
    return not line.replace("\u200b", "").strip()


def by_lines(text: str) -> list[tuple[list[str], list[int]]]:
    return [([line], [n]) for n, line in enumerate(text.splitlines())]


def by_paragraphs(text: str) -> list[tuple[list[str], list[int]]]:
    lines = text.splitlines()
    runs = itertools.groupby(range(len(lines)), lambda n: blank(lines[n]))
    numbers = [list(run) for is_blank, run in runs if not is_blank]
    return [(["".join(lines[n] for n in run)], run) for run in numbers]


def sentences(text: str) -> list[str]:
    """Where sentences begin and stop is the scan's affair."""
    found = scan(pa.array([text], pa.large_string()))
    data = text.encode()
    return [data[a:b].decode() for a, b in zip(*found.spans("sentences"), strict=True)]


def by_sentences(n: int):
    def split(text: str) -> list[tuple[list[str], list[int]]]:
        found = sentences(text)
        return [(found[k : k + n], list(range(k, k + n))) for k in range(len(found) - n + 1)]

    return split


def without_lines(text: str, gone: set[int]) -> str:
    """Blank lines go with paragraphs of which nothing stays; the last line that stays has no break if one went."""
    lines = text.splitlines(keepends=True)
    paragraphs = [set(run) for _, run in by_paragraphs(text)]
    for n, line in enumerate(lines):
        if blank(line):
            above = [run for run in paragraphs if max(run) < n]
            below = [run for run in paragraphs if min(run) > n]
            if (above and above[-1] <= gone) or (below and all(run <= gone for run in below)):
                gone = gone | {n}
    kept = [line for n, line in enumerate(lines) if n not in gone]
    if kept and len(lines) - 1 in gone:
        kept[-1] = kept[-1].splitlines()[0]
    return "".join(kept)


def without_sentences(text: str, gone: set[int]) -> str:
    """Line by line: sentences that stay with what stood before them, the first with the beginning of the line."""
    lines, left, empty, number = text.splitlines(keepends=True), [], set(), 0
    for n, line in enumerate(lines):
        at, kept, had = 0, "", 0
        margin = line[: len(line) - len(line.lstrip(" \u200b"))]
        for sentence in sentences(line):
            begin = line.index(sentence, at)
            if number not in gone:
                kept += (line[at:begin] if kept else margin) + sentence
            at, number, had = begin + len(sentence), number + 1, had + 1
        if had and not kept:
            empty.add(n)
        left.append(kept + line[at:] if kept else line)
    return without_lines("".join(left), empty)


def expected(documents: list[tuple[str, str]], split, remove, step) -> dict[str, str | None]:
    """The text that each document is left with; None where it is too short. Documents come by id."""
    seen: set[tuple[str, ...]] = set()
    found = {}
    for key, text in sorted(documents):
        gone: set[int] = set()
        for passage, numbers in split(text):
            known = tuple(map(fold, passage))
            if sum(map(len, known)) >= step.min_characters:
                gone.update(numbers if known in seen else ())
                seen.add(known)
        left = remove(text, gone) if gone else text
        short = isinstance(step, SentenceDedup) and len(sentences(text)) - len(gone) < step.min_sentences
        found[key] = None if gone and (short or real_words(left) < step.min_words) else left
    return found


def real_words(text: str) -> int:
    data, found = text.encode(), scan(pa.array([text], pa.large_string()))
    words = [data[a:b].decode() for a, b in zip(*found.spans("words"), strict=True)]
    return sum(any(unicodedata.category(c)[0] in "LMN" for c in word) for word in words)


def run(folder: str, documents: list[tuple[str, str]], n_shards: int, step, elsewhere=()) -> dict[str, str]:
    """The documents dealt to shards, taken through all phases; `elsewhere`: texts that an earlier step dropped."""
    given = []
    for s in range(n_shards):
        kept = [*documents[s::n_shards]]
        gone = [(f"gone-{i}", text) for i, text in enumerate(elsewhere)]
        table = pa.Table.from_pylist(
            [{"id": k, "source": "s", "characters": len(t), "text": t, "url": k} for k, t in [*gone, *kept]], DOCUMENTS
        )
        paths = {"documents": f"{folder}/in/part-{s:05d}.parquet", "kept": f"{folder}/kept/part-{s:05d}.parquet"}
        parquet.write_table(paths["documents"], table)
        parquet.write_table(paths["kept"], table.select(SELECTION.names).slice(len(gone)))
        given.append(paths)
    documents, kept = (tuple(paths[name] for paths in given) for name in ("documents", "kept"))
    phases = Direct(folder)
    _cut_passages(phases, PassageDeduplication(step=step), CorpusPlaces(Names((("s", n_shards),)), documents, kept, ()))
    records = list(phases.records["cut"].values())
    check_balance(folder, records)
    left = {}
    for s in range(n_shards):
        for row in parquet.read_table(layout.part(folder, s)).to_pylist():
            assert (row["characters"], row["url"]) == (len(row["text"]), row["id"])
            left[row["id"]] = row["text"]
    return left


def restored(text: str, cuts: list[dict]) -> str:
    whole, at, before = "", 0, 0
    for row in sorted(cuts, key=lambda row: row["start"]):
        whole += text[at : at + row["start"] - before] + row["removed"]
        at += row["start"] - before
        before = row["stop"]
    return whole + text[at:]


def ledgers(folder: str, n_shards: int) -> tuple[list[dict], list[dict]]:
    cuts = [row for s in range(n_shards) for row in parquet.read_table(layout.edits_part(folder, s)).to_pylist()]
    drops = [row for s in range(n_shards) for row in parquet.read_table(layout.ledger_part(folder, s)).to_pylist()]
    return cuts, drops


HOME = "memory://passages"  # no waiting for a disk
IDS = st.integers(0, 2**64 - 1).map(lambda i: f"{i:016x}{'0' * 16}")
BREAKS = st.sampled_from(["\n", "\n", "\r\n", "\n\n", "\r\n\r\n", "\n \u200b\n", "\u2028", "\r"])
LINES = st.sampled_from(
    [
        "",
        " ",
        "}",
        "The mill",
        "the  MILL!",
        " Élan 12",
        "Elan\u0301 \uff13٤",
        "かが",
        "かか",
        "x",
        "a\u0001b",
        "AB",
        "\u200b",
    ]
)
SENTENCES = st.sampled_from(
    ["One cat.", "one CAT!", "Two é.", "Two e?", "\u201cThree.\u201d", "...", "ok", "家。", "家!"]
)


def corpora(piece, joints):
    texts = st.lists(st.tuples(piece, joints), max_size=8).map(lambda pairs: "".join(map("".join, pairs)))
    documents = st.dictionaries(IDS, texts, max_size=6).map(lambda d: list(d.items()))
    return st.tuples(documents.flatmap(st.permutations), st.integers(1, 3), st.integers(1, 3), st.integers(1, 4))


def compared(folder, documents, n_shards, step, split, remove) -> None:
    truth = expected(documents, split, remove, step)
    left = run(folder, documents, n_shards, step, elsewhere=[text for _, text in documents[:2]])
    assert left == {key: text for key, text in truth.items() if text is not None}
    cuts, drops = ledgers(folder, n_shards)
    assert {row["id"] for row in drops} == {key for key, text in truth.items() if text is None}
    assert {row["step"] for row in cuts + drops} <= {step.step}
    for key, text in documents:
        own = [row for row in cuts if row["id"] == key]
        if key in left:
            assert restored(left[key], own) == text
            assert bool(own) == (left[key] != text)


@pytest.mark.extended
@settings(max_examples=20, deadline=None)
@given(corpora(LINES, BREAKS))
def test_lines_are_those_of_plain_python(corpus):
    documents, n_shards, partitions, least = corpus
    step = LineDedup(min_characters=least, partitions=partitions)
    compared(HOME, documents, n_shards, step, by_lines, without_lines)


@pytest.mark.extended
@settings(max_examples=20, deadline=None)
@given(corpora(LINES, BREAKS))
def test_paragraphs_are_those_of_plain_python(corpus):
    documents, n_shards, partitions, least = corpus
    step = ParagraphDedup(min_characters=least, min_words=2, partitions=partitions)
    compared(HOME, documents, n_shards, step, by_paragraphs, without_lines)


@pytest.mark.extended
@settings(max_examples=20, deadline=None)
@given(corpora(SENTENCES, st.sampled_from([" ", " ", "  ", "\n", "\r\n\r\n", "\n  "])), st.integers(1, 3))
@example(([("0" * 32, "a. b. c. d. "), ("1" * 32, "b. c. d.\n\nb. c. a. ")], 1, 1, 1), 2)
def test_sentences_are_those_of_plain_python(corpus, n):
    documents, n_shards, partitions, least = corpus
    step = SentenceDedup(
        sentences=n, min_characters=least, min_words=1, min_sentences=1 + least % 2, partitions=partitions
    )
    compared(HOME, documents, n_shards, step, by_sentences(n), without_sentences)


@pytest.mark.extended
@settings(max_examples=20, deadline=None)
@given(corpora(SENTENCES.filter(fold), st.sampled_from([" ", "\n"])), st.integers(1, 3))
@example(([("0" * 32, "Two é. Two e? one CAT! ")], 1, 1, 1), 1)
def test_every_sentence_stays_at_least_once(corpus, n):
    """Within a text that stays: what stood beside a sentence that is cut may be one sentence with what follows it."""
    documents, n_shards, partitions, _ = corpus
    step = SentenceDedup(sentences=n, min_words=1, min_sentences=1, partitions=partitions)
    left = [fold(text) for text in run(HOME, documents, n_shards, step).values()]
    for sentence in set(map(fold, itertools.chain(*(sentences(text) for _, text in documents)))):
        assert any(sentence in text for text in left), sentence


def test_a_banner_on_fifty_pages_stays_once(tmp_path):
    banner = "We use cookies to give you the best service.\nRead our policy of 2024 & accept all 12 partners."
    pages = [
        (f"{i * 7919 % 64:02x}" + "0" * 30, f"Page {i} is about {chr(97 + i % 26)}{chr(945 + i // 26)} and grain.")
        for i in range(50)
    ]
    shown = [(key, f"{banner.replace('2024', str(2000 + i))}\n\n{text}\n") for i, (key, text) in enumerate(pages)]
    for n, step in enumerate((LineDedup(), ParagraphDedup(), SentenceDedup(sentences=2, min_words=1, min_sentences=1))):
        left = run(str(tmp_path / str(n)), shown, 3, step)
        assert [key for key, text in left.items() if "cookies" in text] == ["0" * 32]
        assert Counter(text.strip("\n") for key, text in left.items() if key != "0" * 32) == Counter(
            text for key, text in pages if key != "0" * 32
        )
        cuts, drops = ledgers(str(tmp_path / str(n)), 3)
        assert len(cuts) == 49 and not drops
        assert {(row["first_line"], row["last_line"], row["rule"]) for row in cuts} == {(0, 2, step.rule)}


def test_what_is_left_too_short_is_dropped_and_says_by_how_much(tmp_path):
    texts = ["Alpha beta gamma. Delta. Epsilon. Zeta.", "Alpha beta gamma. Delta. Epsilon. A new one.", "One word"]
    documents = [(f"{i:016x}", text) for i, text in enumerate(texts)]
    run(str(tmp_path / "w"), documents, 1, SentenceDedup(min_words=4))
    [row] = ledgers(str(tmp_path / "w"), 1)[1]
    assert (row["id"], row["rule"], row["value"], row["threshold"]) == (documents[1][0], "min_words", 3, 4)
    run(str(tmp_path / "s"), documents, 1, SentenceDedup(min_words=3, min_sentences=2))
    [row] = ledgers(str(tmp_path / "s"), 1)[1]
    assert (row["rule"], row["value"], row["threshold"]) == ("min_sentences", 1, 2)


def test_slices_of_a_shard_do_not_show(tmp_path, monkeypatch):
    words = [chr(97 + i % 26) * (3 + i % 5) for i in range(300)]
    documents = [(f"{i * 31 % 97:016x}", "\n".join(words[i : i + 40 : 1 + i % 3])) for i in range(90)]
    whole = run(str(tmp_path / "1"), documents, 2, LineDedup(min_characters=3))
    monkeypatch.setattr("gristmill.tasks.documents.measure.SLICE", 256)
    assert run(str(tmp_path / "2"), documents, 2, LineDedup(min_characters=3)) == whole
    assert len(whole) < len(documents)


def test_an_id_that_is_no_hexadecimal_number_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="page-1"):
        run(str(tmp_path), [("page-1", "text")], 1, LineDedup())


@given(st.text(max_size=60))
@example("\U0001e000")
@settings(max_examples=200, deadline=None)
def test_folding_is_that_of_plain_python(text):
    known = fold(text)
    data = np.frombuffer((text + known).encode() + bytes(8), np.uint8)
    cut = len(text.encode())
    (first, again), sizes = folded(data, np.array([0, cut]), np.array([cut, len(data) - 8]))
    assert sizes[0] == len(known)
    assert first == again


def test_foldings_of_all_letters_with_accents():
    table = foldings()
    for c in range(0x3000):
        folding = fold(chr(c))
        assert table[c] == (ord(folding) if folding else 0), hex(c)
    assert table[ord("が")] == ord("が") != table[ord("か")]
    assert table[0x0E34] == 0x0E34  # a vowel of Thai
