"""Documents that a language model writes from those of another recipe, with the faulty server of the tests."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from gristmill.flows.curation import curate
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.check import check
from gristmill.flows.recipe.errors import RecipeError
from gristmill.flows.recipe.recipe import load
from gristmill.flows.stages.corpus import Corpus
from gristmill.storage import parquet
from gristmill.storage.home import Home
from gristmill.tasks.engine import options
from gristmill.tasks.engine.executors import Threads
from gristmill.tasks.engine.options import JobOptions, LanguageModelServer
from tests.corpora import context
from tests.language_model.faults import Plan
from tests.language_model.planted import rewriting
from tests.language_model.serving import Served, serving

PROMPT = {"user": "Write the text again, in other words.\n<text>{{ text }}</text>"}
SENTENCES = (
    "The mill at the river grinds rye on Mondays.",
    "Its stones were cut in the year 1871 from a local quarry.",
    "Farmers bring their sacks early, before the heat of the day.",
    "The miller keeps one part in sixteen as his fee.",
    "In winter the wheel is freed from ice with long poles.",
)


def text_of(number: int) -> str:
    return f"Page {number} of the almanac. " + " ".join(
        f"{each} This is remark {number * 7 + nth}." for nth, each in enumerate(SENTENCES)
    )


@contextmanager
def asking(server: Served, monkeypatch: pytest.MonkeyPatch, **limits) -> Iterator[None]:
    """Jobs of this process ask a server."""
    monkeypatch.setenv("GRISTMILL_SECRET_LM", server.key)
    before = options.current()
    options.configure(replace(before, lm=LanguageModelServer(base_url=server.base_url, **limits)))
    try:
        yield
    finally:
        options.configure(before)


def write(folder: Path, count: int = 12, **rewrite) -> Path:
    """The recipes a.yaml, of two files, and b.yaml, with its rewrites beside the original."""
    folder.mkdir(exist_ok=True)
    for nth in range(2):
        rows = [
            {"text": text_of(number), "url": f"https://almanac.example/{number}"} for number in range(nth, count, 2)
        ]
        (folder / f"web-{nth}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    web = {"name": "web", "jsonl": ["web-*.jsonl"], "url_column": "url", "shard_bytes": 1}
    (folder / "takedown.txt").touch()
    original = {"name": "a", "sources": [web], "steps": [], "takedowns": ["takedown.txt"]}
    (folder / "a.yaml").write_text(json.dumps(original))
    settings = {"recipe": "a.yaml", "model": "planted", "prompt": PROMPT, "language": None, **rewrite}
    both = {"name": "b", "sources": [web, {"name": "qa", "rewrite": settings}], "steps": []}
    (folder / "b.yaml").write_text(json.dumps(both))
    return folder / "b.yaml"


def curated(home: Path, recipe: Path, workers: int = 1) -> Corpus:
    *_, last = curate(context(str(home), Threads(workers, None)), load(recipe))
    return last.left


def documents_of(corpus: Corpus, source: str) -> list[dict]:
    rows = []
    for shard, name in enumerate(corpus.sources):
        if name == source:
            kept = parquet.read_table(corpus.kept.part(shard), ["id"])["id"].to_pylist()
            rows += [row for row in parquet.read_table(corpus.documents.part(shard)).to_pylist() if row["id"] in kept]
    return rows


def test_rewrites_are_documents_that_name_their_source(tmp_path, monkeypatch):
    recipe = write(tmp_path)
    with serving(mode="rewrite", latency=0) as server, asking(server, monkeypatch):
        corpus = curated(tmp_path / "home", recipe)
        assert server.bill()["requests"] == server.bill()["distinct"] == 12
    originals = {row["id"]: row for row in documents_of(corpus, "web")}
    rewrites = documents_of(corpus, "qa")
    assert len(originals) == len(rewrites) == 12
    for row in rewrites:
        source = originals[row["derived_from"]]
        assert row["text"] == rewriting(7, source["text"])
        assert (row["url"], row["offset"], row["file"]) == (source["url"], source["offset"], f"web/{source['file']}")
        assert (row["derived_source"], row["rewrite_model"]) == ("web", "planted")
        assert row["rewrite_new_numbers"] == 0
        assert row["rewrite_ratio"] == len(row["text"]) / len(source["text"])
    [stage] = Home(str(tmp_path / "home")).stages("rewrites")
    assert stage.result["rewrites"] == 12 and stage.result["answers"]["requests"] == 12
