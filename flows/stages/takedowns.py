"""`takedowns`: the curated documents without those that the recipe's takedown lists name."""

from dataclasses import dataclass

from flows.context import RunContext
from flows.recipe import Recipe
from flows.stages.corpus import Corpus, CorpusPlaces
from flows.stages.steps_behind import libraries, modules
from tasks.dedup.takedown_work import keep_allowed
from tasks.dedup.takedowns import lists
from tasks.documents.step import Settings
from tasks.engine.phases import PhaseRunner
from tasks.engine.spec import StageSpec
from tasks.url.step import Url


class Record(Settings):
    """`takedowns`: the lists, tied to the content that they have now."""

    takedowns: Url


@dataclass(frozen=True)
class AllowedCorpus(Corpus):
    """A corpus without what was taken down. `before`: the corpus ahead of the lists."""

    before: Corpus


def without_taken_down(context: RunContext, recipe: Recipe, corpus: Corpus) -> Corpus:
    """The corpus without the documents that are named by id, URL, folder or host; as it is if there are no lists."""
    if not recipe.takedowns:
        return corpus
    given: Url = lists(context.placed(Url(takedowns=recipe.takedowns)).takedowns)
    steps = (given,)
    spec = StageSpec(
        "takedowns", _drop, Record(takedowns=given), corpus.inputs(), corpus.places, modules(steps), libraries(steps)
    )
    made = context.build(spec)
    stages = (*corpus.stages, made)
    return AllowedCorpus(corpus.sources, corpus.documents, made, corpus.measured, stages, before=corpus)


def _drop(phases: PhaseRunner, record: Record, places: CorpusPlaces) -> dict:
    """Drop documents that were taken down."""
    given = {"takedowns": record.takedowns}
    phases.map("drop", keep_allowed, {i: places.shard(i) | given for i in places.shards()})
    return {}
