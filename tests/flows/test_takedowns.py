"""After a takedown the documents are in nothing that is made, and only the token shards that had them are encoded."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from markupsafe import escape

from gristmill.flows.cli.results import takedown_lines
from gristmill.flows.curation import curate
from gristmill.flows.explore.dependents.affected import affected
from gristmill.flows.machine.runs import RunRecorder
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.check import before_run
from gristmill.flows.recipe.errors import RecipeError
from gristmill.flows.recipe.recipe import Recipe, load
from gristmill.flows.reports.dropped import dropped
from gristmill.flows.reports.finished import finished
from gristmill.flows.reports.lineage import trace
from gristmill.flows.reports.run_page import write
from gristmill.flows.stages.evaluation.documents import read
from gristmill.flows.stages.heldout import Data
from gristmill.flows.stages.mixture import training_data
from gristmill.storage import layout, parquet
from gristmill.storage.home import open_stage
from gristmill.storage.remote.config import RemoteIOConfig
from gristmill.tasks.tokens import encoding
from gristmill.tasks.url.canonical import known_hosts
from tests.corpora import context
from tests.planted.text import pydoc_paragraphs

SHARDS, DOCUMENTS = 5, 24


@pytest.fixture(scope="module")
def given(tmp_path_factory) -> dict:
    folder = tmp_path_factory.mktemp("crawl")
    prose = pydoc_paragraphs()
    for shard in range(SHARDS):
        rows = [
            {"text": prose[shard * DOCUMENTS + i], "url": f"https://site{i % 6}.example/{shard}/{i}"}
            for i in range(DOCUMENTS)
        ]
        (folder / f"web-{shard}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {
        "name": "taken",
        "sources": [{"name": "web", "jsonl": [f"{folder}/web-*.jsonl"], "url_column": "url"}],
        "steps": [{"step": "extract"}, {"step": "minhash", "unit": "words"}],
        "tokenizer": {"vocab_size": 350, "sample_bytes": 20_000},
        "mixture": {"weights": {"web": 1}, "heldout_fraction": 0.1},
        "model": {"dim": 32, "layers": 1, "heads": 2, "seq_len": 16},
        "training": {"steps": 4, "batch": 2, "micro_batch": 1, "warmup_steps": 1},
    }


def made(recipe: Recipe, home: Path) -> Data:
    run = context(str(home))
    *_, last = curate(run, recipe)
    return training_data(run, recipe, last.left)


def shard_bytes(data: Data) -> dict[str, bytes | pa.Table]:
    """The files of tokens; tables as they are read, since a file has the stage's name in itself."""
    return {
        path.name: parquet.read_table(str(path)) if path.suffix == ".parquet" else path.read_bytes()
        for path in Path(data.tokens.folder).iterdir()
        if path.suffix in (".bin", ".idx", ".parquet")
    }


def documents(data: Data, shard: int) -> dict[str, np.ndarray]:
    return tokens_in(Path(data.tokens.folder, f"train-{shard:05d}.bin"))


def held_out(data: Data) -> set[str]:
    """The documents that models are evaluated on, of which there are tokens."""
    [evaluation] = data.evaluation
    found = {name for path in Path(data.evaluation_tokens.folder).glob("heldout-*.bin") for name in tokens_in(path)}
    assert found == set(read(evaluation, ["id"])["id"].to_pylist())
    return found


def tokens_in(path: Path) -> dict[str, np.ndarray]:
    array = np.fromfile(path, "<u2")
    index = parquet.read_table(str(path.with_suffix(".parquet"))).to_pylist()
    return {row["id"]: array[row["offset"] : row["offset"] + row["length"]] for row in index}


def kept_in(data: Data, shard: int) -> set[str]:
    return set(parquet.read_table(data.corpus.kept.part(shard), ["id"])["id"].to_pylist())


def everywhere(data: Data) -> set[str]:
    return {name for i in range(SHARDS) for name in documents(data, i)} | held_out(data)


@pytest.mark.extended
def test_only_the_shards_that_were_hit_are_encoded_again(given, tmp_path, monkeypatch):
    whole = made(load(given), tmp_path / "home")
    urls = {
        row["id"]: row["url"]
        for i in range(SHARDS)
        for row in parquet.read_table(whole.corpus.documents.part(i), ["id", "url"]).to_pylist()
    }
    by_id = next(iter(documents(whole, 1)))
    by_url = next(iter(documents(whole, 3)))
    drawn = min(name for i in (1, 3) for name in kept_in(whole, i) & held_out(whole))
    listed = tmp_path / "takedowns.txt"
    listed.write_text(f"{by_id}\n{urls[by_url]}\n{drawn}\nffffffffffffffffffffffffffffffff\n")
    gone = {by_id, by_url, drawn}
    recipe = load(given | {"takedowns": [str(listed)]})

    encoded = []
    encoder = encoding.encoder
    monkeypatch.setattr(encoding, "encoder", lambda model, texts: encoded.append(len(texts)) or encoder(model, texts))
    after = made(recipe, tmp_path / "home")
    assert len(encoded) == 2, "two shards of five were hit"
    assert after.tokenizer.key == whole.tokenizer.key and after.tokens.key != whole.tokens.key
    assert everywhere(after) == everywhere(whole) - gone
    before, now = shard_bytes(whole), shard_bytes(after)
    assert now.keys() == before.keys()
    for name in now:
        if any(f"-{shard:05d}." in name for shard in (0, 2, 4)):
            assert now[name] == before[name], name
    taken = documents(whole, 1)[by_id].tobytes()
    assert taken in before["train-00001.bin"] and taken not in now["train-00001.bin"]
    for shard in (1, 3):
        for name, array in documents(after, shard).items():
            assert np.array_equal(array, documents(whole, shard)[name])

    # from nothing they are the same bytes
    monkeypatch.setattr(encoding, "_copy_earlier", lambda *_: False)
    alone = made(recipe, tmp_path / "alone")
    assert alone.tokens.key == after.tokens.key and shard_bytes(alone) == now

    [count] = after.corpus.kept.step_counts
    assert (count["step"], count["drops"]) == ("takedowns", {"takedown": len(gone)})
    rows = [
        r
        for i in range(SHARDS)
        for r in parquet.read_table(layout.ledger_part(after.corpus.kept.folder, i)).to_pylist()
    ]
    assert {row["id"] for row in rows} == gone and all("takedowns.txt" in row["detail"] for row in rows)
    manifest = json.loads(Path(after.mixture.folder, "mixture.json").read_text())
    assert manifest["sources"][0]["tokens"] == sum(len(d) for i in range(SHARDS) for d in documents(after, i).values())
    assert open_stage(after.tokens.folder).inputs["tokenizer"] == whole.tokenizer.key


@pytest.mark.extended
def test_a_host_and_an_empty_list(given, tmp_path):
    listed = tmp_path / "takedowns.txt"
    listed.write_text("")
    recipe = load(given | {"takedowns": [str(listed)]})
    *_, last = curate(context(str(tmp_path / "home")), recipe)
    assert last.left.kept.step_counts[0]["drops"] == {}
    listed.write_text("site3.example\n")
    *_, last = curate(context(str(tmp_path / "home")), recipe)
    assert last.left.kept.step_counts[0]["drops"] == {"takedown": SHARDS * DOCUMENTS // 6}


def test_a_list_that_is_not_there_is_named_before_a_run(given, tmp_path):
    recipe = load(given | {"takedowns": [str(tmp_path / "none.txt")]})
    with pytest.raises(RecipeError, match=r"takedowns\[0\].*none.txt"):
        before_run(recipe, MachineSettings(home=str(tmp_path / "home")))


@pytest.mark.extended
def test_the_text_of_a_document_that_was_taken_down_is_not_printed(given, tmp_path):
    (tmp_path / "gone.txt").write_text("https://site0.example/0/0\n")
    recipe = load(given | {"takedowns": [str(tmp_path / "gone.txt")]})
    made(recipe, tmp_path / "home")
    [one] = dropped(str(tmp_path / "home"), "dropped", "takedown", 5)
    assert one.row["url"] == "https://site0.example/0/0"
    assert one.text is None and one.unmarked == "a takedown list names the document"


@pytest.mark.extended
def test_a_report_shows_nothing_of_a_document_that_a_list_names_whatever_dropped_it(given, tmp_path):
    steps = [*given["steps"], {"step": "where", "drop": "url like 'https://site_.example/0/%'"}]
    texts = {n: pydoc_paragraphs()[n][:60] for n in range(DOCUMENTS)}
    settings = MachineSettings(home=str(tmp_path / "home"))
    shown = {}
    for lists in ([], [str(tmp_path / "gone.txt")]):
        (tmp_path / "gone.txt").write_text("site0.example\nsite1.example\nsite2.example\n")
        recipe = load({**given, "steps": steps, "takedowns": lists, "mixture": None})
        for _ in curate(context(settings.home), recipe):
            pass
        page = Path(write(recipe, settings)).read_text(encoding="utf-8")
        shown[len(lists)] = {n for n, text in texts.items() if escape(text) in page}
    assert any(n % 6 < 3 for n in shown[0]), "of the hosts of the list, before it names them"
    assert shown[1] == {n for n in shown[0] if n % 6 >= 3}


def test_entries_that_name_no_document_are_named(given, tmp_path):
    settings = MachineSettings(home=str(tmp_path / "home"))
    lines = [
        "site0.example",
        "*.site1.example",
        "site9.example",
        "https://site2.example/0/*",
        "SITE3.example",
    ]
    (tmp_path / "gone.txt").write_text("\n".join(lines) + "\n")
    recipe = load({**given, "takedowns": [str(tmp_path / "gone.txt")], "mixture": None})
    for _ in curate(context(settings.home), recipe):
        pass
    [line] = takedown_lines(finished(recipe, settings))
    assert line.endswith(": gone.txt: *.site1.example, gone.txt: site9.example"), line


def test_entries_that_a_step_url_or_a_recipe_that_is_rewritten_matched_are_not_named(given, tmp_path):
    settings = MachineSettings(home=str(tmp_path / "home"))
    (tmp_path / "gone.txt").write_text("site0.example\nsite3.example\nsite9.example\n")
    url = {"step": "url", "takedowns": [str(tmp_path / "gone.txt")]}
    (tmp_path / "other.txt").write_text("site3.example\n")
    other = {**given, "limit": 5, "steps": [], "takedowns": [str(tmp_path / "other.txt")], "mixture": None}
    recipe = load({**given, "steps": [url], "takedowns": [str(tmp_path / "gone.txt")], "mixture": None, "limit": 5})
    recorder = RunRecorder(settings.home, recipe.name, flow="corpus", recipe=recipe.model_dump(mode="json"))
    here = context(settings.home).noting(lambda one: recorder.add(one.label))
    for each in (load(other), recipe):  # as in a run of a recipe that rewrites the other one
        for _ in curate(here, each):
            pass
    recorder.finished()
    [line] = takedown_lines(finished(recipe, settings))
    assert line == "takedown entries that name no curated document: gone.txt: site9.example"


def test_documents_without_a_scheme_are_matched_as_those_of_http(tmp_path):
    ends = [
        *("a.example.org/x", "www.a.example.org/blog/1", "a.example.org:8080/blog/2", "//b.example.org/c?d=1"),
        *("B.example.org/c", "münchen.example.org/", "www.c.example.org", "c.example.org", "docs/c.example.org/"),
    ]
    (tmp_path / "gone.txt").write_text("https://a.example.org/blog/*\nb.example.org\nxn--mnchen-3ya.example.org\n")
    (tmp_path / "rights.txt").write_text("www.c.example.org\n")
    hosts: Any = {"step": "rights", "hosts": [str(tmp_path / "rights.txt")], "protocols": [], "agents": ["CCBot"]}
    found = {}
    for name, scheme in (("without", ""), ("with", "http://")):
        urls = [end if end in ends[-2:] else f"{scheme}{end.removeprefix('//') if scheme else end}" for end in ends]
        rows = [json.dumps({"text": f"text {n}", "url": url}) for n, url in enumerate(urls)]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(rows))
        recipe = load(
            {
                "name": name,
                "sources": [{"name": "web", "jsonl": [str(tmp_path / f"{name}.jsonl")], "url_column": "url"}],
                "steps": [{"step": "extract", "engine": "plain"}, hosts],
                "takedowns": [str(tmp_path / "gone.txt")],
            }
        )
        home = str(tmp_path / f"home-{name}")
        *_, last = curate(context(home), recipe)
        rows = parquet.read_table(last.left.kept.part(0), ["id"])["id"].to_pylist()
        every = parquet.read_table(last.left.documents.part(0), ["id", "text", "url"]).to_pylist()
        settings = MachineSettings(home=home)
        affecting = affected(settings, "a.example.org").found
        found[name] = (
            [(row["text"], row["url"], row["id"] in rows) for row in every],
            pc.is_null(known_hosts(pa.table({"url": [row["url"] for row in every]}))).to_pylist(),
            sorted(one.url for one in affecting.documents),
        )
        assert all(one.trouble == "" for row in every for one in trace(home, row["id"], RemoteIOConfig()))
    assert found["with"] == found["without"]
    texts, without_host, _ = found["with"]
    assert [text for text, _, kept in texts if kept] == ["text 0", "text 2", "text 7", "text 8"]
    assert without_host == [False] * 7 + [True] * 2
