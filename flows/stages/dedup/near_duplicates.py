"""Near-duplicates by MinHash-LSH: the stages of the step `minhash`.

signatures        sign       every shard
candidates        match      every partition of the band hashes
                  label      once
near_duplicates   gather     every shard, of earlier crawls those that have candidates
                  verify     every partition of the labels; with `threshold: null` choose
                  verdicts   every range of shards
                  split      every shard
pairs_of_copies   count      every shard; where a decision asks

Where there are many shards or partitions, files are merged between sign and match, gather and verify, verify and
verdicts (`gristmill.flows.stages.dedup.exchange`).
"""

from collections import Counter
from dataclasses import dataclass, replace

from pydantic import Field

from gristmill.flows.machine.context import RunContext
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.stages.corpus import Corpus, CorpusPlaces, pinned, work_of_steps
from gristmill.flows.stages.dedup.earlier_crawls import BANDING, ORDERING, SIGNING, EarlierCrawl, earlier_crawls
from gristmill.flows.stages.dedup.exchange import collected, merged, merged_away, remove_merged
from gristmill.storage import files
from gristmill.tasks.dedup.exchange import KeyRanges, SortedFiles, partitions_of, unless_merged
from gristmill.tasks.dedup.near.documents import ROWS, EarlierShard, OwnShard, shard_range
from gristmill.tasks.dedup.near.gather import gather_shard, gathered_files
from gristmill.tasks.dedup.near.label import (
    MEMBER_BYTES,
    choose_partition,
    gather_members,
    label_documents,
    labels_file,
    split_shard,
)
from gristmill.tasks.dedup.near.recall import count_pairs
from gristmill.tasks.dedup.near.settings import (
    HASH_BYTES,
    Banding,
    MinHash,
    Shingling,
    Verifying,
    Within,
    curve_message,
)
from gristmill.tasks.dedup.near.sign import bands_files, edges_files, match_partition, sign_shard
from gristmill.tasks.dedup.near.verify import DECIDED_BYTES, candidate_bytes, decided_files, verify_partition
from gristmill.tasks.dedup.order import KeepOrder
from gristmill.tasks.documents.by_shard import Parts
from gristmill.tasks.documents.step import Settings
from gristmill.tasks.engine import options
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.engine.phases import Each, PhaseRunner
from gristmill.tasks.engine.spec import StageSpec, Work
from gristmill.tasks.url.step import Url


class Signing(Settings):
    """`partitions`: of the band hashes, as the step has them or by how many there are."""

    shingling: Shingling
    banding: Banding
    partitions: int


class Matching(Settings):
    """`within`: the field of the step."""

    banding: Banding
    partitions: int
    within: Within | None = Field(None, exclude_if=lambda within: within is None)


class Deciding(Settings):
    """`partitions`: of the labels, None for as many as these need; `takedowns`: the lists, tied to the content that
    they have now; `within`: the field of the step."""

    shingling: Shingling
    banding: Banding
    order: KeepOrder
    verifying: Verifying
    partitions: int | None
    takedowns: Url
    within: Within | None = Field(None, exclude_if=lambda within: within is None)


@dataclass(frozen=True)
class NearDuplicatesPlaces:
    """The shards of this crawl, the earlier crawls, and the folders of the stages made so far. `shingles`: of all
    documents of this crawl; `labels`: labels of each shard of all crawls; `layout`: what later crawls must know of how
    this one was made; `first_shards`: of each source the number of its first shard."""

    own: tuple[OwnShard, ...]
    earlier: tuple[EarlierCrawl, ...]
    signatures: str
    shingles: int
    candidates: str = ""
    labels: tuple[int, ...] = ()
    first_shards: tuple[int, ...] = ()
    layout: dict[str, str | int | list[str]] | None = None

    @property
    def all_shards(self) -> list[EarlierShard | OwnShard]:
        """In the order of the ids of their documents."""
        return [shard for number, crawl in enumerate(self.earlier) for shard in crawl.shards(number)] + list(self.own)


def minhash(context: RunContext, recipe: Recipe, corpus: Corpus, step: MinHash) -> Corpus:
    """Sign the documents, find which are candidates of each other, decide which are kept."""
    step = context.placed(step)
    earlier = tuple(earlier_crawls(step))
    signed = signatures(context, corpus, step)
    numbers = corpus.places.source_numbers()
    places = NearDuplicatesPlaces(
        own=_own_shards(corpus, signed, len(earlier), step),
        earlier=earlier,
        signatures=signed.folder,
        shingles=signed.result["shingles"],
        first_shards=tuple(i for i, number in enumerate(numbers) if i == 0 or numbers[i - 1] != number),
    )
    matched = candidates(context, corpus, step, signed, places)
    kept = near_duplicates(context, corpus, step, signed, matched, places)
    return corpus.then(kept, signed, matched).measuring(kept)


def _partitions(corpus: Corpus, step: MinHash) -> int:
    return step.partitions or partitions_of(corpus.rows * step.part(Banding).bands, HASH_BYTES)


def _earlier_inputs(places: NearDuplicatesPlaces) -> dict[str, EarlierCrawl]:
    return {f"earlier {number}": crawl for number, crawl in enumerate(places.earlier)}


def signatures(context: RunContext, corpus: Corpus, step: MinHash) -> StageResult:
    """The MinHash signatures of the documents, and their band hashes."""
    spec = StageSpec(
        name="signatures",
        version=SIGNING,
        body=_sign,
        record=Signing(
            shingling=step.part(Shingling), banding=step.part(Banding), partitions=_partitions(corpus, step)
        ),
        inputs=corpus.inputs(),
        places=corpus.places,
        work=Work(steps=(step.step,)),
    )
    return context.build(spec)


def _sign(phases: PhaseRunner, record: Signing, places: CorpusPlaces) -> dict:
    """Compute MinHash signatures."""
    ranges = unless_merged(len(places.sources), KeyRanges(record.partitions))
    common = {"shingling": record.shingling, "banding": record.banding, "ranges": ranges}
    applied = places.applied
    jobs = Each(places.shards(), lambda i: {**places.shard(i), **common, "exempt": i not in applied})
    signed = phases.map("sign", sign_shard, jobs)
    return {name: sum(counts[name] for counts in signed.values()) for name in ("documents", "shingles")}


def candidates(
    context: RunContext, corpus: Corpus, step: MinHash, signed: StageResult, places: NearDuplicatesPlaces
) -> StageResult:
    """Which documents are candidates of each other, and a label for each group of them. `signed`: the signatures."""
    spec = StageSpec(
        name="candidates",
        version=BANDING,
        body=_match,
        record=Matching(banding=step.part(Banding), partitions=_partitions(corpus, step), within=step.within),
        inputs=corpus.inputs(signed) | _earlier_inputs(places),
        places=places,
        work=Work(unicode=False, steps=(step.step,)),
    )
    return context.build(spec)


def _match(phases: PhaseRunner, record: Matching, places: NearDuplicatesPlaces) -> dict:
    """Find candidate pairs of near-duplicates."""
    phases.message(curve_message(record.banding))
    partitions, ranges = record.partitions, KeyRanges(record.partitions)
    signed = bands_files(places.signatures, len(places.own))
    bands = merged(phases, "bands", signed, ranges)
    common = {
        "ranges": ranges,
        "crawl": len(places.earlier),
        "bands": bands,
        "earlier": tuple(crawl.index for crawl in places.earlier),
        "groups": places.first_shards if record.within == "source" else (),
    }
    matched = phases.map("match", match_partition, dict.fromkeys(range(partitions), common))
    remove_merged(bands, signed)
    common = {
        "edges": edges_files(phases.folder, partitions),
        "signatures": (*(crawl.signatures for crawl in places.earlier), places.signatures),
        "memory": options.current().memory,
    }
    labelled = phases.once("label", label_documents, common, grows="documents")
    return {
        "partitions": partitions,
        "edges": sum(counts["edges"] for counts in matched.values()),
        "components": labelled["components"],
    }


def near_duplicates(
    context: RunContext,
    corpus: Corpus,
    step: MinHash,
    signed: StageResult,
    matched: StageResult,
    places: NearDuplicatesPlaces,
) -> StageResult:
    """Which documents are kept. `signed`, `matched`: the stages `signatures` and `candidates`."""
    [lists] = pinned(context, (Url(takedowns=step.takedowns),))
    work = work_of_steps((lists,))
    spec = StageSpec(
        name="near_duplicates",
        version=ORDERING,
        body=_decide,
        record=Deciding(
            shingling=step.part(Shingling),
            banding=step.part(Banding),
            order=step.part(KeepOrder),
            verifying=step.part(Verifying),
            partitions=step.partitions,
            takedowns=lists,
            within=step.within,
        ),
        inputs=corpus.inputs(signed, matched, signals=step.best is not None) | _earlier_inputs(places),
        places=replace(
            places,
            candidates=matched.folder,
            labels=tuple(matched.records("label")[0]["shards"]),
            layout={
                "partitions": matched.result["partitions"],
                "earlier": [crawl.contents for crawl in places.earlier],
            },
        ),
        # versions: of the crawl, by which later ones compare it
        work=replace(work, versions={**work.versions, "signing": SIGNING, "banding": BANDING}, steps=(step.step,)),
    )
    return context.build(spec)


def _decide(phases: PhaseRunner, record: Deciding, places: NearDuplicatesPlaces) -> dict:
    """Keep one document of each cluster of near-duplicates."""
    candidates, crawl = sum(places.labels), len(places.earlier)
    partitions = record.partitions or partitions_of(candidates, _candidate_bytes(record, places))
    groups = KeyRanges(partitions)
    shards = KeyRanges(
        min(len(places.own), partitions_of(candidates, 2 * DECIDED_BYTES)),
        len(places.own),
        shard_range(crawl, 0)[0],
        ROWS,
    )
    decided, gathered = decided_files(phases.folder, partitions), _gathered(phases, record, places, groups)
    among = {
        "order": record.order,
        "ranges": groups,
        "gathered": gathered,
        "shards": unless_merged(partitions, shards),
    }
    if record.verifying.threshold is None:
        records = phases.map("choose", choose_partition, dict.fromkeys(range(partitions), among))
    else:
        among |= {
            "verifying": record.verifying,
            "crawl": crawl,
            "memory": options.current().memory,
        }
        records = phases.map("verify", verify_partition, dict.fromkeys(range(partitions), among))

    verdicts = collected(phases, "verdicts", decided, shards, "doc")
    common = {
        "order": record.order,
        "verifying": record.verifying,
        "verdicts": verdicts,
        "takedowns": record.takedowns,
    }
    phases.map("split", split_shard, {shard.shard: {"shard": shard} for shard in places.own}, common=common)
    for folder in (gathered.folder, verdicts.folder):
        files.remove(folder)
    summed = ("candidates", "comparisons", "left_out", "clusters", "dropped")
    largest = ("largest_component", "largest_cluster")
    refused = Counter[str]()
    for counts in records.values():
        refused.update(counts.get("refused", {}))
    return {
        "refused": dict(sorted(refused.items())),
        "inputs_layout": places.layout,
        "partitions": partitions,
        **{name: sum(counts[name] for counts in records.values()) for name in summed},
        **{name: max((counts[name] for counts in records.values()), default=0) for name in largest},
    }


def _gathered(phases: PhaseRunner, record: Deciding, places: NearDuplicatesPlaces, groups: KeyRanges) -> SortedFiles:
    """The candidates of all shards, in as few files as a job may read."""
    having = [
        (number, shard)
        for number, (shard, labels) in enumerate(zip(places.all_shards, places.labels, strict=True))
        if labels or isinstance(shard, OwnShard)
    ]
    common = {"order": record.order, "ranges": unless_merged(len(having), groups)}
    jobs = {
        n: common | {"shard": shard, "labels": labels_file(places.candidates, number)}
        for n, (number, shard) in enumerate(having)
    }
    if record.verifying.threshold is None:
        phases.map("gather", gather_members, jobs, temporary=True)
    else:
        compared = {"takedowns": record.takedowns, "shingling": record.shingling, "banding": record.banding}
        read = compared | {"in_order": record.verifying.verify == "containment", "apart": record.within == "source"}
        phases.map("gather", gather_shard, {n: job | read for n, job in jobs.items()}, temporary=True)
    return merged_away(phases, "gathered", gathered_files(phases.folder, len(having)), groups)


def _candidate_bytes(record: Deciding, places: NearDuplicatesPlaces) -> int:
    """What is held of a candidate when it is decided on, with a set of mean size."""
    if record.verifying.threshold is None:
        return MEMBER_BYTES
    documents = sum(shard.rows for shard in places.own)
    held = 2 if record.verifying.verify == "containment" else 1  # words in order, and the set of their 3-grams
    return candidate_bytes(record.banding, held * places.shingles // max(documents, 1))


def _own_shards(corpus: Corpus, signatures: StageResult, crawl: int, step: MinHash) -> tuple[OwnShard, ...]:
    places, signed = corpus.places, signatures.records("sign")
    numbers, applied = places.source_numbers(), places.applied
    return tuple(
        OwnShard(
            crawl=crawl,
            shard=i,
            rows=signed[i]["documents"],
            documents=places.documents[i],
            signatures=signatures.part(i),
            selection=places.kept[i],
            signals=places.signals[i] if step.best else (),
            source=numbers[i],
            exempt=i not in applied,
        )
        for i in places.shards()
    )


def pairs_of_copies(context: RunContext, corpus: Corpus) -> StageResult | None:
    """The result's `pairs` are how many pairs of near-duplicates a corpus had: the sum of c (c - 1) / 2 over the
    clusters of c documents. None for a corpus of a recipe without `minhash`."""
    kept = next((stage for stage in corpus.stages if stage.name == "near_duplicates"), None)
    if kept is None:
        return None
    spec = StageSpec(
        name="pairs_of_copies",
        version=1,
        body=_count,
        record=Settings(),
        inputs={"kept": kept},
        places=Parts(kept.folder, corpus.places.shards()),
        work=Work(unicode=False),
    )
    return context.build(spec)


def _count(phases: PhaseRunner, record: Settings, places: Parts) -> dict:
    """Count the pairs of near-duplicates."""
    jobs = Each(places.shards, lambda i: {"kept": places[i]})
    return {"pairs": sum(counts["pairs"] for counts in phases.map("count", count_pairs, jobs).values())}
