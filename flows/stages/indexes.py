"""The stages that a corpus is searched with.

`search_index`: where every phrase is, in the token shards and in the documents that were dropped. `word_index`: which
documents have which words, among the documents that are kept and those that were dropped. Documents of takedown lists
are in neither index.
"""

from dataclasses import dataclass, replace

from gristmill.flows.machine.context import RunContext
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.stages.corpus import Corpus, CorpusPlaces, work_of_steps
from gristmill.flows.stages.heldout import Data
from gristmill.flows.stages.removal import TakedownLists, takedown_lists, takedowns
from gristmill.flows.stages.tokens import file_tokenizer, tokenizer_of, tokens
from gristmill.storage.damage import RecordedFile
from gristmill.tasks.documents.by_shard import Parts
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.engine.phases import Each, PhaseRunner
from gristmill.tasks.engine.spec import StageSpec
from gristmill.tasks.search.index import BYTE_TOKENIZER, index_shard
from gristmill.tasks.search.index import PHASE as INDEX_PHRASES
from gristmill.tasks.search.word_index import PHASE as INDEX_WORDS
from gristmill.tasks.search.word_index import index_words


def _deciding(corpus: Corpus) -> tuple[StageResult, ...]:
    """The stages that dropped documents, in their order."""
    return tuple(stage for stage in corpus.stages if stage.step_counts)


@dataclass(frozen=True)
class SearchIndexPlaces:
    """`extracted`: the parts with the texts of all documents; `kept`: those that name what is trained on; `tokens`: the
    folder of the token shards; `deciding`: of the stages that dropped documents, in their order."""

    extracted: Parts
    kept: Parts
    tokens: str
    deciding: tuple[str, ...]
    tokenizer: RecordedFile


@dataclass(frozen=True)
class SearchedTexts:
    """The texts that phrases are looked up in, as tokens. `documents`: the documents that were encoded; `mixture`: the
    plan of what is trained on, if the recipe has one."""

    documents: Corpus
    tokenizer: StageResult
    tokens: StageResult
    mixture: StageResult | None = None


def trained_texts(data: Data) -> SearchedTexts:
    """The texts that training reads."""
    return SearchedTexts(data.split.train, data.tokenizer, data.tokens, data.mixture)


def curated_texts(context: RunContext, recipe: Recipe, corpus: Corpus) -> SearchedTexts:
    """The curated documents of a recipe without a mixture, a token for each byte: no text is too small for that
    tokenizer, in any script."""
    documents = takedowns(context, recipe, corpus)
    model = file_tokenizer(context, BYTE_TOKENIZER)
    return SearchedTexts(documents, model, tokens(context, documents, model))


def search_index_spec(context: RunContext, recipe: Recipe, texts: SearchedTexts) -> StageSpec:
    """The stage of a recipe's index of phrases."""
    train = texts.documents
    deciding = _deciding(train)
    shards = train.places.shards()
    lists = takedown_lists(context, recipe)
    inputs = {"tokens": texts.tokens, "tokenizer": texts.tokenizer, "documents": train.extracted, "kept": train.kept}

    def places() -> SearchIndexPlaces:
        return SearchIndexPlaces(
            Parts(train.extracted.folder, shards),
            Parts(train.kept.folder, shards),
            texts.tokens.folder,
            tuple(stage.folder for stage in deciding),
            tokenizer_of(texts.tokenizer),
        )

    return StageSpec(
        name="search_index",
        version=1,
        body=_index_phrases,
        record=TakedownLists(takedowns=lists),
        inputs=inputs | {f"deciding {number}": stage for number, stage in enumerate(deciding)},
        places=places,
        # gigatoken: by its ids dropped texts are indexed
        work=replace(work_of_steps((lists,)), libraries=("gigatoken",)),
    )


def _index_phrases(phases: PhaseRunner, record: TakedownLists, places: SearchIndexPlaces) -> dict:
    """Index the texts of kept and dropped documents."""
    jobs = Each(places.kept.shards, lambda i: {"documents": places.extracted[i], "kept": places.kept[i]})
    common = {"tokens": places.tokens, "deciding": places.deciding, "takedowns": record.takedowns}
    common |= {"tokenizer": places.tokenizer}
    counts = phases.map(INDEX_PHRASES, index_shard, jobs, common=common).values()
    splits = ("train", "dropped")
    totals = {split: {"documents": 0, "tokens": 0} for split in splits}
    for each in counts:
        for split in splits:
            for name in totals[split]:
                totals[split][name] += each[split][name]
    return totals


@dataclass(frozen=True)
class WordIndexPlaces:
    """`extracted`: the parts with the texts of all documents; `corpus`: what is kept; `deciding`: the folders of the
    stages that dropped documents, in their order."""

    extracted: Parts
    corpus: CorpusPlaces
    deciding: tuple[str, ...]


def word_index_spec(context: RunContext, recipe: Recipe, corpus: Corpus) -> StageSpec:
    """The stage of the index of words of a curated corpus."""
    deciding = _deciding(corpus)
    lists = takedown_lists(context, recipe)
    inputs = corpus.inputs() | {"extracted": corpus.extracted}

    def places() -> WordIndexPlaces:
        shards = corpus.places.shards()
        folders = tuple(stage.folder for stage in deciding)
        return WordIndexPlaces(Parts(corpus.extracted.folder, shards), corpus.places, folders)

    return StageSpec(
        name="word_index",
        version=1,
        body=_index_words,
        record=TakedownLists(takedowns=lists),
        inputs=inputs | {f"deciding {number}": stage for number, stage in enumerate(deciding)},
        places=places,
        work=replace(work_of_steps((lists,)), libraries=("tantivy",)),  # whose files are stored
    )


def _index_words(phases: PhaseRunner, record: TakedownLists, places: WordIndexPlaces) -> dict:
    """Index the words of kept and dropped documents."""
    jobs = Each(places.corpus.shards(), lambda i: {"extracted": places.extracted[i], **places.corpus.shard(i)})
    common = {"deciding": places.deciding, "takedowns": record.takedowns}
    totals = {"kept": 0, "dropped": 0}
    for each in phases.map(INDEX_WORDS, index_words, jobs, common=common).values():
        for name in totals:
            totals[name] += each[name]
    return totals
