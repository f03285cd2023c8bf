"""Unique text lost against its definition in docs/explanation/deduplication.md, in plain Python over all dropped
documents."""

import random
import re

import pytest

from gristmill.flows.reports import near_duplicates
from gristmill.flows.reports.near_duplicates import LostBy, interval, share_lost
from gristmill.flows.reports.near_duplicates import documents as shown_documents
from gristmill.flows.reports.pages.charts import span
from gristmill.flows.stages.dedup.earlier_crawls import Drawing, crawl_of, lost_text
from gristmill.flows.stages.dedup.near_duplicates import minhash
from gristmill.storage import parquet
from gristmill.tasks.dedup.lost_text import shown_file
from gristmill.tasks.dedup.near.settings import MinHash
from tests.corpora import Texts, context, ledger
from tests.tasks.dedup.near.test_near_duplicates import dealt

SETTINGS = MinHash(threshold=0.6)


def words(text: str) -> str:
    return f" {' '.join(re.findall(r'[a-z0-9]+', text.lower()))} "


def planted(seed: int) -> list[dict]:
    """Pages of templates, each with none to all of its sentences of its own; some long, most short."""
    rng = random.Random(seed)

    def sentence() -> str:
        return " ".join(f"w{rng.randrange(10**9)}" for _ in range(rng.randint(1, 12))).capitalize() + "."

    texts = []
    for _ in range(rng.randint(3, 12)):
        template = [sentence() for _ in range(rng.choice((8, 8, 8, 100)))]
        own = rng.choice((0, 0, 0.02, 0.1, 0.2))
        for _ in range(rng.randint(2, 12)):
            page = [sentence() if rng.random() < own else one for one in template]
            texts.append(rng.choice((" ", "\n", " \n\n ")).join(page) + rng.choice(("", "\n")))
    return [{"id": f"d{i:04d}", "text": text} for i, text in enumerate(texts)]


def truth(documents: list[dict], dropped: set[str], also_kept: tuple[str, ...] = ()) -> tuple[float, dict[str, list]]:
    """The share of the dropped documents' characters, and the lost sentences of each."""
    kept = [words(d["text"]) for d in documents if d["id"] not in dropped] + [words(text) for text in also_kept]
    lost, of_all, sentences = 0, 0, {}
    for document in (d for d in documents if d["id"] in dropped):
        pieces = re.findall(r"[^.]*\.\s*", document["text"])
        assert "".join(pieces) == document["text"]
        gone = [piece for piece in pieces if not any(words(piece) in text for text in kept)]
        lost, of_all = lost + sum(map(len, gone)), of_all + len(document["text"])
        sentences[document["id"]] = [piece.strip() for piece in gone]
    return lost / of_all, sentences


def removed(home, documents: list[dict], crawl: str = "texts", **more):
    texts = Texts(dealt(documents, 2))
    arriving = texts.corpus(str(home), crawl)
    left = minhash(context(str(home)), texts.recipe, arriving, SETTINGS.model_copy(update=more))
    return arriving, left, set(ledger(left.kept, [0, 1])["id"].to_pylist())


@pytest.mark.slow
def test_the_interval_holds_the_truth_in_19_of_20_corpora_and_what_is_shown_is_lost(tmp_path):
    held = 0
    for seed in range(20):
        documents = planted(seed)
        arriving, left, dropped = removed(tmp_path / str(seed), documents)
        made = lost_text(context(str(tmp_path / str(seed))), arriving, left, drawing=Drawing(draws=300))
        share, sentences = truth(documents, dropped)
        found = share_lost(made)
        held += found.least <= share <= found.most
        assert found.characters == sum(len(d["text"]) for d in documents if d["id"] in dropped)
        shown = parquet.read_table(shown_file(made.folder)).to_pylist()
        assert {row["id"] for row in shown} <= dropped
        for name in {row["id"] for row in shown}:
            assert [row["text"] for row in shown if row["id"] == name and row["lost"]] == sentences[name]
    assert held >= 19


@pytest.mark.extended
def test_text_that_an_earlier_crawl_keeps_is_not_lost(tmp_path):
    documents = planted(3)
    first, second = documents[::2], documents[1::2]
    _, earlier, _ = removed(tmp_path, first, "first")
    kept = [d["text"] for d in first if d["id"] not in set(ledger(earlier.kept, [0, 1])["id"].to_pylist())]
    folder = earlier.kept.folder
    arriving, left, dropped = removed(tmp_path, second, "second", earlier=(folder,))
    crawl = crawl_of(folder, earlier.kept.manifest)
    made = lost_text(context(str(tmp_path)), arriving, left, (crawl,), Drawing(draws=3000))
    share, _ = truth(second, dropped, tuple(kept))
    found = share_lost(made)
    assert found.least <= share <= found.most
    alone = lost_text(context(str(tmp_path)), arriving, left, (), Drawing(draws=3000))
    assert share_lost(alone).lost > found.lost


def test_nothing_is_lost_where_nothing_is_dropped(tmp_path):
    documents = [{"id": name, "text": f"{name} alone."} for name in "abc"]
    arriving, left, dropped = removed(tmp_path, documents)
    assert not dropped
    made = lost_text(context(str(tmp_path)), arriving, left)
    found = share_lost(made)
    assert (found.draws, found.share, found.least, found.most) == (0, 0, 0, 0)


@pytest.mark.parametrize(("lost", "draws", "ends"), [(0, 2000, (0, 0.0018427)), (10, 100, (0.0490047, 0.1762226))])
def test_intervals_are_clopper_and_pearsons(lost, draws, ends):
    # R 4.3: binom.test(10, 100)$conf.int; 1 - (0.05 / 2)^(1 / 2000)
    assert interval(lost, draws) == pytest.approx(ends, abs=1e-6)


def test_the_page_shows_lost_sentences_as_text(tmp_path):
    template = " ".join(f"Word{i}" for i in range(60))
    facts = ("<b>Alpha beta gamma</b> delta.", "<i>Epsilon</i>.")
    documents = [{"id": f"d{i}", "text": f"{template}.\n{fact}"} for i, fact in enumerate(facts)]
    arriving, left, dropped = removed(tmp_path, documents)
    made = lost_text(context(str(tmp_path)), arriving, left)
    by = LostBy("minhash", share_lost(made), shown_documents(made))
    page = near_duplicates.page(near_duplicates.Removal("planted", SETTINGS, left.kept, [by]))
    assert dropped == {"d1"}
    assert [one.lost for one in by.documents] == [[facts[1]]]
    assert "<li>&lt;i&gt;Epsilon&lt;/i&gt;.</li>" in page
    assert span(by.figure.least, by.figure.most) in page
