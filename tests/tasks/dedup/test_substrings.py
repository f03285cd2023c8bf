"""Duplicated spans against all windows counted in plain Python, over shards and blocks; and what is cut for them."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gristmill.flows.stages.corpus import CorpusPlaces
from gristmill.flows.stages.dedup.exact_duplicates import _find
from gristmill.storage import layout, parquet
from gristmill.storage.schema import DOCUMENTS, SELECTION
from gristmill.tasks.dedup import exchange, substring_cuts, substrings
from gristmill.tasks.dedup.exchange import CollectedShards, KeyRanges
from gristmill.tasks.dedup.substrings import SpanSearch, SubstringDedup
from gristmill.tasks.documents.by_shard import Names
from gristmill.tasks.kernels.minimizers import runs
from tests.corpora import Direct, check_balance


def units(text, unit):
    return text.split() if unit == "words" else list(text.encode())


def duplicated(documents, step):
    """{id: units of it that go}: all windows of n units, first come first kept, or none."""
    n = step.min_length
    windows = [
        (key, at, tuple(seen[at : at + n]))
        for key in sorted(documents)
        for seen in [units(documents[key], step.unit)]
        for at in range(len(seen) - n + 1)
    ]
    times = Counter(content for _, _, content in windows)
    gone = {key: set() for key in documents}
    known = set()
    for key, at, content in windows:
        if content in known if step.keep == "first" else times[content] > 1:
            gone[key].update(range(at, at + n))
        known.add(content)
    return gone


class Corpus:
    """Documents in shards, and the phases of the step over them."""

    def __init__(self, folder, documents, n_shards, step):
        self.step, self.folder, self.n_shards = step, str(folder), n_shards
        self.ids = [list(documents)[s::n_shards] for s in range(n_shards)]
        self.parts = []
        for s, ids in enumerate(self.ids):
            rows = [{"id": i, "source": "web", "characters": len(documents[i]), "text": documents[i]} for i in ids]
            self.parts.append((f"{folder}/texts-{s}.parquet", f"{folder}/kept-{s}.parquet"))
            for path, schema in zip(self.parts[-1], (DOCUMENTS, SELECTION), strict=True):
                parquet.write_table(path, pa.Table.from_pylist(rows, schema=schema))

    def find(self):
        """In several partitions, though there is little text."""
        documents, kept = zip(*self.parts, strict=True)
        phases = Direct(self.folder)
        with pytest.MonkeyPatch.context() as changed:
            changed.setattr(exchange, "partitions_of", lambda rows, row_bytes: self.n_shards + 1)
            result = _find(
                phases, self.step.part(SpanSearch), CorpusPlaces(Names((("s", self.n_shards),)), documents, kept, ())
            )
        self.blocks, self.found = result["blocks"], list(phases.records["find"].values())
        ranges = KeyRanges(result["ranges"], self.n_shards, each=substrings.NODES)
        self.spans = CollectedShards(f"{self.folder}/spans", ranges)
        return self

    def gone(self):
        spans = {i: set() for ids in self.ids for i in ids}
        for s, ids in enumerate(self.ids):
            for row, first, stop in zip(*substrings.spans_of(self.spans, s), strict=True):
                assert spans[ids[row]].isdisjoint(range(first - 1, stop + 1))  # neighbours are made one span
                spans[ids[row]].update(range(first, stop))
        return spans

    def decide(self, folder):
        """(texts by id, ledger rows, edit rows) that the policy leaves."""
        work = substring_cuts.cut_shard if self.step.policy == "cut" else substring_cuts.drop_shard
        texts, lost, cuts = {}, [], []
        self.records = []
        for s, (documents, kept) in enumerate(self.parts):
            record = work(str(folder), s, documents, kept, self.spans, self.step)
            self.records.append(record)
            left = parquet.read_table(layout.part(str(folder), s)).to_pylist()
            texts |= {row["id"]: row.get("text") for row in left}
            lost += parquet.read_table(layout.ledger_part(str(folder), s)).to_pylist()
            if self.step.policy == "cut":
                assert [row["characters"] for row in left] == [len(row["text"]) for row in left]
                cuts += parquet.read_table(layout.edits_part(str(folder), s)).to_pylist()
        check_balance(str(folder), self.records)
        return texts, lost, cuts


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    return lambda documents, step, n_shards=1: Corpus(
        tmp_path_factory.mktemp("corpus"), documents, n_shards, step
    ).find()


WORDS = st.lists(st.lists(st.sampled_from(["a", "b", "cc"]), max_size=30).map(" ".join), min_size=1, max_size=5)
LETTERS = st.lists(st.text("abé", max_size=30), min_size=1, max_size=5)


def named(texts):
    return {f"{i * 7 % 11:02d}": text for i, text in enumerate(texts)}


@pytest.mark.extended
@settings(max_examples=15, deadline=None)
@given(texts=WORDS, n=st.integers(2, 6), keep=st.sampled_from(["first", "none"]))
@example(texts=["a a a a a a a a"], n=3, keep="first")
@example(texts=["a b a b a b a b", "b a b a"], n=2, keep="none")
@example(texts=["a b", "a b"], n=2, keep="first")
@example(texts=["", "a"], n=2, keep="first")
def test_words_that_go_are_those_of_repeated_windows(texts, n, keep, corpus):
    step = SubstringDedup(min_length=n, keep=keep)
    documents = named(texts)
    assert corpus(documents, step).gone() == duplicated(documents, step)


@pytest.mark.extended
@settings(max_examples=15, deadline=None)
@given(texts=LETTERS, n=st.integers(2, 9), keep=st.sampled_from(["first", "none"]))
@example(texts=["ababababababab", "babab"], n=4, keep="first")
@example(texts=["xéy", "zéy"], n=2, keep="none")
def test_bytes_that_go_are_those_of_repeated_windows(texts, n, keep, corpus):
    step = SubstringDedup(unit="bytes", min_length=n, keep=keep)
    documents = named(texts)
    assert corpus(documents, step).gone() == duplicated(documents, step)


def quoting(seed, words=200, documents=30):
    """Documents of unlike words with quotations of 20 to 120 words, in part of quotations, at any place."""
    rng = np.random.default_rng(seed)
    quotations = [[f"q{q}.{i}" for i in range(rng.integers(20, 120))] for q in range(12)]
    texts = {}
    for _ in range(documents):
        seen = [f"w{x}" for x in rng.integers(0, 2**40, words)]
        for q in rng.integers(0, 12, 3):
            first, last = sorted(rng.integers(0, len(quotations[q]) + 1, 2))
            at = rng.integers(0, len(seen))
            seen[at:at] = quotations[q][first:last]
        texts[f"{rng.integers(0, 2**60):015x}"] = " ".join(seen)
    return texts


@pytest.mark.parametrize(
    ("unit", "n", "block_bytes"), [("words", 30, 1 << 10), ("words", 7, 1 << 12), ("bytes", 100, 1 << 13)]
)
@pytest.mark.parametrize("keep", ["first", "none"])
def test_quotations_are_found_across_shards_and_blocks(unit, n, block_bytes, keep, corpus):
    documents = quoting(3)
    step = SubstringDedup(unit=unit, min_length=n, keep=keep, block_bytes=block_bytes)
    expected = duplicated(documents, step)
    assert sum(map(len, expected.values())) > 300
    found = corpus(documents, step, 3)
    assert found.blocks > 2
    assert found.gone() == expected


def test_order_shards_and_blocks_change_nothing(corpus, tmp_path):
    documents = quoting(5)
    step = SubstringDedup(min_length=20)
    texts, lost, cuts = corpus(documents, step).decide(tmp_path / "one")
    assert len(cuts) > 20
    names = list(documents)
    np.random.default_rng(0).shuffle(names)
    other = SubstringDedup(min_length=20, block_bytes=1 << 12)
    again, lost_again, cuts_again = corpus({i: documents[i] for i in names}, other, 3).decide(tmp_path / "two")
    assert again == texts and lost_again == lost == []
    place = ["id", "start"]
    assert sorted(cuts, key=lambda row: [row[c] for c in place]) == sorted(
        cuts_again, key=lambda row: [row[c] for c in place]
    )


def test_a_unit_that_is_cut_still_stands_in_another_place(corpus, tmp_path):
    documents = quoting(7)
    texts, _, _ = corpus(documents, SubstringDedup(min_length=10)).decide(tmp_path)
    words = {word for text in documents.values() for word in text.split()}
    assert {word for text in texts.values() for word in text.split()} == words


@pytest.mark.parametrize("step", [SubstringDedup(min_length=8), SubstringDedup(unit="bytes", min_length=31)])
def test_edits_tell_what_was_there(step, corpus, tmp_path):
    draw = np.random.default_rng(2)
    lines = ["".join(draw.choice(list("aé漢😀 .")) for _ in range(40)).strip() for _ in range(30)]
    documents = {f"{d:02d}": "\n".join(draw.choice(lines, 9)) for d in range(30)}
    texts, lost, cuts = corpus(documents, step, 2).decide(tmp_path)
    assert len(cuts) > 40 and {row["rule"] for row in cuts} == {"repeated_span"}
    gone = {row["id"]: "" for row in lost}
    for key, text in documents.items():
        for row in sorted((row for row in cuts if row["id"] == key), key=lambda row: -row["start"]):
            assert text[row["start"] : row["stop"]] == row["removed"]
            assert text[: row["start"]].count("\n") in (row["first_line"], row["first_line"] - 1)
            text = text[: row["start"]] + text[row["stop"] :]
        if key in gone:
            assert len(text) < step.min_characters
        else:
            assert texts[key] == text


def test_bytes_are_cut_at_characters(corpus, tmp_path):
    step = SubstringDedup(unit="bytes", min_length=4, keep="none", min_characters=1)
    # à and Š end in the same byte, 😀 and 😁 begin with the same three; of the last pair no whole character is common
    documents = {"1": "àone", "2": "Šone", "3": "two😀", "4": "two😁", "5": "🚀🚁", "6": "\U0005f680🚂"}
    found = corpus(documents, step)
    assert found.gone() == duplicated(documents, step)
    assert all(found.gone().values())
    texts, _, cuts = found.decide(tmp_path)
    assert texts == {"1": "à", "2": "Š", "3": "😀", "4": "😁", "5": "🚀🚁", "6": "\U0005f680🚂"}
    assert sorted(row["removed"] for row in cuts) == ["one", "one", "two", "two"]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("{} b", "b"),
        ("a {}", "a"),
        ("  {}\n", ""),
        ("a {} b", "a b"),
        ("a\n{}\nb", "a\nb"),
        ("a\n\n{}\n\nb", "a\n\nb"),
        ("a {}\nb", "a\nb"),
        ("a\n{} b", "a\nb"),
        ("a {}, b", "a , b"),
        ("({}) b", "() b"),
        ("a\n\n{}", "a"),
    ],
)
def test_white_space_does_not_stay_on_both_sides_of_a_span(text, left, corpus, tmp_path):
    span = "one two\nthree"
    step = SubstringDedup(min_length=3, min_characters=1)
    texts, lost, _ = corpus({"1": f"{span} first", "2": text.format(span)}, step).decide(tmp_path)
    assert texts["1"] == f"{span} first"
    assert texts.get("2", "") == left
    assert [row["id"] for row in lost] == ([] if left else ["2"])


def test_white_space_does_not_hide_a_duplicate_and_punctuation_does(corpus):
    step = SubstringDedup(min_length=4)
    found = corpus({"1": "one two three four", "2": "one\n\ntwo\tthree   four", "3": "one two, three four"}, step)
    assert found.gone() == {"1": set(), "2": {0, 1, 2, 3}, "3": set()}


def test_documents_of_which_little_is_left_go(corpus, tmp_path):
    span = " ".join(f"w{i}" for i in range(10))
    documents = {"1": span, "2": f"{span} short", "3": f"{span} and some that is longer", "4": "tiny"}
    step = SubstringDedup(min_length=10, min_characters=20)
    texts, lost, _ = corpus(documents, step).decide(tmp_path)
    assert texts == {"1": span, "3": "and some that is longer", "4": "tiny"}
    [row] = lost
    known = {name: value for name, value in row.items() if value is not None}
    assert known == {"id": "2", "step": step.step, "rule": "min_characters", "value": 5, "threshold": 20}


def test_documents_with_many_duplicates_are_dropped(corpus, tmp_path):
    span = "é1 é2 é3 é4"  # 11 characters
    documents = {"1": span, "2": f"{span} {'x' * 32}", "3": f"{span} {'x' * 33}", "4": f"{span} {span}", "5": "other"}
    step = SubstringDedup(min_length=4, policy="drop", max_share=0.25)
    texts, lost, _ = corpus(documents, step, 2).decide(tmp_path)
    assert set(texts) == {"1", "2", "3", "5"}  # 11 of 44 characters are a quarter, and not more
    [row] = lost
    assert (row["id"], row["rule"], row["value"], row["threshold"]) == ("4", "max_share", 1, 0.25)


HOSTILE = {
    "one word": ["x"] * 100_000,
    "short period": ["x", "y", "z"] * 33_333,
    "period near the length of a window": [f"x{i % 51}" for i in range(100_000)],
    "long period": [f"x{i % 997}" for i in range(100_000)],
}


@pytest.mark.parametrize("words", HOSTILE.values(), ids=HOSTILE.keys())
def test_of_periodic_text_little_is_sorted(words, corpus):
    period = len(set(words))
    found = corpus({"1": " ".join(words), "2": "a b c"}, SubstringDedup())
    assert found.gone() == {"1": set(range(period, len(words))), "2": set()}
    assert sum(record["bytes"] for record in found.found) < 2 * len(" ".join(words))


@pytest.mark.extended
@pytest.mark.parametrize(("unit", "n"), [("words", 7), ("words", 50), ("bytes", 100)])
def test_partitions_follow_from_the_text_and_hold_a_bounded_number_of_runs(unit, n):
    step = SubstringDedup(unit=unit, min_length=n)
    texts = quoting(1)
    characters = sum(map(len, texts.values()))
    seen = [np.frombuffer(text.encode(), np.uint8) for text in texts.values()]
    if unit == "words":
        seen = [np.array([hash(word) % 2**61 for word in text.split()], np.uint64) for text in texts.values()]
    found = runs(np.concatenate(seen), np.append(0, np.cumsum([len(units) for units in seen])), n)
    times = 10**12 // characters
    held = times * len(found.key) / substrings.partitions(times * characters, step)
    assert 2**20 < held < 2**24
    assert substrings.partitions(characters, step) == substrings.partitions(0, step) == 1


def test_copies_of_a_template_cost_little(corpus):
    template = " ".join(f"t{i}" for i in range(400))
    documents = {f"{d:04d}": f"{d}a {template} {d}b" for d in range(1000)}
    found = corpus(documents, SubstringDedup(), 2)
    spans = found.gone()
    assert spans.pop("0000") == set()
    assert all(gone == set(range(1, 401)) for gone in spans.values())
    # beside the first copy, only what reaches beyond the template is sorted
    assert sum(record["bytes"] for record in found.found) < 0.4 * sum(map(len, documents.values()))


@pytest.mark.extended
def test_equal_windows_have_one_key():
    rng = np.random.default_rng(4)
    texts = rng.integers(0, 2, 4000).astype(np.uint8)
    n, offsets = 9, np.array([0, 1500, 1503, 4000])
    found = runs(texts, offsets, n)
    key_of = {}
    for d, first, windows, key, repeats in zip(
        found.document, found.first, found.windows, found.key, found.repeats, strict=True
    ):
        contents = [texts[at : at + n].tobytes() for at in range(offsets[d] + first, offsets[d] + first + windows)]
        assert all(key_of.setdefault(content, key) == key for content in contents)
        assert repeats or len(set(contents)) == windows
    assert found.windows.sum() == 1500 - n + 1 + 2497 - n + 1
