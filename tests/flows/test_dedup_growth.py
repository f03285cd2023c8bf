"""What grows with shards: the arguments of jobs, built for a crawl but not run, and the files that a run opens."""

import pickle
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from gristmill.flows.stages.corpus import CorpusPlaces
from gristmill.flows.stages.dedup import exact_duplicates, near_duplicates
from gristmill.flows.stages.dedup.earlier_crawls import EarlierCrawl
from gristmill.flows.stages.dedup.near_duplicates import Deciding, Matching, NearDuplicatesPlaces, Signing
from gristmill.storage import parquet
from gristmill.tasks.dedup import exchange
from gristmill.tasks.dedup.exact import ContentDedup, UrlDedup
from gristmill.tasks.dedup.exchange import CollectedShards, KeyRanges
from gristmill.tasks.dedup.host_lines import HostLines
from gristmill.tasks.dedup.near.documents import OwnShard
from gristmill.tasks.dedup.near.settings import Banding, MinHash, Shingling, Verifying
from gristmill.tasks.dedup.order import KeepOrder
from gristmill.tasks.dedup.passages import LineDedup, SentenceDedup
from gristmill.tasks.dedup.substrings import SpanCutting, SpanSearch
from gristmill.tasks.documents.by_shard import Names, Parts, PartsOfSeveral, Shards
from gristmill.tasks.engine.phases import PhaseRunner
from gristmill.tasks.url.step import Url
from tests.corpora import Texts, context, fresh

STAGES = "/lustre/a-project/and-a-folder/home/stages"  # which is not there
SHARDS, DOCUMENTS = 90_000, 27_800  # of a shard
TYPICAL, MOST = 2_000, 100_000  # bytes

# What the jobs of a phase would have counted.
COUNTS = {
    "sign": {"documents": DOCUMENTS, "shingles": DOCUMENTS * 500},
    "hash": {"documents": DOCUMENTS, "compared": DOCUMENTS, "passages": DOCUMENTS * 40},
    "count": {"characters": DOCUMENTS * 4_000},
    "key": {"windows": DOCUMENTS * 700, "runs": DOCUMENTS * 50},
    "find": {"repeated": DOCUMENTS, "runs": 10**6, "bytes": 10**8, "lines": DOCUMENTS},
    "pages": {"hosts": DOCUMENTS, "without_host": 0},
    "hosts": {"hosts": 10**6},
    "match": {"edges": 10**6, "runs": 10**6, "bytes": 10**8},
    "label": {"components": 10**6},
}
DECIDED = ("candidates", "comparisons", "left_out", "clusters", "dropped", "largest_component", "largest_cluster")


@dataclass
class Sizes:
    """Takes the place of a PhaseRunner. `jobs`: how many each phase has; `bytes`: of the pickled arguments of every
    997th, and of the last, without those that jobs share (`common`), which workers read from a file."""

    folder: str
    jobs: dict[str, int] = field(default_factory=dict)
    bytes: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))

    def map(
        self,
        phase: str,
        work: Callable[..., dict],
        jobs: Mapping[int, Mapping[str, Any]],
        temporary: bool = False,
        grows: str = "",
        common: Mapping[str, Any] | None = None,
    ) -> dict[int, dict]:
        assert phase not in self.jobs
        self.jobs[phase] = len(jobs)
        numbers = sorted(jobs)
        for number in {*numbers[::997], numbers[-1]}:
            self.bytes[phase].append(len(pickle.dumps(dict(jobs[number]))))
        counts = COUNTS.get(phase, dict.fromkeys(DECIDED, 10))
        return dict.fromkeys(numbers, counts)

    def once(self, phase: str, work: Callable[..., dict], arguments: Mapping[str, Any], grows: str = "") -> dict:
        return self.map(phase, work, {0: arguments})[0]

    def message(self, line: str) -> None: ...

    def check(self) -> None:
        for phase, sizes in self.bytes.items():
            assert max(sizes) <= MOST, phase
            assert np.median(sizes) <= TYPICAL, (phase, np.median(sizes))


def stage(name: str) -> str:
    return f"{STAGES}/{name}-0123456789abcdef"


def part(name: str, shard: int) -> str:
    return f"{stage(name)}/part-{shard:05d}.parquet"


def corpus_places() -> CorpusPlaces:
    shards = Shards(((0, SHARDS),))
    measured = tuple(stage(name) for name in ("documents", "quality", "language"))
    return CorpusPlaces(
        Names((("web", SHARDS),)),
        Parts(stage("documents"), shards),
        Parts(stage("content_duplicates"), shards),
        PartsOfSeveral(measured, shards),
    )


def near_places(earlier_crawls: int, earlier_shards: int) -> NearDuplicatesPlaces:
    crawls = tuple(
        EarlierCrawl(
            label="near_duplicates-0123456789abcdef",
            contents="0" * 32,
            folder=stage("near_duplicates"),
            documents=stage("documents"),
            signatures=stage("signatures"),
            candidates=stage("candidates"),
            partitions=6_700,
            rows=(DOCUMENTS,) * earlier_shards,
        )
        for _ in range(earlier_crawls)
    )
    own = tuple(
        OwnShard(
            crawl=earlier_crawls,
            shard=i,
            rows=DOCUMENTS,
            documents=part("documents", i),
            signatures=part("signatures", i),
            selection=part("content_duplicates", i),
            signals=(part("documents", i), part("quality", i)),
            source=0,
        )
        for i in range(SHARDS)
    )
    return NearDuplicatesPlaces(
        own,
        crawls,
        stage("signatures"),
        DOCUMENTS * SHARDS * 500,
        stage("candidates"),
        (DOCUMENTS // 3,) * (earlier_crawls * earlier_shards + SHARDS),
        {},
    )


def near(step: MinHash, places: NearDuplicatesPlaces) -> Sizes:
    """All phases of the three stages."""
    partitions = exchange.partitions_of(DOCUMENTS * SHARDS * step.bands, near_duplicates.HASH_BYTES)
    shingling, banding = step.part(Shingling), step.part(Banding)
    sizes = Sizes(stage("near_duplicates"))
    signing = Signing(shingling=shingling, banding=banding, partitions=partitions)
    near_duplicates._sign(sizes, signing, corpus_places())
    near_duplicates._match(sizes, Matching(banding=banding, partitions=partitions), places)
    deciding = Deciding(
        shingling=shingling,
        banding=banding,
        order=step.part(KeepOrder),
        verifying=step.part(Verifying),
        partitions=step.partitions,
        takedowns=Url(takedowns=("/lists/takedown.txt", "/lists/another.txt")),
    )
    near_duplicates._decide(sizes, deciding, places)
    return sizes


@pytest.mark.extended
@pytest.mark.parametrize("step", [MinHash(), MinHash(threshold=None, bands=14, keep=("newest",))])
def test_jobs_of_a_crawl_are_told_little(step):
    sizes = near(step, near_places(0, 0))
    sizes.check()
    assert sizes.jobs["sign"] == sizes.jobs["split"] == SHARDS and sizes.jobs["match"] > 5_000
    assert sizes.jobs["bands-0"] == sizes.jobs["gathered-0"] == 512
    assert sizes.jobs["verify" if step.threshold else "choose"] > 400 and sizes.jobs["verdicts"] > 100


@pytest.mark.extended
@pytest.mark.parametrize("shards", [1_000, pytest.param(SHARDS, marks=pytest.mark.slow)])
def test_jobs_after_nine_crawls_are_told_little(shards):
    sizes = near(MinHash(), near_places(9, shards))
    sizes.check()
    assert sizes.jobs["gather"] == SHARDS + 9 * shards
    assert max(sizes.bytes["label"]) < 2_000


@pytest.mark.extended
def test_jobs_of_exact_deduplication_are_told_little():
    places = corpus_places()
    for settings in (ContentDedup(keep=("best", "longest"), best="score"), UrlDedup()):
        sizes = Sizes(stage("content_duplicates"))
        partitions = exchange.partitions_of(DOCUMENTS * SHARDS, exact_duplicates.DOCUMENT_BYTES)
        exact_duplicates._deduplicate(
            sizes, exact_duplicates.ExactDeduplication(settings=settings, partitions=partitions), places
        )
        sizes.check()
        assert sizes.jobs["choose"] > 500 and sizes.jobs["hashes-0"] == 512
    for step in (LineDedup(), SentenceDedup()):
        sizes = Sizes(stage(step.step))
        exact_duplicates._cut_passages(sizes, exact_duplicates.PassageDeduplication(step=step), places)
        sizes.check()
        assert sizes.jobs["find"] > 5_000
    sizes = Sizes(stage("host_lines"))
    exact_duplicates._cut_host_lines(sizes, exact_duplicates.HostLineCutting(step=HostLines()), places)
    sizes.check()
    assert sizes.jobs["find"] > 5_000 and sizes.jobs["hosts-of-shards"] > 100
    sizes = Sizes(stage("substring_spans"))
    exact_duplicates._find(sizes, SpanSearch(), places)
    spans = CollectedShards(f"{stage('substring_spans')}/spans", KeyRanges(100, SHARDS, each=1 << 32))
    exact_duplicates._decide(sizes, SpanCutting(), exact_duplicates.SubstringDedupPlaces(places, spans))
    sizes.check()
    assert sizes.jobs["match"] > 1_000 and sizes.jobs["find"] > 1_000


@dataclass
class Opens:
    """How many files of exchanges are opened, by phase, and the most of one job."""

    phases: Counter = field(default_factory=Counter)
    most: int = 0


@pytest.fixture
def opens(monkeypatch) -> Opens:
    """Counts the files that are opened, but for those of one shard that its own jobs read."""
    counted, of_job, phase = Opens(), Counter[int](), [""]
    opening, mapping = parquet.CheckedFile.__init__, PhaseRunner.map

    def count(file, path, data):
        if re.search("/(bands|gathered|decided|verdicts|edges|labels|bands-.|gathered-.|verdicts-merge-.)/", path):
            counted.phases[phase[0]] += 1
            of_job[0] += 1
            counted.most = max(counted.most, of_job[0])
        opening(file, path, data)

    def run(runner, name, work, jobs, *others, **given_):
        phase[0] = name

        def one(*given, **arguments):
            of_job.clear()
            return work(*given, **arguments)

        return mapping(runner, name, one, jobs, *others, **given_)

    monkeypatch.setattr(parquet.CheckedFile, "__init__", count)
    monkeypatch.setattr(PhaseRunner, "map", run)
    return counted


def deduplicate(home: str, shards: int, partitions: int, documents: int = 3) -> None:
    """Of shards of a few documents, of which most are near-duplicates."""
    rng = np.random.default_rng(shards)
    texts = [" ".join(fresh(rng, 30)) for _ in range(11)]
    given = [
        [{"id": f"{s:05d}-{i}", "text": f"{texts[(s + i) % 11]} {i}"} for i in range(documents)] for s in range(shards)
    ]
    corpus = Texts(given).corpus(home)
    near_duplicates.minhash(context(home), Texts(given).recipe, corpus, MinHash(partitions=partitions))


@pytest.mark.extended
@pytest.mark.parametrize(
    ("shards", "partitions", "fan_in"),
    [(2, 2, 512), (8, 4, 512), (32, 12, 4), pytest.param(600, 40, 512, marks=pytest.mark.slow)],
)
def test_files_that_are_opened_grow_with_shards_and_partitions(
    tmp_path, monkeypatch, capsys, opens, shards, partitions, fan_in
):
    """In a pass each file is opened once; then a job opens FAN_IN of each exchange at most, to verify twice."""
    monkeypatch.setattr(exchange, "FAN_IN", fan_in)
    monkeypatch.setattr(exchange, "MIN_FAN_IN", min(fan_in, 32))
    deduplicate(str(tmp_path), shards, partitions)
    with capsys.disabled():
        print(f"\n{shards} shards, {partitions} partitions: {opens.phases.total():,} opened, {dict(opens.phases)}")
    few = shards if shards <= fan_in else -(-shards // min(fan_in, 32))
    assert opens.phases["match"] <= min(few, fan_in) * partitions
    assert opens.phases["verify"] <= 2 * min(few, fan_in) * partitions
    assert opens.phases["split"] == opens.phases["gather"] == shards
    assert opens.most <= max(2 * fan_in, 2 * partitions)
    passes = [name for name in opens.phases if re.fullmatch(r"(bands|gathered)-\d", name)]
    assert sum(opens.phases[name] for name in passes) <= 2 * (shards + shards // 2 + shards // 4)
    assert opens.phases["verdicts"] <= partitions
