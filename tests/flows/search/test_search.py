"""Phrases, spans and batches against a search through all texts and tokens."""

import json
import random
import re
import shutil
from collections import Counter
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
import torch
from pydantic_core import to_json
from typer.testing import CliRunner

import gristmill
from gristmill.flows.cli import app
from gristmill.flows.curation import Outputs, curate
from gristmill.flows.explore.browse.opened import open_recipe
from gristmill.flows.explore.browse.pages import Pages
from gristmill.flows.explore.search.batches import batch_of
from gristmill.flows.explore.search.indexes import find_expression
from gristmill.flows.explore.search.readings import first_step
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import Recipe, load
from gristmill.flows.reports.recorded import open_run
from gristmill.flows.reports.search.opened import PhraseIndex, opened
from gristmill.flows.reports.search.phrases import find, trace
from gristmill.flows.stages.indexes import search_index_spec, trained_texts
from gristmill.flows.stages.mixture import training_data
from gristmill.samples.source import SampleSource
from gristmill.storage import layout, parquet
from gristmill.tasks.engine.shared import dumps
from gristmill.tasks.kernels.scan import scan
from gristmill.tasks.search import look_ups
from gristmill.tasks.search.look_ups import Portion, longest_matches
from gristmill.training.hub.weights import open_model
from tests.corpora import context
from tests.planted.text import pydoc_paragraphs

pytestmark = pytest.mark.extended

SHARDS, DOCUMENTS = 4, 30
CHINESE = "統計學是應用數學的一個分支通過收集數據來作推斷数据库索引加快查询速度"


def given(folder: Path) -> dict:
    draw, prose = random.Random(5), pydoc_paragraphs()
    for shard in range(SHARDS):
        texts = [" ".join(draw.sample(prose, 3)) for _ in range(DOCUMENTS)]
        texts[3] = texts[2] + " A sentence more."  # a near-duplicate
        texts[5] = "".join(draw.choices(CHINESE + " ", k=300))
        texts[7] = f"{texts[7]} A phrase for shard {shard} alone, naïve façade 🙂."
        rows = [{"text": text, "url": f"https://site{i % 6}.example/{shard}/{i}"} for i, text in enumerate(texts)]
        (folder / f"web-{shard}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return {
        "name": "searched",
        "sources": [{"name": "web", "jsonl": [f"{folder}/web-*.jsonl"], "url_column": "url"}],
        "steps": [{"step": "extract"}, {"step": "minhash", "unit": "words"}],
        "tokenizer": {"vocab_size": 450, "sample_bytes": 50_000},
        "mixture": {"weights": {"web": 1}, "heldout_fraction": 0.1},
        "model": {"dim": 32, "layers": 1, "heads": 2, "seq_len": 16},
        "training": {"steps": 4, "batch": 2, "micro_batch": 1, "warmup_steps": 1},
    }


def made(recipe: Recipe, home: Path) -> PhraseIndex:
    settings = MachineSettings(home=str(home))
    run = context(str(home))
    *_, last = curate(run, recipe)
    data = training_data(run, recipe, last.left)
    run.build(search_index_spec(run, recipe, trained_texts(data)))
    found = opened(recipe, settings)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def searched(tmp_path_factory) -> dict:
    return given(tmp_path_factory.mktemp("crawl"))


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def index(searched, home) -> PhraseIndex:
    return made(load(searched), home)


def texts(index: PhraseIndex) -> tuple[dict[str, str], dict[str, str]]:
    """The texts that are kept and dropped, by id."""
    kept: dict[str, str] = {}
    every: dict[str, str] = {}
    train = index.texts.documents
    for shard in index.shards:
        rows = parquet.read_table(layout.part(train.extracted.folder, shard), ["id", "text"]).to_pylist()
        every |= {row["id"]: row["text"] for row in rows}
        ids = parquet.read_table(layout.part(train.kept.folder, shard), ["id"])["id"].to_pylist()
        kept |= {name: every[name] for name in ids}
    return kept, {name: text for name, text in every.items() if name not in kept}


def times(text: str, phrase: str) -> int:
    return len(re.findall(f"(?={re.escape(phrase)})", text))


def test_phrases_are_counted_as_by_reading_everything(index):
    kept, dropped = texts(index)
    assert len(dropped) > SHARDS, "near-duplicates, and what is held out"
    draw = random.Random(1)
    phrases = ["nowhere", "A phrase for shard", "hrase for shard 2 al", "naïve façade 🙂", "統計", "e", " "]
    for _ in range(300):
        text = draw.choice([*kept.values(), *dropped.values()])
        size = draw.choice((2, 5, 20, 80))
        at = draw.randrange(max(1, len(text) - size))
        phrases.append(text[at : at + size])
    first, second = list(kept.values())[:2]
    phrases.append(first[-20:] + second[:20])
    for phrase in phrases:
        found = find(index, phrase, 1_000)
        for counts, of in ((found.kept, kept), (found.dropped, dropped)):
            every = [times(text, phrase) for text in of.values()]
            assert (counts.times, counts.documents) == (sum(every), sum(map(bool, every))), phrase
        for document in found.documents:
            text = (kept if document.kept else dropped)[document.id]
            assert document.times == times(text, phrase) and document.match == phrase
            assert document.before + phrase + document.after in text
            assert text.index(phrase) == text.index(document.before + phrase) + len(document.before)
            assert document.record["url"].startswith("https://site")
    assert find(index, "A phrase", 0).documents == ()
    with pytest.raises(ValueError, match="the phrase is empty"):
        find(index, "", 1)


def test_what_was_dropped_is_named_by_its_rule(index):
    _, dropped = texts(index)
    ledger = Counter()
    for stage in index.texts.documents.stages:
        for count in stage.step_counts:
            ledger.update({f"{count['step']}.{rule}": n for rule, n in count["drops"].items()})
    found = find(index, " ", 0)
    assert found.rules == dict(ledger) and sum(ledger.values()) == len(dropped)
    assert any(rule.startswith("minhash") for rule in found.rules)
    only = find(index, "A phrase for shard", 5, dropped=False)
    assert only.dropped.documents == 0


def brute_spans(text: str, corpus: list[str], least: int) -> set[str]:
    """The longest spans of whole words, by trying all."""
    scanned = scan(pa.chunked_array([pa.array([text], pa.large_string())]))
    data = text.encode()
    words = list(zip(scanned.word_start.tolist(), scanned.word_stop.tolist(), strict=True))
    spans = {
        (i, j)
        for i in range(len(words))
        for j in range(i + least, len(words) + 1)
        if any(data[words[i][0] : words[j - 1][1]].decode() in other for other in corpus)
    }
    whole = {(i, j) for i, j in spans if not spans & {(i - 1, j), (i, j + 1)}}
    return {data[words[i][0] : words[j - 1][1]].decode() for i, j in whole}


@pytest.mark.parametrize("seed", range(4))
def test_spans_are_the_longest_that_one_document_has(index, seed):
    kept, _ = texts(index)
    draw = random.Random(seed)
    pieces = []
    for _ in range(5):
        text = draw.choice(list(kept.values()))
        at = draw.randrange(len(text) - 60)
        pieces += [text[at : at + draw.randint(20, 60)], "".join(draw.choices("xyzq ", k=6))]
    text = " ".join(pieces)
    found = trace(index, text, 1_000, 2, 4)
    wanted = brute_spans(text, list(kept.values()), 4)
    assert {text[span.begin : span.end] for span in found.spans} == wanted and wanted
    assert found.all == len(found.spans)
    documents = [span.found.kept.documents for span in found.spans]
    assert documents == sorted(documents) and min(documents) >= 1
    assert 0 < found.covered <= 1
    assert trace(index, text, 1, 0, 4).spans[0].found.kept == found.spans[0].found.kept


def test_a_text_of_the_corpus_is_one_span_and_another_none(index):
    kept, _ = texts(index)
    whole = next(iter(kept.values()))
    found = trace(index, whole, 5, 1)
    assert [(span.begin, found.text[span.begin : span.end]) for span in found.spans] == [(0, whole.strip())]
    assert found.covered == 1
    assert trace(index, "qqq zzz xxx qqq zzz xxx qqq", 5, 1).spans == ()
    with pytest.raises(ValueError, match="no word"):
        trace(index, " \n", 5, 1)


def test_matches_are_asked_for_twice_a_word_at_most():
    asked = []

    def has(piece: bytes) -> bool:
        asked.append(piece)
        return len(piece) < 6

    begins, ends = list(range(0, 40, 2)), list(range(1, 41, 2))
    reached = longest_matches(has, b"a " * 20, begins, ends)
    assert reached.tolist() == [min(i + 3, 20) for i in range(20)] and len(asked) <= 40


def test_jobs_of_a_cluster_give_what_threads_give(index):
    kept, _ = texts(index)
    text = " ".join([*list(kept.values())[:2], "unknown to all", *list(kept.values())[40:42]])
    settings = index.settings.model_copy(update={"executor": "local", "workers": 2})
    cluster = replace(index, few=0, settings=settings)
    assert trace(cluster, text, 20, 3, 4) == trace(index, text, 20, 3, 4)
    job = Portion(True, 89_000, 89_064)
    assert len(dumps(job)) < 2_000


def test_after_a_takedown_the_text_is_in_no_index(index, searched, home, tmp_path):
    kept, dropped = texts(index)
    phrase = next(p for i in range(SHARDS) if find(index, p := f"for shard {i} alone", 1).kept.documents)
    [taken] = find(index, phrase, 1).documents
    gone = next(each.id for each in find(index, " ", 1_000).documents if each.step == "minhash")
    (tmp_path / "gone.txt").write_text(f"{taken.id}\n{gone}\n")
    later = made(load({**searched, "takedowns": [str(tmp_path / "gone.txt")]}), home)
    found = find(later, phrase, 1)
    assert (found.kept.documents, found.dropped.documents) == (0, 0)
    assert gone not in [each.id for each in find(later, dropped[gone][:40], 1_000).documents]
    assert later.documents == index.documents - 2


def test_expressions_match_as_by_reading_everything(index, searched, home):
    settings = MachineSettings(home=str(home))
    kept = {row["id"]: row["text"] for row in curated(index)}
    for expression in (r"shard \d+ alone", "[統計]+", r"\bthe\b", "nowhere"):
        found = find_expression(load(searched), expression, 3, settings)
        every = [len(re.findall(expression, text)) for text in kept.values()]
        assert (found.kept.times, found.kept.documents) == (sum(every), sum(map(bool, every))), expression
        for document in found.documents:
            first = re.search(expression, kept[document.id])
            assert first and document.match == first[0]
    with pytest.raises(ValueError, match="is not an expression of RE2"):
        find_expression(load(searched), "(", 3, settings)


def curated(index: PhraseIndex) -> list[dict]:
    """The documents that the recipe keeps, among them the ones that are held out."""
    corpus = Outputs(*open_run(index.settings, index.recipe)).corpus
    rows = []
    for shard in index.shards:
        ids = set(parquet.read_table(layout.part(corpus.kept.folder, shard), ["id"])["id"].to_pylist())
        part = parquet.read_table(layout.part(corpus.documents.folder, shard), ["id", "text"]).to_pylist()
        rows += [row for row in part if row["id"] in ids]
    return rows


def test_a_batch_is_that_of_the_training(undisturbed, recipe, tmp_path):
    target = tmp_path / "small.yaml"
    target.write_text(json.dumps(recipe))
    home = undisturbed.home("undisturbed")
    settings = MachineSettings(home=str(home))
    run = json.loads(next(Path(home).glob("stages/model-*/run.json")).read_text())
    seq_len, batch = run["model"]["seq_len"], run["training"]["batch"]
    source = SampleSource(run["data"], seq_len, batch, run["training"]["order_seed"] or run["training"]["seed"])
    for step in (1, source.steps):
        found = batch_of(str(target), step, settings)
        tokens: Counter[str] = Counter()
        for sample in range((step - 1) * batch, step * batch):
            for span in source[sample].spans:
                shards = next(s.shards for s in source.manifest.sources if s.name == source[sample].source)
                path = Path(shards[span.shard].path)
                index = parquet.read_table(str(path.with_suffix(".parquet"))).to_pylist()
                for row in index:
                    low, high = row["offset"], row["offset"] + row["length"]
                    tokens[row["id"]] += max(0, min(high, span.offset + span.length) - max(low, span.offset))
        assert {each.row["id"]: each.tokens for each in found.documents} == dict(+tokens)
        assert found.tokens == sum(tokens.values()) == batch * (seq_len + 1)
        for each in found.documents:
            assert each.row["url"]
    with pytest.raises(IndexError, match=f"has the steps 1 to {source.steps}"):
        batch_of(str(target), source.steps + 1, settings)
    said: list[str] = []
    found = batch_of(str(target), source.steps, settings, losses=True, say=said.append)
    assert found.replay is not None and found.replay.checkpoint == source.steps // 2  # the middle one
    assert "without training" in said[0]
    added = [(each.loss - found.replay.level) * each.tokens for each in found.documents if each.loss is not None]
    assert added == sorted(added, reverse=True) and len(added) == len(found.documents)
    # by hand: the windows of the batch through the checkpoint's weights
    weights = open_model(Path(run["out"]) / "checkpoints" / f"step-{source.steps // 2:08d}").load()
    read, labels = (
        torch.from_numpy(np.array([getattr(source[at], name) for at in found.samples]))
        for name in ("input_ids", "labels")
    )
    with torch.no_grad():
        expected = torch.nn.functional.cross_entropy(weights(read).flatten(0, 1), labels.flatten()).item()
    assert found.replay.loss == pytest.approx(expected, rel=1e-5)
    with pytest.raises(ValueError, match="no checkpoint before step 2 is left of small, which has .* steps 6, 12"):
        batch_of(str(target), 2, settings, losses=True)


def test_copies_are_counted_in_every_shard(index):
    kept, _ = texts(index)
    phrases = ["A phrase for shard", "統計", "the", "nowhere at all"]
    work = partial(look_ups.copies, phrases=[phrase.encode() for phrase in phrases])
    with index.workers(len(phrases)) as workers:
        found = sum(some for _, some in index.each(workers, work, dropped=False))
    assert found.tolist() == [sum(times(text, phrase) for text in kept.values()) for phrase in phrases]


def test_what_a_model_has_by_heart_is_the_same_from_python(undisturbed, recipe, tmp_path, monkeypatch):
    target = tmp_path / "small.yaml"
    target.write_text(json.dumps(recipe))
    # a copy, since what looks at all stages of the run knows of no index
    home = str(shutil.copytree(undisturbed.home("undisturbed"), tmp_path / "home"))
    monkeypatch.setenv("GRISTMILL_HOME", home)
    made(load(recipe), Path(home))
    given = ["--prompts", "80", "--prompt-tokens", "6", "--continuation-tokens", "4"]
    said = CliRunner().invoke(
        app, ["train", "evaluate", str(target), "--memorized", *given, "--json"], catch_exceptions=False
    )
    assert said.exit_code == 0, said.output
    page = json.loads(said.stdout)
    found = gristmill.memorized(gristmill.open_index(str(target)), prompts=80, prompt=6, continuation=4)
    assert {name: each for name, each in page.items() if name != "page"} == plain(found)
    assert found.groups[0].name == "held out" and found.groups[0].prompts == 80
    assert sum(group.prompts for group in found.groups[1:]) == 80


def test_the_local_page_finds_phrases(searched, home, index, tmp_path):
    path = tmp_path / "searched.yaml"
    path.write_text(json.dumps(searched))
    pages = Pages(open_recipe(str(path), MachineSettings(home=str(home))))
    found = pages.phrase({"phrase": "for shard 2 alone"})
    assert "1 document of the training data" in found and "<mark>for shard 2 alone</mark>" in found
    [link] = re.findall(r'<h3><a href="(document[^"]+)">', found)
    assert link.startswith("document?shard=2&amp;id=")
    evil = pages.phrase({"phrase": "<script>alert(1)</script>"})
    assert "<script>alert" not in evil and "0 documents of the training data" in evil
    later = tmp_path / "other.yaml"
    later.write_text(json.dumps({**searched, "mixture": {"weights": {"web": 1}, "heldout_fraction": 0.2}}))
    assert "has no index" in Pages(open_recipe(str(later), MachineSettings(home=str(home)))).phrase({"phrase": "a"})


def plain(found: object) -> dict:
    return json.loads(to_json(asdict(found)))


def test_the_commands_say_where_a_phrase_is(searched, home, index, tmp_path, monkeypatch):
    path = tmp_path / "searched.yaml"
    path.write_text(json.dumps(searched))
    monkeypatch.setenv("GRISTMILL_HOME", str(home))
    run = CliRunner().invoke
    found = run(app, ["explain", "find", str(path), "A phrase for shard 2"])
    assert found.exit_code == 0 and "kept: 1 time in 1 document;" in found.output, found.output
    assert "⟦A phrase for shard 2⟧" in found.output and "https://site1.example/2/7" in found.output
    as_json = json.loads(run(app, ["explain", "find", str(path), "A phrase for", "--json"]).output)
    assert as_json["kept"]["documents"] + as_json["dropped"]["documents"] == SHARDS
    text = tmp_path / "said.txt"
    text.write_text("They said that A phrase for shard 2 alone, naïve façade, and more.")
    traced = run(app, ["explain", "trace", str(path), str(text)])
    assert traced.exit_code == 0 and "⟦A phrase for shard 2 alone, naïve façade⟧" in traced.output, traced.output
    opened_index = gristmill.open_index(str(path))
    assert as_json == plain(gristmill.find("A phrase for", opened_index))
    given = json.loads(run(app, ["explain", "trace", str(path), str(text), "--json"]).output)
    assert given == plain(gristmill.trace(text.read_text(), opened_index)) and given["spans"]
    assert "index: " in run(app, ["explain", "index", str(path)]).output
    assert "--prompt" in run(app, ["explain", "trace", str(path)]).output


@pytest.mark.parametrize(("start", "first"), [(None, 1), ((32, True), 1), ((32, False), 33)])
def test_batches_before_a_branch_with_another_mixture_are_not_its_own(start, first):
    run = SimpleNamespace(start=None if start is None else SimpleNamespace(step=start[0], same_data=start[1]))
    assert first_step(run) == first
