"""Which documents training sees, and which it is evaluated on.

`heldout` takes the held-out documents of the sources out of a corpus, and what is like them; `evaluation_removal` does
the same with the texts that the recipe names. `heldout_documents` are those that models are evaluated on: a property of
the sources, so that models of all recipes on the same sources are evaluated on the same bytes. `survivors/SOURCE` are
those of `heldout/SOURCE` that the recipe keeps: two recipes have two such sets, and no measure of them is comparable.
"""

from dataclasses import dataclass, replace

from gristmill.flows.machine.context import RunContext
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.recipe.variants import unfiltered
from gristmill.flows.stages.corpus import Corpus, CorpusPlaces
from gristmill.flows.stages.documents import documents
from gristmill.flows.stages.evaluation_documents import BYTES_A_TOKEN, CHARACTERS, most_documents, named_texts
from gristmill.flows.stages.evaluation_removal import without_evaluation
from gristmill.flows.stages.removal import AllowedCorpus, takedown_lists
from gristmill.storage import files
from gristmill.tasks.dedup.near.settings import Shingling
from gristmill.tasks.documents.sampling import Heldout
from gristmill.tasks.documents.step import Settings
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.engine.phases import PhaseRunner
from gristmill.tasks.engine.spec import StageSpec
from gristmill.tasks.evaluation.documents import choose_documents, sample_shard, sampled_file, sampled_folder
from gristmill.tasks.evaluation.heldout import (
    collect_texts,
    draw_shard,
    drawn_file,
    drawn_folder,
    split_shard,
    texts_file,
    texts_folder,
)
from gristmill.tasks.evaluation.similar import THRESHOLD
from gristmill.tasks.url.step import Url


class Record(Settings):
    """`characters`: code points of a text that are evaluated."""

    heldout: Heldout
    characters: int
    shingling: Shingling
    threshold: float


@dataclass(frozen=True)
class HeldoutPlaces:
    """`extracted`: the parts with the documents as they were extracted, by shard; `drawn`: those with the held-out
    documents among others, as the sources have them."""

    corpus: CorpusPlaces
    extracted: tuple[str, ...]
    drawn: tuple[str, ...]

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
    chosen = Heldout(fraction=recipe.heldout_fraction)
    extracted = next(stage for stage in corpus.stages if stage.name == "documents")
    drawn = extracted
    if recipe.before:
        # what these steps drop was not extracted, and other recipes on these sources are evaluated on it
        drawn = documents(context, unfiltered(recipe), (), chosen).documents
    record = Record(heldout=chosen, characters=CHARACTERS, shingling=Shingling(), threshold=THRESHOLD)
    inputs = corpus.inputs() | {"extracted": extracted.key, "drawn": drawn.key}
    parts = tuple(tuple(stage.part(i) for i in corpus.places.shards()) for stage in (extracted, drawn))
    made = context.build(StageSpec("heldout", _split, record, inputs, HeldoutPlaces(corpus.places, *parts)))
    train = corpus.then(made)
    if (named := named_texts(context, recipe)) is not None:
        train = without_evaluation(context, replace(corpus, documents=extracted), train, named)
    return Split(corpus, train, drawn, made)


class DocumentsRecord(Settings):
    """`most`, `most_bytes`: of a set, documents and bytes of the part of their texts that is evaluated, `characters`
    code points at most; `takedowns`: lists of documents that are not evaluated on, either."""

    heldout: Heldout
    sources: tuple[str, ...]
    most: int
    most_bytes: int
    characters: int
    shingling: Shingling
    threshold: float
    takedowns: Url


@dataclass(frozen=True)
class DocumentsPlaces:
    """By shard the source, the part with the held-out documents, and the part that names what the recipe keeps."""

    sources: tuple[str, ...]
    drawn: tuple[str, ...]
    kept: tuple[str, ...]


def evaluation_sets(context: RunContext, recipe: Recipe, split: Split) -> tuple[StageResult, ...]:
    """The stages with the documents that the recipe's models are evaluated on: those that are held out, and the texts
    of `evaluation`. Raises ValueError where nothing is held out."""
    corpus, limit = split.corpus, recipe.training.eval_tokens
    record = DocumentsRecord(
        heldout=Heldout(fraction=recipe.heldout_fraction),
        sources=tuple(source.name for source in recipe.sources),
        most=most_documents(limit),
        most_bytes=BYTES_A_TOKEN * limit,
        characters=CHARACTERS,
        shingling=Shingling(),
        threshold=THRESHOLD,
        takedowns=takedown_lists(context, recipe),
    )
    shards = corpus.places.shards()
    places = DocumentsPlaces(corpus.sources, tuple(split.drawn.part(i) for i in shards), corpus.places.kept)
    inputs = {"drawn": split.drawn.key, "kept": corpus.kept.key}
    made = context.build(StageSpec("heldout_documents", _choose, record, inputs, places))
    named = named_texts(context, recipe)
    return (made,) if named is None else (made, named)


def _choose(phases: PhaseRunner, record: DocumentsRecord, places: DocumentsPlaces) -> dict:
    """Choose the held-out documents that models are evaluated on."""
    given = {"most": record.most, "characters": record.characters, "seed": 0, "heldout": record.heldout}
    given |= {"takedowns": record.takedowns}
    parts = enumerate(zip(places.drawn, places.kept, strict=True))
    jobs = {i: given | {"documents": drawn, "kept": kept} for i, (drawn, kept) in parts}
    sampled = phases.map("sample", sample_shard, jobs, temporary=True)
    sets = {}
    for name in record.sources:
        having = [i for i, source in enumerate(places.sources) if source == name and sampled[i]["documents"]]
        if having:
            sets[f"heldout/{name}"] = record.most, tuple(sampled_file(phases.folder, i) for i in having)
        else:
            phases.message(f"no document of the source {name} is held out: models are not evaluated on it")
    if not sets:
        raise ValueError(_nothing(record.heldout, "no document with a word"))
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
            "survivors": {name: name.replace("heldout/", "survivors/", 1) for name in sets},
        },
    )
    files.remove(sampled_folder(phases.folder))
    return {"sets": chosen}


def _nothing(heldout: Heldout, what: str) -> str:
    return (
        f"{what} is held out: raise mixture.heldout_fraction ({heldout.fraction}), or give the sources more documents"
    )


def before_takedowns(context: RunContext, recipe: Recipe, split: Split) -> Corpus:
    """What training would see if nothing had been taken down: the tokenizer is trained on it, so that it stays, and
    with it the token shards that a takedown does not hit."""
    if isinstance(split.corpus, AllowedCorpus):
        return heldout(context, recipe, split.corpus.before).train
    return split.train


def _split(phases: PhaseRunner, record: Record, places: HeldoutPlaces) -> dict:
    """Hold documents out, and remove what is like them."""
    shards = places.corpus.shards()
    forms = {i: tuple(dict.fromkeys((places.drawn[i], *places.forms(i)))) for i in shards}
    drawing = {i: {"forms": forms[i], "heldout": record.heldout, "characters": record.characters} for i in shards}
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
    if not having:
        raise ValueError(_nothing(record.heldout, f"none of {sum(counts['rows_in'] for counts in split):,} documents"))
    files.remove(drawn_folder(phases.folder))
    files.remove(texts_folder(phases.folder))
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
    mixture: StageResult
    grouped: StageResult | None = None

    @property
    def stages(self) -> tuple[StageResult, ...]:
        """In their order, the corpus's first."""
        tokens = (self.tokens, self.evaluation_tokens, *(() if self.grouped is None else (self.grouped,)))
        return (*self.split.train.stages, *self.evaluation, self.tokenizer, *tokens, self.mixture)

    @property
    def evaluated(self) -> dict[str, dict]:
        """By set (`heldout/web`) documents, bytes and digest of what models are evaluated on."""
        return {name: facts for stage in self.evaluation for name, facts in stage.result["sets"].items()}
