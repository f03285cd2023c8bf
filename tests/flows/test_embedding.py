"""Documents embedded once and scored by heads: stages, cuts, heads from labels, and what is said before a run."""

import json
import random
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from gristmill.flows.curation import Passed
from gristmill.flows.experiments.models import classifier as heads
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.check import step_problems
from gristmill.flows.reports.audit import draw
from gristmill.flows.stages.learned_filters import embedding
from gristmill.flows.stages.signals import quality_bucket
from gristmill.tasks.engine.executors import Threads
from gristmill.tasks.models import heads as head_files
from gristmill.tasks.models.embedders import Embedder
from gristmill.tasks.models.embedding import Embedding
from gristmill.tasks.models.heads import Head
from gristmill.tasks.models.quality import QualityBucket
from tests import embedders
from tests.corpora import Texts, context, ledger, read
from tests.recorded import recorded

pytest.importorskip("onnxruntime", reason="onnxruntime is in the extra `embedding`")

GOOD, BAD = embedders.WORDS[:6], embedders.WORDS[6:12]


def texts(n: int = 120) -> dict[str, tuple[str, bool]]:
    """Texts of good and of bad words among others, by id, and whether they are good."""
    draw = random.Random(3)
    found = {}
    for i in range(n):
        good = draw.random() < 0.5
        words = draw.choices(GOOD if good else BAD, k=4) + draw.choices(embedders.WORDS[12:], k=2)
        found[f"d{i}"] = (" ".join(draw.sample(words, len(words))), good)
    return found


TEXTS = texts()
WEB = list(TEXTS)[20:]


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> SimpleNamespace:
    """An embedder, labels of all texts, and two heads: of the kind of words, and of the number of a word."""
    folder = tmp_path_factory.mktemp("heads")
    model = embedders.write(folder / "model")
    labels = folder / "labels.jsonl"
    rows = [
        {"text": t, "id": i, "kind": "fine" if g else "poor", "grade": t.split().count("mill")}
        for i, (t, g) in TEXTS.items()
    ]
    labels.write_text("".join(json.dumps(row) + "\n" for row in rows))
    kind, grade = str(folder / "kind.safetensors"), str(folder / "grade.safetensors")
    given = ("jsonl", [str(labels)])
    found = heads.head_from_texts(kind, model, given, ("text", "kind"), ["fine"], Embedder())
    graded = heads.head_from_texts(grade, model, given, ("text", "grade"), (), Embedder(), 1e-3)
    return SimpleNamespace(model=model, labels=labels, kind=kind, grade=grade, found=found, graded=graded, given=given)


def run(home: str, step: Embedding, shards: int = 2, seed: int = 1, workers: int = 1) -> tuple:
    """The corpus behind the step, on documents that lie in so many shards of each source in some order."""
    documents, sources = [], []
    for source, ids in (("books", list(TEXTS)[:20]), ("web", list(WEB))):
        random.Random(seed).shuffle(ids)
        for at in range(shards):
            documents.append([{"id": i, "text": TEXTS[i][0]} for i in ids[at::shards]])
            sources.append(source)
    corpus = Texts(documents, sources)
    arriving = corpus.corpus(home)
    return arriving, embedding(context(home, Threads(workers, None)), corpus.recipe, arriving, step)


def column(corpus, name: str) -> dict:
    table = read(corpus.measured[-1], list(corpus.places.shards()))
    return dict(zip(table["id"].to_pylist(), table[name].to_pylist(), strict=True))


def stage(corpus, name: str):
    return next(each for each in corpus.stages if each.name == name)


@pytest.mark.extended
def test_shards_order_and_workers_change_no_bit(tmp_path, made):
    step = Embedding(model=made.model, heads={"kind": made.kind}, min_score={"kind": 0.5}, reference=("books",))
    found = []
    for number, (shards, seed, workers) in enumerate([(1, 1, 1), (3, 2, 2), (7, 3, 3)]):
        _, corpus = run(str(tmp_path / f"{number}"), step, shards, seed, workers)
        there = list(corpus.places.shards(without=("books",)))
        table = read(stage(corpus, "embedding_vectors"), there)
        vectors = {row["id"]: tuple(row["vector"]) for row in table.to_pylist()}
        dropped = sorted(ledger(corpus.kept, list(corpus.places.shards()))["id"].to_pylist())
        found.append((vectors, column(corpus, "embedding_kind"), dropped))
    assert found == [found[0]] * 3
    vectors, scores, dropped = found[0]
    assert {*vectors} == {*WEB} and {i for i, score in scores.items() if score is None} == {*TEXTS} - {*WEB}
    assert [*dropped] == sorted(i for i in WEB if scores[i] < 0.5) and dropped
    # the head separates what it was to separate, and the scores are those of its definition
    assert np.mean([(scores[i] >= 0.5) == TEXTS[i][1] for i in WEB]) > 0.95
    head = head_files.load(recorded(made.kind))
    for i in WEB[:20]:
        exact = 1 / (1 + np.exp(-(np.array(vectors[i], np.float64) @ head.weight + head.bias)))
        assert scores[i] == pytest.approx(exact, rel=1e-12)


@pytest.mark.extended
def test_another_head_or_cut_does_not_embed_again(tmp_path, made):
    home = str(tmp_path)
    _, bare = run(home, Embedding(model=made.model))
    vectors = stage(bare, "embedding_vectors")
    assert not vectors.reused and bare.kept.name == "documents" and len(bare.stages) == 2
    both = {"kind": made.kind, "grade": made.grade}
    _, scored = run(home, Embedding(model=made.model, heads=both, keep_top={"grade": 25}))
    step = Embedding(model=made.model, heads=both, keep_top={"grade": 50}, min_score={"kind": 0.1})
    arriving, cut = run(home, step)
    for corpus in (scored, cut):
        again = stage(corpus, "embedding_vectors")
        assert again.reused and again.key == vectors.key
    assert stage(cut, "embedding").reused and not cut.kept.reused
    assert stage(cut, "embedding").result["heads"]["kind"]["roc_auc"] == made.found["roc_auc"]
    grades = column(scored, "embedding_grade")
    dropped = ledger(scored.kept, list(scored.places.shards()))
    assert {*dropped["rule"].to_pylist()} == {"grade_keep_top"}
    # of two cuts, what a page for a person has: a document that fails both is as far as from the farther one
    kinds, half = column(cut, "embedding_kind"), np.percentile([*grades.values()], 50)
    far = {i: (abs(kinds[i] - 0.1) / 0.1, abs(grades[i] - half) / abs(half)) for i in grades}
    fails = {i: (kinds[i] < 0.1, grades[i] < half) for i in grades}
    expected = {
        i: max(d for d, fail in zip(far[i], fails[i], strict=True) if fail) if any(fails[i]) else min(far[i])
        for i in grades
    }
    drawn = draw(Passed((step,), arriving, cut), step, nearest=20, sampled=2)
    assert drawn.sizes["dropped"] == sum(map(any, fails.values())) and {*drawn.sizes} == {"dropped", "kept"}
    for side in drawn.sizes:
        there = sorted(expected[i] for i in grades if any(fails[i]) == (side == "dropped"))
        shown = sorted(expected[one.id] for one in drawn.documents if one.nearest and one.side == side)
        assert shown == pytest.approx(there[:10])
    bar = np.percentile([*grades.values()], 75)
    assert {*dropped["id"].to_pylist()} == {i for i, grade in grades.items() if grade < bar}
    for settings in ({"pooling": "cls"}, {"prefix": "query: "}, {"max_tokens": 9}, {"normalize": False}):
        _, other = run(home, Embedding(model=made.model, **settings))
        assert stage(other, "embedding_vectors").key != vectors.key
    # the key is of the files' content, wherever they lie
    embedders.write(tmp_path / "moved")
    assert stage(run(home, Embedding(model=str(tmp_path / "moved")))[1], "embedding_vectors").reused
    embedders.write(tmp_path / "moved", embedders.model(seed=2))
    assert not stage(run(home, Embedding(model=str(tmp_path / "moved")))[1], "embedding_vectors").reused


def test_scores_of_heads_are_signals_for_the_steps_behind(tmp_path, made):
    step = Embedding(model=made.model, heads={"kind": made.kind, "grade": made.grade})
    _, corpus = run(str(tmp_path), step)
    assert [signal.name for signal in step.signals] == ["embedding_grade", "embedding_kind"]
    assert not ledger(corpus.kept, list(corpus.places.shards())).num_rows  # a head without a cut scores alone
    bucket = QualityBucket(scores=("embedding_kind", "embedding_grade"), buckets=4)
    numbers = column(quality_bucket(context(str(tmp_path)), None, corpus, bucket), "quality_bucket")
    assert {*numbers.values()} == {0, 1, 2, 3}


def test_heads_from_labels_of_texts_and_of_documents_of_a_run_are_the_same(tmp_path, made, monkeypatch):
    assert made.found["kind"] == "logistic" and made.found["roc_auc"] > 0.95 and made.found["tested"] == len(TEXTS)
    assert made.graded["kind"] == "ridge" and made.graded["spearman"] > 0.25 and made.graded["labels"][0] == 0
    arriving, corpus = run(str(tmp_path), step := Embedding(model=made.model, reference=("books",)))
    recipe = SimpleNamespace(name="small", steps=(step,))
    monkeypatch.setattr(heads, "load", lambda name: recipe)
    monkeypatch.setattr(heads, "arriving", lambda *_: arriving)
    machine = MachineSettings(home=str(tmp_path))
    out = str(tmp_path / "by_id.safetensors")
    found = heads.head_from_recipe(out, "small", made.given, ("id", "kind"), ["fine"], 1.0, machine)
    assert found["tested"] == len(WEB) and found["without_vector"] == 20
    few = tmp_path / "few.jsonl"
    few.write_text("".join(line + "\n" for line in made.labels.read_text().splitlines()[20:]))
    again = str(tmp_path / "by_text.safetensors")
    heads.head_from_texts(again, made.model, ("jsonl", [str(few)]), ("text", "kind"), ["fine"], Embedder(), 1.0)
    one, other = (head_files.load(recorded(path)) for path in (out, again))
    assert np.allclose(one.weight, other.weight, rtol=1e-6) and one.embedder == other.embedder
    with pytest.raises(FileExistsError, match="already exists"):
        heads.head_from_texts(again, made.model, made.given, ("text", "kind"), ["fine"], Embedder())
    few.write_text('{"id": "nobody", "kind": "fine"}\n')
    with pytest.raises(ValueError, match="no label belongs to a document with an embedding"):
        heads.head_from_recipe(f"{out}2", "small", ("jsonl", [str(few)]), ("id", "kind"), ["fine"], 1.0, machine)
    recipe.steps = ()
    with pytest.raises(ValueError, match="has no step `embedding`; add one, or give --model"):
        heads.head_from_recipe(f"{out}2", "small", made.given, ("id", "kind"), ["fine"], 1.0, machine)


@pytest.mark.parametrize(
    "line,columns,why",
    [
        (
            '{"text": "mill", "kind": "fine"}',
            ("text", "kind"),
            "the label 'fine' is not a number; list the labels of good",
        ),
        ('{"text": "mill"}', ("text", "kind"), "row 1, has no kind; set its key with --label-column"),
        ('{"text": "mill", "kind": 1}', ("text", "kind"), "learns from labels that differ"),
    ],
)
def test_labels_that_nothing_can_be_learned_from_are_refused(tmp_path, made, line, columns, why):
    (tmp_path / "l.jsonl").write_text(line + "\n")
    with pytest.raises(ValueError, match=why):
        heads.head_from_texts(
            str(tmp_path / "h"), made.model, ("jsonl", [str(tmp_path / "l.jsonl")]), columns, (), Embedder()
        )
    assert not (tmp_path / "h").exists()


def test_what_is_wrong_is_said_before_a_run(tmp_path, made):
    machine = MachineSettings(home=str(tmp_path / "home"))
    model = embedders.write(tmp_path / "model")

    def wrong(**settings) -> list[str]:
        step = Embedding(**{"model": model, "heads": {"kind": made.kind}, **settings})
        return [f"{'.'.join(map(str, where))} {what}" for where, what in step_problems({0: step}, machine, False)]

    assert wrong() == []
    [line] = wrong(pooling="cls")
    assert line.startswith("steps.0.heads.kind") and line.endswith('write `pooling: "mean"`')
    [line] = wrong(heads={"kind": str(tmp_path / "no.safetensors")})
    assert "steps.0.heads.kind" in line and "no.safetensors does not exist; correct the path" in line
    short = tmp_path / "short.safetensors"
    known = head_files.load(recorded(made.kind))
    head_files.write(str(short), Head("ridge", known.weight[:5], 0.0, known.embedder, {}))
    assert "has 5 weights for vectors of 12 numbers" in wrong(heads={"kind": str(short)})[0]
    [line] = wrong(device="cuda")
    assert "`device: cuda` needs another build" in line
    embedders.write(tmp_path / "model", embedders.model(seed=2))
    assert "vectors of another model; set `model` to the folder" in wrong()[0]
    embedders.write(tmp_path / "model", embedders.model()[:-9])
    [line] = wrong()
    assert line.startswith("steps.0.model") and "is not a valid ONNX model" in line
    [line] = wrong(model=str(tmp_path / "nowhere"))
    assert "has neither model.onnx nor onnx/model.onnx" in line


def test_a_head_of_other_vectors_stops_the_stage_too(tmp_path, made):
    """Where the check could not look, since the files are remote."""
    step = Embedding(model=made.model, heads={"kind": made.kind}, pooling="cls")
    with pytest.raises(ValueError, match="was trained with pooling 'mean', but the step has 'cls'"):
        run(str(tmp_path), step)


def test_the_missing_package_is_named_with_its_extra(made, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    [(path, what)] = step_problems({2: Embedding(model=made.model)}, MachineSettings(), False)
    assert path == ("steps", 2, "step") and what.endswith("pip install 'gristmill[embedding]'")


@pytest.mark.parametrize(
    "settings,why",
    [
        ({"heads": {"Edu": "a"}}, "has the head 'Edu'; use lowercase letters"),
        ({"min_score": {"edu": 1}}, "min_score for edu, which is not a head; its heads are none"),
        ({"heads": {"edu": "a"}, "keep_top": {"edu": 0}}, "keep_top 0.0 for edu; give a percentage above 0"),
        ({"heads": {"edu": "a"}, "keep_top": {"edu": 5}, "min_score": {"edu": 1}}, "give one of them"),
        ({"pooling": "max"}, "'mean', 'cls' or 'none'"),
        ({"max_tokens": 1}, "greater than or equal to 4"),
        ({"model": ""}, "at least 1 character"),
    ],
)
def test_settings_without_a_meaning_are_refused(settings, why):
    with pytest.raises(ValueError, match=why):
        Embedding(**{"model": "folder", **settings})
