"""Held-out documents that URL steps drop: drawn while sources are read, the same as those of the unfiltered sources."""

from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from gristmill.flows.curation import Outputs, curate
from gristmill.flows.recipe.recipe import Recipe, load
from gristmill.flows.recipe.variants import unfiltered
from gristmill.flows.stages import heldout as heldout_stages
from gristmill.flows.stages.corpus import Corpus, held_out
from gristmill.flows.stages.documents import documents
from gristmill.flows.stages.evaluation.documents import read
from gristmill.flows.stages.heldout import heldout, heldout_documents
from gristmill.storage import layout, parquet
from gristmill.storage.contents import ADDRESSES
from gristmill.tasks.documents.by_shard import Parts
from tests.conftest import page, write_warc
from tests.corpora import context
from tests.planted.text import pydoc_paragraphs

FRACTION = 0.4


@pytest.fixture(scope="module")
def crawl(tmp_path_factory) -> Path:
    """Three files with pages of allowed and of blocked hosts, among them failed, empty and repeated records."""
    folder, draw, prose = tmp_path_factory.mktemp("crawl"), Random(3), pydoc_paragraphs()
    address = "Write to the miller: mill@gristmill.net is read every day of the week."
    for number in range(3):
        pages = []
        for i in range(40):
            host = "blocked.example" if i % 3 == 0 else f"host{i % 7}.example"
            texts = [*draw.sample(prose, 6), address]
            status = "404 Not Found" if i % 11 == 5 else "200 OK"
            body = b"<html></html>" if i % 13 == 6 else page(texts)
            pages.append((f"https://{host}/{number}/{i}", body, status, "text/html; charset=utf-8"))
        write_warc(folder / f"web-{number}.warc.gz", pages)
    (folder / "blocked.txt").write_text("blocked.example\n")
    return folder


def fineweb(crawl: Path) -> dict:
    """The recipe as it ships, with a list of hosts, on these files."""
    values = load("fineweb").model_dump(mode="json", exclude_unset=True)
    values["steps"][0]["blocklists"] = [str(crawl / "blocked.txt")]
    # what comes later reads no more of the sources
    values["steps"] = [step for step in values["steps"] if step["step"] in ("url", "extract", "gopher_quality", "pii")]
    return values


def union(crawl: Path) -> dict:
    """Of several engines, of which document steps choose a text."""
    return {
        "name": "union",
        "steps": [
            {"step": "url", "blocklists": [str(crawl / "blocked.txt")]},
            {"step": "extract", "engine": "union", "engines": ["resiliparse", "blocks"]},
            {"step": "normalize"},
            {"step": "gopher_quality", "min_words": 250},
        ],
    }


def loaded(values: dict, crawl: Path, **more) -> Recipe:
    sources = [{"name": "web", "warc": [f"{crawl}/web-*.warc.gz"]}]
    mixture = {"weights": {"web": 1}, "heldout_fraction": FRACTION, "heldout_documents": 20}
    return load(values | {"sources": sources, "mixture": mixture} | more)


def drawn_tables(corpus: Corpus) -> list[pa.Table]:
    folder = layout.drawn_folder(corpus.extracted.folder)
    return [parquet.read_table(path) for path in Parts(folder, corpus.places.shards())]


@pytest.mark.slow
@pytest.mark.parametrize("values", [fineweb, union])
def test_they_are_those_of_the_unfiltered_sources(crawl, tmp_path, values, monkeypatch):
    recipe = loaded(values(crawl), crawl)
    whole = documents(context(str(tmp_path / "whole")), unfiltered(recipe), ())
    found = {}
    for name in ("one", "two"):
        run = context(str(tmp_path / name))
        *_, last = curate(run, recipe)
        chosen = held_out(recipe, last.left)
        assert chosen.fractions["web"] < recipe.heldout_fraction, "fewer are held out than are drawn"
        if name == "two":
            # as if the unfiltered sources were read for them
            monkeypatch.setattr(heldout_stages, "_drawn", lambda recipe, corpus: whole.places.documents)
        split = heldout(run, recipe, last.left)
        ledgers = [parquet.read_table(layout.ledger_part(split.stage.folder, i)) for i in split.corpus.places.shards()]
        kept = [parquet.read_table(part) for part in split.train.places.kept]
        found[name] = (
            read(heldout_documents(run, recipe, last.left)),
            pa.concat_tables(ledgers),
            pa.concat_tables(kept),
        )
    for one, other in zip(found["one"], found["two"], strict=True):
        assert len(one) and one.equals(other)
    *_, last = curate(context(str(tmp_path / "one")), recipe)
    blocked = 0
    for i, drawn in enumerate(drawn_tables(last.left)):
        all_documents = parquet.read_table(whole.documents.part(i))
        of_recipe = held_out(recipe, last.left)
        more = of_recipe.model_copy(update={"fractions": {"web": FRACTION}})
        assert drawn.equals(more.chosen(all_documents)), "every column"
        blocked += sum("blocked.example" in url for url in drawn["url"].to_pylist())
    assert blocked > 5
    source = last.left.extracted.result["sources"]["web"]
    assert source["drawn"] == sum(map(len, drawn_tables(last.left))) > len(found["one"][0])


@pytest.mark.extended
def test_they_change_nothing_of_the_documents_and_the_ledger(crawl, tmp_path):
    """A larger fraction draws more of what URL steps drop."""
    found = []
    for fraction in (0.0001, 0.9):
        mixture = {"weights": {"web": 1}, "heldout_fraction": fraction}
        corpus = documents(context(str(tmp_path / f"{fraction}")), loaded(union(crawl), crawl, mixture=mixture), ())
        shards = corpus.places.shards()
        parts = [parquet.read_table(corpus.documents.part(i)) for i in shards]
        ledgers = [parquet.read_table(layout.ledger_part(corpus.documents.folder, i)) for i in shards]
        found.append((pa.concat_tables(parts), pa.concat_tables(ledgers), corpus.extracted.step_counts))
        drawn = corpus.extracted.result["sources"]["web"]["drawn"]
        assert drawn == sum(map(len, drawn_tables(corpus))) and (drawn > 60) == (fraction == 0.9)
    assert found[0] == found[1]


@pytest.mark.extended
def test_without_steps_before_the_extraction_there_is_no_second_part(crawl, tmp_path):
    values = union(crawl)
    corpus = documents(context(str(tmp_path)), loaded(values | {"steps": values["steps"][1:]}, crawl), ())
    assert not Path(layout.drawn_folder(corpus.extracted.folder)).exists()
    assert "drawn" not in corpus.extracted.result["sources"]["web"]


@pytest.mark.extended
def test_a_run_reads_the_sources_once_and_lists_every_stage(crawl, tmp_path):
    small = {
        "tokenizer": {"vocab_size": 400, "sample_bytes": 20_000},
        "model": {"dim": 32, "layers": 1, "heads": 2, "seq_len": 64},
        "training": {"steps": 4, "batch": 4, "micro_batch": 2, "warmup_steps": 2},
    }
    recipe = loaded(union(crawl), crawl, **small)
    outputs = Outputs(context(str(tmp_path)), recipe)
    outputs.make("tokens")
    stages = [each.stage for each in outputs.stages]
    reading = [
        stage.name
        for stage in stages
        if any(ADDRESSES in each.record for each in layout.parts(stage.folder, stage.manifest))
    ]
    assert reading == ["documents"]
    assert {path.name for path in (tmp_path / "stages").iterdir()} == {stage.label for stage in stages}
