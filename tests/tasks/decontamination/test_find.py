"""Items found in documents, compared with plain Python on words, and planted leaks."""

import random
import re
from collections import Counter
from pathlib import Path

import numpy as np
import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill.tasks.decontamination.find import Found, Hits, different_words, find
from gristmill.tasks.decontamination.index import Index, build_index, load_index
from gristmill.tasks.decontamination.shards import word_places
from gristmill.tasks.decontamination.step import Fields, Indexing
from gristmill.tasks.kernels.buffers import utf8
from gristmill.tasks.kernels.ngrams import bit_table, covered_shares, ngram_hashes, possible_members, word_hashes
from tests.planted.leaks import leaked
from tests.planted.text import pydoc_paragraphs

FIELDS = Fields(question=("q",), answer="a")
LETTERS = st.lists(st.sampled_from("abcde"), min_size=0, max_size=30)


def words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+", text.lower())


def index(folder: Path, items: list[tuple[str, str]], **given) -> Index:
    path = folder / f"items-{abs(hash((str(items), str(given))))}"
    path.mkdir(parents=True, exist_ok=True)
    rows = [{"q": question, "a": [answer] if answer else []} for question, answer in items]
    (path / "items.jsonl").write_bytes(b"\n".join(map(orjson.dumps, rows)))
    chosen = Indexing(**given)
    build_index(str(path), 0, (str(path / "items.jsonl"),), {"set": FIELDS}, chosen)
    return load_index(str(path), chosen)


def texts(given: list[str]) -> pa.Array:
    return pa.array(given, pa.large_string())


def rows(found: Hits) -> list[tuple]:
    return list(zip(*(column.tolist() for column in vars(found).values()), strict=True))


@settings(max_examples=40, deadline=None)
@given(st.lists(LETTERS, min_size=1, max_size=5), st.integers(1, 4))
def test_ngrams_are_those_of_the_words_in_order(documents, n):
    hashes, ends = word_hashes(*utf8(texts([" ".join(words) for words in documents])))
    assert np.diff(ends).tolist() == [len(words) for words in documents]
    found = ngram_hashes(hashes, ends, n)
    known: dict[int, tuple] = {}
    for d, letters in enumerate(documents):
        for i in range(len(letters)):
            ngram = tuple(letters[i : i + n])
            value = int(found[ends[d] + i])
            assert (value == 0) == (len(ngram) < n)
            assert not value or known.setdefault(value, ngram) == ngram
    assert len(set(known.values())) == len(known)


def test_an_ngram_of_many_items_leads_to_none_but_a_passage_does(tmp_path):
    form = "answer the following question by one of the four choices that are given below it"
    passage = "the miller opens the gate early in the morning and the water drives the wheel until the evening"
    own = [
        f"{form} what does number{i} cost in the year{i} at the mill{i} by the river{i} in the town{i}"
        for i in range(40)
    ]
    fields = Fields(question=("q",), passage="p")
    (tmp_path / "items.jsonl").write_bytes(b"\n".join(orjson.dumps({"q": text, "p": passage}) for text in own))
    chosen = Indexing(method="ngrams")
    build_index(str(tmp_path), 0, (str(tmp_path / "items.jsonl"),), {"set": fields}, chosen)
    known = load_index(str(tmp_path), chosen)
    found = find(known, texts([f"{form}: a page of a test", f"As is said, {passage}.", own[7], ""]))
    assert sorted(set(zip(found.document.tolist(), found.item.tolist(), strict=True))) == [
        *((1, item) for item in range(40)),
        (2, 7),
    ]


@settings(max_examples=40, deadline=None)
@given(st.sets(st.integers(1, 2**64 - 1), max_size=50), st.lists(st.integers(1, 2**64 - 1), max_size=200))
def test_no_member_is_overlooked(members, others):
    mine = np.array(sorted(members), np.uint64)
    mine.flags.writeable = False  # as those of an index
    there = possible_members(np.array([*members, *others], np.uint64), bit_table(mine))
    assert set(range(len(members))) <= set(there.tolist())
    assert there.tolist() == sorted(set(there.tolist()))


@settings(max_examples=40, deadline=None)
@given(LETTERS, LETTERS, st.integers(1, 3), st.integers(0, 5))
def test_a_share_is_the_weight_of_words_in_ngrams_that_stand_there(piece, text, n, begin):
    weights = np.arange(1.0, len(text) + 1)
    size = min(n, len(text))
    begin = min(begin, len(piece))
    there = Counter(tuple(piece[i : i + size]) for i in range(begin, len(piece) - size + 1))
    own = [tuple(text[i : i + size]) for i in range(len(text) - size + 1)] if size else []
    hit = [i for i, ngram in enumerate(own) if own[:i].count(ngram) < there[ngram]]
    covered = {i + k for i in hit for k in range(size)}
    codes = [np.array([ord(c) for c in letters], np.uint64) for letters in (piece, text)]
    ends = [np.array([value]) for value in (begin, len(piece), 0, len(text))]
    codes[1].flags.writeable = weights.flags.writeable = False  # as those of an index
    share, first, last = covered_shares(codes[0], *ends[:2], codes[1], *ends[2:], weights, n)
    assert share[0] == pytest.approx(sum(i + 1 for i in covered) / weights.sum() if text else 0)
    mine = {tuple(text[i : i + size]) for i in hit}
    places = [i for i in range(begin, len(piece) - size + 1) if tuple(piece[i : i + size]) in mine]
    if places:
        assert (first[0], last[0]) == (places[0], places[-1] + size)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(8, 13))
def test_the_classical_way_finds_every_shared_ngram_and_nothing_else(tmp_path_factory, seed, n):
    draw = random.Random(seed)
    items = [" ".join(draw.choices("abc", k=draw.randint(5, 30))) for _ in range(4)]
    documents = [" ".join(draw.choices("abc", k=draw.randint(0, 60))) for _ in range(6)]
    documents.append("x " + items[0] + " y " + items[1])
    made = index(tmp_path_factory.mktemp("index"), [(text, "") for text in items], method="ngrams", ngram=n)

    def ngrams(text: str) -> set[tuple]:
        all_words = words(text)
        return {tuple(all_words[i : i + n]) for i in range(len(all_words) - n + 1)}

    expected = {
        (d, i): len(ngrams(document) & ngrams(item)) / len(ngrams(item))
        for d, document in enumerate(documents)
        for i, item in enumerate(items)
        if ngrams(document) & ngrams(item)
    }
    found = find(made, texts(documents))
    assert {(d, i): share for d, i, _, _, share, *_ in rows(found)} == pytest.approx(expected)
    for d, i, start, stop, *_ in rows(found):
        assert tuple(words(documents[d])[start : start + n]) in ngrams(items[i])
        assert tuple(words(documents[d])[stop - n : stop]) in ngrams(items[i])


@settings(max_examples=40, deadline=None)
@given(st.text("aB9 .\n\u200b日本é_-", max_size=40))
def test_places_of_words_are_code_points(text):
    hashes, ends = word_hashes(*utf8(texts([text])))
    count = int(ends[-1])
    start, stop, pieces = word_places(
        pa.chunked_array([texts([text])]), np.zeros(count, int), np.arange(count), np.arange(count) + 1
    )
    assert pieces == [text[a:b] for a, b in zip(start.tolist(), stop.tolist(), strict=True)]
    for at, piece in enumerate(pieces):
        alone, _ = word_hashes(*utf8(texts([piece])))
        assert alone.tolist() == [hashes[at]]
    outside = "".join(text[b:a] for a, b in zip([*start.tolist(), len(text)], [0, *stop.tolist()], strict=True))
    assert not re.sub(r"[\W_]", "", outside)


@pytest.fixture(scope="module")
def prose() -> list[str]:
    return [" ".join(text.split()) for text in pydoc_paragraphs() if 14 <= len(words(text)) <= 60]


@pytest.fixture(scope="module")
def held(prose, tmp_path_factory) -> tuple[Index, list[tuple[str, str]]]:
    """An index of items whose questions and answers are paragraphs, no word of which is in the documents' own."""
    items = list(zip(prose[:120], [text[:60] for text in prose[120:240]], strict=True))
    return index(tmp_path_factory.mktemp("held"), items), items


@pytest.mark.parametrize(
    ("form", "least"),
    [("verbatim", 0.99), ("question", 0.99), ("capitals", 0.99), ("10", 0.99), ("20", 0.95), ("30", 0.65)],
)
def test_planted_leaks_are_found(held, prose, form, least):
    made, items = held
    draw = random.Random(form)
    own = prose[300:]
    vocabulary = sorted({word for text in own for word in words(text)})
    documents = []
    for question, answer in items:
        leak = leaked(question, answer, form, vocabulary, draw)
        documents.append("\n".join([*draw.sample(own, 3), leak, *draw.sample(own, 3)]))
    found = find(made, texts(documents))
    right = {d for d, i, *_ in rows(found) if d == i}
    assert len(right) / len(items) >= least
    # in one batch or in several: the same
    parts = [(0, documents[:50]), (50, documents[50:])]
    again = [(d + at, *rest) for at, part in parts for d, *rest in rows(find(made, texts(part)))]
    assert repr(again) == repr(rows(found))  # in which NaN is like NaN


def test_answers_alone_and_other_texts_are_no_leaks(held, prose):
    made, items = held
    draw = random.Random(0)
    own = prose[300:]
    alone = ["\n".join([*draw.sample(own, 2), answer, *draw.sample(own, 2)]) for _, answer in items]
    assert rows(find(made, texts(alone))) == []
    mixed = [" ".join(draw.sample(all_words, len(all_words))) for q, _ in items for all_words in [q.split()]]
    assert rows(find(made, texts(own + mixed))) == []


@pytest.mark.parametrize(
    ("item", "page"),
    [
        (r"What is the value of $\\sqrt{5^5+5^5+5^5+5^5+5^5}$?", "Rated 5 5 5 by three guests."),
        ("Compute 3*4*5 + 3*4*5 + 3*4*5 + 3*4*5 + 3*4*5.", "Chapters 3 4 5 are due Monday."),
        ("What is 2000+2001+2002+2003+2004+2005+2006+2007+2008+2009 modulo 7?",
         "Open 2000, 2001, 2002, 2003, 2004, 2005, 2006, 2007, 2008, 2009."),
        (r"Simplify \\frac{\\cos x}{1 - \\sin x} - \\frac{\\cos x}{1 + \\sin x}.",
         "cos x, sin x, cosec x = 1 / sin x, sec x = 1 / cos x"),
    ],
)  # fmt: skip
def test_a_repeated_piece_of_a_formula_is_no_item(tmp_path, item, page):
    made = index(tmp_path, [(item, ""), *((f"the miller number{i} opens the gate{i}", "") for i in range(20))])
    assert rows(find(made, texts([page, f"Before. {page} Behind."]))) == []


@pytest.mark.parametrize(
    ("item", "page"),
    [
        # pages of manuals and of the web that were flagged, shortened
        ("If O is performed immediately after T, then F must be performed either",
         "It must be performed immediately after this call."),
        ("Find the greatest common divisor of $10! + 2$ and $11! + 8$.", "Find the greatest common divisor of A and B"),
        ("Rock-paper-scissors: A man and a woman are playing rock paper scissors. the man",
         "A Rock-Paper-Scissors game. Rock-Paper-Scissors is played by two."),
        (r"Find the cross product of $\begin{pmatrix} 1 \\ -1 \\ 2 \end{pmatrix}$ and "
         r"$\begin{pmatrix} 3 \\ 4 \\ -5 \end{pmatrix}.$",
         r"\begin{pmatrix} 1 & 1 \\ 0 & 1 \end{pmatrix} and \begin{pmatrix} 1 & 1 \\ 0 & 1 \end{pmatrix}"),
    ],
)  # fmt: skip
def test_a_phrase_of_many_texts_is_no_item_but_all_of_it_is(tmp_path, item, page):
    # as in benchmarks many items have the words of every text, and few have others
    common = "the of and a is to it by if then are or for in cross product man woman playing".split()
    others = [(" ".join([*random.Random(i).sample(common, 9), f"other{i}", f"word{i}"]), "") for i in range(2000)]
    made = index(tmp_path, [(item, ""), *others])
    assert rows(find(made, texts([page, f"Before. {page} Behind."]))) == []
    assert [(row[0], row[1], row[4]) for row in rows(find(made, texts([f"Before. {item} Behind."])))] == [(0, 0, 1.0)]


@pytest.mark.extended
@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from("ab 1 mill grain wheel stone".split()), max_size=9), st.randoms())
def test_different_words_are_those_beside_a_neighbour_of_theirs(tmp_path_factory, piece, draw):
    vocabulary = "a b 1 22 mill grain wheel stone".split()
    question, answer = (" ".join(draw.choices(vocabulary, k=draw.randint(1, 9))) for _ in range(2))
    made = index(tmp_path_factory.mktemp("different"), [(question, answer)])
    hashes, _ = word_hashes(*utf8(texts([" ".join(["mill", *piece, "b"])])))
    stands = ["mill", *piece, "b"]
    there = {(stands[i], stands[i + 1]) for i in range(len(stands) - 1)}
    expected = set()
    for text in (question.split(), answer.split()):
        for first, second in zip(text, text[1:], strict=False):
            expected |= {first, second} if (first, second) in there else set()
    found = different_words(made, 0, hashes, Found(0, len(hashes), 0.7, 0.7, 0.7, np.nan))
    assert found == len(expected - {"a", "b", "1", "22"})


def test_an_item_without_its_answer_scores_less_only_where_the_question_is_short(tmp_path):
    short, long = "who ground the rye", " ".join(f"word{i}" for i in range(30))
    answer = "the old miller from beyond the hill"
    made = index(tmp_path, [(short, answer), (long, answer)])
    found = find(made, texts([short, f"{short} {answer}", long, f"{long} {answer}", f"{answer} {long}"]))
    assert [(d, i, score) for d, i, _, _, score, *_ in rows(found)] == [
        (1, 0, 1.0),
        (2, 1, 1.0),
        (3, 1, 1.0),
        (4, 1, 1.0),
    ]
    # the answer behind the question is a part of the place
    places = {d: (start, stop) for d, _, start, stop, *_ in rows(found)}
    assert places == {1: (0, 11), 2: (0, 30), 3: (0, 37), 4: (7, 37)}
