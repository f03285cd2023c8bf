"""The held-out documents: which documents training does not see, and what the models of a run are evaluated on.

`heldout` removes the held-out documents of the sources from a corpus, and near-duplicates of them. `evaluation_removal`
(`gristmill.flows.stages.removal`) does the same with the texts that the recipe names.

`heldout_documents` are those that models are evaluated on. They are a property of the sources, so models of all recipes
on the same sources are evaluated on the same bytes. `survivors/SOURCE` are those of `heldout/SOURCE` that the recipe
keeps: two recipes have two such sets, so no measure of them is comparable. `evaluation/NAME` are texts that the recipe
names.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from gristmill.flows.machine.context import RunContext
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.recipe.trunk import BranchPoint
from gristmill.flows.recipe.variants import texts_alone
from gristmill.flows.stages.corpus import Corpus, CorpusPlaces, held_out, heldout_full
from gristmill.flows.stages.evaluation.documents import (
    CHARACTERS,
    SAMPLED,
    EvaluationDocumentsPlaces,
    below,
    shards_of_sets,
    unfiltered_documents,
)
from gristmill.flows.stages.removal import AllowedCorpus, evaluation_removal, takedown_lists
from gristmill.storage import files, layout
from gristmill.tasks.dedup.near.settings import Shingling
from gristmill.tasks.documents.by_shard import Parts
from gristmill.tasks.documents.selection import Heldout
from gristmill.tasks.documents.step import Settings
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.engine.phases import Each, PhaseRunner
from gristmill.tasks.engine.spec import StageSpec
from gristmill.tasks.evaluation.documents import choose_documents, sample_shard, sampled_folder
from gristmill.tasks.evaluation.removal import (
    collect_heldout,
    draw_shard,
    drawn_folder,
    split_shard,
)
from gristmill.tasks.evaluation.similar import THRESHOLD, index_folder
from gristmill.tasks.url.step import Url

BYTES_A_TOKEN = 4  # of English: `training.eval_tokens` so many times are the bytes of a set
_MIN_BYTES = 64  # of a document, for which a set has room for all


class HeldoutSplit(Settings):
    """`characters`: code points of a text that are evaluated."""

    heldout: Heldout
    characters: int
    shingling: Shingling
    threshold: float


@dataclass(frozen=True)
class HeldoutPlaces:
    """`extracted`: the parts with the documents as they were extracted, by shard; `drawn`: those with the held-out
    documents among others, as the sources have them; `rows`: how many documents arrive; `full`: how many
    times as many may arrive until no more are held out."""

    corpus: CorpusPlaces
    extracted: Parts
    drawn: Parts
    rows: int
    full: int

    def forms(self, i: int) -> tuple[str, ...]:
        """The parts that have texts of a shard's documents."""
        return tuple(dict.fromkeys((self.extracted[i], self.corpus.documents[i])))


@dataclass(frozen=True)
class Split:
    """A corpus, and what is left of it to train on. `stage`: the one that took the held-out documents out."""

    corpus: Corpus
    train: Corpus
    stage: StageResult


def heldout(context: RunContext, recipe: Recipe, corpus: Corpus) -> Split:
    """The corpus without the held-out documents, and without all whose Jaccard similarity to one of them, as the
    sources have it, is at least .8, whether the recipe keeps that one or not; then without the texts of `evaluation`.

    Exact, not by MinHash: see `gristmill.tasks.evaluation.similar`.
    """
    chosen, extracted = held_out(recipe, corpus), corpus.extracted
    shards = corpus.places.shards()
    spec = StageSpec(
        name="heldout",
        version=1,
        body=_split,
        record=HeldoutSplit(heldout=chosen, characters=CHARACTERS, shingling=Shingling(), threshold=THRESHOLD),
        inputs=corpus.inputs() | {"extracted": extracted},
        places=HeldoutPlaces(
            corpus.places,
            extracted=Parts(extracted.folder, shards),
            drawn=_drawn(recipe, corpus),
            rows=corpus.rows,
            full=heldout_full(recipe, corpus),
        ),
    )
    stage = context.build(spec)
    train = corpus.then(stage)
    if (named := named_texts(context, recipe)) is not None:
        train = evaluation_removal(context, replace(corpus, documents=extracted), train, named)
    return Split(corpus, train, stage)


def _drawn(recipe: Recipe, corpus: Corpus) -> Parts:
    """The parts with the held-out documents among others, as the sources have them. What steps before the extraction
    drop is in parts of its own, since other recipes on these sources are evaluated on it."""
    folder = corpus.extracted.folder
    return Parts(layout.drawn_folder(folder) if recipe.before else folder, corpus.places.shards())


def _split(phases: PhaseRunner, record: HeldoutSplit, places: HeldoutPlaces) -> dict:
    """Hold out documents, and remove near-duplicates of them."""
    shards = places.corpus.shards()
    forms = Each(shards, lambda i: {"forms": tuple(dict.fromkeys((places.drawn[i], *places.forms(i))))})
    drawing = {"heldout": record.heldout, "characters": record.characters}
    phases.map("draw", draw_shard, forms, temporary=True, common=drawing)
    collecting = {"shingling": record.shingling}
    collected = phases.once("collect", collect_heldout, collecting, temporary=True, full=places.full)
    if not collected["texts"]:
        if places.rows == 1:
            raise ValueError("no document can be held out of a single one: add documents to the sources")
        raise ValueError(nothing_held_out(record.heldout, f"none of {places.rows:,} documents"))
    jobs = Each(shards, lambda i: {"kept": places.corpus.kept[i], "forms": places.forms(i)})
    common = {"shingling": record.shingling, "threshold": record.threshold}
    split = phases.map("split", split_shard, jobs, common=common, shared=places.full).values()
    files.remove(drawn_folder(phases.folder))
    files.remove(index_folder(phases.folder))
    return {"heldout": sum(counts["heldout"] for counts in split)}


def before_takedowns(context: RunContext, recipe: Recipe, split: Split) -> Corpus:
    """What training would see if nothing had been taken down: the tokenizer is trained on it, so that it stays, and
    with it the token shards that a takedown does not hit."""
    if isinstance(split.corpus, AllowedCorpus):
        return heldout(context, recipe, split.corpus.before).train
    return split.train


class HeldoutChoice(Settings):
    """`most`, `most_bytes`: of a set, documents and bytes of the part of their texts that is evaluated, `characters`
    code points at most; `below`: of each set, documents whose keyed hash, in [0, 1), is below this are looked at;
    `heldout`: which documents are candidates, None: all; `takedowns`: lists of documents that are none."""

    below: dict[str, float]
    most: int
    most_bytes: int
    characters: int
    shingling: Shingling
    threshold: float
    heldout: Heldout | None = None
    takedowns: Url | None = None


def heldout_documents(context: RunContext, recipe: Recipe, corpus: Corpus) -> StageResult:
    """The held-out documents that models are evaluated on, as sets `heldout/SOURCE` and `survivors/SOURCE`.

    Raises ValueError where nothing is held out.
    """
    chosen, extracted = held_out(recipe, corpus), corpus.extracted
    counts = {}
    for name, of in extracted.result["sources"].items():
        # a source without files has no such count
        documents = of.get("drawn", 0) / recipe.heldout_fraction if recipe.before else of["documents"]
        counts[name] = chosen.fractions[name] * documents
    record = _record(recipe, {f"heldout/{name}": count for name, count in counts.items()})
    record = record.model_copy(update={"heldout": chosen, "takedowns": takedown_lists(context, recipe)})
    spec = StageSpec(
        name="heldout_documents",
        version=1,
        body=_choose,
        record=record,
        inputs={"drawn": extracted, "kept": corpus.kept},
        places=EvaluationDocumentsPlaces(
            sets=tuple(f"heldout/{source}" for source in corpus.sources),
            documents=tuple(_drawn(recipe, corpus)),
            kept=corpus.places.kept,
            full=heldout_full(recipe, corpus),
        ),
    )
    return context.build(spec)


def named_texts(context: RunContext, recipe: Recipe) -> StageResult | None:
    """The texts that the recipe's `evaluation` names, as sets `evaluation/NAME`; None for a recipe without any.

    Raises NothingLeftError for one without a text, FileNotFoundError for one that is not there.
    """
    if not recipe.evaluation:
        return None
    corpus = unfiltered_documents(context, texts_alone(recipe, recipe.evaluation))
    counts = corpus.documents.result["sources"]
    spec = StageSpec(
        name="evaluation_documents",
        version=1,
        body=_choose,
        record=_record(recipe, {f"evaluation/{name}": float(of["documents"]) for name, of in counts.items()}),
        inputs={"documents": corpus.documents},
        places=EvaluationDocumentsPlaces(
            sets=tuple(f"evaluation/{name}" for name in corpus.sources),
            documents=corpus.places.documents,
        ),
    )
    return context.build(spec)


def _choose(phases: PhaseRunner, record: HeldoutChoice, places: EvaluationDocumentsPlaces) -> dict:
    """Choose the documents that models are evaluated on."""
    common: dict[str, Any] = {
        "most": SAMPLED * record.most,
        "characters": record.characters,
        "seed": 0,
        "heldout": record.heldout,
        "takedowns": record.takedowns,
        "apart": record.heldout is None,
    }

    def job(i: int) -> dict[str, Any]:
        kept = places.kept[i] if places.kept else ""
        return {"documents": places.documents[i], "kept": kept, "below": record.below[places.sets[i]]}

    shards_there = range(len(places.sets))
    sampled = phases.map("sample", sample_shard, Each(shards_there, job), temporary=True, common=common)
    full = SAMPLED * record.most * len(record.below) / max(1, sum(counts["sampled"] for counts in sampled.values()))
    sets = {}
    for name, shards in shards_of_sets(places.sets).items():
        if any(sampled[i]["sampled"] for i in shards):
            sets[name] = record.most, (shards.start, shards.stop)
        else:
            phases.message(f"no document is in the set {name}: models are not evaluated on it")
    if not sets and record.heldout is not None:
        raise ValueError(nothing_held_out(record.heldout, "no document with a word"))
    if not sets:
        raise ValueError("no text of `evaluation` has a word: use other texts, or remove it")
    chosen = phases.once(
        "choose",
        choose_documents,
        {
            "sets": sets,
            "characters": record.characters,
            "shingling": record.shingling,
            "threshold": record.threshold,
            "least": 1,
            "most_bytes": record.most_bytes,
            "survivors": {name: name.replace("heldout/", "survivors/", 1) for name in sets if places.kept},
        },
        full=min(full, places.full),
    )
    files.remove(sampled_folder(phases.folder))
    return {"sets": chosen}


def _record(recipe: Recipe, counts: Mapping[str, float]) -> HeldoutChoice:
    """`counts`: of each set, how many candidates there are, about."""
    most_bytes = BYTES_A_TOKEN * recipe.training.eval_tokens
    most = max(1, most_bytes // _MIN_BYTES)
    return HeldoutChoice(
        below={name: below(count, SAMPLED * most) for name, count in counts.items()},
        most=most,
        most_bytes=most_bytes,
        characters=CHARACTERS,
        shingling=Shingling(),
        threshold=THRESHOLD,
    )


def nothing_held_out(heldout: Heldout, what: str) -> str:
    """The sentence that ends a run in which nothing is held out."""
    return (
        f"{what} is held out, with a fraction of {max(heldout.fractions.values()):g} per source: raise "
        "mixture.heldout_fraction or mixture.heldout_documents, or add documents to the sources"
    )


@dataclass(frozen=True)
class Data:
    """`evaluation`: the stages with the documents that models are evaluated on; `evaluation_tokens`: these as tokens;
    `grouped`: the token shards by group, where groups are not the sources; `branch`: where the training begins, if that
    is a checkpoint of another model."""

    corpus: Corpus
    split: Split
    evaluation: tuple[StageResult, ...]
    tokenizer: StageResult
    tokens: StageResult
    evaluation_tokens: StageResult
    grouped: StageResult | None
    mixture: StageResult
    branch: BranchPoint | None = None

    @property
    def training_stages(self) -> tuple[StageResult, ...]:
        """The stages that training reads: tokenizer, tokens and mixture, in the order of the fields."""
        values = (getattr(self, field.name) for field in fields(self))
        return tuple(value for value in values if isinstance(value, StageResult))

    @property
    def evaluated(self) -> dict[str, dict]:
        """By set (`heldout/web`) documents, bytes and digest of what models are evaluated on."""
        return {name: facts for stage in self.evaluation for name, facts in stage.result["sets"].items()}
