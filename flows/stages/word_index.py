"""`word_index`: which documents have which words, of those that are kept and of those that were dropped."""

from dataclasses import dataclass

from gristmill.flows.machine.context import RunContext
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.stages.corpus import Corpus, CorpusPlaces, work_of_steps
from gristmill.flows.stages.removal import takedown_lists
from gristmill.tasks.documents.by_shard import Parts
from gristmill.tasks.documents.step import Settings
from gristmill.tasks.engine.phases import Each, PhaseRunner
from gristmill.tasks.engine.spec import StageSpec
from gristmill.tasks.search.word_index import PHASE, index_words
from gristmill.tasks.url.step import Url


class Record(Settings):
    """`takedowns`: the lists whose documents are in no index, tied to the content that they have now."""

    takedowns: Url


@dataclass(frozen=True)
class WordPlaces:
    """`extracted`: the parts with the texts of all documents; `corpus`: what is kept; `deciding`: the folders of the
    stages that dropped documents, in their order."""

    extracted: Parts
    corpus: CorpusPlaces
    deciding: tuple[str, ...]


def word_index(context: RunContext, recipe: Recipe, corpus: Corpus) -> StageSpec:
    """The stage of the word index of a curated corpus."""
    deciding = [stage for stage in corpus.stages if stage.step_counts]
    given = takedown_lists(context, recipe)
    inputs = corpus.inputs() | {"extracted": corpus.extracted}
    inputs |= {f"deciding {at}": stage for at, stage in enumerate(deciding)}

    def places() -> WordPlaces:
        of = corpus.places
        return WordPlaces(Parts(corpus.extracted.folder, of.shards()), of, tuple(stage.folder for stage in deciding))

    work = work_of_steps((given,))
    work["libraries"] = ("tantivy",)  # whose files are stored
    return StageSpec("word_index", _index, Record(takedowns=given), inputs, places, version=1, **work)


def _index(phases: PhaseRunner, record: Record, places: WordPlaces) -> dict:
    """Index the words of texts, kept and dropped."""
    jobs = Each(places.corpus.shards(), lambda i: {"extracted": places.extracted[i], **places.corpus.shard(i)})
    common = {"deciding": places.deciding, "takedowns": record.takedowns}
    found = {"kept": 0, "dropped": 0}
    for each in phases.map(PHASE, index_words, jobs, common=common).values():
        for name in found:
            found[name] += each[name]
    return found
