"""`tokens`: every shard of the documents that are trained on, as token shards.

A shard whose documents are those of an earlier stage, with the same texts and tokenizer, is taken from there: after a
takedown the shards that it hits are encoded, and no other. `grouped_tokens` cuts token shards by the groups of a
mixture, where these are not the sources.
"""

from dataclasses import dataclass
from typing import Any

from gristmill.flows.machine.context import RunContext
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.stages.corpus import Corpus, CorpusPlaces
from gristmill.flows.stages.tokenizer import library_of, tokenizer_of
from gristmill.storage import files, layout
from gristmill.storage.damage import RecordedFile
from gristmill.storage.home import Home
from gristmill.storage.tokens.token_shards import PHASE, SPLIT
from gristmill.tasks.documents.by_shard import Parts
from gristmill.tasks.documents.step import DOCUMENT_COLUMNS, Settings
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.engine.phases import Each, PhaseRunner
from gristmill.tasks.engine.spec import StageSpec
from gristmill.tasks.tokens.encoding import encode_shard
from gristmill.tasks.tokens.fill_in_the_middle import FillInTheMiddle
from gristmill.tasks.tokens.grouping import find_edges, group_shard, points_folder, score_points
from gristmill.tasks.tokens.mixture import Column


class Record(Settings):
    """`fim`: fill-in-the-middle; texts, selections and tokenizer are inputs."""

    fim: FillInTheMiddle | None = None


@dataclass(frozen=True)
class TokensPlaces:
    """`earlier`: the folders of stages that may have some of the shards."""

    corpus: CorpusPlaces
    tokenizer: RecordedFile
    earlier: tuple[str, ...] = ()


def tokens(
    context: RunContext, train: Corpus, tokenizer: StageResult, fim: FillInTheMiddle | None = None
) -> StageResult:
    """`train`: the documents that are trained on."""

    def places() -> TokensPlaces:
        earlier = _earlier(context.settings.home, spec)
        return TokensPlaces(train.places, tokenizer_of(tokenizer), earlier)

    libraries = ("gigatoken", library_of(tokenizer))  # whose ids are stored
    inputs = train.inputs() | {"tokenizer": tokenizer}
    spec = StageSpec("tokens", _encode, Record(fim=fim), inputs, places, version=1, libraries=libraries, unicode=False)
    return context.build(spec)


def _encode(phases: PhaseRunner, record: Record, places: TokensPlaces) -> dict:
    """Encode every shard of documents."""
    given = {"tokenizer": places.tokenizer, "earlier": places.earlier, "fim": record.fim}
    records = phases.map(PHASE, encode_shard, Each(places.corpus.shards(), places.corpus.shard), common=given).values()
    return {SPLIT: sum(counts[SPLIT]["tokens"] for counts in records)}


def _earlier(home: str, spec: StageSpec) -> tuple[str, ...]:
    """The folders of the finished stages that differ from this one in the chosen documents alone."""

    def same(identity: dict) -> dict:
        inputs = {name: digest for name, digest in identity["inputs"].items() if name != "kept"}
        return {name: identity.get(name) for name in spec.identity} | {"inputs": inputs}

    stages = [stage.folder for stage in Home(home).stages() if stage.name == spec.name]
    manifests = [(folder, layout.manifest(folder)) for folder in stages]
    return tuple(folder for folder, manifest in manifests if manifest and same(manifest) == same(spec.identity))


class GroupedRecord(Settings):
    by: tuple[Column, ...]
    rehydrate: dict[int, int]


@dataclass(frozen=True)
class GroupedPlaces:
    """`tokens`: the folder of the stage with the tokens of each shard."""

    corpus: CorpusPlaces
    tokens: str


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
    places, inputs = GroupedPlaces(corpus.places, tokens.folder), corpus.inputs(tokenizer, tokens, signals=True)
    return context.build(StageSpec("grouped_tokens", _group, record, inputs, places, version=1))


def _check_columns(recipe: Recipe, corpus: Corpus) -> None:
    """Raise ValueError for a column of the mixture that no document has; with `columns: "*"` it is known only now."""
    extracted = corpus.extracted
    own = extracted.result.get("own", ())
    signals = [signal.name for step in recipe.steps for signal in step.signals]
    there = (*own, *signals, *DOCUMENT_COLUMNS)
    for column in recipe.training_mixture().by:
        if missing := [name for name in column.reads(there) if name not in there]:
            raise ValueError(
                f"mixture.by names {missing[0]}, which no step measures and no source has: the sources' own columns "
                f"are {', '.join(own) or 'none'}"
            )


def _group(phases: PhaseRunner, record: GroupedRecord, places: GroupedPlaces) -> dict:
    """Cut the token shards by the groups of the mixture."""
    corpus = places.corpus
    jobs = Each(
        corpus.shards(),
        lambda i: {**corpus.shard(i), "signals": corpus.signals[i], "source": corpus.sources[i]},
    )
    given: dict[str, Any] = {"columns": record.by, "tokens": places.tokens}
    edges: dict = {}
    if quantiles := record.by[-1].quantiles:
        phases.map("points", score_points, jobs, temporary=True, common=given)
        points = Parts(points_folder(phases.folder), corpus.shards())
        edges = phases.once(
            "edges", find_edges, {"points": points, "quantiles": quantiles}, temporary=True, grows="documents"
        )["edges"]
        files.remove(points_folder(phases.folder))
    totals: dict[str, int] = {}
    given |= {"rehydrate": record.rehydrate, "edges": edges}
    for made in phases.map("group", group_shard, jobs, common=given).values():
        for name, _, tokens, _ in made["groups"]:
            totals[name] = totals.get(name, 0) + tokens
    return {"tokens": dict(sorted(totals.items()))}
