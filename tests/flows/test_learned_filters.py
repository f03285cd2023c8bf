"""What holds for every learned step: a score does not depend on how documents lie in shards, nor on their order."""

import random
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from gristmill.flows.recipe.steps import TABLE
from gristmill.flows.stages.learned_filters import learned_filter
from gristmill.flows.stages.signals import quality_bucket
from gristmill.storage import parquet
from gristmill.tasks.documents.step import DocumentStep, work_of
from gristmill.tasks.models import fasttext
from gristmill.tasks.models.classifiers import fold
from gristmill.tasks.models.distillation.step import Distill
from gristmill.tasks.models.embedding import Embedding
from gristmill.tasks.models.filter import LearnedFilter
from gristmill.tasks.models.harm import Harm
from gristmill.tasks.models.language import Language
from gristmill.tasks.models.quality import Quality, QualityBucket
from tests.corpora import Texts, context, ledger, read
from tests.planted.text import pydoc_paragraphs

# That of `embedding`, whose models are no part of a run, is in test_embedding, that of `distill` in test_distill.
OTHERS = (Embedding, Distill)
FILTERS = [row.settings for row in TABLE if issubclass(row.settings, LearnedFilter) and row.settings not in OTHERS]
SMALL = {
    "perplexity": {"order": 2},
    "quality": {"dimensions": 4, "buckets": 500, "epochs": 3, "min_score": 0.5},
}


def texts() -> tuple[dict[str, str], dict[str, str]]:
    """Good and other documents, by id: prose, and its words shuffled among nonsense."""
    draw = random.Random(11)
    prose = [" ".join(draw.sample(pydoc_paragraphs(), 2)) for _ in range(90)]
    nonsense = [" ".join(draw.sample(text.split() + ["click", "buy", "login"] * 8, 30)) for text in prose[30:]]
    web = [*prose[30:], *nonsense]
    return {f"good{i}": text for i, text in enumerate(prose[:30])}, {f"web{i}": text for i, text in enumerate(web)}


GOOD, WEB = texts()


def run(home: str, step: LearnedFilter, shards: int, seed: int) -> tuple:
    """The corpus behind a filter, on documents that lie in so many shards of each source in some order."""
    documents, sources = [], []
    for source, given in (("good", GOOD), ("web", WEB)):
        ids = list(given)
        random.Random(seed).shuffle(ids)
        for at in range(shards):
            documents.append([{"id": i, "text": given[i]} for i in ids[at::shards]])
            sources.append(source)
    corpus = Texts(documents, sources)
    recipe = SimpleNamespace(**vars(corpus.recipe), steps=(), seed=1, heldout_fraction=0.1)
    here = context(home)
    return here, recipe, learned_filter(here, recipe, corpus.corpus(home), step), range(len(documents))


def by_id(table: pa.Table, column: str) -> dict:
    return dict(zip(table["id"].to_pylist(), table[column].to_pylist(), strict=True))


def harm_model(folder) -> dict:
    """The settings of a step that takes words of shops for harm."""
    draw = random.Random(2)
    lines = [f"__label__not {text}\n" for text in GOOD.values()]
    lines += [f"__label__harm {' '.join(draw.choices(['click', 'buy', 'login', 'the'], k=20))}\n" for _ in GOOD]
    (folder / "lines.txt").write_text("".join(line.replace("\n", " ").strip() + "\n" for line in lines))
    trained = fasttext.train_supervised(str(folder / "lines.txt"), dim=4, bucket=500, epoch=20, thread=1, verbose=0)
    trained.save_model(str(folder / "harm.bin"))
    return {"model": str(folder / "harm.bin"), "label": "harm", "drop_top": 10}


@pytest.mark.extended
@pytest.mark.parametrize("kind", FILTERS, ids=lambda kind: kind.model_fields["step"].default)
def test_order_and_shards_change_no_bit_of_a_score(tmp_path, kind):
    name = kind.model_fields["step"].default
    given = harm_model(tmp_path) if issubclass(kind, Harm) else SMALL.get(name, {})
    step = kind(reference=("good",), **given)
    found = []
    for at, (shards, seed) in enumerate([(1, 1), (3, 2), (7, 3)]):
        *_, corpus, there = run(str(tmp_path / f"{at}"), step, shards, seed)
        dropped = ledger(corpus.kept, list(there))
        found.append((by_id(read(corpus.measured[-1], list(there)), step.signal), sorted(dropped["id"].to_pylist())))
    scores, dropped = found[0]
    assert found == [found[0]] * 3
    assert {i for i, score in scores.items() if score is None} == {*GOOD}
    assert len({*scores.values()}) > 50 and 0 < len(dropped) < len(WEB)


def test_batches_change_no_bit_of_the_language():
    """The document steps that ask a model."""
    assert issubclass(Language, DocumentStep)
    step, table = Language(), pa.table({"text": list(WEB.values())})
    measure = work_of(step).measure
    whole = measure(step, {"text": table["text"]})
    for size in (1, 7):
        parts = [measure(step, {"text": table[at : at + size]["text"]}) for at in range(0, len(table), size)]
        for name, column in whole.items():
            assert pa.concat_arrays([part[name] for part in parts]).equals(column)


@pytest.mark.extended
def test_a_share_is_kept_of_what_each_model_has_scored(tmp_path):
    step = Quality(reference=("good",), **SMALL["quality"] | {"min_score": None, "keep_top": 25})
    *_, corpus, there = run(str(tmp_path), step, 3, 1)
    scores = {i: s for i, s in by_id(read(corpus.measured[-1], list(there)), "quality").items() if s is not None}
    dropped = ledger(corpus.kept, list(there))
    assert {*dropped["rule"].to_pylist()} == {"keep_top"}
    kept = {*scores} - {*dropped["id"].to_pylist()}
    folds = dict(zip(scores, fold(pa.chunked_array([[*scores]]), step.seed, 2).tolist(), strict=True))
    for number in (0, 1):
        own = [i for i in sorted(scores, key=scores.__getitem__) if folds[i] == number]
        here = [i for i in own if i in kept]
        assert abs(len(here) - len(own) / 4) < 1 and here == own[-len(here) :]


def test_negatives_are_of_the_sources_that_are_named(tmp_path):
    documents = [[{"id": i, "text": t} for i, t in GOOD.items()], [{"id": i, "text": t} for i, t in WEB.items()]]
    ads = [{"id": f"ad{i}", "text": f"cheap offer number {i} click here and buy now"} for i in range(30)]
    corpus = Texts([*documents, ads], ["good", "web", "ads"])
    recipe = SimpleNamespace(**vars(corpus.recipe), steps=(), seed=1, heldout_fraction=0.0)
    step = Quality(reference=("good",), against=("ads",), **SMALL["quality"] | {"epochs": 20})
    behind = learned_filter(context(str(tmp_path)), recipe, corpus.corpus(str(tmp_path)), step)
    model = next(stage for stage in behind.stages if stage.name == "quality_model")
    assert model.result["model"]["tested"] == 60 and model.result["model"]["calibration_error"] < 0.5
    assert all(score is not None for score in by_id(read(behind.measured[-1], [1, 2]), "quality").values())


def test_a_model_by_path_scores_every_source(tmp_path):
    step = Quality(reference=("good",), **SMALL["quality"])
    _, _, trained, _ = run(str(tmp_path / "trained"), step, 2, 1)
    folder = next(stage for stage in trained.stages if stage.name == "quality_model").folder
    named = Quality(model=f"{folder}/model-1.bin", min_score=0.5)
    here, recipe, corpus, there = run(str(tmp_path / "named"), named, 2, 1)
    assert not [stage for stage in corpus.stages if stage.name == "quality_model"]
    scores = by_id(read(corpus.measured[-1], list(there)), "quality")
    assert {*scores} == {*GOOD, *WEB} and None not in scores.values()
    folds = dict(zip(WEB, fold(pa.chunked_array([[*WEB]]), 1, 2), strict=True))
    cross_fitted = by_id(read(trained.measured[-1], [2, 3]), "quality")
    assert {i: scores[i] for i in WEB if folds[i] == 1} == {i: cross_fitted[i] for i in WEB if folds[i] == 1}
    # the key is that of the file's content, wherever it lies
    moved = tmp_path / "moved.bin"
    moved.write_bytes((tmp_path / named.model).read_bytes())
    again = learned_filter(
        here, recipe, corpus.__class__(*base(corpus)), named.model_copy(update={"model": str(moved)})
    )
    assert again.kept.key == corpus.kept.key


def base(corpus) -> tuple:
    """The corpus ahead of the filter."""
    first = corpus.stages[0]
    return corpus.sources, first, first, (first,), (first,)


def test_buckets_are_the_best_places_among_all(tmp_path):
    rng = np.random.default_rng(4)
    n = 400
    ids = [f"d{i}" for i in range(n)]
    one, two = rng.normal(size=n), np.round(rng.lognormal(size=n), 1)  # the second has many equal scores
    absent = rng.random(n) < 0.2
    corpus = Texts([[{"id": i, "text": i} for i in ids[at::3]] for at in range(3)])
    home = str(tmp_path)
    arriving = corpus.corpus(home)
    folder = tmp_path / "signals"
    for at in range(3):
        scores = {"up": pa.array(one[at::3], mask=absent[at::3]), "down": pa.array(two[at::3])}
        parquet.write_table(str(folder / f"part-{at:05d}.parquet"), pa.table({"id": ids[at::3], **scores}))
    planted = arriving.measured[0].__class__("signals", "planted", str(folder), {"contents": "planted"}, False)
    step = QualityBucket(scores=("up",), inverse=("down",))
    behind = quality_bucket(context(home), None, arriving.measuring(planted), step)
    found = by_id(read(behind.measured[-1], [0, 1, 2]), "quality_bucket")
    # by brute force: the share of documents that are worse, of those that have the score
    there = one[~absent]
    for at, i in enumerate(ids):
        worse = [np.sum(two > two[at]) / n]
        if not absent[at]:
            worse.append(np.sum(there < one[at]) / len(there))
        assert abs(found[i] - min(19, int(20 * max(worse)))) <= (1 if 20 * max(worse) % 1 > 0.9 else 0), i
    sizes = np.bincount([v for v in found.values()], minlength=20)
    assert sizes.sum() == n and behind.kept is arriving.kept
    numbered = behind.measured[-1]
    assert pc.max(read(numbered, [0])["quality_bucket"]).as_py() == 19
    assert not (tmp_path / "stages" / f"quality_bucket-{numbered.key}" / "gathered").exists()
