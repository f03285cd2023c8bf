"""`quality_bucket`: documents numbered by the best place that several scores give them."""

from flows.context import RunContext
from flows.recipe import Recipe
from flows.stages.corpus import Corpus, CorpusPlaces
from flows.stages.steps_behind import modules
from storage import files, layout
from tasks.engine.phases import PhaseRunner
from tasks.engine.spec import StageSpec
from tasks.models.quality_bucket import QualityBucket, Scorers
from tasks.models.quality_bucket_work import bucket_edges, bucket_shard, gather_shard, gathered_folder


def quality_bucket(context: RunContext, recipe: Recipe, corpus: Corpus, step: QualityBucket) -> Corpus:
    """The same documents, with the column `quality_bucket`."""
    inputs = corpus.inputs(signals=True)
    spec = StageSpec("quality_bucket", _number, step.part(Scorers), inputs, corpus.places, modules=modules((step,)))
    numbered = context.build(spec)
    return corpus.through(numbered).measuring(numbered)


def _number(phases: PhaseRunner, record: Scorers, places: CorpusPlaces) -> dict:
    """Number documents by their scores."""
    settings = {"settings": record}
    jobs = {i: {"signals": places.signals[i], "kept": places.kept[i]} | settings for i in places.shards()}
    phases.map("gather", gather_shard, jobs, temporary=True)
    folder = gathered_folder(phases.folder)
    edges = bucket_edges([layout.part(folder, i) for i in jobs], record)
    phases.map("number", bucket_shard, {i: {"edges": edges} | settings for i in jobs})
    files.remove(folder)
    return {"edges": edges}
