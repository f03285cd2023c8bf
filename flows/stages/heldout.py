"""`heldout`: which documents training sees, and which it is evaluated on; what is like these is in neither."""

from dataclasses import dataclass

from gristmill.flows.machine.context import RunContext
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.stages.corpus import Corpus, CorpusPlaces
from gristmill.flows.stages.removal import AllowedCorpus
from gristmill.storage import files
from gristmill.tasks.dedup.near.settings import Shingling
from gristmill.tasks.documents.sampling import Heldout
from gristmill.tasks.documents.step import Settings
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.engine.phases import PhaseRunner
from gristmill.tasks.engine.spec import StageSpec
from gristmill.tasks.evaluation.heldout import (
    collect_texts,
    draw_shard,
    drawn_file,
    drawn_folder,
    heldout_part,
    split_shard,
    texts_file,
    texts_folder,
)
from gristmill.tasks.evaluation.similar import THRESHOLD


class Record(Settings):
    heldout: Heldout
    shingling: Shingling
    threshold: float


@dataclass(frozen=True)
class HeldoutPlaces:
    """`extracted`: the parts with the documents as they were extracted, by shard."""

    corpus: CorpusPlaces
    extracted: tuple[str, ...]

    def forms(self, i: int) -> tuple[str, ...]:
        """The parts that have texts of a shard's documents."""
        return tuple(dict.fromkeys((self.extracted[i], self.corpus.documents[i])))


@dataclass(frozen=True)
class Split:
    """A corpus in two. `train`: the documents that training sees; `heldout`: by shard, the parts that name those that
    it is evaluated on; `stage`: that of both."""

    corpus: Corpus
    train: Corpus
    heldout: tuple[str, ...]
    stage: StageResult


def heldout(context: RunContext, recipe: Recipe, corpus: Corpus) -> Split:
    """The corpus without the held-out documents, and without all whose Jaccard similarity to one of the extracted
    documents that are drawn is at least .8, whether the recipe keeps that one or not.

    Exact, not by MinHash: see `gristmill.tasks.evaluation.similar`.
    """
    record = Record(
        heldout=Heldout(seed=recipe.seed, fraction=recipe.heldout_fraction),
        shingling=Shingling(),
        threshold=THRESHOLD,
    )
    shards = corpus.places.shards()
    extracted = next(stage for stage in corpus.stages if stage.name == "documents")
    inputs = corpus.inputs() | {"extracted": extracted.key}
    places = HeldoutPlaces(corpus.places, tuple(extracted.part(i) for i in shards))
    made = context.build(StageSpec("heldout", _split, record, inputs, places))
    return Split(corpus, corpus.then(made), tuple(heldout_part(made.folder, i) for i in shards), made)


def before_takedowns(context: RunContext, recipe: Recipe, split: Split) -> Corpus:
    """What training would see if nothing had been taken down: the tokenizer is trained on it, so that it stays, and
    with it the token shards that a takedown does not hit."""
    if isinstance(split.corpus, AllowedCorpus):
        return heldout(context, recipe, split.corpus.before).train
    return split.train


def _split(phases: PhaseRunner, record: Record, places: HeldoutPlaces) -> dict:
    """Hold documents out, and remove what is like them."""
    shards = places.corpus.shards()
    drawing = {i: {"forms": places.forms(i), "heldout": record.heldout} for i in shards}
    drawn = phases.map("draw", draw_shard, drawing, temporary=True)
    having = tuple(drawn_file(phases.folder, i) for i in shards if drawn[i]["texts"])
    collected = phases.once("collect", collect_texts, {"drawn": having}, temporary=True)
    given = {
        "texts": tuple(texts_file(phases.folder, block) for block in range(collected["blocks"])),
        "shingling": record.shingling,
        "threshold": record.threshold,
    }
    jobs = {i: given | {"kept": places.corpus.kept[i], "forms": places.forms(i)} for i in shards}
    split = phases.map("split", split_shard, jobs).values()
    held_out = sum(counts["heldout"] for counts in split)
    if not held_out:
        documents = sum(counts["rows_in"] for counts in split)
        raise ValueError(
            f"none of {documents:,} documents is held out: raise mixture.heldout_fraction "
            f"({record.heldout.fraction}), or give the sources more documents"
        )
    files.remove(drawn_folder(phases.folder))
    files.remove(texts_folder(phases.folder))
    return {"heldout": held_out}


@dataclass(frozen=True)
class Data:
    corpus: Corpus
    split: Split
    tokenizer: StageResult
    tokens: StageResult
    mixture: StageResult
    grouped: StageResult | None = None

    @property
    def stages(self) -> tuple[StageResult, ...]:
        grouped = () if self.grouped is None else (self.grouped,)
        return (*self.corpus.stages, self.split.stage, self.tokenizer, self.tokens, *grouped, self.mixture)
