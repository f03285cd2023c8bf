"""Near-duplicates by MinHash-LSH: the stages of the step `minhash`.

signatures        sign     every shard
candidates        match    every partition of the band hashes
                  label    once
near_duplicates   gather   every shard, of earlier crawls those that have candidates
                  verify   every partition of the labels; with `threshold: null` choose
                  split    every shard
"""

from dataclasses import dataclass, replace
from itertools import pairwise

from gristmill.flows.machine.context import RunContext
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.stages.corpus import Corpus, CorpusPlaces, libraries, modules, pinned
from gristmill.flows.stages.earlier_crawls import EarlierCrawl, earlier_crawls
from gristmill.storage import files, sorted_files
from gristmill.tasks.dedup.near import gather, match
from gristmill.tasks.dedup.near.components import choose_partition, gather_members
from gristmill.tasks.dedup.near.documents import EarlierShard, OwnShard
from gristmill.tasks.dedup.near.gather import gather_shard, gathered_file, gathered_folder
from gristmill.tasks.dedup.near.label import label_documents, labels_file
from gristmill.tasks.dedup.near.match import edges_file, match_partition
from gristmill.tasks.dedup.near.settings import Banding, MinHash, Shingling, Verifying, curve_message
from gristmill.tasks.dedup.near.sign import bands_file, sign_shard
from gristmill.tasks.dedup.near.split import split_shard
from gristmill.tasks.dedup.near.verify import decided_file, verify_partition
from gristmill.tasks.dedup.order import KeepOrder
from gristmill.tasks.documents.step import Settings
from gristmill.tasks.engine import options
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.engine.phases import PhaseRunner
from gristmill.tasks.engine.spec import StageSpec
from gristmill.tasks.url.step import Url


class Signing(Settings):
    shingling: Shingling
    banding: Banding
    partitions: int


class Matching(Settings):
    banding: Banding
    partitions: int


class Deciding(Settings):
    """`takedowns`: the lists, tied to the content that they have now."""

    shingling: Shingling
    banding: Banding
    order: KeepOrder
    verifying: Verifying
    partitions: int
    takedowns: Url


@dataclass(frozen=True)
class NearPlaces:
    """The shards of this crawl, the earlier crawls, and the folders of the stages made so far. `edges`: how many edges
    there are; `labels`: labels of each shard of all crawls; `layout`: the stages by name and key, for later crawls."""

    own: tuple[OwnShard, ...]
    earlier: tuple[EarlierCrawl, ...]
    signatures: str
    candidates: str = ""
    edges: int = 0
    labels: tuple[int, ...] = ()
    layout: dict[str, str | int | list[str]] | None = None

    @property
    def all_shards(self) -> list[EarlierShard | OwnShard]:
        """In the order of the ids of their documents."""
        return [shard for number, crawl in enumerate(self.earlier) for shard in crawl.shards(number)] + list(self.own)


def minhash(context: RunContext, recipe: Recipe, corpus: Corpus, step: MinHash) -> Corpus:
    """Sign the documents, find which are candidates of each other, decide which are kept."""
    step = context.placed(step)
    earlier = tuple(earlier_crawls(step))
    among = {f"earlier {number}": crawl.key for number, crawl in enumerate(earlier)}
    shingling, banding = step.part(Shingling), step.part(Banding)

    signing = Signing(shingling=shingling, banding=banding, partitions=step.partitions)
    signatures = context.build(
        StageSpec("signatures", _sign, signing, corpus.inputs(), corpus.places, libraries=("datasketch",))
    )

    places = NearPlaces(_own_shards(corpus, signatures, len(earlier), step), earlier, signatures.folder)
    matching = Matching(banding=banding, partitions=step.partitions)
    candidates = context.build(StageSpec("candidates", _match, matching, corpus.inputs(signatures) | among, places))

    deciding = Deciding(
        shingling=shingling,
        banding=banding,
        order=step.part(KeepOrder),
        verifying=step.part(Verifying),
        partitions=step.partitions,
        takedowns=pinned(context, (Url(takedowns=step.takedowns),))[0],
    )
    places = replace(
        places,
        candidates=candidates.folder,
        edges=candidates.result["edges"],
        labels=tuple(candidates.records("label")[0]["shards"]),
        layout={
            "documents": f"{corpus.documents.name}-{corpus.documents.key}",
            "signatures": f"signatures-{signatures.key}",
            "candidates": f"candidates-{candidates.key}",
            "partitions": candidates.result["partitions"],
            "earlier": [crawl.key for crawl in earlier],
        },
    )
    inputs = corpus.inputs(signatures, candidates, signals=step.best is not None) | among
    urls = (deciding.takedowns,)
    kept = context.build(
        StageSpec("near_duplicates", _decide, deciding, inputs, places, modules(urls), libraries(urls))
    )
    return corpus.then(kept, signatures, candidates).measuring(kept)


def _sign(phases: PhaseRunner, record: Signing, places: CorpusPlaces) -> dict:
    """Compute MinHash signatures."""
    given = {"shingling": record.shingling, "banding": record.banding, "partitions": record.partitions}
    signed = phases.map("sign", sign_shard, {i: places.shard(i) | given for i in places.shards()})
    return {"documents": sum(counts["documents"] for counts in signed.values())}


def _match(phases: PhaseRunner, record: Matching, places: NearPlaces) -> dict:
    """Find candidates of near-duplicates."""
    phases.message(curve_message(record.banding))
    hashes = sum(shard.rows for shard in places.own) * record.banding.bands
    partitions = match.partitions_of(hashes, record.partitions)
    given = {
        "partitions": partitions,
        "crawl": len(places.earlier),
        "bands": [bands_file(places.signatures, shard.shard) for shard in places.own],
    }
    jobs = {
        p: given | {"indexes": [path for crawl in places.earlier for path in crawl.index(low, high)]}
        for p, (low, high) in enumerate(pairwise(sorted_files.bounds(partitions)))
    }
    matched = phases.map("match", match_partition, jobs)
    given = {
        "edges": [edges_file(phases.folder, p) for p in jobs],
        "shards": places.all_shards,
        "partitions": record.partitions,
        "memory": options.current().memory,
    }
    labelled = phases.once("label", label_documents, given)
    return {
        "partitions": partitions,
        "edges": sum(counts["edges"] for counts in matched.values()),
        "components": labelled["components"],
    }


def _decide(phases: PhaseRunner, record: Deciding, places: NearPlaces) -> dict:
    """Keep one document of each cluster of near-duplicates."""
    shards = places.all_shards
    partitions = gather.partitions_of(places.edges, record.partitions)
    given = {"order": record.order, "partitions": partitions}
    jobs = {
        n: given | {"shard": shard, "labels": labels_file(places.candidates, n, len(shards), record.partitions)}
        for n, (shard, labels) in enumerate(zip(shards, places.labels, strict=True))
        if labels or isinstance(shard, OwnShard)
    }
    among = given | {"gathered": [gathered_file(phases.folder, n) for n in jobs]}
    if record.verifying.threshold is None:
        phases.map("gather", gather_members, jobs, temporary=True)
        decided = phases.map("choose", choose_partition, dict.fromkeys(range(partitions), among))
    else:
        compared = {"takedowns": record.takedowns, "shingling": record.shingling, "banding": record.banding}
        phases.map("gather", gather_shard, {n: job | compared for n, job in jobs.items()}, temporary=True)
        among |= {
            "threshold": record.verifying.threshold,
            "most_comparisons": record.verifying.comparisons,
            "crawl": len(places.earlier),
            "memory": options.current().memory,
        }
        decided = phases.map("verify", verify_partition, dict.fromkeys(range(partitions), among))

    given = {
        "order": record.order,
        "verifying": record.verifying,
        "decided": [decided_file(phases.folder, p) for p in decided],
        "takedowns": record.takedowns,
    }
    phases.map("split", split_shard, {shard.shard: given | {"shard": shard} for shard in places.own})
    files.remove(gathered_folder(phases.folder))
    summed = ("candidates", "comparisons", "left_out", "clusters", "dropped")
    largest = ("largest_component", "largest_cluster")
    return {
        "inputs_layout": places.layout,
        "partitions": partitions,
        **{name: sum(counts[name] for counts in decided.values()) for name in summed},
        **{name: max((counts[name] for counts in decided.values()), default=0) for name in largest},
    }


def _own_shards(corpus: Corpus, signatures: StageResult, crawl: int, step: MinHash) -> tuple[OwnShard, ...]:
    places, signed = corpus.places, signatures.records("sign")
    numbers = places.source_numbers()
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
        )
        for i in places.shards()
    )
