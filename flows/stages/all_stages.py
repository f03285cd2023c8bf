"""The stages of a run: for each its name, its slice of the recipe, its inputs, and the work that its phases map.

Every function returns a finished stage (`StageResult`), by making it or by finding it. What a stage does is in `tasks`.
"""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Any

from flows.context import PhaseRunner, RunContext, StageResult, StageSpec, stage
from flows.recipe import Recipe
from flows.steps import modules_of
from storage import files, token_shards
from storage.fingerprint import fingerprint
from tasks.documents import filter_shards
from tasks.documents.sampling import Heldout
from tasks.documents.step import DocumentStep, Settings, Step
from tasks.extraction import extract_work
from tasks.models import perplexity_work, quality_work
from tasks.models.filter import LearnedFilter
from tasks.models.null_scores import null_scores_shard
from tasks.models.perplexity import Perplexity
from tasks.models.quality import Quality
from tasks.reading import index
from tasks.reading.listing import Shard, shards_of, tables_of
from tasks.reading.sources import IndexFilters, Selection, Snapshot, Source
from tasks.tokens import encode as encoding
from tasks.tokens import mixture_work, tokenizer_work


@dataclass(frozen=True)
class Corpus:
    """The documents of a run and which of them are still there: shard i of all its stages has the same documents.

    `sources`: the source of each shard; `documents`: the stage with the texts; `kept`: the stage whose parts
    name what is left; `measured`: those with signals of document steps; `stages`: all that led here, in order.
    """

    sources: tuple[str, ...]
    documents: StageResult
    kept: StageResult
    measured: tuple[StageResult, ...]
    stages: tuple[StageResult, ...]

    def shards(self, without: tuple[str, ...] = ()) -> list[int]:
        return [i for i, source in enumerate(self.sources) if source not in without]

    def signals(self, i: int) -> tuple[str, ...]:
        """The parts of a shard that hold its signals."""
        return tuple(built.part(i) for built in self.measured)

    def shard(self, i: int) -> dict[str, str]:
        """The arguments by which a shard function finds its documents."""
        return {"documents": self.documents.part(i), "kept": self.kept.part(i)}

    def parts(self, names: tuple[str, ...] | None = None) -> list[tuple[str, str]]:
        """(documents, selection) of the shards of some sources, or of all."""
        return [
            (self.documents.part(i), self.kept.part(i))
            for i, source in enumerate(self.sources)
            if names is None or source in names
        ]

    def then(self, kept: StageResult, *through: StageResult) -> "Corpus":
        return replace(self, kept=kept, stages=(*self.stages, *through, kept))

    def measuring(self, built: StageResult) -> "Corpus":
        """The corpus with the signals that a stage gave."""
        return replace(self, measured=(*self.measured, built))


@dataclass(frozen=True)
class Data:
    """What training reads, and the stages that made it."""

    corpus: Corpus
    tokenizer: StageResult
    tokens: StageResult
    mixture: StageResult

    @property
    def stages(self) -> tuple[StageResult, ...]:
        return (*self.corpus.stages, self.tokenizer, self.tokens, self.mixture)


def documents(context: RunContext, recipe: Recipe, steps: tuple[DocumentStep, ...]) -> Corpus:
    """Extract every shard of the sources and measure `steps` in the same pass."""
    selections: list[StageResult] = []
    found: list[tuple[str, Shard, str]] = []
    for source in recipe.sources:
        here = placed(source, context)
        if isinstance(here, Selection):
            selections.append(selected(context, here))
            parts = [selections[-1].part(i) for i in range(selections[-1].manifest["parts"])]
            prints = [f"{selections[-1].key} {i}" for i in range(len(parts))]
            shards = shards_of(here, parts)
        else:
            shards = shards_of(here)
            prints = _fingerprints(context, here, shards)
        found += [(source.name, shard, seen) for shard, seen in zip(shards, prints, strict=True)]
    before = pinned(context, recipe.before)
    settings = {
        "sources": {name: {"format": shard.format, "columns": asdict(shard.columns)} for name, shard, _ in found},
        "before": [step.model_dump(mode="json") for step in before],
        "extract": recipe.extract.model_dump(mode="json"),
        "normalize": recipe.normalize and recipe.normalize.model_dump(mode="json"),
        **_signal_settings(steps),
    }
    inputs = {f"{i:05d} {name} {shard.name}": seen for i, (name, shard, seen) in enumerate(found)}

    def body(phases: PhaseRunner) -> dict:
        common = {
            "before": before,
            "extract": recipe.extract,
            "normalize": recipe.normalize,
            "steps": tuple(step.measuring() for step in steps),
        }
        jobs = {i: {"source": name, "shard": shard, **common} for i, (name, shard, _) in enumerate(found)}
        return {"shards": list(phases.map("extract", extract_work.extract_shard, jobs).values())}

    everything = (*before, recipe.extract, *([recipe.normalize] if recipe.normalize else []), *steps)
    works = (extract_work.extract_shard, *_modules(everything))
    made = context.build(StageSpec(stage("documents", works, settings, inputs), body))
    return Corpus(tuple(name for name, _, _ in found), made, made, (made,), (*selections, made))


def selected(context: RunContext, source: Selection) -> StageResult:
    """Filter the columnar index's files, one a job, and put the records that fit into shards."""
    remote_io = context.settings.remote_io
    tables = tables_of(source)
    with ThreadPoolExecutor(8) as pool:
        prints = list(pool.map(lambda path: fingerprint(path, _notes(context), remote_io), tables))

    def body(phases: PhaseRunner) -> dict:
        phases.map(
            "match",
            index.match,
            {i: {"path": path, "filters": source.part(IndexFilters)} for i, path in enumerate(tables)},
        )
        return phases.once("gather", index.gather, {"matched": len(tables), "filters": source.part(IndexFilters)})

    settings = source.model_dump(mode="json", exclude={"name", "index", "base"})
    inputs = {f"{i:05d}": seen for i, seen in enumerate(prints)}
    return context.build(StageSpec(stage("selection", (index.match,), settings, inputs), body))


def pinned(context: RunContext, steps: tuple) -> tuple:
    """The steps, those with lists tied to the content that the lists have now."""
    return tuple(placed(step, context).pinned() if isinstance(step, DocumentStep) else step for step in steps)


def _fingerprints(context: RunContext, source: Source, shards: list[Shard]) -> list[str]:
    if isinstance(source, Snapshot):
        # Common Crawl's files never change under an address, and a crawl has 90,000 of them
        return [shard.name for shard in shards]
    with ThreadPoolExecutor(8) as pool:
        return list(
            pool.map(lambda shard: fingerprint(shard.path, _notes(context), context.settings.remote_io), shards)
        )


def _notes(context: RunContext) -> str:
    return f"{context.settings.local_folder}/fingerprints"


def signals(context: RunContext, corpus: Corpus, steps: tuple[DocumentStep, ...]) -> Corpus:
    """Measure document steps that come after a corpus step, on the documents that are left."""
    made = _after(context, corpus, steps, "signals", "records", filter_shards.measure_shard)
    return replace(corpus, measured=(*corpus.measured, made), stages=(*corpus.stages, made))


def edited(context: RunContext, corpus: Corpus, steps: tuple[DocumentStep, ...]) -> Corpus:
    """The documents that are left after a corpus step, with their texts as the document steps leave them, measured."""
    made = _after(context, corpus, steps, "edited", "shards", filter_shards.edit_shard)
    return Corpus(corpus.sources, made, made, (*corpus.measured, made), (*corpus.stages, made))


def _after(
    context: RunContext, corpus: Corpus, steps: tuple[DocumentStep, ...], name: str, told: str, work
) -> StageResult:
    """The stage in which document steps behind a corpus step are measured; `told`: what its manifest calls records."""

    def body(phases: PhaseRunner) -> dict:
        given = {"steps": tuple(step.measuring() for step in steps)}
        jobs = {i: corpus.shard(i) | {"measured": corpus.signals(i)} | given for i in corpus.shards()}
        return {told: list(phases.map("measure", work, jobs).values())}

    inputs = inputs_of(corpus) | measured_by(corpus)
    return context.build(StageSpec(stage(name, (work, *_modules(steps)), _signal_settings(steps), inputs), body))


def _modules(steps: Iterable[Step]) -> list[str]:
    return list(dict.fromkeys(name for step in steps for name in modules_of(step)))


def _signal_settings(steps: tuple[DocumentStep, ...]) -> dict[str, Any]:
    return {"signals": [step.signal_settings() for step in steps]}


def rules(context: RunContext, corpus: Corpus, steps: tuple[DocumentStep, ...]) -> Corpus:
    """Decide on stored signals: one pass over the columns for a run of document steps."""
    decisions = [(step.step, step.decisions()) for step in steps]
    settings = {"decisions": [[name, [[type(r).__name__, vars(r)] for r in rules]] for name, rules in decisions]}

    def body(phases: PhaseRunner) -> dict:
        signals = {i: corpus.signals(i) for i in corpus.shards()}
        return {"shards": _decide(phases, corpus, signals, decisions)}

    inputs = inputs_of(corpus) | measured_by(corpus)
    return corpus.then(context.build(StageSpec(stage("rules", (filter_shards.decide_shard,), settings, inputs), body)))


def by_perplexity(context: RunContext, recipe: Recipe, corpus: Corpus, step: Perplexity) -> Corpus:
    """Train a KenLM model on the reference, score all other documents, cut by percentile."""
    return _filtered(context, recipe, corpus, step, "language_model", perplexity_work)


def by_quality(context: RunContext, recipe: Recipe, corpus: Corpus, step: Quality) -> Corpus:
    """Train a fastText classifier on reference against raw documents, score the raw ones, cut by threshold."""
    return _filtered(context, recipe, corpus, step, "quality_model", quality_work)


def _filtered(context: RunContext, recipe: Recipe, corpus: Corpus, step: LearnedFilter, name: str, work) -> Corpus:
    raw = tuple(sorted(set(corpus.sources) - set(step.reference)))
    heldout = _heldout(recipe)
    training, scoring, decision = step.training_settings(), step.scoring_settings(), step.decision_settings()
    trained = training.model_dump(mode="json") | {"reference": sorted(step.reference), "heldout": heldout.model_dump()}

    def train(phases: PhaseRunner) -> dict:
        parts = {"reference": corpus.parts(step.reference), "raw": corpus.parts(raw)}
        given = parts | {"settings": training, "heldout": heldout}
        return {"model": phases.once("train", work.train_model, given)}

    model = context.build(StageSpec(stage(name, (work.train_model,), trained, inputs_of(corpus)), train))
    given = {"model": files.join(model.folder, "model.bin"), "settings": scoring}
    scores = _scores(context, corpus, step, model, work.score_shard, given, scoring.model_dump(mode="json"))

    def cut(phases: PhaseRunner) -> dict:
        scored = _scored(corpus, scores, step)
        bounds = work.bounds(decision, [part for (part,) in scored.values()])
        return {"shards": _decide(phases, corpus, scored, [(step.step, bounds)])}

    made = stage(
        f"{step.step}_cut",
        (work.bounds, filter_shards.decide_shard),
        decision.model_dump(mode="json"),
        inputs_of(corpus, scores),
    )
    return corpus.then(context.build(StageSpec(made, cut)), model, scores).measuring(scores)


def tokenizer_model(context: RunContext, recipe: Recipe, corpus: Corpus) -> StageResult:
    weights = recipe.mixture.weights
    heldout = _heldout(recipe)
    inputs = {name: corpus.parts((name,)) for name in weights}
    given = {"inputs": inputs, "weights": weights, "settings": recipe.tokenizer, "seed": recipe.seed}
    settings = {
        "tokenizer": recipe.tokenizer.model_dump(mode="json"),
        "weights": weights,
        "seed": recipe.seed,
        "heldout": heldout.model_dump(),
    }

    def body(phases: PhaseRunner) -> dict:
        return {"tokenizer": phases.once("train", tokenizer_work.train_tokenizer, given | {"heldout": heldout})}

    return context.build(
        StageSpec(stage("tokenizer", (tokenizer_work.train_tokenizer,), settings, inputs_of(corpus)), body)
    )


def encoded(context: RunContext, recipe: Recipe, corpus: Corpus, model: StageResult) -> StageResult:
    given = {"tokenizer": files.join(model.folder, "tokenizer.model"), "heldout": _heldout(recipe)}

    def body(phases: PhaseRunner) -> dict:
        jobs = {i: corpus.shard(i) | given for i in corpus.shards()}
        records = phases.map("encode", encoding.encode_shard, jobs)
        return {"sources": list(corpus.sources), "records": list(records.values())}

    inputs = inputs_of(corpus) | {"tokenizer": model.key}
    return context.build(
        StageSpec(stage("tokens", (encoding.encode_shard,), {"heldout": _heldout(recipe).model_dump()}, inputs), body),
    )


def mixed(context: RunContext, recipe: Recipe, model: StageResult, shards: StageResult) -> StageResult:
    """The plan of the training data: shares of the sources within the budget of the run."""
    budget = recipe.training.token_budget(recipe.model.seq_len)
    records = list(enumerate(zip(shards.manifest["sources"], shards.manifest["records"], strict=True)))

    def listed(split: str) -> dict[str, list[dict]]:
        return {
            name: [
                {"path": token_shards.bin_path(beside(shards), split, i), "tokens": record[split]["tokens"]}
                for i, (source, record) in records
                if source == name and record[split]["tokens"]
            ]
            for name in sorted(recipe.mixture.weights)
        }

    given = {
        "tokens": listed("train"),
        "heldout": listed("heldout"),
        "tokenizer": f"{beside(model)}/tokenizer.model",
        "token_bytes": files.join(model.folder, "token_bytes.json"),
        "budget": budget,
        "settings": recipe.mixture,
    }

    def body(phases: PhaseRunner) -> dict:
        return phases.once("plan", mixture_work.write_mixture, given)

    settings = recipe.mixture.model_dump(mode="json") | {"budget": budget}
    inputs = {"tokens": shards.key, "tokenizer": model.key}
    return context.build(StageSpec(stage("mixture", (mixture_work.write_mixture,), settings, inputs), body))


def _scores(
    context: RunContext, corpus: Corpus, step, model: StageResult, work, given: dict, settings: dict
) -> StageResult:
    """Scores of all documents; null for the reference's, which the model has seen."""

    def body(phases: PhaseRunner) -> dict:
        jobs = {i: corpus.shard(i) | given for i in corpus.shards(without=step.reference)}
        seen = {i: {"kept": corpus.kept.part(i), "signal": step.signal} for i in corpus.shards() if i not in jobs}
        records = phases.map("score", work, jobs) | phases.map("pass", null_scores_shard, seen)
        return {"records": [records[i] for i in corpus.shards()]}

    inputs = inputs_of(corpus) | {"model": model.key}
    settings = settings | {"reference": sorted(step.reference)}
    return context.build(StageSpec(stage(step.step, (work, null_scores_shard), settings, inputs), body))


def _scored(corpus: Corpus, scores: StageResult, step) -> dict[int, tuple[str, ...]]:
    return {i: (scores.part(i),) for i in corpus.shards(without=step.reference)}


def _decide(phases: PhaseRunner, corpus: Corpus, signals: dict[int, tuple[str, ...]], decisions) -> list[dict]:
    """Cut the shards that have signals; the others, of the reference, pass, and are counted as passing."""
    kept = {i: {"kept": corpus.kept.part(i)} for i in corpus.shards()}
    judged = {i: kept[i] | {"signals": parts, "decisions": decisions} for i, parts in signals.items()}
    passing = {i: kept[i] | {"step": step} for i in kept if i not in judged for step, _ in decisions}
    records = phases.map("decide", filter_shards.decide_shard, judged) | phases.map(
        "keep", filter_shards.keep_shard, passing
    )
    return [records[i] for i in corpus.shards()]


def measured_by(corpus: Corpus) -> dict[str, str]:
    return {f"measured {i}": built.key for i, built in enumerate(corpus.measured)}


def inputs_of(corpus: Corpus, *others: StageResult) -> dict[str, str]:
    keys = {"documents": corpus.documents.key, "kept": corpus.kept.key}
    return keys | {built.name: built.key for built in others}


def beside(built: StageResult) -> str:
    """The stage's folder as seen from the folder of another stage: holds wherever the home is moved."""
    return f"../{built.name}-{built.key}"


def _heldout(recipe: Recipe) -> Heldout:
    return Heldout(seed=recipe.seed, fraction=recipe.mixture.heldout_fraction)


def placed(given: Settings, context: RunContext) -> Any:
    """A source or a step with the placeholders of its addresses filled in."""
    places = {"{home}": context.settings.home, "{local}": context.settings.local_folder}

    def fill(value):
        if isinstance(value, tuple):
            return tuple(map(fill, value))
        if isinstance(value, dict):
            return {key: fill(each) for key, each in value.items()}
        if isinstance(value, str):
            for name, place in places.items():
                value = value.replace(name, place)
        return value

    return given.model_copy(update={name: fill(value) for name, value in given})
