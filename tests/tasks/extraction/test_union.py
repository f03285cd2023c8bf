"""The engine `union` beside each engine alone: its texts are those that brute force over all of them would choose."""

import pytest

from gristmill.storage import layout, ledger, parquet
from gristmill.tasks.documents.decisions import decide
from gristmill.tasks.documents.measure import measured
from gristmill.tasks.documents.normalize import Normalize
from gristmill.tasks.extraction.extract import Extract, united
from gristmill.tasks.extraction.shard import extract_shard
from gristmill.tasks.reading.listing import Shard
from gristmill.tasks.rules.c4 import C4
from gristmill.tasks.rules.gopher_quality import GopherQuality
from tests.planted.text import pydoc_paragraphs

ENGINES = ("trafilatura", "plain", "blocks")
RULES = (GopherQuality(min_words=30, min_stop_words=1, max_hash_ratio=0.1), C4(min_sentences=2))


def pages(page):
    """Pages that engines read differently: by lists of links and sentences at their foot; and no pages."""
    paragraphs = pydoc_paragraphs()
    made = []
    for at in range(60):
        text = "".join(f"<p>{paragraph}.</p>" for paragraph in paragraphs[at : at + 1 + at % 4])
        links = "".join(f'<li><a href="/{i}">Link number {i}</a></li>' for i in range(at % 7 * 5))
        small = "".join(f"<p>{paragraph}.</p>" for paragraph in paragraphs[-3:]) if at % 3 == 0 else ""
        links += "<li># # #</li>" * 20 if at % 4 == 3 else ""  # which Gopher's rules count
        body = f"<nav><ul>{links}</ul></nav><main>{text}</main><footer>{small}</footer>"
        made.append(page(f"<html><body>{body}</body></html>".encode()))
    # a menu of sentences, which is text for one engine alone
    menu = "".join(f'<li><a href="/{i}">{paragraph}.</a></li>' for i, paragraph in enumerate(paragraphs[:4]))
    made.append(page(f"<html><body><nav><ul>{menu}</ul></nav><main><p>A mill.</p></main></body></html>".encode()))
    made += [page(b""), page(b"<p>"), page(b"no page", (("Content-Type", "text/plain"),))]
    made.append(page(b"%PDF-1.7", (("Content-Type", "application/pdf"),)))
    return made


@pytest.fixture
def extract(tmp_path, write_warc, page):
    path = tmp_path / "a.warc.gz"
    write_warc(path, pages(page), gzip=True)

    def extract(folder, engine, choosing=(), steps=(), engines=ENGINES):
        folder = str(tmp_path / folder)
        shard = Shard("archive", str(path), path.name)
        settings = Extract(engine=engine, engines=engines)
        given = (settings, Normalize(), steps)
        record = extract_shard(folder, 0, "web", (shard,), None, (), *given, choosing=choosing)
        table, lost = parquet.read_table(layout.part(folder, 0)), parquet.read_table(layout.ledger_part(folder, 0))
        ledger.balance("test", record["rows_in"], len(table), record["steps"], lost)
        return record, table, lost

    return extract


def kept_by_rules(table, rules=RULES):
    signals = measured(table, rules).table
    lost = decide(signals, [(rule.step, rule.decisions()) for rule in rules])
    return set(table["id"].to_pylist()).difference(*(rows["id"].to_pylist() for _, rows in lost))


@pytest.mark.extended
def test_each_page_has_the_first_text_that_the_rules_keep(extract):
    alone = {engine: extract(engine, engine)[1] for engine in ENGINES}
    texts = {
        engine: dict(zip(*(t[name].to_pylist() for name in ("id", "text")), strict=True)) for engine, t in alone.items()
    }
    kept = {engine: kept_by_rules(table) for engine, table in alone.items()}
    expected = {}
    for identity in {identity for found in texts.values() for identity in found}:
        there = [engine for engine in ENGINES if identity in texts[engine]]
        engine = next((engine for engine in there if identity in kept[engine]), there[0])
        expected[identity] = texts[engine][identity]
    record, table, lost = extract("union", "union", RULES)
    assert dict(zip(table["id"].to_pylist(), table["text"].to_pylist(), strict=True)) == expected
    given = table["engine"].to_pylist()
    assert {"trafilatura", "blocks"} < set(given)  # the rules choose among engines, or this says nothing
    assert record["engines"] == {name: given.count(name) for name in sorted(set(given))}
    assert kept_by_rules(table) == set.union(*kept.values())
    assert len(kept_by_rules(table)) > max(map(len, kept.values()))
    assert sorted(lost["rule"].to_pylist()) == ["content_type", "empty_text", "empty_text"]


@pytest.mark.extended
def test_an_engine_that_fails_leaves_the_page_to_the_others(extract, tmp_path, monkeypatch):
    (tmp_path / "failing_engine.py").write_text(
        'def extract(page):\n    return "flour" if "Grist" in page else 1 / 0\n'
    )
    monkeypatch.syspath_prepend(tmp_path)
    _, table, _ = extract("failing", "union", RULES, engines=("failing_engine:extract", "plain"))
    _, plain, _ = extract("plain", "plain")
    assert set(table["engine"].to_pylist()) == {"plain", "text"}
    assert table["text"].equals(plain["text"])


@pytest.mark.extended
def test_without_rules_it_is_the_first_text_that_is_found(extract):
    _, table, _ = extract("without", "union", engines=("trafilatura", "plain"))
    texts = {engine: extract(engine, engine)[1] for engine in ("plain", "trafilatura")}
    expected = {row["id"]: row["text"] for found in texts.values() for row in found.to_pylist()}
    assert {row["id"]: row["text"] for row in table.to_pylist()} == expected


def test_a_page_that_no_engine_reads_has_the_first_ones_reason():
    found = [{"rule": "too_deep", "detail": "a"}, {"rule": "empty_text", "detail": "b"}]
    assert united(found) == found[0]
    texts = [{"text": "one", "engine": "a"}, {"text": "one", "engine": "b"}, {"text": "two", "engine": "c"}]
    assert united([found[0], *texts]) == {"text": "one", "engine": "a", "others": [("c", "two")]}


@pytest.mark.parametrize(
    ("engines", "said"),
    [(["blocks"], "at least 2"), (["blocks", "blocks"], "has blocks twice"), (["blocks", "union"], "is 'union'")],
)
def test_engines_that_cannot_be_united(engines, said):
    with pytest.raises(ValueError, match=said):
        Extract(engine="union", engines=engines)
