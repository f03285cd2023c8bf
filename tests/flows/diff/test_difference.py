"""What `gristmill explain diff` says of two corpora, against changes that were planted."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import to_json
from typer.testing import CliRunner

import gristmill
from gristmill.flows.cli import app
from gristmill.flows.curation import curate
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import load
from gristmill.flows.reports.diff.columns import shares
from gristmill.flows.reports.diff.difference import Difference, between, changed_characters, page, write
from gristmill.flows.reports.diff.matching import side_of_corpus
from gristmill.flows.reports.diff.targets import diff, side_of
from gristmill.flows.stages.corpus import Corpus
from gristmill.flows.stages.signals import rules, signals
from gristmill.flows.stats.distributions import QUANTILES, Distribution
from gristmill.storage import parquet
from gristmill.storage.token_shards import index_path
from gristmill.tasks.engine.make import NotFinishedError
from gristmill.tasks.rules.gopher_quality import GopherQuality
from tests.corpora import Texts, context
from tests.flows.reports.test_near_duplicates import EVIL, Parsed

LENIENT = GopherQuality(
    min_words=10, min_stop_words=0, min_mean_word_length=1, max_mean_word_length=50, min_alpha_words=0.5
)
STRICT = LENIENT.model_copy(update={"min_words": 30})


def planted() -> list[list[dict]]:
    """Two shards of two sources, each of 20 documents of 40 words, 4 of 20 words and one of 5."""
    shards = []
    for source in ("web", "books"):
        lengths = [40] * 20 + [20] * 4 + [5]
        shards.append(
            [
                {
                    "id": f"{source}-{number:02d}",
                    "source": source,
                    "url": f"https://{source}{number % 3}.example/{number}",
                    "record_id": f"urn:{source}:{number}",
                    "language": "en",
                    "text": " ".join(f"{source}word{chr(97 + number)}{chr(97 + at % 26)}" for at in range(words)),
                }
                for number, words in enumerate(lengths)
            ]
        )
    return shards


def curated(home: Path, shards: list[list[dict]], step: GopherQuality = LENIENT, name: str = "texts") -> Corpus:
    made = context(str(home))
    given_ = Texts([[{k: v for k, v in row.items() if k != "language"} for row in shard] for shard in shards])
    given_.sources = [shard[0]["source"] for shard in shards]
    return rules(made, signals(made, given_.corpus(str(home), name), (step,)), (step,))


def compare(a: Corpus, b: Corpus) -> Difference:
    return between(side_of_corpus("a", a), side_of_corpus("b", b))


def reasons(alone: list) -> dict[str, int]:
    return {one.reason: one.documents for one in alone}


@pytest.mark.extended
def test_of_a_corpus_with_itself_nothing_differs(tmp_path):
    one = curated(tmp_path, planted())
    found = compare(one, one)
    assert found.empty and found.both == found.a.documents == 48
    assert not (found.columns.numbers or found.columns.values) and "gopher_quality_words" in found.columns.same
    other = compare(one, curated(tmp_path / "other", planted(), name="again"))
    assert other.empty and other.both == 48
    assert "Nothing differs" in page(other)


@pytest.mark.extended
def test_a_threshold_is_named_with_all_that_it_dropped(tmp_path):
    found = compare(curated(tmp_path, planted()), curated(tmp_path, planted(), STRICT))
    assert (reasons(found.only_a), found.only_b) == ({"gopher_quality.words": 8}, [])
    assert found.both == 40 and not found.changed.documents and not found.empty
    [words] = [one for one in found.columns.numbers if one.name == "gopher_quality_words"]
    assert words.quantiles["0.05"] == (20, 40) and words.documents == (48, 40)
    assert found.shares.unit == "characters"
    assert {one.name: one.documents for one in found.shares.sources.most} == {"web": (24, 20), "books": (24, 20)}
    assert reasons(compare(curated(tmp_path, planted(), STRICT), curated(tmp_path, planted())).only_b) == {
        "gopher_quality.words": 8
    }


@pytest.fixture
def changes() -> list[list[dict]]:
    """The second side: another order and division into shards; of the first source two texts changed, one document gone
    and one new, one too short now; three with other ids; one of them with another text, too."""
    (web, books) = planted()
    web[0]["text"] += " andmore"
    web[1]["text"] = web[1]["text"].removeprefix("webwordba ")
    web[2]["text"] = "too short"
    del web[3]
    web.append({**web[5], "id": "web-new", "url": "https://new.example/", "record_id": "urn:new"})
    for number in (7, 8, 9):
        books[number]["id"] = f"moved-{number}"
    books[9]["text"] += " further"
    return [web[::-1][:10], books, web[::-1][10:]]


def test_all_that_was_planted_is_named(tmp_path, changes):
    found = compare(curated(tmp_path, planted()), curated(tmp_path, changes, name="changes"))
    assert reasons(found.only_a) == {"gopher_quality.words": 1, "not read": 1}
    assert {one.reason: one.examples[0][0] for one in found.only_a} == {
        "gopher_quality.words": "web-02",
        "not read": "web-03",
    }
    assert [(one.reason, one.examples) for one in found.only_b] == [("not read", [("web-new", "https://new.example/")])]
    assert (found.both, found.by_url) == (46, 3)
    assert found.changed.documents == found.changed.counted == 3
    assert (found.changed.removed, found.changed.added) == (len("webwordba "), len(" andmore") + len(" further"))
    assert {one.id_b for one in found.changed.examples} == {"web-00", "web-01", "moved-9"}
    [passages] = [one.passages for one in found.changed.examples if one.id_a == "web-00"]
    assert [stretch.text for stretch in passages[1].stretches if stretch.alone] == ["andmore"]
    hosts = {one.name: one.documents for one in found.shares.hosts.most}
    assert hosts["new.example"] == (0, 1) and hosts["web0.example"] == (8, 7)
    assert found.shares.hosts.there == [6, 7]


def test_documents_with_other_ids_are_matched_by_url_each_once(tmp_path):
    """Of two with the same URL and record the first is matched; one that is dropped has its reason."""
    one, other = planted(), planted()
    for shards in (one, other):
        shards[1][5] |= {name: shards[1][4][name] for name in ("url", "record_id")}
    for row in other[1]:
        row["id"] = f"moved-{row['id']}"
    other[1][0]["text"] = "too short"
    found = compare(curated(tmp_path, one), curated(tmp_path, other, name="moved"))
    assert [(alone.reason, alone.documents, alone.examples[0][0]) for alone in found.only_a] == [
        ("gopher_quality.words", 1, "books-00"),
        ("not read", 1, "books-05"),
    ]
    assert [(alone.reason, alone.examples[0][0]) for alone in found.only_b] == [("not read", "moved-books-05")]
    assert (found.both, found.by_url, found.changed.documents) == (46, 22, 0)


def test_tokens_are_those_of_the_documents_that_are_trained_on(tmp_path):
    """Each document has two tokens a word; of the second side one document is held out."""
    sides = []
    for name, corpus in (("a", curated(tmp_path, planted())), ("b", curated(tmp_path, planted(), STRICT))):
        folder = str(tmp_path / f"tokens-{name}")
        for shard, documents in enumerate(planted()):
            kept = parquet.read_table(corpus.kept.part(shard), ["id"])["id"].to_pylist()
            rows = [(d["id"], 2 * len(d["text"].split())) for d in documents if d["id"] in kept]
            ids, lengths = zip(*(row for row in rows if (name, row[0]) != ("b", "web-00")), strict=True)
            parquet.write_table(
                index_path(folder, shard), pa.table({"id": ids, "length": pa.array(lengths, pa.int32())})
            )
        sides.append(
            replace(side_of_corpus(name, corpus), tokens=SimpleNamespace(folder=folder, digests={"tokenizer": name}))
        )
    found = shares(*sides)
    assert found.unit == "tokens" and not found.one_tokenizer
    assert found.total == (2 * (40 * 40 + 8 * 20), 2 * 39 * 40)
    assert {one.name: one.documents for one in found.sources.most} == {"web": (24, 19), "books": (24, 20)}


@pytest.mark.extended
def test_stages_are_compared_by_their_labels_and_as_json(tmp_path, monkeypatch):
    one, other = (curated(tmp_path, planted(), step) for step in (LENIENT, STRICT))
    labels = [f"{corpus.kept.name}-{corpus.kept.key}" for corpus in (one, other)]
    monkeypatch.setenv("GRISTMILL_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "150")
    done = CliRunner().invoke(app, ["explain", "diff", *labels, "--json"], catch_exceptions=False)
    found = json.loads(done.stdout)
    assert [(one["reason"], one["documents"]) for one in found["only_a"]] == [("gopher_quality.words", 8)]
    assert not found["empty"] and set(found["only_a"][0]) == {"reason", "documents", "characters", "examples"}
    same = CliRunner().invoke(app, ["explain", "diff", labels[0], labels[0], "--json"], catch_exceptions=False)
    assert json.loads(same.stdout)["empty"]
    shown = CliRunner().invoke(app, ["explain", "diff", *labels], catch_exceptions=False).stdout
    assert "gopher_quality.words" in shown and "8 only in A" in shown
    to = str(tmp_path / "page.html")
    assert CliRunner().invoke(app, ["explain", "diff", *labels, "--to", to]).stdout.strip() == to
    assert "gopher_quality.words" in Path(to).read_text()
    same = CliRunner().invoke(app, ["explain", "diff", labels[0], labels[0]]).stdout
    assert "no differences" in same
    settings = MachineSettings(home=str(tmp_path))
    assert diff(*labels, settings) == gristmill.diff(*labels)
    assert found == json.loads(to_json({"empty": False} | vars(gristmill.diff(*labels))))
    with pytest.raises(LookupError, match="has no finished stage rules-0123456789abcdef"):
        side_of("rules-0123456789abcdef", settings)


def test_nothing_of_a_document_is_markup(tmp_path):
    evil = planted()
    for shard in evil:
        for row in shard:
            row |= {"text": f"{row['text']} {EVIL}", "url": f"https://x.example/{EVIL}{row['id']}"}
    other = [[{**row, "text": f"{EVIL} {row['text']}"} for row in shard[2:]] for shard in evil]
    written = page(compare(curated(tmp_path, evil), curated(tmp_path, other, name="other")))
    parsed = Parsed(written)
    assert parsed.open == []
    assert not {tag for tag, _ in parsed.tags} & {"script", "img", "iframe", "a", "form", "object", "base"}
    assert not [name for _, attributes in parsed.tags for name in attributes if name.startswith("on")]


TEXTS = st.lists(st.sampled_from(["a", "b b", "\n", " ", "é", "word"]), max_size=40).map("".join)


@given(TEXTS, TEXTS)
def test_changed_characters_account_for_the_lengths(one, other):
    removed, added = changed_characters(one, other)
    assert len(one) - removed == len(other) - added >= 0
    assert (removed, added) == (0, 0) if one == other else removed + added > 0


def test_changed_characters_of_long_texts_are_those_of_lines():
    lines = [f"line {number} of a long text\n" for number in range(900)]
    one = "".join(lines)
    other = "".join([*lines[:100], "new\n", *lines[100:800], *lines[801:]])
    assert changed_characters(one, other) == (len(lines[800]), len("new\n"))


def test_quantiles_are_those_of_the_values_to_three_digits():
    rng = np.random.default_rng(3)
    values = np.concatenate([rng.lognormal(3, 2, 5000), -rng.lognormal(1, 1, 500), [0.0, np.nan]])
    whole, divided = Distribution(), Distribution()
    whole.add(pa.chunked_array([values]))
    for some in np.array_split(values, 7):
        divided.add(pa.chunked_array([some]))
    assert whole.same(divided) and whole.missing == 1
    there = values[~np.isnan(values)]
    for share in QUANTILES:
        assert whole.quantile(share) == pytest.approx(np.quantile(there, share, method="inverted_cdf"), rel=2**-10)
    assert whole.mean == pytest.approx(there.mean())


def test_the_same_shares_of_more_documents_are_the_same_distribution():
    one, other, unlike = Distribution(), Distribution(), Distribution()
    one.add(pa.chunked_array([["a", "b", "b"]]))
    other.add(pa.chunked_array([["b", "a", "b", "b", "b", "a"]]))
    unlike.add(pa.chunked_array([["a", "a", "b"]]))
    assert one.same(other) and not one.same(unlike)


def test_the_page_is_written_where_it_is_asked(tmp_path):
    one = curated(tmp_path, planted())
    found = compare(one, one)
    assert Path(write(found, str(tmp_path / "deep" / "page.html"))).exists()


@pytest.mark.extended
def test_recipes_are_compared_once_they_are_finished(tmp_path):
    rows = [{"url": f"https://a.example/{n}", "text": " ".join([f"word{chr(97 + n % 26)}"] * n)} for n in range(1, 60)]
    (tmp_path / "pages.jsonl").write_text("\n".join(map(json.dumps, rows)))
    settings = MachineSettings(home=str(tmp_path / "home"))
    paths = []
    for name, least in (("before", 20), ("after", 31)):
        source = {"name": "web", "jsonl": [str(tmp_path / "pages.jsonl")], "url_column": "url"}
        steps = [{"step": "extract"}, STRICT.model_dump() | {"min_words": least}]
        paths.append(str(tmp_path / f"{name}.yaml"))
        Path(paths[-1]).write_text(json.dumps({"name": name, "sources": [source], "steps": steps}))
    with pytest.raises(NotFinishedError):
        diff(*paths, settings)
    for path in paths:
        for _ in curate(context(settings.home), load(path)):
            pass
    found = diff(*paths, settings)
    assert (reasons(found.only_a), found.only_b, found.both) == ({"gopher_quality.words": 11}, [], 29)
    assert (found.a.name, found.b.documents) == (paths[0], 29)
