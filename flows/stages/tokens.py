"""The stages of tokenizers and token shards.

`tokenizer`: trained on a sample that follows the mixture, or the recipe's file, or that of the first weights.

`tokens`: every shard of the documents that are trained on. A shard whose documents are those of an earlier stage, with
the same texts and tokenizer, is copied from there, so after a takedown only the shards that it hits are encoded again.

`evaluation_tokens`: the documents that models are evaluated on, one shard per set.

`grouped_tokens`: token shards cut by the groups of a mixture, if the groups are not the sources.

`half_counts`, `half_tokens`: the tokens of half of a corpus's hosts, for a pair of runs. Runs that read the whole
corpus show how much runs differ, but not how much the choice of pages matters; runs on halves of its hosts show both.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gristmill.flows.machine.context import RunContext
from gristmill.flows.recipe.given_files import digest, initial_folder, tokenizer_file, tokenizer_path
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.recipe.trunk import Trunk
from gristmill.flows.stages.corpus import Corpus, CorpusAndStage, CorpusPlaces
from gristmill.storage import files, layout
from gristmill.storage.damage import RecordedFile
from gristmill.storage.home import Home
from gristmill.storage.token_shards import PHASE, SPLIT
from gristmill.tasks.documents.by_shard import Names, Parts, PartsOfSeveral
from gristmill.tasks.documents.step import DOCUMENT_COLUMNS, Settings
from gristmill.tasks.engine.make import NotFinishedError, StageResult
from gristmill.tasks.engine.phases import Each, PhaseRunner
from gristmill.tasks.engine.spec import Inputs, StageSpec, Work
from gristmill.tasks.evaluation.documents import encode_set, evaluation_file
from gristmill.tasks.tokens.encoding import encode_shard
from gristmill.tasks.tokens.fill_in_the_middle import FillInTheMiddle
from gristmill.tasks.tokens.grouping import count_shard, cut_shard, find_edges, group_shard, points_folder, score_points
from gristmill.tasks.tokens.mixture import Column, Mixture
from gristmill.tasks.tokens.strategies import sample_mixture
from gristmill.tasks.tokens.tokenizer import (
    Tokenizer,
    group_sizes,
    measure_texts,
    sample_folder,
    sample_rates,
    sample_texts,
    take_tokenizer,
    train_tokenizer,
)


class TokenizerTraining(Settings):
    """`mixture`: what the sample follows."""

    tokenizer: Tokenizer
    mixture: Mixture
    seed: int


class TokenizerCopy(Settings):
    """The tokenizer's digest is an input."""

    end_of_text: str | None = None


def tokenizer(context: RunContext, recipe: Recipe, corpus: Corpus, trunk: Trunk | None = None) -> StageResult:
    """`corpus`: the documents that it is trained on. Weights that were trained go on with their own tokenizer: then the
    recipe's `tokenizer` is not used. `trunk`: the model that they are of."""
    if trunk is not None:
        return _trunk_tokenizer(context, trunk)
    if (folder := initial_folder(context.settings, recipe)) is not None:
        return file_tokenizer(context, tokenizer_file(folder))
    if (path := tokenizer_path(context.settings, recipe)) is not None:
        return file_tokenizer(context, path, recipe.tokenizer.end_of_text)
    mixture = sample_mixture(recipe.training_mixture())
    return corpus_tokenizer(context, corpus, recipe.trained_tokenizer(), mixture, recipe.seed)


def _trunk_tokenizer(context: RunContext, trunk: Trunk) -> StageResult:
    """The stage itself, so that token shards that were made with it are found. Raises NotFinishedError."""
    folder = files.join(context.settings.home, "stages", trunk.tokenizer)
    manifest = layout.manifest(folder)
    if manifest is None or manifest.get(layout.COLLECTED):
        raise NotFinishedError(
            f"{trunk.tokenizer}, the tokenizer of {trunk.label}, is not in the home; run the recipe of {trunk.label} "
            "again"
        )
    name, _, key = trunk.tokenizer.rpartition("-")
    return context.use(StageResult(name, key, folder, manifest, reused=True))


def file_tokenizer(context: RunContext, path: Path, end_of_text: str | None = None) -> StageResult:
    """The tokenizer in a file. `end_of_text`: the name of that token in a tokenizer.json, None for a usual one."""
    file_digest = digest(context.settings, path)
    spec = StageSpec(
        name="tokenizer",
        version=1,
        body=_take_tokenizer,
        record=TokenizerCopy(end_of_text=end_of_text),
        inputs={"file": file_digest},
        places=RecordedFile(str(path), file_digest),
        work=Work(libraries=(_library(path.name),)),
    )
    return context.build(spec)


def _take_tokenizer(phases: PhaseRunner, record: TokenizerCopy, places: RecordedFile) -> dict:
    """Load the existing tokenizer."""
    arguments = {"tokenizer": places, "end_of_text": record.end_of_text}
    return {"tokenizer": phases.once("train", take_tokenizer, arguments) | {"sample_bytes": {}}}


def corpus_tokenizer(
    context: RunContext, corpus: Corpus, settings: Tokenizer, mixture: Mixture, seed: int
) -> StageResult:
    """A tokenizer trained on a sample that follows a mixture."""
    signals = not mixture.by_source
    names = mixture.source_weights(dict.fromkeys(corpus.places.sources.distinct()))
    parts = {name: corpus.places.parts((name,), signals) for name in names}
    return sources_tokenizer(context, parts, corpus.inputs(signals=signals), settings, mixture, seed)


def sources_tokenizer(
    context: RunContext,
    sources: Mapping[str, PartsOfSeveral],
    inputs: Inputs,
    settings: Tokenizer,
    mixture: Mixture,
    seed: int,
) -> StageResult:
    """A tokenizer trained on a sample of sources, which may be of several corpora. `sources`: by name the parts of
    their shards, as `CorpusPlaces.parts` gives them; `inputs`: the stages that have these."""
    spec = StageSpec(
        name="tokenizer",
        version=1,
        body=_train_tokenizer,
        record=TokenizerTraining(tokenizer=settings, mixture=mixture, seed=seed),
        inputs=inputs,
        places=dict(sources),
        work=Work(libraries=("tokenizers" if settings.kind == "byte_bpe" else "sentencepiece",)),
    )
    return context.build(spec)


def _train_tokenizer(phases: PhaseRunner, record: TokenizerTraining, places: dict[str, PartsOfSeveral]) -> dict:
    """Train the tokenizer on a sample."""
    mixture, wanted = record.mixture, sorted(places)
    sources = Names(tuple((name, len(places[name])) for name in wanted))
    first = {name: shards.runs[0][0] for name in wanted if (shards := sources.shards([name])).runs}

    def job(number: int) -> dict[str, Any]:
        name = sources[number]
        return {"source": name, "parts": places[name][number - first[name]]}

    jobs = Each(range(len(sources)), job)
    measured = phases.map("measure", measure_texts, jobs, common={"mixture": mixture})
    sizes = group_sizes((sources[i], measured[i]["bytes"]) for i in range(len(sources)))
    rates = sample_rates(sizes, mixture, record.tokenizer.sample_bytes)
    common = {"mixture": mixture, "rates": rates, "seed": record.seed}
    sampled = phases.map("sample", sample_texts, jobs, common=common, temporary=True)
    taken = Counter[str]()
    for i in range(len(sources)):
        taken.update(sampled[i]["bytes"])
    arguments = {"shards": range(len(sources)), "settings": record.tokenizer}
    full = record.tokenizer.sample_bytes / max(1, taken.total())
    result = phases.once("train", train_tokenizer, arguments, full=full)
    files.remove(sample_folder(phases.folder))
    return {"tokenizer": result | {"sample_bytes": dict(sorted(taken.items()))}}


def tokenizer_of(stage: StageResult) -> RecordedFile:
    """The file of a tokenizer that was made. Reads the list of parts."""
    return stage.file(stage.result["tokenizer"]["file"])


def library_of(stage: StageResult) -> str:
    """The library that encodes by it."""
    return _library(stage.result["tokenizer"]["file"])


def _library(name: str) -> str:
    return "tokenizers" if name.endswith(".json") else "sentencepiece"


class Encoding(Settings):
    """`fim`: fill-in-the-middle. Texts, selections and tokenizer are inputs."""

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

    spec = StageSpec(
        name="tokens",
        version=1,
        body=_encode,
        record=Encoding(fim=fim),
        inputs=train.inputs() | {"tokenizer": tokenizer},
        places=places,
        work=_encoder(tokenizer),
    )
    return context.build(spec)


def _encode(phases: PhaseRunner, record: Encoding, places: TokensPlaces) -> dict:
    """Encode every shard of documents."""
    common = {"tokenizer": places.tokenizer, "earlier": places.earlier, "fim": record.fim}
    records = phases.map(PHASE, encode_shard, Each(places.corpus.shards(), places.corpus.shard), common=common).values()
    return {SPLIT: sum(counts[SPLIT]["tokens"] for counts in records)}


def _encoder(tokenizer: StageResult) -> Work:
    """The work of stages that store the ids of these libraries."""
    return Work(libraries=("gigatoken", library_of(tokenizer)), unicode=False)


def _earlier(home: str, spec: StageSpec) -> tuple[str, ...]:
    """The folders of the finished stages that differ from this one only in the chosen documents."""

    def same(identity: dict) -> dict:
        inputs = {name: digest for name, digest in identity["inputs"].items() if name != "kept"}
        return {name: identity.get(name) for name in spec.identity} | {"inputs": inputs}

    stages = [stage.folder for stage in Home(home).stages() if stage.name == spec.name]
    manifests = [(folder, layout.manifest(folder)) for folder in stages]
    return tuple(folder for folder, manifest in manifests if manifest and same(manifest) == same(spec.identity))


class EvaluationEncoding(Settings):
    sets: tuple[str, ...]


@dataclass(frozen=True)
class EvaluationTokensPlaces:
    """`evaluation`: for each set the file with its documents."""

    evaluation: tuple[str, ...]
    tokenizer: RecordedFile


def evaluation_tokens(context: RunContext, evaluation: tuple[StageResult, ...], tokenizer: StageResult) -> StageResult:
    """Shard n has the documents of the n-th set, by name, in their order. `evaluation`: stages with other sets each."""
    sets = {name: stage for stage in evaluation for name in stage.result["sets"]}
    names = tuple(sorted(sets))

    def places() -> EvaluationTokensPlaces:
        read = tuple(evaluation_file(sets[name].folder) for name in names)
        return EvaluationTokensPlaces(read, tokenizer_of(tokenizer))

    spec = StageSpec(
        name="evaluation_tokens",
        version=1,
        body=_encode_sets,
        record=EvaluationEncoding(sets=names),
        inputs={stage.name: stage for stage in evaluation} | {"tokenizer": tokenizer},
        places=places,
        work=_encoder(tokenizer),
    )
    return context.build(spec)


def _encode_sets(phases: PhaseRunner, record: EvaluationEncoding, places: EvaluationTokensPlaces) -> dict:
    """Encode the evaluation documents."""
    read = enumerate(zip(record.sets, places.evaluation, strict=True))
    jobs = {n: {"name": name, "evaluation": file, "tokenizer": places.tokenizer} for n, (name, file) in read}
    encoded = phases.map("encode", encode_set, jobs, grows="constant")
    return {"tokens": {record["set"]: record["heldout"]["tokens"] for record in encoded.values()}}


class Grouping(Settings):
    by: tuple[Column, ...]
    rehydrate: dict[int, int]


def grouped_tokens(
    context: RunContext, recipe: Recipe, corpus: Corpus, tokenizer: StageResult, tokens: StageResult
) -> StageResult | None:
    """The token shards by group; None if the groups of the recipe's mixture are its sources. `corpus`: the documents
    that training sees."""
    settings = recipe.training_mixture()
    if settings.by_source:
        return None
    _check_columns(recipe, corpus)
    spec = StageSpec(
        name="grouped_tokens",
        version=1,
        body=_group,
        record=Grouping(by=settings.by, rehydrate=settings.rehydrate),
        inputs=corpus.inputs(tokenizer, tokens, signals=True),
        places=CorpusAndStage(corpus.places, tokens.folder),
    )
    return context.build(spec)


def _check_columns(recipe: Recipe, corpus: Corpus) -> None:
    """Raise ValueError for a column of the mixture that no document has; with `columns: "*"` it is known only now."""
    extracted = corpus.extracted
    own = extracted.result.get("own", ())
    signals = [signal.name for step in recipe.steps for signal in step.signals]
    there = (*own, *signals, *DOCUMENT_COLUMNS)
    for column in recipe.training_mixture().by:
        if missing := [name for name in column.reads(there) if name not in there]:
            raise ValueError(
                f"mixture.by names {missing[0]}, which no step measures and no source has: custom columns of "
                f"the sources are {', '.join(own) or 'none'}"
            )


def _group(phases: PhaseRunner, record: Grouping, places: CorpusAndStage) -> dict:
    """Split the token shards by the groups of the mixture."""
    corpus = places.corpus
    jobs = Each(
        corpus.shards(),
        lambda i: {**corpus.shard(i), "signals": corpus.signals[i], "source": corpus.sources[i]},
    )
    common: dict[str, Any] = {"columns": record.by, "tokens": places.stage}
    edges: dict = {}
    if quantiles := record.by[-1].quantiles:
        phases.map("points", score_points, jobs, temporary=True, common=common)
        points = Parts(points_folder(phases.folder), corpus.shards())
        edges = phases.once(
            "edges", find_edges, {"points": points, "quantiles": quantiles}, temporary=True, grows="documents"
        )["edges"]
        files.remove(points_folder(phases.folder))
    totals: dict[str, int] = {}
    common |= {"rehydrate": record.rehydrate, "edges": edges}
    for result in phases.map("group", group_shard, jobs, common=common).values():
        for name, _, tokens, _ in result["groups"]:
            totals[name] = totals.get(name, 0) + tokens
    return {"tokens": dict(sorted(totals.items()))}


class HalfNumbers(Settings):
    """The numbers of the halves: the first, and one past the last."""

    first: int
    end: int


def half_counts(context: RunContext, corpus: Corpus, tokens: StageResult, numbers: range) -> StageResult:
    """The result's `tokens` have by number (as text) the tokens of each source in that half."""
    spec = StageSpec(
        name="half_counts",
        version=1,
        body=_count_halves,
        record=HalfNumbers(first=numbers.start, end=numbers.stop),
        inputs=corpus.inputs(tokens),
        places=CorpusAndStage(corpus.places, tokens.folder),
    )
    return context.build(spec)


def _count_halves(phases: PhaseRunner, record: HalfNumbers, places: CorpusAndStage) -> dict:
    """Count the tokens of halves of the hosts."""
    common = {"tokens": places.stage, "first": record.first, "end": record.end}
    numbers = range(record.first, record.end)
    sources = places.corpus.sources.distinct()
    totals = {f"{number}": dict.fromkeys(sources, 0) for number in numbers}
    counted = phases.map("count", count_shard, _documents(places.corpus), common=common)
    for source, counts in zip(places.corpus.sources, counted.values(), strict=True):
        for number, tokens in zip(numbers, counts["tokens"], strict=True):
            totals[f"{number}"][source] += tokens
    return {"tokens": totals}


class HalfNumber(Settings):
    """`number`: of the half."""

    number: int


def half_tokens(context: RunContext, corpus: Corpus, tokens: StageResult, number: int) -> StageResult:
    """Shard i has the documents of shard i of `tokens` that are in the half of a number."""
    spec = StageSpec(
        name="half_tokens",
        version=1,
        body=_cut_half,
        record=HalfNumber(number=number),
        inputs=corpus.inputs(tokens),
        places=CorpusAndStage(corpus.places, tokens.folder),
    )
    return context.build(spec)


def _cut_half(phases: PhaseRunner, record: HalfNumber, places: CorpusAndStage) -> dict:
    """Take the tokens of half of the hosts."""
    common = {"tokens": places.stage, "number": record.number}
    results = phases.map(PHASE, cut_shard, _documents(places.corpus), common=common).values()
    return {SPLIT: sum(counts[SPLIT]["tokens"] for counts in results)}


def _documents(corpus: CorpusPlaces) -> Each:
    return Each(corpus.shards(), lambda i: {"documents": corpus.documents[i]})
