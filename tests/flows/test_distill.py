"""A model learned from annotations of some documents: what it learns from, what it is measured on, what it keeps."""

import json
import random
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from gristmill.flows.curation import Passed
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.check import check
from gristmill.flows.recipe.errors import RecipeError
from gristmill.flows.recipe.recipe import load
from gristmill.flows.reports import run_page
from gristmill.flows.reports.audit import draw
from gristmill.flows.reports.whatif import decided_by
from gristmill.flows.stages.distillation import distillation
from gristmill.flows.stages.learned_filters import embedding
from gristmill.storage import files, parquet
from gristmill.tasks.documents.decisions import decide
from gristmill.tasks.engine.executors import Threads
from gristmill.tasks.models.distillation.held_out import CutError, CutRule
from gristmill.tasks.models.distillation.step import Distill
from gristmill.tasks.models.embedding import Embedding
from tests import embedders
from tests.corpora import Texts, context, ledger, read

FAST = {"dimensions": 8, "buckets": 2000, "epochs": 20, "learning_rate": 0.5}
GOOD, BAD = embedders.WORDS[:6], embedders.WORDS[6:12]


def documents(n: int = 400, seed: int = 3, annotated: float = 0.6, hosts: int = 40) -> list[dict]:
    """Documents of three unequal sources with a grade of 0 to 5: how many of five words are good ones, by a grader who
    is wrong now and then. Texts are in two scripts, and one is huge."""
    r = random.Random(seed)
    rows = []
    for i in range(n):
        words = [r.choice(GOOD if r.random() < 0.5 else BAD) for _ in range(5)]
        grade = sum(word in GOOD for word in words)
        noisy = min(5, max(0, grade + r.choice([-1, 0, 0, 0, 0, 1])))
        text = " ".join([*words, *r.choices([*embedders.WORDS[12:], "мельница", "水車"], k=4)])
        rows.append(
            {
                "id": f"d{i}",
                "text": text if i != 7 else f"{text} " * 20_000,
                "url": f"https://h{r.randrange(hosts)}.example/{i}",
                "truth": grade,
                "grade": float(noisy) if r.random() < annotated else None,
            }
        )
    return rows


ROWS = documents()


def arriving(home: str, rows: list[dict], shards: int = 3, seed: int = 1, column: str = "grade", kind=None):
    """The corpus of documents that lie in so many shards of three unequal sources, with the column of annotations; the
    third source is without it."""
    bounds = [0, len(rows) // 10, len(rows) * 7 // 10, len(rows)]
    parts, sources, given = [], [], []
    for name, low, high in zip(("small", "large", "bare"), bounds, bounds[1:], strict=False):
        some = rows[low:high]
        random.Random(seed).shuffle(some)
        for at in range(shards):
            own = some[at::shards]
            parts.append([{key: row[key] for key in ("id", "text", "url")} for row in own])
            sources.append(name)
            given.append(None if name == "bare" else [row[column] for row in own])
    texts = Texts(parts, sources)
    corpus = texts.corpus(home)
    folder = f"{home}/planted"
    for number, (own, values) in enumerate(zip(parts, given, strict=True)):
        columns = {} if values is None else {column: pa.array(values, kind or pa.float64())}
        parquet.write_table(f"{folder}/part-{number:05d}.parquet", pa.table({"id": [r["id"] for r in own], **columns}))
    contents = f"{column} {seed} {sorted((r['id'], r[column]) for r in rows if r[column] is not None)}"
    planted = corpus.measured[0].__class__("signals", "planted", folder, {"contents": contents}, False)
    recipe = SimpleNamespace(**vars(texts.recipe), heldout_fraction=0.0)
    return recipe, corpus.measuring(planted)


MANY = documents(900, seed=4, annotated=0.9, hosts=90)


def run(home: str, step: Distill, rows: list[dict] = ROWS, workers: int = 1, **given):
    recipe, corpus = arriving(home, [*rows], **given)
    return corpus, distillation(context(home, Threads(workers, None)), recipe, corpus, step)


def column(corpus, name: str) -> dict:
    table = read(corpus.measured[-1], list(corpus.places.shards()))
    return dict(zip(table["id"].to_pylist(), table[name].to_pylist(), strict=True))


def stage(corpus, name: str):
    return next(each for each in corpus.stages if each.name == name)


def model(corpus) -> dict:
    return stage(corpus, "distill_model").result["model"]


@pytest.fixture(scope="module")
def embedder(tmp_path_factory) -> str:
    pytest.importorskip("onnxruntime", reason="onnxruntime is in the extra `embedding`")
    return embedders.write(tmp_path_factory.mktemp("embedder"))


@pytest.mark.extended
@pytest.mark.parametrize("kind", ["fasttext", "head"])
def test_shards_order_and_workers_change_no_bit(tmp_path, kind, embedder):
    own = {"fasttext": FAST} if kind == "fasttext" else {"model": embedder}
    step = Distill(of="grade", positive=3, kind=kind, keep_top=50, **own)
    found = []
    for number, (shards, seed, workers) in enumerate([(1, 1, 1), (3, 2, 2), (5, 3, 2)]):
        _, corpus = run(str(tmp_path / f"{number}"), step, workers=workers, shards=shards, seed=seed)
        dropped = sorted(ledger(corpus.kept, list(corpus.places.shards()))["id"].to_pylist())
        found.append((column(corpus, "distill_score"), column(corpus, "distill_held_out"), dropped, model(corpus)))
    assert found == [found[0]] * 3
    scores, held, dropped, figures = found[0]
    assert {*scores} == {row["id"] for row in ROWS} and None not in scores.values()
    assert figures["found"] == sum(row["grade"] is not None for row in ROWS[:280])
    # no host is in both parts, and the model has not seen those held out
    host = {row["id"]: row["url"].split("/")[2] for row in ROWS}
    unseen = {host[i] for i, value in held.items() if value is not None}
    assert {i for i, value in held.items() if value is not None} == {
        row["id"] for row in ROWS[:280] if row["grade"] is not None and host[row["id"]] in unseen
    }
    assert figures["held_out_hosts"] == len(unseen) and 4 <= len(unseen) <= 16
    assert all(held[row["id"]] == (row["grade"] >= 3) for row in ROWS if held[row["id"]] is not None)
    # it separates what it was to separate, in documents without an annotation, too
    others = [row for row in ROWS if row["grade"] is None]
    above = [scores[row["id"]] for row in others if row["truth"] >= 3]
    below = [scores[row["id"]] for row in others if row["truth"] < 3]
    assert np.mean([a > b for a in above for b in below]) > 0.8 and dropped


@pytest.mark.extended
def test_the_cut_is_replayed_and_recorded(tmp_path):
    home = str(tmp_path)
    step = Distill(of="grade", positive=3, cut=CutRule(f_beta=0.5), fasttext=FAST)
    before, corpus = run(home, step, MANY)
    [[name, [bound]]] = corpus.kept.result["decisions"]
    reasons = corpus.kept.result["reasons"]
    scores, held = column(corpus, "distill_score"), column(corpus, "distill_held_out")
    truth = {i: value for i, value in held.items() if value is not None}
    # by brute force over all scores of held-out annotations
    best = max(
        (1.25 * tp / (0.25 * sum(truth.values()) + kept), kept, cut)
        for cut in {scores[i] for i in truth}
        for kept, tp in [(sum(scores[i] >= cut for i in truth), sum(truth[i] for i in truth if scores[i] >= cut))]
        if kept >= 10
    )
    assert (name, bound["rule"], bound["low"]) == ("distill", "f_beta", best[2] if best[2] else None)
    kept = [i for i in truth if scores[i] >= bound["low"]]
    assert reasons["annotations"] == len(truth) == model(corpus)["held_out"] and reasons["kept"] == len(kept)
    assert reasons["precision"][0] == pytest.approx(np.mean([truth[i] for i in kept]))
    dropped = {*ledger(corpus.kept, list(corpus.places.shards()))["id"].to_pylist()}
    assert dropped == {i for i, score in scores.items() if score < bound["low"]}
    # other cuts over the stored scores, as `decide whatif` replays them, decide as a run does
    for change in ({"cut": CutRule(min_precision=0.6)}, {"cut": None, "min_score": 0.4}, {"cut": None, "keep_top": 30}):
        other = step.model_copy(update=change)
        signals, decisions, _ = decided_by(Passed((step,), before, corpus), (other,))
        gone = set()
        for (part,) in signals.values():
            [(_, rows)] = decide(parquet.read_table(part), decisions)
            gone |= {*rows["id"].to_pylist()}
        _, again = run(home, other, MANY)
        assert stage(again, "distill").reused and stage(again, "distill_model").reused and not again.kept.reused
        assert gone == {*ledger(again.kept, list(again.places.shards()))["id"].to_pylist()}, change
    assert draw(Passed((step,), before, corpus), step).documents
    page = run_page._distilled(SimpleNamespace(corpus=corpus))
    assert page["lines"][0].startswith("learned from ") and page["lines"][1].startswith("keeps scores from ")
    assert sum(int(row[3].replace(",", "")) for row in page["rows"]) == len(truth)


@pytest.mark.extended
def test_another_annotation_makes_another_model_and_only_scores(tmp_path):
    home = str(tmp_path)
    step = Distill(of="grade", positive=3, fasttext=FAST)
    _, corpus = run(home, step)
    assert not ledger(corpus.kept, list(corpus.places.shards())).num_rows and corpus.kept.result["reasons"] == {}
    _, again = run(home, step)
    assert stage(again, "distill_model").reused and again.kept.reused
    changed = [{**row, "grade": 5 - row["grade"] if row["grade"] is not None else None} for row in ROWS]
    _, other = run(home, step, changed)
    assert not stage(other, "distill_model").reused
    first, second = (column(each, "distill_score") for each in (corpus, other))
    assert np.corrcoef([first[i] for i in first], [second[i] for i in first])[0, 1] < -0.5


def test_the_sample_is_bounded_and_a_reference_is_not_learned_from(tmp_path):
    step = Distill(of="grade", positive=3, annotations=100, fasttext=FAST, reference=("small",))
    _, corpus = run(str(tmp_path), step)
    figures = model(corpus)
    assert figures["found"] == sum(row["grade"] is not None for row in ROWS[40:280])
    assert 70 <= figures["annotations"] <= 130
    scores = column(corpus, "distill_score")
    assert {i for i, score in scores.items() if score is None} == {row["id"] for row in ROWS[:40]}
    folder = stage(corpus, "distill_model").folder
    assert not files.exists(f"{folder}/gathered")


@pytest.mark.extended
def test_booleans_and_numbers_without_a_threshold(tmp_path, embedder):
    fine = [{**row, "fine": None if row["grade"] is None else row["grade"] >= 3} for row in MANY]
    given = {"column": "fine", "kind": pa.bool_()}
    _, logistic = run(str(tmp_path / "a"), Distill(of="fine", kind="head", model=embedder), fine, **given)
    assert model(logistic)["model"] == "logistic" and model(logistic)["roc_auc"][0] > 0.7
    assert all(0 < score < 1 for score in column(logistic, "distill_score").values())
    recipe, corpus = arriving(str(tmp_path / "a"), [*fine], **given)
    # a step `embedding` before it embeds the same documents, once
    bare = embedding(context(str(tmp_path / "a")), recipe, corpus, Embedding(model=embedder))
    assert stage(bare, "embedding_vectors").reused
    _, ridge = run(str(tmp_path / "b"), Distill(of="grade", kind="head", model=embedder, min_score=2.0))
    figures = model(ridge)
    assert figures["model"] == "ridge" and "roc_auc" not in figures and figures["pearson"] > 0.3
    assert [row["score"] for row in figures["reliability"]] == sorted(row["score"] for row in figures["reliability"])
    with pytest.raises(ValueError, match="has booleans, which have no threshold; remove `positive`"):
        run(str(tmp_path / "c"), Distill(of="fine", positive=1, fasttext=FAST), fine, **given)
    with pytest.raises(CutError, match="set `positive`, their threshold"):
        run(str(tmp_path / "b"), Distill(of="grade", kind="head", model=embedder, cut=CutRule(f_beta=1)))


@pytest.mark.parametrize(
    ("changes", "settings", "message"),
    [
        ({"grade": None}, {}, "no document has an annotation in the column grade at this step"),
        ({"grade": 4.0}, {}, "are annotated 4 in grade, so a model learns nothing: annotate documents of both kinds\n"),
        ({}, {"positive": 9}, "are below `positive` in grade, so .* of both kinds, or change `positive`\n"),
        (
            {"url": "https://one.example/"},
            {},
            "annotations in grade are of one host, and other hosts are needed .*: annotate documents of more hosts\n",
        ),
        ({}, {"positive": None}, "has numbers, and `kind: fasttext` needs good documents; set `positive`"),
        ({}, {"annotations": 60, "cut": CutRule(f_beta=1)}, "a cut cannot be chosen: the held-out part has"),
        ({"rows": MANY}, {"cut": CutRule(min_precision=0.999)}, "no cut is shown to have a precision of 0.999: of"),
    ],
)
def test_what_nothing_can_be_learned_from_is_refused(tmp_path, changes, settings, message):
    rows = [{**row, **changes} for row in changes.pop("rows", ROWS)]
    with pytest.raises(ValueError, match=message):
        run(str(tmp_path), Distill(**{"of": "grade", "positive": 3, "fasttext": FAST, **settings}), rows)


def test_noise_identifies_no_cut(tmp_path):
    r = random.Random(2)
    rows = [{**row, "grade": r.choice([1.0, 4.0])} for row in documents(500, annotated=1)]
    with pytest.raises(CutError, match="the score does not separate the held-out annotations"):
        run(str(tmp_path), Distill(of="grade", positive=3, cut=CutRule(f_beta=1), fasttext=FAST), rows)


def test_columns_are_checked_before_a_run():
    def problem(*steps: dict, columns: list[str] | None = None) -> str:
        source = {"name": "web", "jsonl": ["a.jsonl"], "columns": columns or []}
        with pytest.raises(RecipeError) as caught:
            load({"name": "x", "sources": [source], "steps": [*steps]})
        return str(caught.value)

    assert "is grad, but no step before it or source has this column; did you mean `grade`" in problem(
        {"step": "distill", "of": "grad"}, columns=["grade"]
    )
    quality = {"step": "gopher_quality"}
    assert "has numbers, and `kind: fasttext` needs good documents" in problem(
        quality, {"step": "distill", "of": "gopher_quality_words"}
    )
    assert "has strings; annotate with numbers or booleans" in problem(
        {"step": "language"}, {"step": "distill", "of": "language"}
    )
    assert "has min_score 2.5, but scores are probabilities from 0 to 1" in problem(
        {"step": "distill", "of": "grade", "positive": 3, "min_score": 2.5}, columns=["grade"]
    )
    assert "has it only once; for a second score, use another recipe whose source is the export of this one" in problem(
        *[{"step": "distill", "of": "grade", "positive": 3}] * 2, columns=["grade"]
    )
    assert "has cut and min_score; give one of them" in problem(
        {"step": "distill", "of": "grade", "cut": {"f_beta": 1}, "min_score": 1}, columns=["grade"]
    )
    assert "needs one of `f_beta` and `min_precision`" in problem(
        {"step": "distill", "of": "grade", "cut": {}}, columns=["grade"]
    )
    assert "has `kind: head` without an embedder" in problem(
        {"step": "distill", "of": "grade", "kind": "head"}, columns=["grade"]
    )


def test_strings_and_booleans_with_a_threshold_are_found_by_check(tmp_path):
    rows = [{"text": f"page {n}", "grade": str(n), "fine": n > 2, "score": n} for n in range(5)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    settings = MachineSettings(home=str(tmp_path / "home"))
    for form in ("jsonl", "parquet"):
        source = {"name": "web", form: [str(tmp_path / f"a.{form}")], "columns": ["grade", "fine", "score"]}

        def found(source=source, **step) -> str:
            recipe = {"name": "x", "sources": [source], "steps": [{"step": "distill", **step}]}
            return "\n".join(map(str, check(recipe, settings).findings))

        assert "steps.distill.of: cannot be learned from: the column grade has strings; annotate with numbers or " in (
            found(of="grade", positive=3)
        )
        assert "has booleans, which have no threshold; remove `positive`" in found(of="fine", positive=1)
        assert "has numbers, and `kind: fasttext` needs good documents" in found(of="score")
        assert not found(of="fine") and not found(of="score", positive=3)


@pytest.mark.extended
def test_documents_without_a_host_are_their_own(tmp_path):
    rows = [{**row, "url": None} for row in ROWS]
    _, corpus = run(str(tmp_path), Distill(of="grade", positive=3, fasttext=FAST), rows)
    figures = model(corpus)
    assert figures["held_out_hosts"] == figures["held_out"] and figures["training_hosts"] == figures["training"]
    names = pc.drop_null(read(corpus.measured[-1], list(corpus.places.shards()))["distill_host"]).to_pylist()
    assert all(name.split("\n")[1].startswith("d") for name in names) and len(names) == figures["held_out"]
