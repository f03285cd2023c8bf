"""`heldout`: which documents training sees.

The held-out documents of the sources are taken out of a corpus, and what is like them. `evaluation_removal` does the
same with the texts that the recipe names.
"""

from dataclasses import dataclass, fields, replace

from gristmill.flows.machine.context import RunContext
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.recipe.variants import unfiltered
from gristmill.flows.stages.corpus import Corpus, CorpusPlaces, held_out, heldout_full
from gristmill.flows.stages.documents import documents
from gristmill.flows.stages.evaluation.documents import CHARACTERS
from gristmill.flows.stages.evaluation.removal import without_evaluation
from gristmill.flows.stages.evaluation.sets import named_texts, nothing_held_out
from gristmill.flows.stages.removal import AllowedCorpus
from gristmill.storage import files
from gristmill.tasks.dedup.near.settings import Shingling
from gristmill.tasks.documents.by_shard import Parts
from gristmill.tasks.documents.sampling import Heldout
from gristmill.tasks.documents.step import Settings
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.engine.phases import Each, PhaseRunner
from gristmill.tasks.engine.spec import StageSpec
from gristmill.tasks.evaluation.heldout import (
    collect_texts,
    draw_shard,
    drawn_folder,
    given_folder,
    split_shard,
)
from gristmill.tasks.evaluation.similar import THRESHOLD


class Record(Settings):
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
    """A corpus, and what is left of it to train on. `drawn`: the stage with the held-out documents among others;
    `stage`: the one that took them out."""

    corpus: Corpus
    train: Corpus
    drawn: StageResult
    stage: StageResult


def heldout(context: RunContext, recipe: Recipe, corpus: Corpus) -> Split:
    """The corpus without the held-out documents, and without all whose Jaccard similarity to one of them, as the
    sources have it, is at least .8, whether the recipe keeps that one or not; then without the texts of `evaluation`.

    Exact, not by MinHash: see `gristmill.tasks.evaluation.similar`.
    """
    chosen = held_out(recipe, corpus)
    extracted = drawn = corpus.extracted
    if recipe.before:
        # what these steps drop was not extracted, and other recipes on these sources are evaluated on it
        drawn = documents(context, unfiltered(recipe), (), chosen).documents
    record = Record(heldout=chosen, characters=CHARACTERS, shingling=Shingling(), threshold=THRESHOLD)
    inputs = corpus.inputs() | {"extracted": extracted, "drawn": drawn}
    shards = corpus.places.shards()
    parts = Parts(extracted.folder, shards), Parts(drawn.folder, shards)
    places = HeldoutPlaces(corpus.places, *parts, rows=corpus.rows, full=heldout_full(recipe, corpus))
    made = context.build(StageSpec("heldout", _split, record, inputs, places, version=1))
    train = corpus.then(made)
    if (named := named_texts(context, recipe)) is not None:
        train = without_evaluation(context, replace(corpus, documents=extracted), train, named)
    return Split(corpus, train, drawn, made)


def before_takedowns(context: RunContext, recipe: Recipe, split: Split) -> Corpus:
    """What training would see if nothing had been taken down: the tokenizer is trained on it, so that it stays, and
    with it the token shards that a takedown does not hit."""
    if isinstance(split.corpus, AllowedCorpus):
        return heldout(context, recipe, split.corpus.before).train
    return split.train


def _split(phases: PhaseRunner, record: Record, places: HeldoutPlaces) -> dict:
    """Hold documents out, and remove what is like them."""
    shards = places.corpus.shards()
    forms = Each(shards, lambda i: {"forms": tuple(dict.fromkeys((places.drawn[i], *places.forms(i))))})
    drawing = {"heldout": record.heldout, "characters": record.characters}
    phases.map("draw", draw_shard, forms, temporary=True, common=drawing)
    collecting = {"shingling": record.shingling}
    collected = phases.once("collect", collect_texts, collecting, temporary=True, full=places.full)
    if not collected["texts"]:
        raise ValueError(nothing_held_out(record.heldout, f"none of {places.rows:,} documents"))
    jobs = Each(shards, lambda i: {"kept": places.corpus.kept[i], "forms": places.forms(i)})
    given = {"shingling": record.shingling, "threshold": record.threshold}
    split = phases.map("split", split_shard, jobs, common=given).values()
    files.remove(drawn_folder(phases.folder))
    files.remove(given_folder(phases.folder))
    return {"heldout": sum(counts["heldout"] for counts in split)}


@dataclass(frozen=True)
class Data:
    """`evaluation`: the stages with the documents that models are evaluated on; `evaluation_tokens`: these as tokens;
    `grouped`: the token shards by group, where groups are not the sources."""

    corpus: Corpus
    split: Split
    evaluation: tuple[StageResult, ...]
    tokenizer: StageResult
    tokens: StageResult
    evaluation_tokens: StageResult
    grouped: StageResult | None
    mixture: StageResult

    @property
    def training_stages(self) -> tuple[StageResult, ...]:
        """The stages that training reads: tokenizer, tokens and mixture, in the order of the fields."""
        values = (getattr(self, field.name) for field in fields(self))
        return tuple(value for value in values if isinstance(value, StageResult))

    @property
    def stages(self) -> tuple[StageResult, ...]:
        """All stages in their order, the corpus's first."""
        return (*self.split.train.stages, *self.evaluation, *self.training_stages)

    @property
    def evaluated(self) -> dict[str, dict]:
        """By set (`heldout/web`) documents, bytes and digest of what models are evaluated on."""
        return {name: facts for stage in self.evaluation for name, facts in stage.result["sets"].items()}
