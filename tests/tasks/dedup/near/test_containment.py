"""`verify: containment` against its definition in docs/explanation/deduplication.md, in plain Python over all pairs."""

import random
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from gristmill.flows.stages.dedup import near_duplicates
from gristmill.storage import sorted_files
from gristmill.tasks.dedup.near.settings import MinHash
from gristmill.tasks.dedup.near.sign import band_hashes, signed
from gristmill.tasks.dedup.near.verify import refused_files
from gristmill.tasks.engine.executors import executor
from gristmill.tasks.kernels.duplicates import REASONS, contained, gram_sets
from tests.corpora import Texts, context, fresh
from tests.scripts import edited, text_of
from tests.tasks.dedup.near.test_near_duplicates import dealt, deduplicate, drops
from tests.tasks.dedup.near.test_signatures import words

TEN = ("Latin", "Cyrillic", "Greek", "Arabic", "Devanagari", "Hangul", "Tibetan", "Han", "Japanese", "Thai")


class Read:
    """What the definition asks of a text."""

    def __init__(self, text: str):
        self.words = tuple(words(text))
        places = [self.words[i : i + 3] for i in range(max(len(self.words) - 2, 1))]
        self.grams = set(places)
        self.saturated = len(self.grams) < 0.9 * len(places)
        self.dense = len(text) > 10 * len(self.words)
        self.plain = " ".join(text.casefold().split())


def refusal(x: Read, y: Read, least: float = 1.0) -> str | None:
    if len(x.words) > len(y.words):
        return "longer"
    if len(x.grams & y.grams) / len(x.grams) < least:
        return "text_lost"
    n = len(x.words)
    runs = (y.words[i : i + n] == x.words for i in range(len(y.words) - n + 1))
    if (x.saturated or y.saturated) and not any(runs):
        return "saturated"
    if (x.dense or y.dense) and x.plain != y.plain:
        return "under_tokenised"
    return None


def definition(documents: list[dict], settings: MinHash, given: tuple = ()) -> tuple[dict, dict]:
    """Who is dropped for whom, with the share held; and of whom that is kept which refusal is nearest. Which documents
    share a band is what the signatures say, that have tests of their own."""
    everyone = [*given, *sorted(documents, key=lambda d: (-len(d["text"]), d["id"]))]
    columns = {"id": [d["id"] for d in everyone], "at": range(len(everyone)), "text": [d["text"] for d in everyone]}
    bands = band_hashes(signed(pa.table(columns), settings)["signature"], settings)
    texts = [Read(d["text"]) for d in everyone]
    kept, dropped, refused = [], {}, {}
    for i, document in enumerate(everyone):
        nearest = None
        for k in kept if i >= len(given) and texts[i].words else ():
            if (bands[i] == bands[k]).any() and texts[k].words:
                share = len(texts[i].grams & texts[k].grams) / len(texts[i].grams)
                reason = refusal(texts[i], texts[k], settings.contained)
                if reason is None:
                    dropped[document["id"]] = everyone[k]["id"], share
                    break
                if nearest is None or share > nearest[1]:
                    nearest = everyone[k]["id"], share, reason
        else:
            kept.append(i)
            if nearest:
                refused[document["id"]] = nearest
    return dropped, refused


def refusals(corpus) -> dict[str, tuple]:
    partitions = corpus.kept.result["partitions"]
    found = refused_files(corpus.kept.folder, partitions)
    rows = [row for table in found.each(*sorted_files.EVERYTHING) for row in table.to_pylist()]
    return {row["id"]: (row["representative"], row["contained"], row["reason"]) for row in rows}


def corpus_of(seed: int) -> list[dict]:
    """Texts of one script with cut, edited, repeated and dense copies."""
    rng = random.Random(seed)
    script = TEN[seed % len(TEN)]
    texts = []
    for _ in range(4):
        text = text_of(script, rng.randint(40, 500), rng)
        half = len(text) * 9 // 10
        texts += [text, text, text.upper(), text[:half], text[len(text) - half :], text + " " + text]
        texts += [edited(text, rng.choice(("replaced", "inserted", "deleted")), 1, script, rng) for _ in range(2)]
    two = [text_of(script, 8, rng) for _ in range(2)]
    texts += [" ".join(rng.choice(two) for _ in range(80)) for _ in range(4)]
    dense = "".join(rng.choice("+-*/=<>") for _ in range(300)).join(text_of(script, 60, rng).split(" ")[:6])
    texts += [dense, dense.replace("+", "-"), dense + "\n", two[0], "one", "One!", "one two", "..."]
    names = rng.sample(range(10_000), len(texts))
    return [{"id": f"d{name:05d}", "text": text} for name, text in zip(names, texts, strict=True)]


def settings_of(seed: int, **more) -> MinHash:
    return MinHash(verify="containment", bands=64, rows=2, contained=(1.0, 0.9)[seed % 3 == 0], **more)


def check(folder, seed: int) -> Counter:
    documents, settings = corpus_of(seed), settings_of(seed, partitions=1 + seed % 3)
    left = deduplicate(folder, Texts(dealt(documents, 1 + seed % 4, seed)), settings)
    dropped, refused = definition(documents, settings)
    assert drops(left) == dropped
    assert refusals(left) == refused
    counted = Counter(reason for _, _, reason in refused.values())
    assert {k: v for k, v in left.kept.result["refused"].items() if v} == counted
    return counted + Counter(dropped=len(dropped))


@pytest.mark.extended
def test_what_is_dropped_and_refused_is_what_the_definition_says(tmp_path):
    total = sum((check(tmp_path / str(seed), seed) for seed in range(10)), Counter())
    assert set(total) >= {"dropped", "text_lost", "saturated", "under_tokenised"}


@pytest.mark.extended
def test_a_document_of_more_words_is_not_dropped_for_one_of_fewer():
    """The first is longer in characters alone, and holds all 3-grams of the second, which repeats them."""
    words = np.array([1, 2, 3, 1, 2, 9, 1, 2, 3, 1, 2, 3, 1, 2], np.uint64)
    offsets, buckets = np.array([0, 6, 14]), np.zeros((2, 1), np.int64)
    grams = np.empty(len(words), np.uint64)
    counts = gram_sets(words, offsets, grams)
    found = contained(words, offsets, grams, counts, np.zeros(2, np.uint64), buckets, 1, 0, 0.5, 128)
    representative, _, _, _, nearest, _, reason = found
    assert representative.tolist() == [0, 1]
    assert (nearest[1], REASONS[reason[1]]) == (0, "longer")


@pytest.mark.slow
def test_200_corpora_in_ten_scripts(tmp_path):
    total = sum((check(tmp_path / str(seed), seed) for seed in range(200)), Counter())
    assert set(total) == {"dropped", "longer", "text_lost", "saturated", "under_tokenised"}


def test_a_fact_of_a_template_is_kept_where_jaccard_loses_it(tmp_path):
    rng = np.random.default_rng(4)
    template = fresh(rng, 200)
    documents = [
        {"id": f"d{i:05d}", "text": " ".join([*template[:100], *fresh(rng, 1), *template[100:]])} for i in range(300)
    ]
    lost = [len(drops(deduplicate(tmp_path, Texts(dealt(documents, 2)), MinHash(verify=how)))) for how in HOW]
    assert lost == [299, 0]


HOW = ("jaccard", "containment")


def test_containment_needs_the_longest_first():
    with pytest.raises(ValueError, match="keep.*longest"):
        MinHash(verify="containment", keep=("newest",))


@pytest.mark.extended
@pytest.mark.parametrize("seed", range(6))
def test_a_later_crawl_loses_what_the_earlier_one_holds(tmp_path, seed):
    documents = corpus_of(seed)
    first, second = documents[::2], documents[1::2]
    settings = settings_of(seed, partitions=2)
    before = deduplicate(tmp_path, Texts(dealt(first, 2, seed)), settings, "first")
    gone = drops(before)
    assert gone == definition(first, settings)[0]
    given = tuple(sorted((d for d in first if d["id"] not in gone), key=lambda d: (-len(d["text"]), d["id"])))
    later = settings.model_copy(update={"earlier": (before.kept.folder,)})
    left = deduplicate(tmp_path, Texts(dealt(second, 3, seed)), later, "second")
    dropped, refused = definition(second, settings, given)
    assert drops(left) == dropped
    assert refusals(left) == refused
    assert {representative for representative, _ in dropped.values()} & {d["id"] for d in given}


@pytest.mark.parametrize("seed", range(4))
def test_what_was_taken_down_holds_nothing(tmp_path, seed):
    documents, settings = corpus_of(seed), settings_of(seed, partitions=2)
    before = deduplicate(tmp_path, Texts(dealt(documents, 2)), settings)
    gone = sorted({representative for representative, _ in drops(before).values()})[:3]
    takedowns = tmp_path / "takedowns.txt"
    takedowns.write_text("\n".join([*gone, ""]))
    after = deduplicate(
        tmp_path, Texts(dealt(documents, 2)), settings.model_copy(update={"takedowns": (str(takedowns),)})
    )
    expected = definition([d for d in documents if d["id"] not in gone], settings)
    assert (drops(after), refusals(after)) == expected
    assert drops(after) != drops(before)


@pytest.mark.extended
def test_nothing_depends_on_workers_shards_or_partitions(tmp_path):
    documents, settings = corpus_of(1), settings_of(1)
    expected = definition(documents, settings)
    for number, (workers, shards, partitions) in enumerate([(1, 1, 1), (3, 4, 2), (2, 7, 5)]):
        home, texts = str(tmp_path / str(number)), Texts(dealt(documents, shards, number))
        with executor("threads", workers) as pool:
            of = settings.model_copy(update={"partitions": partitions})
            left = near_duplicates.minhash(context(home, pool), texts.recipe, texts.corpus(home), of)
        assert (drops(left), refusals(left)) == expected
