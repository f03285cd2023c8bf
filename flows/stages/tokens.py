"""`tokens`: every shard of the documents that are trained on, as token shards.

A shard whose documents are those of an earlier stage, with the same texts and tokenizer, is taken from there: after a
takedown the shards that it hits are encoded, and no other. `grouped_tokens` cuts token shards by the groups of a
mixture, where these are not the sources.
"""

from dataclasses import dataclass, field

from gristmill.flows.machine.context import RunContext
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.stages.corpus import Corpus, CorpusPlaces
from gristmill.flows.stages.tokenizer import library_of, tokenizer_of
from gristmill.storage import files, layout
from gristmill.storage.damage import RecordedFile
from gristmill.storage.home import Home
from gristmill.storage.tokens import token_shards
from gristmill.tasks.documents.step import DOCUMENT_COLUMNS, Settings
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.engine.phases import PhaseRunner
from gristmill.tasks.engine.spec import StageSpec
from gristmill.tasks.tokens.encoding import SPLIT, Encoded, encode_shard
from gristmill.tasks.tokens.grouping_work import group_shard, quantile_edges, score_points
from gristmill.tasks.tokens.mixture import Column


class Record(Settings):
    """Nothing of the recipe: texts, selections and tokenizer are inputs."""


@dataclass(frozen=True)
class TokensPlaces:
    """`earlier`: by shard the files of earlier stages."""

    corpus: CorpusPlaces
    tokenizer: RecordedFile
    earlier: dict[int, tuple[Encoded, ...]] = field(default_factory=dict)


def tokens(context: RunContext, train: Corpus, tokenizer: StageResult) -> StageResult:
    """`train`: the documents that are trained on."""

    def places() -> TokensPlaces:
        earlier = _earlier(context.settings.home, spec)
        return TokensPlaces(train.places, tokenizer_of(tokenizer), earlier)

    inputs = train.inputs() | {"tokenizer": tokenizer.key}
    spec = StageSpec("tokens", _encode, Record(), inputs, places, libraries=("gigatoken", library_of(tokenizer)))
    return context.build(spec)


def _encode(phases: PhaseRunner, record: Record, places: TokensPlaces) -> dict:
    """Encode every shard of documents."""
    jobs = {
        i: places.corpus.shard(i) | {"tokenizer": places.tokenizer, "earlier": places.earlier.get(i, ())}
        for i in places.corpus.shards()
    }
    records = phases.map("encode", encode_shard, jobs).values()
    return {SPLIT: sum(counts[SPLIT]["tokens"] for counts in records)}


def _earlier(home: str, spec: StageSpec) -> dict[int, tuple[Encoded, ...]]:
    """By shard, the files of the finished stages that differ from this one in the chosen documents alone."""

    def same(identity: dict) -> dict:
        inputs = {name: key for name, key in identity["inputs"].items() if name != "kept"}
        return {name: identity[name] for name in spec.identity} | {"inputs": inputs}

    found: dict[int, tuple[Encoded, ...]] = {}
    for stage in (stage for stage in Home(home).stages() if stage.name == spec.name):
        manifest = layout.manifest(stage.folder)
        if manifest is None or same(manifest) != same(spec.identity):
            continue
        for part in layout.parts(stage.folder, manifest):
            recorded = ((files.join(stage.folder, name), facts["content"]) for name, facts in part.files.items())
            encoded = tuple(RecordedFile(path, digest) for path, digest in sorted(recorded))
            found[part.number] = (*found.get(part.number, ()), encoded)
    return found


class GroupedRecord(Settings):
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
    _check_columns(recipe, corpus)
    record = GroupedRecord(by=settings.by, rehydrate=settings.rehydrate)

    def places() -> GroupedPlaces:
        found = []
        for part in layout.parts(tokens.folder, tokens.manifest):
            if part.phase == "encode":
                path = token_shards.bin_path(tokens.folder, "train", part.number)
                found.append(RecordedFile(path, part.files[path.rsplit("/", 1)[1]]["content"]))
        return GroupedPlaces(corpus.places, tuple(found))

    inputs = corpus.inputs(tokenizer, tokens, signals=True)
    return context.build(StageSpec("grouped_tokens", _group, record, inputs, places))


def _check_columns(recipe: Recipe, corpus: Corpus) -> None:
    """Raise ValueError for a column of the mixture that no document has; with `columns: "*"` it is known only now."""
    extracted = corpus.extracted
    own = extracted.result.get("own", ())
    signals = [signal.name for step in recipe.steps for signal in step.signals]
    for column in recipe.training_mixture().by:
        if column.column not in (*own, *signals, *DOCUMENT_COLUMNS):
            raise ValueError(
                f"mixture.by names {column.column}, which no step measures and no source has: the sources' own columns "
                f"are {', '.join(own) or 'none'}"
            )


def _group(phases: PhaseRunner, record: GroupedRecord, places: GroupedPlaces) -> dict:
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
