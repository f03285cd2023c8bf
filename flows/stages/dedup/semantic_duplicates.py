"""The stages of `semantic_dedup` and of `diversify`, over the vectors that the step `embedding` has stored.

semantic_duplicates,  draw       every shard
diversified           centroids  once
                      assign     every shard
                      choose     every range of clusters
                      verdicts   every range of shards
                      split      every shard

Where there are many shards or ranges, files are merged between assign and choose, choose and verdicts
(`gristmill.flows.stages.dedup.exchange`).
"""

from pydantic import SerializeAsAny

from gristmill.flows.machine.context import RunContext
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.stages.corpus import Corpus, CorpusAndStage, work_of_steps
from gristmill.flows.stages.dedup.exchange import collected, merged, remove_merged
from gristmill.storage import files, layout
from gristmill.tasks.dedup import semantic as work
from gristmill.tasks.dedup.exchange import KeyRanges, partitions_of, unless_merged
from gristmill.tasks.dedup.semantic import SAMPLED, Clustered, Diversify, clusters_of
from gristmill.tasks.documents.step import Settings
from gristmill.tasks.engine.phases import Each, PhaseRunner
from gristmill.tasks.engine.spec import StageSpec
from gristmill.tasks.models.embedding import Embedding


class VectorDeduplication(Settings):
    """`reference`: sources without vectors; `documents`: those that arrive."""

    settings: SerializeAsAny[Clustered]
    reference: tuple[str, ...]
    documents: int


def semantic_duplicates(context: RunContext, recipe: Recipe, corpus: Corpus, step: Clustered) -> Corpus:
    """The corpus without documents whose vector is near the vector of one that is kept (step `semantic_dedup`), or with
    at most so many documents of a cluster of vectors (step `diversify`)."""
    diversifies = isinstance(step, Diversify)
    before = recipe.steps[: recipe.steps.index(step)]
    embedding = next(each for each in reversed(before) if isinstance(each, Embedding))
    without_vectors = tuple(sorted({*embedding.reference, *embedding.exempt(corpus.sources)}))
    vectors = next(stage for stage in reversed(corpus.stages) if stage.name == "embedding_vectors")
    spec = StageSpec(
        name="diversified" if diversifies else "semantic_duplicates",
        version=1,
        body=_balance if diversifies else _deduplicate,
        record=VectorDeduplication(settings=step, reference=without_vectors, documents=corpus.rows),
        inputs=corpus.inputs(vectors, signals=step.best is not None),
        places=CorpusAndStage(corpus.places, vectors.folder),
        work=work_of_steps((step,)),
    )
    return corpus.then(context.build(spec))


def _deduplicate(phases: PhaseRunner, record: VectorDeduplication, places: CorpusAndStage) -> dict:
    """Keep one document of each group of similar vectors."""
    return _decide(phases, record, places, "semantic")


def _balance(phases: PhaseRunner, record: VectorDeduplication, places: CorpusAndStage) -> dict:
    """Limit the number of documents per cluster of vectors."""
    return _decide(phases, record, places, "full_cluster")


def _decide(phases: PhaseRunner, record: VectorDeduplication, places: CorpusAndStage, rule: str) -> dict:
    corpus, settings, n_shards = places.corpus, record.settings, len(places.corpus.sources)
    compared = corpus.shards(without=(*record.reference, *corpus.exempt))  # whose files are numbered without gaps
    numbers, signals, sources = range(len(compared)), settings.best is not None, corpus.source_numbers()

    def found(number: int) -> dict:
        shard = compared[number]
        return {"vectors": layout.part(places.stage, shard), "kept": corpus.kept[shard]}

    def placed(number: int) -> dict:
        shard = compared[number]
        read = corpus.signals[shard] if signals else ()
        own = {"shard": shard, "documents": corpus.documents[shard], "signals": read, "source": sources[shard]}
        return found(number) | own

    clusters = settings.clusters or clusters_of(record.documents)
    share = min(1.0, SAMPLED * clusters / record.documents)
    drawn = phases.map("draw", work.draw_shard, Each(numbers, found), temporary=True, common={"share": share})
    with_vector = sum(counts["documents"] for counts in drawn.values())
    dimension = max((counts["dimension"] for counts in drawn.values()), default=1)
    written = work.sample_files(phases.folder, len(compared))
    sample = merged(phases, "sample", written, KeyRanges(1))
    common = {"sample": sample, "clusters": clusters}
    clusters = phases.once("centroids", work.find_centroids, common, grows="documents^1.5")["clusters"]
    remove_merged(sample, written)
    files.remove(written.folder)

    ranges = KeyRanges(min(clusters, partitions_of(with_vector, work.vector_bytes(dimension))), clusters)
    assigning = {"settings": settings, "ranges": unless_merged(len(compared), ranges)}
    phases.map(
        "assign", work.assign_shard, Each(numbers, placed), temporary=True, common=assigning, grows="documents^1.5"
    )
    written = work.vectors_files(phases.folder, len(compared))
    vectors = merged(phases, "vectors", written, ranges)
    shards = KeyRanges(min(n_shards, partitions_of(with_vector, work.DROPPED_BYTES)), n_shards)
    among = {"settings": settings, "ranges": ranges, "vectors": vectors}
    among |= {"shards": unless_merged(ranges.ranges, shards)}
    every: dict[int, dict] = dict.fromkeys(range(ranges.ranges), {})
    if isinstance(settings, Diversify):
        chosen = phases.map("choose", work.balance, every, common=among | {"mean": with_vector / clusters})
    else:
        chosen = phases.map("choose", work.choose, every, common=among, grows="documents^1.5")
    remove_merged(vectors, written)
    files.remove(written.folder)

    dropped = work.dropped_files(phases.folder, ranges.ranges)
    verdicts = collected(phases, "verdicts", dropped, shards, "shard")
    kept = Each(corpus.shards(), lambda shard: {"kept": corpus.kept[shard]})
    phases.map("split", work.split_shard, kept, common={"verdicts": verdicts, "step": settings.step, "rule": rule})
    files.remove(verdicts.folder)
    return {
        "vectors": with_vector,
        "clusters": clusters,
        "largest_cluster": max((counts["largest"] for counts in chosen.values()), default=0),
    }
