"""The report page and the report in a notebook: what stands there, and that no text of a document can be more than
text."""

import sys
from dataclasses import replace

import numpy as np
import pytest
from lxml import html

from gristmill.flows.curation import BuiltStage
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import load
from gristmill.flows.reports import run_page
from gristmill.flows.reports.marking import excerpt
from gristmill.flows.reports.run import Run
from gristmill.flows.stages.dedup.near_duplicates import minhash
from gristmill.flows.stages.signals import rules, signals
from gristmill.tasks.dedup.near.settings import MinHash
from gristmill.tasks.rules.gopher_quality import GopherQuality
from tests.corpora import Texts, context
from tests.flows.reports.test_near_duplicates import EVIL, Parsed

QUALITY = GopherQuality(
    min_words=10, min_stop_words=0, min_mean_word_length=1, max_mean_word_length=50, min_alpha_words=0.5
)
SOURCES = ["web", "books"]


def words(rng: np.random.Generator, count: int) -> list[str]:
    return ["".join(map(chr, rng.integers(ord("a"), ord("z") + 1, 7).tolist())) for _ in range(count)]


def planted() -> list[list[dict]]:
    """Two shards, each of ten documents that are good, five copies of the first, three of too few words, and two whose
    words are signs: evil in every place where there may be text."""
    rng = np.random.default_rng(5)
    shards = []
    for source in SOURCES:
        good = [" ".join(["a", EVIL, *words(rng, 40)]) for _ in range(10)]
        texts = good + [good[0]] * 5 + [f"{EVIL} few"[-20:]] * 3 + [" ".join(["word", "123", "%%"] * 10) + EVIL] * 2
        shards.append(
            [
                {"id": f"{source} {number:02d} {EVIL}", "title": EVIL, "url": f"https://x.example/{EVIL}", "text": text}
                for number, text in enumerate(texts)
            ]
        )
    return shards


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> Run:
    home = str(tmp_path_factory.mktemp("home"))
    texts, made = Texts(planted(), SOURCES), context(home)
    ruled = rules(made, signals(made, texts.corpus(home), (QUALITY,)), (QUALITY,))
    recipe = load(
        {
            "name": "planted",
            "sources": [{"name": name, "warc": [f"https://x.example/{name}.warc"]} for name in SOURCES],
            "steps": [{"step": "extract"}, QUALITY.model_dump(), {"step": "minhash"}],
            "mixture": {"weights": {name: 1 for name in SOURCES}},
        }
    )
    corpus = minhash(made, texts.recipe, ruled, MinHash())
    built = tuple(BuiltStage("corpus", stage) for stage in corpus.stages)
    return Run(recipe, MachineSettings(home=home), corpus, built)


@pytest.fixture(scope="module")
def page(report) -> str:
    return run_page.page(report)


@pytest.mark.extended
def test_nothing_of_a_document_is_markup(page):
    parsed = Parsed(page)
    assert parsed.open == []
    tags = {tag for tag, _ in parsed.tags}
    assert not tags & {"script", "img", "iframe", "object", "embed", "link", "base", "form", "a", "image"}
    for _, given in parsed.tags:
        assert not [name for name in given if name.startswith("on") or name in ("src", "href", "srcdoc", "action")]
        assert not [value for name, value in given.items() if name == "xlink:href" and not value.startswith("#")]
    [policy] = [given["content"] for tag, given in parsed.tags if given.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-") and "script" not in policy
    assert not [code for code in map(ord, page) if code < 0x20 and code != 0x0A]
    shown = "".join(html.fromstring(page).itertext())
    assert shown.count("<script>alert(1)</script>") > 20 and "\u2400\u241b" in shown


def rows(page: str, heading: str) -> list[list[str]]:
    """The cells of the first table behind a heading."""
    [table] = html.fromstring(page).xpath(f"(//h2[.='{heading}']/following::table)[1]")
    return [["".join(cell.itertext()).strip() for cell in row.xpath("th|td")] for row in table.xpath(".//tr")][1:]


def test_the_figures_are_those_that_were_planted(page):
    funnel = {row[0]: row[1:5] for row in rows(page, "Funnel")}
    # five of twenty are dropped for their words, then five copies
    assert funnel == {"gopher_quality": ["40", "10", "30", "75.00%"], "minhash": ["30", "10", "20", "66.67%"]}
    lengths = {source: [len(d["text"]) for d in shard] for source, shard in zip(SOURCES, planted(), strict=True)}
    for name, *found in rows(page, "Sources"):
        whole, kept = sum(lengths[name]), sum(lengths[name][:10])
        assert found == ["20", "10", "50.00%", f"{whole:,}", f"{kept:,}", f"{kept / whole:.2%}"]
    summaries = html.fromstring(page).xpath(
        "//details[preceding-sibling::h2[1][.='What was dropped, and why']]/summary"
    )
    texts = ["".join(one.itertext()) for one in summaries]
    assert texts == [
        "gopher_quality.words: 6 documents, 15.00% of those that reached the step",
        "gopher_quality.alpha_words: 4 documents, 10.00% of those that reached the step",
        "minhash.near_duplicate: 10 documents, 33.33% of those that reached the step",
    ]
    marked = html.fromstring(page).xpath("//details[contains(., 'alpha_words')]//mark/text()")
    assert "123 %%" in marked
    sizes = [row[0] for row in rows(page, "Clusters of near-duplicates")]
    assert sizes == ["6", "6"]
    assert "languages were not identified" in page


def test_the_same_stages_give_the_same_bytes(report, page):
    assert run_page.page(Run(report.recipe, report.settings, report.corpus, report.built)) == page


def test_a_recipe_with_one_step_has_a_summary(report):
    of_two = report.corpus.stages
    [first, *_] = [stage for stage in of_two if len(stage.step_counts) == 1]
    summary = replace(report, corpus=replace(report.corpus, stages=(first,))).summary
    [counts] = first.step_counts
    assert summary == [f"{counts['rows_out']:,} of {counts['rows_in']:,} documents kept"]


def test_what_is_left_out_of_an_excerpt_is_counted():
    text = "".join(chr(0x4E00 + number % 5000) for number in range(9000))
    marks = ((1000, 1010), (1020, 1030), (5000, 8000))
    pieces = excerpt(text, marks, 1500)
    assert sum(len(piece.text) + piece.left_out for piece in pieces) == len(text)
    assert [piece.text for piece in pieces if piece.marked][:2] == [text[1000:1010], text[1020:1030]]
    assert sum(len(piece.text) for piece in pieces) < 2500
    assert excerpt("short", (), 1500)[0].text == "short"


def test_a_report_in_a_notebook(report, monkeypatch):
    assert repr(report) == f"<Run of planted in {report.settings.home}: 20 of 40 documents kept>"
    shown = report._repr_html_()
    assert Parsed(shown).open == [] and "20 of 40 documents kept" in shown and "near_duplicate 10" in shown
    funnel = report.funnel
    assert funnel[["step", "documents_in", "documents_out"]].values.tolist() == [
        ["gopher_quality", 40, 30],
        ["minhash", 30, 20],
    ]
    kept = report.show(12)
    assert len(kept) == 12 and kept["id"][0] == planted()[0][0]["id"] and kept["text"][0] == planted()[0][0]["text"]
    assert len(report.show(50, stage="rules")) == 30
    gone = report.dropped("gopher_quality.alpha_words")
    assert len(gone) == 4 and all("123 %%" in marked for marked in gone["marked"])
    assert len(report.dropped("minhash", n=4)) == 4
    with pytest.raises(LookupError, match="no stage nothing .*its stages are documents-"):
        report.show(stage="nothing")
    with pytest.raises(LookupError, match="rules that dropped some: .*gopher_quality.words"):
        report.dropped("nothing")
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        report.funnel  # noqa: B018
