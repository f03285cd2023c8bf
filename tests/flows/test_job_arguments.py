"""What a job is given does not grow with the shards of a corpus: the jobs of every stage, for 90,000 shards.

The jobs are built and not run. Nothing that they would read is there: a body that read files of shards would fail.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest

from gristmill.flows.machine.context import RunContext
from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe.recipe import load
from gristmill.flows.stages import documents as documents_stage
from gristmill.flows.stages import export, group_losses, indexes, learned_filters, mixture, removal, signals, tokens
from gristmill.flows.stages.corpus import Corpus, CorpusAndStage
from gristmill.storage import layout
from gristmill.storage.damage import RecordedFile
from gristmill.tasks.decontamination.step import Decontamination
from gristmill.tasks.documents.by_shard import Names
from gristmill.tasks.documents.group_losses import Limits
from gristmill.tasks.documents.normalize import Normalize
from gristmill.tasks.engine.jobs import Job
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.engine.shared import dumps
from gristmill.tasks.engine.spec import StageSpec
from gristmill.tasks.extraction.extract import Extract
from gristmill.tasks.models.embedders import Embedder
from gristmill.tasks.models.embedding import HeadScoring
from gristmill.tasks.reading.record import Columns
from gristmill.tasks.tokens.mixture import Column, Mixture
from gristmill.tasks.tokens.tokenizer import Tokenizer
from gristmill.tasks.url.step import Url

SHARDS = 90_000
LARGEST, TYPICAL = 100_000, 2_000
HOME = "/nowhere/a-bucket-of-some-company/with/some/prefix/gristmill"
SOURCES = Names((("web", SHARDS - 1_000), ("books", 1_000)))


class Records(Mapping):
    """One record for all jobs."""

    def __init__(self, numbers: Sequence[int], record: dict) -> None:
        self.numbers, self.record = numbers, record

    def __len__(self) -> int:
        return len(self.numbers)

    def __iter__(self) -> Iterator[int]:
        return iter(self.numbers)

    def __getitem__(self, number: int) -> dict:
        return self.record


class Sizes:
    """Stands for a PhaseRunner; notes the pickled bytes of jobs, of every 97th and the last one, and of what all share.

    `records`: what each job of a phase gives, by the phase's name.
    """

    def __init__(self, folder: str, records: dict[str, dict]) -> None:
        self.folder, self.records = folder, records
        self.jobs: dict[str, list[int]] = {}
        self.common: dict[str, int] = {}
        self.numbers: dict[str, int] = {}

    def map(self, phase, work, jobs, temporary=False, common=None, size=None, grows="documents"):
        some = [*list(jobs)[::97], *list(jobs)[-1:]]
        self.jobs[phase] = [len(dumps(Job(number, jobs[number]))) for number in some]
        self.common[phase] = len(dumps((work, common)))
        self.numbers[phase] = len(jobs)
        return Records(list(jobs), self.records.get(phase, {}))

    def once(self, phase, work, arguments, temporary=False, grows="constant", full=1.0):
        return self.map(phase, work, {0: arguments}, temporary)[0]


@pytest.fixture
def stages():
    """Runs the bodies of stages without their jobs; what they sent, by stage."""
    seen: dict[str, Sizes] = {}

    def build(spec: StageSpec, **records: dict) -> StageResult:
        folder = spec.folder(HOME) if spec.at == "" else spec.at
        seen[spec.name] = Sizes(folder, GIVEN | records)
        result = spec.body(seen[spec.name], spec.record, spec.placed())
        manifest = {"result": result, "counts": {"steps": []}, "libraries": {}, "contents": spec.key}
        return StageResult(spec.name, spec.key, folder, manifest, reused=False)

    build.seen = seen
    return build


GIVEN = {
    "train": {"file": "tokenizer.model", "files": ["model.bin"], "vocab_size": 500, "end_of_text": 2},
    "bounds": {"bounds": []},
    "ends": {"ends": {}},
    "edges": {"edges": {}},
    "encode": {"train": {"tokens": 5}},
    "group": {"groups": []},
    "write": {"written": []},
    "extract": {
        "rows_in": 1,
        "rows_out": 1,
        "steps": [],
        "types": {},
        "engines": {},
        "relabeled": {},
        "dates": {"none": 0, "unread": 0, "examples": []},
        "empty_files": [],
    },
    "measure": {"bytes": {"web": 5, "books": 5}},
    "sample": {"bytes": {"web": 5}, "documents": 5, "sampled": 5},
    "index": {name: {"documents": 1, "tokens": 5, "blocks": [5]} for name in ("train", "dropped")},
    "words": {"kept": 3, "dropped": 2, "blocks": [[".idx", ".term"]]},
}


def stage(name: str) -> StageResult:
    counts = {source: {"records": 10**9, "documents": 10**9} for source in ("web", "books")}
    manifest = {"result": {"sources": counts}, "counts": {"steps": []}, "libraries": {}, "contents": name}
    return StageResult(name, "0123456789abcdef", f"{HOME}/stages/{name}-0123456789abcdef", manifest, reused=True)


@pytest.fixture
def context(stages):
    return RunContext(MachineSettings(home=HOME), stages)


@pytest.fixture
def corpus():
    measured = tuple(stage(name) for name in ("documents", "signals", "near_duplicates", "quality"))
    return Corpus(SOURCES, stage("documents"), stage("near_duplicates"), measured, measured)


def recipe(**more):
    steps = [{"step": "extract"}, {"step": "gopher_quality"}, *more.pop("steps", [])]
    sources = [{"name": name, "jsonl": [f"{name}.jsonl"]} for name in ("web", "books")]
    return load({"name": "snapshot", "sources": sources, "steps": steps, **more})


def check(stages, *names: str) -> None:
    """The stages that were built have these jobs, for all shards, of bounded size."""
    assert list(stages.seen) == list(names)
    for name, sent in stages.seen.items():
        assert max(sent.numbers.values()) > 80_000 or set(sent.numbers.values()) == {1}, name
        for phase, sizes in sent.jobs.items():
            if not sizes:  # no source is exempt from the step
                continue
            assert max(sizes) <= LARGEST, f"{name} {phase}: {max(sizes)}"
            assert sent.numbers[phase] == 1 or median(sizes) <= TYPICAL, f"{name} {phase}: {median(sizes)}"
            assert sent.common[phase] <= LARGEST, f"{name} {phase}: {sent.common[phase]} in common"


@pytest.mark.extended
def test_documents_with_the_names_of_a_snapshot(stages):
    crawl = "crawl-data/CC-MAIN-2025-33/segments/1754151280268.94"
    names = [f"{crawl}/warc/CC-MAIN-20250802220907-20250803010907-{n:05d}.warc.gz" for n in range(SHARDS)]
    places = tuple(
        documents_stage.ShardFiles(source, ((f"https://data.commoncrawl.org/{name}", name),), "")
        for source, name in zip(SOURCES, names, strict=True)
    )
    formats = {name: documents_stage.SourceFormat(format="archive", columns=Columns()) for name in ("web", "books")}
    steps = tuple(step for step in recipe().steps if step.step == "gopher_quality")
    record = documents_stage.Extraction(
        formats=formats, before=(), extract=Extract(), normalize=Normalize(), steps=steps, limit=None
    )
    stages(
        StageSpec(name="documents", version=1, body=documents_stage._extract, record=record, inputs={}, places=places)
    )
    check(stages, "documents")
    assert set(stages.seen["documents"].jobs) == {"look", "extract"}


def test_measured_and_decided(context, stages, corpus):
    steps = tuple(step for step in recipe().steps if step.step == "gopher_quality")
    signals.rules(context, signals.signals(context, corpus, steps), steps)
    check(stages, "signals", "rules")


def test_buckets_of_scores(context, stages, corpus):
    step = {"step": "quality_bucket", "scores": ["quality"], "buckets": 4}
    given = recipe(steps=[{"step": "quality", "reference": ["books"]}, step])
    signals.quality_bucket(context, given, corpus, given.steps[-1])
    check(stages, "quality_bucket")


@pytest.mark.parametrize("name", ["quality", "perplexity"])
def test_learned_filters(context, stages, corpus, monkeypatch, name):
    monkeypatch.setattr(StageResult, "file", lambda self, name: RecordedFile(f"{self.folder}/{name}", "0" * 32))
    given = recipe(steps=[{"step": name, "reference": ["books"]}])
    build = learned_filters.perplexity if name == "perplexity" else learned_filters.learned_filter
    build(context, given, corpus, given.steps[-1])
    check(stages, f"{name}_model", name, f"{name}_cut", *(["perplexity_bucket"] if name == "perplexity" else []))
    assert set(stages.seen[name].numbers.values()) == {SHARDS - 1_000, 1_000}


def test_heads_over_vectors(stages, corpus):
    settings = HeadScoring(heads=(), embedder=Embedder(), model="0" * 32, tokenizer="0" * 32)
    record = learned_filters.HeadScores(reference=("books",), settings=settings)
    places = learned_filters.EmbeddingPlaces(corpus.places, f"{HOME}/stages/embedding_vectors-0123456789abcdef", {})
    stages(
        StageSpec(
            name="embedding", version=1, body=learned_filters._score_heads, record=record, inputs={}, places=places
        )
    )
    check(stages, "embedding")


@pytest.mark.parametrize("policy", ["drop", "cut", "report"])
def test_decontamination(stages, corpus, policy):
    step = Decontamination(benchmarks=[{"name": "mmlu", "path": "mmlu.jsonl", "question": ["question"]}], policy=policy)
    settings = step.part(removal.Indexing)
    places = CorpusAndStage(corpus.places, f"{HOME}/stages/decontamination_index-0123456789abcdef")
    stages(
        StageSpec(
            name="decontamination_hits",
            version=1,
            body=removal._find,
            record=removal.BenchmarkSearch(settings=settings),
            inputs={},
            places=places,
        )
    )
    record = removal.BenchmarkRemoval(policy=step.part(removal.Policy), threshold=0.5)
    places = replace(places, stage=f"{HOME}/stages/decontamination_hits-0123456789abcdef")
    stages(
        StageSpec(name="decontamination", version=1, body=removal._remove_hits, record=record, inputs={}, places=places)
    )
    check(stages, "decontamination_hits", "decontamination")


def test_takedowns(context, stages, corpus, tmp_path):
    (tmp_path / "ids.txt").write_text("0" * 32 + "\n")
    listed = recipe(takedowns=[str(tmp_path / "ids.txt")])
    removal.takedowns(context, listed, corpus)
    check(stages, "takedowns")


def test_export(context, stages, corpus, tmp_path):
    given = recipe(export={"to": str(tmp_path / "exported")})
    export.export(context, given, corpus)
    check(stages, "export")


@pytest.mark.parametrize("by", [("source",), ("source", "language")])
def test_tokenizer(context, stages, corpus, by):
    settings = Mixture(by=tuple(Column(column=name) for name in by), strategy="proportional")
    tokens.corpus_tokenizer(context, corpus, Tokenizer(), settings, 0)
    check(stages, "tokenizer")


def test_tokens(stages, corpus):
    model = RecordedFile(f"{HOME}/stages/tokenizer-0123456789abcdef/tokenizer.model", "0" * 32)
    earlier = tuple(f"{HOME}/stages/tokens-{number:016x}" for number in range(20))
    places = tokens.TokensPlaces(corpus.places, model, earlier)
    stages(StageSpec(name="tokens", version=1, body=tokens._encode, record=tokens.Encoding(), inputs={}, places=places))
    check(stages, "tokens")


def test_groups_of_tokens(stages, corpus):
    by = (Column(column="source"), Column(column="quality", quantiles=5))
    places = CorpusAndStage(corpus.places, f"{HOME}/stages/tokens-0123456789abcdef")
    record = tokens.Grouping(by=by, rehydrate={1: 1})
    stages(StageSpec(name="grouped_tokens", version=1, body=tokens._group, record=record, inputs={}, places=places))
    check(stages, "grouped_tokens")
    assert set(stages.seen["grouped_tokens"].jobs) == {"points", "edges", "group"}


def test_index_of_texts(stages, corpus):
    model = RecordedFile(f"{HOME}/stages/tokenizer-0123456789abcdef/tokenizer.model", "0" * 32)
    deciding = tuple(stage(f"rules_{number}").folder for number in range(20))
    of = corpus.places
    places = indexes.SearchIndexPlaces(of.documents, of.kept, stage("tokens").folder, deciding, model)
    given = removal.TakedownLists(takedowns=Url(takedowns=("s3://a-bucket/takedowns.txt",)))
    stages(
        StageSpec(name="search_index", version=1, body=indexes._index_phrases, record=given, inputs={}, places=places)
    )
    check(stages, "search_index")


def test_index_of_words(stages, corpus):
    deciding = tuple(stage(f"rules_{number}").folder for number in range(20))
    places = indexes.WordIndexPlaces(corpus.places.documents, corpus.places, deciding)
    given = removal.TakedownLists(takedowns=Url(takedowns=("s3://a-bucket/takedowns.txt",)))
    stages(StageSpec(name="word_index", version=1, body=indexes._index_words, record=given, inputs={}, places=places))
    check(stages, "word_index")


@pytest.mark.extended
@pytest.mark.parametrize("seq_len", [None, 2048])
def test_mixture(stages, tmp_path, seq_len):
    path = "../tokens-0123456789abcdef/train-{:05d}.bin"
    train = tuple((name, (path.format(i), 100_000_000, "0" * 32)) for i, name in enumerate(SOURCES))
    model = RecordedFile("../tokenizer-0123456789abcdef/tokenizer.model", "0" * 32)
    heldout = (("heldout/web", ("../evaluation_tokens-0123456789abcdef/heldout-00000.bin", 5, "0" * 32)),)
    places = mixture.MixturePlaces(train, heldout, model, model, 2)
    settings = Mixture(weights={"web": 1, "books": 1})
    record = mixture.MixturePlan(mixture=settings, budget=10**12, heldout={"heldout/web": ""}, seq_len=seq_len)
    entry = {"path": "rows-00000.bin", "rows": 5, "pieces": 9, "digest": "0" * 32}
    packed = {"entry": entry, "cut": 1, "documents": 3}
    plan = {"sources": {name: {"tokens": 5} for name in ("web", "books")}}
    stages(
        StageSpec(
            name="mixture", version=1, body=mixture._plan, record=record, inputs={}, places=places, at=str(tmp_path)
        ),
        pack=packed,
        plan=plan,
    )
    check(stages, "mixture")
    assert not [*Path(tmp_path).iterdir()], "the list of the shards goes when the plan is written"


def test_group_losses(stages, corpus):
    folders = tuple(each.folder for each in corpus.measured)
    places = group_losses.GroupLossesPlaces(SOURCES, folders[0], folders[1:], folders)
    limits = Limits()
    record = group_losses.LossSearch(
        limits=limits, by_design={"language": ("language",)}, like={"web": "crawl"}, apart=()
    )
    stages(
        StageSpec(name="group_losses", version=1, body=group_losses._judge, record=record, inputs={}, places=places),
        judge={"groups": [], "found": 0},
    )
    check(stages, "group_losses")
    numbers = stages.seen["group_losses"].numbers
    assert numbers == {"count": SHARDS, "sum-0": 2813, "sum-1": 88, "sum-2": 3, "sum-3": 1, "judge": 1}


def test_places_are_of_one_size(corpus):
    assert len(dumps(corpus.places)) < 2_000
    assert corpus.places.documents[SHARDS - 1] == layout.part(corpus.documents.folder, SHARDS - 1)
    assert corpus.places.signals[7] == tuple(layout.part(each.folder, 7) for each in corpus.measured)
