"""Near-duplicates by MinHash-LSH: the stages of the step `minhash`.

signatures        sign     every shard
candidates        match    every partition of the band hashes
                  label    once
near_duplicates   gather   every shard, of earlier crawls those that have candidates
                  verify   every partition of the labels
                  split    every shard
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

from flows.context import PhaseRunner, RunContext, StageResult, StageSpec, stage
from flows.recipe import Recipe
from flows.stages.all_stages import Corpus, inputs_of, measured_by, placed
from storage import files, layout, sorted_files
from tasks.dedup.near import gather, match
from tasks.dedup.near.documents import EarlierShard, OwnShard
from tasks.dedup.near.gather import gather_shard, gathered_file, gathered_folder
from tasks.dedup.near.label import label_documents, labels_file
from tasks.dedup.near.match import edges_file, found_again, index_file, match_partition
from tasks.dedup.near.settings import Banding, MinHash, Shingling, Verifying, curve_message
from tasks.dedup.near.sign import bands_file, sign_shard
from tasks.dedup.near.split import kept_file, split_shard
from tasks.dedup.near.verify import decided_file, verify_partition
from tasks.dedup.order import KeepOrder
from tasks.dedup.takedowns import lists
from tasks.documents.step import Settings


@dataclass(frozen=True)
class EarlierCrawl:
    """The near-duplicate removal of an earlier crawl, by its finished stage `near_duplicates`."""

    folder: str
    manifest: Mapping[str, Any]

    @property
    def key(self) -> str:
        return self.manifest["key"]

    def index(self, low: int, high: int) -> list[str]:
        """The files of its band hashes that have those from `low` up to `high`."""
        ends = sorted_files.bounds(self.manifest["inputs_layout"]["partitions"])
        having = [p for p, (begin, end) in enumerate(pairwise(ends)) if begin < high and end > low]
        return [index_file(self._beside("candidates"), p) for p in having]

    def shards(self, number: int) -> list[EarlierShard]:
        """Its shards, as those of crawl `number`."""
        return [
            EarlierShard(
                crawl=number,
                shard=shard,
                rows=record["rows_in"],
                documents=layout.part(self._beside("documents"), shard),
                signatures=layout.part(self._beside("signatures"), shard),
                kept=kept_file(self.folder, shard),
            )
            for shard, record in enumerate(self.manifest["shards"])
        ]

    def _beside(self, name: str) -> str:
        """The folder of a stage of the same home, wherever that has been moved."""
        home, _, _ = self.folder.rstrip("/").rpartition("/")
        return files.join(home, self.manifest["inputs_layout"][name])


@dataclass(frozen=True)
class Paths:
    """The files that the phases read: the shards of this crawl and the earlier ones, and the stages made so far."""

    own: list[OwnShard]
    earlier: list[EarlierCrawl]
    signatures: str
    candidates: str = ""

    @property
    def all_shards(self) -> list[EarlierShard | OwnShard]:
        """In the order of the ids of their documents."""
        return [shard for number, crawl in enumerate(self.earlier) for shard in crawl.shards(number)] + self.own


def minhash(context: RunContext, recipe: Recipe, corpus: Corpus, step: MinHash) -> Corpus:
    """Sign the documents, find who may be compared with whom, decide who is kept."""
    step = placed(step, context)
    earlier = earlier_crawls(step)
    shingling, banding, order, verifying = (step.part(kind) for kind in (Shingling, Banding, KeepOrder, Verifying))
    among = {f"earlier {number}": crawl.key for number, crawl in enumerate(earlier)}

    jobs = {i: corpus.shard(i) for i in corpus.shards()}
    record = {"shingling": shingling, "banding": banding, "partitions": step.partitions}
    made = stage(
        "signatures", (sign_shard,), _settings(shingling, banding, partitions=step.partitions), inputs_of(corpus)
    )
    signatures = context.build(StageSpec(made, partial(_sign, record=record, shards=jobs)))

    paths = Paths(_own_shards(recipe, corpus, signatures, len(earlier), step), earlier, signatures.folder)
    record = {"banding": banding, "partitions": step.partitions}
    settings, inputs = _settings(banding, partitions=step.partitions), inputs_of(corpus, signatures) | among
    made = stage("candidates", (match_partition, label_documents), settings, inputs)
    body = partial(_match, record=record, paths=paths, message=curve_message(step), memory=context.settings.memory)
    candidates = context.build(StageSpec(made, body))

    takedowns = lists(step.takedowns)
    paths = Paths(paths.own, earlier, signatures.folder, candidates.folder)
    record = {"shingling": shingling, "banding": banding, "order": order, "verifying": verifying}
    settings = _settings(
        *record.values(),
        sources=[shard.source for shard in paths.own],
        takedowns=[checksum for _, checksum in takedowns.checksums],
    )
    inputs = inputs_of(corpus, candidates) | (measured_by(corpus) if step.best else {}) | among
    made = stage("near_duplicates", (gather_shard, verify_partition, split_shard), settings, inputs)
    inputs_layout = {
        "documents": _name(corpus.documents),
        "signatures": _name(signatures),
        "candidates": _name(candidates),
        "partitions": len(candidates.manifest["matched"]),
        "earlier": [crawl.key for crawl in earlier],
        "settings": _shared(step),
    }
    body = partial(
        _decide,
        record=record,
        paths=paths,
        candidates=candidates.manifest,
        takedowns=takedowns,
        partitions=step.partitions,
        memory=context.settings.memory,
        inputs_layout=inputs_layout,
    )
    kept = context.build(StageSpec(made, body))
    return corpus.then(kept, signatures, candidates).measuring(kept)


def _sign(phases: PhaseRunner, record: dict[str, Any], shards: dict[int, dict]) -> dict:
    records = phases.map("sign", sign_shard, {i: shard | record for i, shard in shards.items()})
    return {"records": list(records.values())}


def _match(phases: PhaseRunner, record: dict[str, Any], paths: Paths, message: str, memory: int) -> dict:
    phases.say(message)
    hashes = sum(shard.rows for shard in paths.own) * record["banding"].bands
    partitions = match.partitions_of(hashes, record["partitions"])
    given = {
        "partitions": partitions,
        "crawl": len(paths.earlier),
        "bands": [bands_file(paths.signatures, shard.shard) for shard in paths.own],
    }
    jobs = {
        p: given | {"indexes": [path for crawl in paths.earlier for path in crawl.index(low, high)]}
        for p, (low, high) in enumerate(pairwise(sorted_files.bounds(partitions)))
    }
    matched = phases.map("match", match_partition, jobs)
    given = {
        "edges": [edges_file(phases.folder, p) for p in jobs],
        "shards": paths.all_shards,
        "partitions": record["partitions"],
        "memory": memory,
    }
    return {"matched": list(matched.values()), "labelled": phases.once("label", label_documents, given)}


def _decide(
    phases: PhaseRunner,
    record: dict[str, Any],
    paths: Paths,
    candidates: Mapping[str, Any],
    takedowns: Any,
    partitions: int,
    memory: int,
    inputs_layout: dict[str, Any],
) -> dict:
    shards = paths.all_shards
    label_files = [labels_file(paths.candidates, n, len(shards), partitions) for n in range(len(shards))]
    partitions = gather.partitions_of(sum(matched["edges"] for matched in candidates["matched"]), partitions)
    given = {name: record[name] for name in ("shingling", "banding", "order")}
    given |= {"partitions": partitions, "takedowns": takedowns}
    jobs = {
        n: given | {"shard": shard, "labels": path}
        for n, (shard, path, labels) in enumerate(
            zip(shards, label_files, candidates["labelled"]["shards"], strict=True)
        )
        if labels or isinstance(shard, OwnShard)
    }
    gathered = phases.map("gather", gather_shard, jobs)

    given = {name: record[name] for name in ("order", "verifying")}
    among = {
        "partitions": partitions,
        "gathered": [gathered_file(phases.folder, n) for n in jobs],
        "crawl": len(paths.earlier),
        "memory": memory,
    }
    verified = phases.map("verify", verify_partition, dict.fromkeys(range(partitions), given | among))

    given |= {"decided": [decided_file(phases.folder, p) for p in verified], "takedowns": takedowns}
    kept = phases.map("split", split_shard, {shard.shard: given | {"shard": shard} for shard in paths.own})
    files.remove(gathered_folder(phases.folder))
    return {
        "inputs_layout": inputs_layout,
        "gathered": list(gathered.values()),
        "verified": list(verified.values()),
        "shards": list(kept.values()),
    }


def _own_shards(recipe: Recipe, corpus: Corpus, signatures: StageResult, crawl: int, step: MinHash) -> list[OwnShard]:
    names = [source.name for source in recipe.sources]
    return [
        OwnShard(
            crawl=crawl,
            shard=i,
            rows=signatures.manifest["records"][i]["documents"],
            documents=corpus.documents.part(i),
            signatures=signatures.part(i),
            selection=corpus.kept.part(i),
            signals=corpus.signals(i) if step.best else (),
            source=names.index(corpus.sources[i]),
        )
        for i in corpus.shards()
    ]


def earlier_crawls(step: MinHash) -> list[EarlierCrawl]:
    """The earlier crawls of a step. Raises ValueError where they were not made as this one, each with all before it."""
    found: list[EarlierCrawl] = []
    for folder in step.earlier:
        manifest = layout.manifest(folder)
        if manifest is not None and "lies" in manifest:
            raise ValueError(
                f"`earlier` names {folder}, which an older version made: run the recipe of that crawl again"
            )
        if manifest is None or "inputs_layout" not in manifest:
            raise ValueError(f"`earlier` names {folder}, which is no finished stage `near_duplicates`")
        crawl = EarlierCrawl(folder, manifest)
        if manifest["inputs_layout"]["earlier"] != [before.key for before in found]:
            raise ValueError(
                f"`earlier` names {folder}, which has itself {manifest['inputs_layout']['earlier'] or 'nothing'} as "
                f"`earlier`; here {[before.key for before in found] or 'nothing'} comes before it: name all earlier "
                "crawls, the oldest first, each made with those before it"
            )
        for name, value in _shared(step).items():
            if (theirs := manifest["inputs_layout"]["settings"][name]) != value:
                raise ValueError(f"`earlier` names {folder}, whose `{name}` is {theirs}; here it is {value}")
        _check_readable(crawl, len(found), step)
        found.append(crawl)
    return found


def _check_readable(crawl: EarlierCrawl, number: int, step: MinHash) -> None:
    """Raise ValueError where files of an earlier crawl are missing, damaged, or of another version of the code."""
    shards = crawl.shards(number)
    if shards and not files.exists(shards[0].kept):
        raise ValueError(
            f"`earlier` names {crawl.folder}, which has no {shards[0].kept}: it was removed, or an older version made "
            "the stage; run the recipe of that crawl again"
        )
    try:
        again = found_again(shards, crawl.index, step.part(Shingling), step.part(Banding))
    except sorted_files.SortedFileError as error:
        raise ValueError(
            f"`earlier` names {crawl.folder}, whose index is damaged or was made by an older version: run the recipe "
            "of that crawl again"
        ) from error
    if not again:
        raise ValueError(
            f"`earlier` names {crawl.folder}, whose signatures are not those that this version gives the same texts: "
            "run the recipe of that crawl again, or install the version that made it"
        )


def _shared(step: MinHash) -> dict[str, Any]:
    """The settings that an earlier crawl must share, for the result to be that of one run over both."""
    kinds = (Shingling, Banding, KeepOrder, Verifying)
    return _settings(*(step.part(kind) for kind in kinds))


def _settings(*parts: Settings, **more: Any) -> dict[str, Any]:
    """Parts of the step as they enter the key."""
    return {name: value for part in parts for name, value in part.model_dump(mode="json").items()} | more


def _name(built: StageResult) -> str:
    return f"{built.name}-{built.key}"
