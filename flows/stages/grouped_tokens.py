"""`grouped_tokens`: token shards cut by the groups of a mixture, where these are not the sources."""

from dataclasses import dataclass

from flows.context import RunContext
from flows.recipe import Recipe
from flows.stages.corpus import Corpus, CorpusPlaces
from storage import layout, token_shards
from storage.recorded_file import RecordedFile
from tasks.documents.step import Settings
from tasks.engine.make import StageResult
from tasks.engine.phases import PhaseRunner
from tasks.engine.spec import StageSpec
from tasks.tokens.grouping_work import group_shard, quantile_edges, score_points
from tasks.tokens.mixture import Column


class Record(Settings):
    by: tuple[Column, ...]
    rehydrate: dict[int, int]


@dataclass(frozen=True)
class GroupedPlaces:
    """`train`: the tokens of each shard."""

    corpus: CorpusPlaces
    train: tuple[RecordedFile, ...]


def grouped_tokens(
    context: RunContext, recipe: Recipe, corpus: Corpus, tokenizer: StageResult, tokens: StageResult
) -> StageResult | None:
    """The token shards by group; None where the groups of the recipe's mixture are its sources. `corpus`: the documents
    that training sees."""
    settings = recipe.training_mixture()
    if settings.by_source:
        return None
    record = Record(by=settings.by, rehydrate=settings.rehydrate)

    def places() -> GroupedPlaces:
        found = []
        for part in layout.parts(tokens.folder, tokens.manifest):
            if part.phase == "encode":
                path = token_shards.bin_path(tokens.folder, "train", part.number)
                found.append(RecordedFile(path, part.files[path.rsplit("/", 1)[1]]["content"]))
        return GroupedPlaces(corpus.places, tuple(found))

    inputs = corpus.inputs(tokenizer, tokens, signals=True)
    return context.build(StageSpec("grouped_tokens", _group, record, inputs, places))


def _group(phases: PhaseRunner, record: Record, places: GroupedPlaces) -> dict:
    """Cut the token shards by the groups of the mixture."""
    corpus = places.corpus
    jobs = {
        i: corpus.shard(i)
        | {
            "signals": corpus.signals[i],
            "source": corpus.sources[i],
            "index": places.train[i].path.removesuffix(".bin") + ".parquet",
            "columns": record.by,
        }
        for i in corpus.shards()
    }
    edges: dict = {}
    if quantiles := record.by[-1].quantiles:
        points = phases.map("points", score_points, jobs, temporary=True)
        edges = quantile_edges([*points.values()], quantiles)
    given = {"rehydrate": record.rehydrate, "edges": edges}
    cut = {i: job | given | {"train": places.train[i]} for i, job in jobs.items()}
    totals: dict[str, int] = {}
    for made in phases.map("group", group_shard, cut).values():
        for name, _, tokens, _ in made["groups"]:
            totals[name] = totals.get(name, 0) + tokens
    return {"tokens": dict(sorted(totals.items()))}
