"""What recipes are compared with: evaluation documents, and corpora without them, against all pairs of texts."""

import json
import re
from collections import Counter
from functools import cache
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from gristmill.flows.experiments.decisions.arm_data import ComparisonData, arm_data, only_in
from gristmill.flows.recipe.recipe import load
from gristmill.flows.recipe.variants import raw, variant, without
from gristmill.flows.stages.evaluation import documents as chosen
from gristmill.flows.stages.removal import MIN_SHINGLES, THRESHOLD
from gristmill.storage import layout, parquet
from gristmill.storage.home import Home
from gristmill.storage.tokenizer_files import load_tokenizer
from gristmill.storage.training_manifest import load_training_manifest
from gristmill.tasks.documents.selection import uniform
from gristmill.tasks.engine.executors import Threads
from gristmill.tasks.engine.make import COST
from tests.conftest import page, write_warc
from tests.corpora import context, fresh, plain_set
from tests.planted.text import phrase, prose, pydoc_paragraphs

pytestmark = pytest.mark.extended

ORIGINALS = 60
SHINGLES = 100
# words appended to a text of 100 shingles, for a Jaccard similarity of 100 / (100 + n): .7, just below .8, .8, .9
APPENDED = (43, 26, 25, 11)
PROXY = {"step_tokens": 256, "vocab_size": 400, "sample_bytes": 60_000, "per_source": 15}


def write_lines(path: Path, texts: list[str]) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return str(path)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """Texts of words that no other has, in two shards, and near copies of all of them in another source."""
    folder = tmp_path_factory.mktemp("texts")
    rng = np.random.default_rng(3)
    originals = [" ".join(fresh(rng, SHINGLES + 4)) for _ in range(ORIGINALS)]
    copies = [f"{text} {' '.join(fresh(rng, n))}" for n in APPENDED for text in originals]
    write_lines(folder / "web-0.jsonl", [*originals[:35], "", " ... "])
    write_lines(folder / "web-1.jsonl", originals[35:])
    write_lines(folder / "copies-0.jsonl", copies)
    recipe = {
        "name": "arms",
        "sources": [
            {"name": "web", "jsonl": [f"{folder}/web-*.jsonl"]},
            {"name": "copies", "jsonl": [f"{folder}/copies-*.jsonl"]},
        ],
        "steps": [
            {"step": "extract"},
            {"step": "gopher_quality", "min_words": 100, "max_mean_word_length": 20, "min_stop_words": 0},
            {"step": "content_dedup"},
            {"step": "minhash", "threshold": 0.95, "keep": ["source"]},
        ],
        "mixture": {"weights": {"web": 1, "copies": 3}},
    }
    return load(recipe)


@pytest.fixture(scope="module")
def arms(base):
    given = base.model_dump(mode="json")
    given["steps"].append({"step": "tests.planted.damage:Shuffled", "dose": 0.3})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRISTMILL_STEPS", "tests.planted.damage")
        shuffled = load(given)
    return {
        "base": base,
        "raw": raw(base).recipe.model_copy(update={"mixture": None}),
        "without minhash": without(base, "minhash").recipe,
        "minhash.threshold=0.9": variant(base, "minhash.threshold=0.9").recipe,
        "shuffled": shuffled,
    }


@pytest.fixture(scope="module")
def made(base, arms, tmp_path_factory) -> ComparisonData:
    home = str(tmp_path_factory.mktemp("home"))
    return arm_data(context(home), arms, tokens=10**9, **PROXY)


@cache
def shingles(text: str) -> frozenset:
    return plain_set(text)


def jaccard(one: str, other: str) -> float:
    a, b = shingles(one), shingles(other)
    return len(a & b) / len(a | b)


def contained(text: str, one: str) -> float:
    """The share of `one` in a text; 0 if it is too short to count."""
    a, b = shingles(text), shingles(one)
    return len(a & b) / len(b) if len(b) >= MIN_SHINGLES else 0.0


def trained_on(data: ComparisonData, name: str) -> list[str]:
    """The texts that a run of an arm reads, decoded from its token shards."""
    manifest = load_training_manifest(Path(data.arms[name].mixture.folder, "mixture.json"))
    processor = load_tokenizer(manifest.tokenizer.path)
    texts = []
    for shard in (shard for source in manifest.sources for shard in source.shards):
        tokens = np.fromfile(shard.path, manifest.dtype)
        ends = np.flatnonzero(tokens == manifest.end_of_text)
        assert ends[-1] == len(tokens) - 1
        texts += [processor.decode(part[:-1].tolist()) for part in np.split(tokens, ends[:-1] + 1)]
    return texts


def test_nothing_like_an_evaluation_document_is_trained_on(made, arms):
    evaluation = chosen.read(made.evaluation)["text"].to_pylist()
    assert len(evaluation) == 21, "a tenth of web, and as many of copies as were asked for"
    for name in arms:
        texts = trained_on(made, name)
        assert len(texts) > 100
        assert max(jaccard(text, one) for text in texts for one in evaluation) < THRESHOLD
        assert max(contained(text, one) for text in texts for one in evaluation) < THRESHOLD
    left = trained_on(made, "raw")
    highest = max(jaccard(text, one) for text in left for one in evaluation)
    assert highest == pytest.approx(SHINGLES / (SHINGLES + 26)), "and no more is taken than that"


def test_what_is_removed_is_what_every_pair_says_and_the_counts_add_up(made, arms):
    evaluation = chosen.read(made.evaluation, ["id", "text"]).to_pylist()
    for name in arms:
        corpus = made.arms[name].corpus
        stage, before = corpus.kept, corpus.stages[-2]
        for shard in corpus.places.shards():
            kept = parquet.read_table(before.part(shard), ["id"])["id"].to_pylist()
            sources = (corpus.stages[0].part(shard), corpus.documents.part(shard))
            forms = [
                dict(zip(*parquet.read_table(p, ["id", "text"]).to_pydict().values(), strict=True)) for p in sources
            ]
            expected = {}
            for one in kept:
                if one in {row["id"] for row in evaluation}:
                    expected[one] = ("evaluation_document", None)
                    continue
                texts = {form[one] for form in forms}
                likest = max(jaccard(text, row["text"]) for text in texts for row in evaluation)
                quoted = max(contained(text, row["text"]) for text in texts for row in evaluation)
                if likest >= THRESHOLD:
                    expected[one] = ("near_duplicate", likest)
                elif quoted >= THRESHOLD:
                    expected[one] = ("contains_evaluation_document", quoted)
            gone = parquet.read_table(layout.ledger_part(stage.folder, shard)).to_pylist()
            assert {row["id"]: (row["rule"], row["value"]) for row in gone} == expected
            left = parquet.read_table(stage.part(shard), ["id"])["id"].to_pylist()
            assert left == [one for one in kept if one not in expected]
    [count] = made.arms["raw"].corpus.kept.step_counts
    assert count["rows_in"] == ORIGINALS * 5 + 1 and count["rows_in"] - count["rows_out"] == sum(
        count["drops"].values()
    )
    assert count["drops"]["evaluation_document"] == 21 and count["drops"]["contains_evaluation_document"] > 5


def test_the_evaluation_documents_are_those_with_the_smallest_hashes_whatever_the_steps(made, base, arms, tmp_path):
    rows = chosen.read(made.evaluation)
    assert rows["set"].to_pylist() == ["copies"] * 15 + ["web"] * 6
    for name in ("copies", "web"):
        ids = rows.filter(pa.compute.equal(rows["set"], name))["id"].to_pylist()
        assert ids == sorted(ids)
    assert rows["bytes"].to_pylist() == [len(text.encode()) for text in rows["text"].to_pylist()]
    home = context(str(tmp_path))
    other = chosen.evaluation_documents(home, [arms["shuffled"]], 15)
    assert other.key == made.evaluation.key and chosen.read(other).equals(rows)
    larger = chosen.evaluation_documents(home, [base], 30)
    more = chosen.read(larger)
    assert set(rows["id"].to_pylist()) < set(more["id"].to_pylist()), "a larger set has the smaller one"
    facts = made.evaluation.result["sets"]["web"]
    assert facts["documents"] == 6
    assert facts["bytes"] == sum(len(t.encode()) for t in rows["text"].to_pylist()[15:])
    digests = [{name: of["digest"] for name, of in each.result["sets"].items()} for each in (other, larger)]
    assert facts["digest"] == digests[0]["web"] and digests[0]["copies"] != digests[1]["copies"]


def test_stages_are_shared_but_for_what_must_differ(made):
    def keys(name):
        arm = made.arms[name]
        return {stage.key for stage in (*arm.corpus.stages, arm.tokens, arm.mixture)}

    names = {stage.key: stage.name for arm in made.arms.values() for stage in (*arm.corpus.stages, arm.tokens)}
    only = [names.get(key, "mixture") for key in sorted(keys("base") - keys("without minhash"))]
    # it drops nothing here, so that the tokens and their mixture are the same
    assert sorted(only) == ["candidates", "evaluation_removal", "near_duplicates", "signatures"]
    only = [names.get(key, "mixture") for key in keys("minhash.threshold=0.9") - keys("base")]
    assert sorted(only) == ["evaluation_removal", "mixture", "near_duplicates", "tokens"]
    home = Path(made.evaluation.folder).parent
    stages = sorted(path.parent.name.rpartition("-")[0] for path in home.glob("*/manifest.json"))
    assert stages.count("documents") == stages.count("tokenizer") == stages.count("evaluation_tokens") == 1
    assert stages.count("signals") == stages.count("rules") - 1 == stages.count("content_duplicates") == 1


def test_copies_of_a_text_are_one_evaluation_document(tmp_path):
    texts = [f"Text {i} is there as often as {i} says." for i in range(20)]
    paths = [write_lines(tmp_path / f"{n}.jsonl", [*texts[n:], *texts[n:] * 4]) for n in range(2)]
    steps = [{"step": "extract", "engine": "plain"}]
    recipe = load({"name": "copied", "sources": [{"name": "web", "jsonl": paths}], "steps": steps})
    evaluation = chosen.evaluation_documents(context(str(tmp_path / "home")), [recipe], 15)
    found = chosen.read(evaluation)["text"].to_pylist()
    assert len(set(found)) == len(found) == evaluation.result["sets"]["web"]["documents"] == 15
    few = variant(recipe, f"sources.web.jsonl=[{write_lines(tmp_path / 'few.jsonl', texts[:4] * 15)}]").recipe
    with pytest.raises(ValueError, match=r"^the evaluation set web has fewer than 5 different texts \(near-duplicates"):
        chosen.evaluation_documents(context(str(tmp_path / "home")), [few], 15)


def test_near_copies_of_a_text_are_one_evaluation_document(tmp_path):
    rng = np.random.default_rng(5)
    originals = [" ".join(fresh(rng, 44)) for _ in range(30)]
    # of 40 shingles: 40 / 45 and 40 / 50 of the union, which counts as alike, and 40 / 51, which does not
    texts = [f"{text} {' '.join(fresh(rng, n))}" for n in (0, 5, 10, 11) for text in originals]
    paths = [write_lines(tmp_path / f"{n}.jsonl", texts[n::2] * (n + 1)) for n in range(2)]
    recipe = load({"name": "near", "sources": [{"name": "web", "jsonl": paths}], "steps": [{"step": "extract"}]})
    home = context(str(tmp_path / "home"))
    whole = chosen.unfiltered_documents(home, recipe)
    columns = ["id", "text", "file"]
    rows = [row for i in range(2) for row in parquet.read_table(whole.documents.part(i), columns).to_pylist()]
    ranks = uniform(pa.chunked_array([[row["id"] for row in rows]]), 0, "evaluation")
    in_file, seen, order = Counter[str](), set[str](), []
    for rank, row in sorted(zip(ranks.tolist(), rows, strict=True), key=lambda pair: (pair[0], pair[1]["id"])):
        if row["text"] not in seen:
            seen.add(row["text"])
            order.append((in_file[row["file"]], rank, row))
            in_file[row["file"]] += 1
    truth: list[dict] = []
    for *_, row in sorted(order, key=lambda one: one[:2]):
        if len(truth) < 18 and all(jaccard(row["text"], one["text"]) < THRESHOLD for one in truth):
            truth.append({"id": row["id"], "text": row["text"]})
    found = chosen.read(chosen.evaluation_documents(home, [recipe], 30), ["id", "text"]).to_pylist()
    assert found == sorted(truth, key=lambda row: row["id"]) and len(found) == 18, "a tenth of 180"


def test_pages_that_quote_an_evaluation_document_leave_the_arms_and_what_filters_learn_from(tmp_path):
    rng = np.random.default_rng(6)

    def page_of(*parts: str) -> str:
        return " ".join([*fresh(rng, 60), *parts, *fresh(rng, 60)])

    web = [" ".join(fresh(rng, 100)) for _ in range(60)]
    quotes = [page_of(text) for text in web]
    other = page_of()
    sources = [
        {"name": "web", "jsonl": [write_lines(tmp_path / "web.jsonl", web)]},
        {"name": "pages", "jsonl": [write_lines(tmp_path / "pages.jsonl", [*quotes, other])]},
    ]
    small = {"step": "quality", "reference": ["pages"], "min_score": 0.0, "dimensions": 4, "buckets": 1000, "epochs": 1}
    steps = [{"step": "extract"}, small]
    recipe = load({"name": "quoted", "sources": sources, "steps": steps})
    home = context(str(tmp_path / "home"))
    data = arm_data(home, {"base": recipe}, tokens=10**6, **PROXY)
    table = chosen.read(data.evaluation)
    evaluation = table.filter(pa.compute.equal(table["set"], "web"))["text"].to_pylist()
    arm = data.arms["base"]
    gone = {text for text in quotes if any(one in text for one in evaluation)}
    texts = dict(
        pair
        for i in range(2)
        for pair in zip(
            *parquet.read_table(arm.corpus.documents.part(i), ["id", "text"]).to_pydict().values(), strict=True
        )
    )
    left = {
        texts[one] for i in range(2) for one in parquet.read_table(arm.corpus.kept.part(i), ["id"])["id"].to_pylist()
    }
    held_out = set(table["text"].to_pylist())
    assert left == set(texts.values()) - held_out - gone and other in left | held_out
    rules = Counter()
    for i in range(2):
        for row in parquet.read_table(layout.ledger_part(arm.corpus.kept.folder, i)).to_pylist():
            rules[row["rule"]] += 1
    assert rules["contains_evaluation_document"] == len(gone - held_out) > 3
    [model] = Home(home.settings.home).stages("quality_model")
    learned = {
        texts[one] for part in model.selection.parts for one in parquet.read_table(part, ["id"])["id"].to_pylist()
    }
    assert learned == left


def test_an_evaluation_document_leaves_an_arm_that_gives_its_source_another_name(made, base):
    given = base.model_dump(mode="json", exclude={"mixture"})
    given["sources"][0]["name"] = "crawl"
    home = context(str(Path(made.evaluation.folder).parents[1]))
    data = arm_data(home, {"base": base, "renamed": load(given)}, tokens=10**9, **PROXY)
    assert data.evaluation.key == made.evaluation.key
    [stage] = [stage for stage in data.arms["renamed"].corpus.stages if stage.name == "evaluation_removal"]
    [count] = stage.step_counts
    assert count["drops"] == made.arms["base"].corpus.kept.step_counts[0]["drops"]
    assert count["drops"]["evaluation_document"] == 21


def test_one_budget_that_no_arm_repeats_a_source_for(made, arms):
    ratio = {
        name: min(arm.source_tokens[s] / share for s, share in arm.shares.items()) for name, arm in made.arms.items()
    }
    assert made.budget_tokens == int(min(ratio.values())) // 256 * 256
    for name, arm in made.arms.items():
        assert max(arm.epochs.values()) <= 1
        weights = arms[name].mixture.weights if arms[name].mixture else arm.source_tokens
        total = sum(weights.values())
        assert arm.shares == pytest.approx({source: weight / total for source, weight in weights.items()})
        for source, share in arm.shares.items():
            assert arm.epochs[source] == pytest.approx(share * made.budget_tokens / arm.source_tokens[source])


def test_the_held_out_shards_are_the_evaluation_documents_in_their_order(made, arms):
    rows = chosen.read(made.evaluation)
    shards = {load_training_manifest(Path(made.arms[name].mixture.folder, "mixture.json")).heldout for name in arms}
    [heldout] = shards
    assert [part.name for part in heldout] == list(chosen.sets_of(made.evaluation)) == ["copies", "web"]
    manifest = load_training_manifest(Path(made.arms["base"].mixture.folder, "mixture.json"))
    processor = load_tokenizer(manifest.tokenizer.path)
    texts, ids = [], []
    for part in heldout:
        [shard] = part.shards
        tokens = np.fromfile(shard.path, manifest.dtype)
        index = parquet.read_table(str(shard.path.with_suffix(".parquet")))
        for offset, length in zip(index["offset"].to_pylist(), index["length"].to_pylist(), strict=True):
            texts.append(processor.decode(tokens[offset : offset + length - 1].tolist()))
        ids += index["id"].to_pylist()
    assert texts == rows["text"].to_pylist() and ids == rows["id"].to_pylist()


def contents(home: Path) -> dict[str, bytes]:
    kinds = {".parquet", ".bin", ".idx", ".model", ".json"}
    return {
        str(path.relative_to(home)): path.read_bytes()
        for path in home.glob("stages/**/*")
        if path.suffix in kinds and path.parent.name not in ("done", "lease") and path.name != COST
    }


def test_another_run_with_other_workers_gives_the_same_bytes(made, base, arms, tmp_path):
    some = {name: arms[name] for name in ("base", "shuffled")}
    again = arm_data(context(str(tmp_path), Threads(3, None)), some, tokens=made.budget_tokens, **PROXY)
    assert again.budget_tokens == made.budget_tokens
    first, second = contents(Path(made.evaluation.folder).parents[1]), contents(tmp_path)
    assert second.keys() < first.keys() and len(second) > 50
    assert [name for name in second if first[name] != second[name]] == []


def test_tokens_that_are_asked_for_are_repeated_as_far_as_the_mixture_allows(made, base, tmp_path):
    home = context(str(Path(made.evaluation.folder).parents[1]))
    wanted = made.budget_tokens * 3 // 256 * 256
    data = arm_data(home, {"base": base}, tokens=wanted + 100, repeat=True, **PROXY)
    assert data.budget_tokens == wanted
    arm = data.arms["base"]
    assert sum(arm.epochs[s] * arm.source_tokens[s] for s in arm.epochs) == pytest.approx(wanted)
    assert 1 < max(arm.epochs.values()) <= 4
    had = ", ".join(f"{s} {arm.source_tokens[s]:,}" for s in ("copies", "web"))
    with pytest.raises(ValueError, match=rf"^base: a run takes 100,000,000 tokens, but the sources have {had}, which"):
        arm_data(home, {"base": base}, tokens=10**8, repeat=True, **PROXY)
    with pytest.raises(ValueError, match="^base: one step of training takes 9,000,000 tokens, but a run may take"):
        arm_data(home, {"base": base}, tokens=10**8, **PROXY | {"step_tokens": 9_000_000})
    strict = variant(base, "gopher_quality.min_words=120").recipe
    with pytest.raises(ValueError, match="^strict: the source web has no tokens without the evaluation documents"):
        arm_data(home, {"base": base, "strict": strict}, tokens=10**8, **PROXY)
    none = variant(base, "gopher_quality.min_words=1000").recipe
    with pytest.raises(ValueError, match="^none: the corpus is empty after the step `gopher_quality`"):
        arm_data(home, {"base": base, "none": none}, tokens=10**8, **PROXY)


@pytest.mark.parametrize("kind", ["folder", *(pytest.param(k, marks=pytest.mark.slow) for k in ("jsonl", "parquet"))])
def test_a_clean_text_set_is_one_more_set_and_leaves_the_arms_too(base, tmp_path, kind):
    texts = pydoc_paragraphs()[:6]
    given = Path(base.sources[0].jsonl[0]).parent
    leaked = texts[2] + " And a few words more."
    lines = [line for path in sorted(given.glob("web-*.jsonl")) for line in path.read_text().splitlines()]
    write_lines(tmp_path / "web.jsonl", [*(json.loads(line)["text"] for line in lines), leaked])
    path = tmp_path / {"jsonl": "clean.jsonl", "parquet": "clean.parquet", "folder": "clean"}[kind]
    if kind == "jsonl":
        write_lines(path, texts)
    elif kind == "parquet":
        pa.parquet.write_table(pa.table({"text": texts}), path)
    else:
        for number, text in enumerate(texts):
            file = path / "deep" / f"{number}.txt" if number % 2 else path / f"{number}.txt"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
    few = write_lines(tmp_path / "few.jsonl", [f"Paragraph {i} of few." for i in range(49)])
    sources = [{"name": "web", "jsonl": [f"{tmp_path}/web.jsonl"]}, {"name": "few", "jsonl": [few]}]
    recipe = load({"name": "clean_set", "sources": sources, "steps": [{"step": "extract"}]})
    home = context(str(tmp_path / "home"))
    data = arm_data(home, {"base": recipe}, tokens=10**6, clean=str(path), **PROXY)
    rows = chosen.read(data.evaluation)
    assert chosen.sets_of(data.evaluation) == ("clean", "web"), "a tenth of 49 documents is too few"
    assert sorted(rows["text"].to_pylist()[:6]) == sorted(texts) and len(rows) == 12
    assert leaked not in trained_on(data, "base")
    assert data.arms["base"].corpus.kept.step_counts[0]["drops"] == {"evaluation_document": 6, "near_duplicate": 1}


@pytest.mark.slow
def test_a_page_goes_with_its_near_copy_whatever_engine_an_arm_extracts_by(tmp_path):
    # links beside a text, which one engine takes for a part of it and the other does not, and more of them than of it
    draw = Random("menu")
    menu = "".join(f"<li><a href='/{i}'>{phrase(draw, 'en', 3)}</a></li>" for i in range(400))
    pages = []
    for i in range(30):
        body = page([f"Number{i}: {text}" for text in prose(Random(i), "en", 300)]).replace(
            b"<main>", f"<nav><ul>{menu}</ul></nav><main>".encode()
        )
        for copy in range(2):
            text = body.replace(b"</main>", f"<p>This page has been seen {copy} times.</p></main>".encode())
            pages.append((f"https://mill.example/{i}/{copy}", text, "200 OK", "text/html; charset=utf-8"))
    write_warc(tmp_path / "web-0.warc.gz", pages)
    sources = [{"name": "web", "warc": [f"{tmp_path}/web-0.warc.gz"]}]
    base = load({"name": "engines", "sources": sources, "steps": [{"step": "extract"}]})
    plain = variant(base, "extract.engine=plain").recipe
    recipes = {"base": base, "plain": plain, "renamed": variant(plain, "sources.web.name=crawl").recipe}
    data = arm_data(context(str(tmp_path / "home")), recipes, tokens=10**6, **PROXY)
    evaluation = chosen.read(data.evaluation)["text"].to_pylist()
    held_out = {number for text in evaluation for number in re.findall(r"Number(\d+)", text)}
    assert len(evaluation) == 6 and len(held_out) >= 3
    for name in recipes:
        read = {number for text in trained_on(data, name) for number in re.findall(r"Number(\d+)", text)}
        assert not read & held_out and len(read) + len(held_out) == 30
    extracted = data.arms["plain"].corpus.documents
    texts = parquet.read_table(extracted.part(0), ["text"])["text"].to_pylist()
    assert max(jaccard(text, one) for text in texts for one in evaluation) < THRESHOLD, (
        "no engine's text is like the other's"
    )


def test_what_cannot_be_evaluated_on(base, tmp_path):
    blank = write_lines(tmp_path / "blank.jsonl", ["...", "!"])
    sources = [{"name": "few", "text": [f"{write_lines(tmp_path / 'few.txt', ['One.'])}"]}]
    recipe = load({"name": "blank", "sources": sources, "steps": [{"step": "extract"}]})
    home = context(str(tmp_path / "home"))
    with pytest.raises(
        ValueError, match="^every source has too few documents to evaluate on, because at most 10% of a"
    ):
        chosen.evaluation_documents(home, [recipe], 15)
    with pytest.raises(ValueError, match="^no document of the source clean has a text with a word, so recipes cannot"):
        chosen.evaluation_documents(home, [recipe], 15, clean=blank)
    four = write_lines(tmp_path / "four.jsonl", [f"Text {i}." for i in range(4)])
    with pytest.raises(ValueError, match="^the clean text set has 4 documents with a word; give 5 or more"):
        chosen.evaluation_documents(home, [recipe], 15, clean=four)
    with pytest.raises(FileNotFoundError, match=re.escape(f"{tmp_path}/none")):
        chosen.evaluation_documents(home, [recipe], 15, clean=f"{tmp_path}/none")
    named = variant(recipe, "sources.few.name=clean").recipe
    with pytest.raises(
        ValueError,
        match="^a source of the recipe blank is called clean, which is reserved for the clean text set: rename",
    ):
        chosen.evaluation_documents(home, [named], 15, clean=blank)


def test_documents_that_only_one_recipe_has_are_drawn_from_what_it_keeps_alone(made):
    base, other = (made.arms[name].corpus for name in list(made.arms)[:2])
    kept = [
        {one for path in corpus.places.kept for one in parquet.read_table(path, ["id"])["id"].to_pylist()}
        for corpus in (base, other)
    ]
    for (corpus, against), (own, others) in zip([(base, other), (other, base)], [kept, kept[::-1]], strict=True):
        shown = only_in(corpus, against, most=3)
        assert len(shown) == min(3, len(own - others)) and {one.id for one in shown} <= own - others
        assert shown == only_in(corpus, against, most=3) and all(one.text for one in shown)
    assert kept[0] != kept[1], "the recipes differ"
