"""Exact duplicates: whole documents, and repeated passages, substrings and lines of hosts within documents.

Of documents that share words (`content_duplicates`) or a URL (`url_duplicates`) one is kept. `passage_dedup`,
`substring_dedup` and `host_lines` cut what is repeated within documents, or drop the documents.
"""

from dataclasses import dataclass, replace

from pydantic import SerializeAsAny

from gristmill.flows.machine.context import RunContext
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.stages.corpus import Corpus, CorpusPlaces, work_of_steps
from gristmill.flows.stages.dedup.exchange import collected, merged, merged_away, remove_merged
from gristmill.storage import files
from gristmill.tasks.dedup import exact, passages, substring_cuts, substrings
from gristmill.tasks.dedup import host_lines as host_line_jobs
from gristmill.tasks.dedup.exact import DOCUMENT_BYTES, Exact, UrlDedup
from gristmill.tasks.dedup.exchange import CollectedShards, KeyRanges, partitions_of, unless_merged
from gristmill.tasks.dedup.substrings import SpanCutting, SpanSearch, SubstringDedup
from gristmill.tasks.documents.decisions import count_characters
from gristmill.tasks.documents.step import Settings
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.engine.phases import PhaseRunner
from gristmill.tasks.engine.spec import StageSpec, Work
from gristmill.tasks.url.canonical import Canonical
from gristmill.tasks.url.step import Url


class ExactDeduplication(Settings):
    """`partitions`: as in the settings, or by the number of documents."""

    settings: SerializeAsAny[Exact]
    partitions: int


def url_duplicates(context: RunContext, recipe: Recipe, corpus: Corpus, step: UrlDedup) -> Corpus:
    """The corpus with one document per URL, in the canonical form of the recipe's step `url` or of this step."""
    if step.canonical is None:
        canonical = next((other.canonical for other in recipe.steps if isinstance(other, Url)), Canonical())
        step = step.model_copy(update={"canonical": canonical})
    return content_duplicates(context, recipe, corpus, step)


def content_duplicates(context: RunContext, recipe: Recipe, corpus: Corpus, step: Exact) -> Corpus:
    """One document of each that share what the step compares: digests, groups of them, kept documents."""
    spec = StageSpec(
        name=f"{step.rule}_duplicates",
        version=1,
        body=_deduplicate,
        record=ExactDeduplication(
            settings=step, partitions=step.partitions or partitions_of(corpus.rows, DOCUMENT_BYTES)
        ),
        inputs=corpus.inputs(signals=step.best is not None),
        places=corpus.places,
        work=work_of_steps((step,)),
    )
    return corpus.then(context.build(spec))


def _deduplicate(phases: PhaseRunner, record: ExactDeduplication, places: CorpusPlaces) -> dict:
    """Keep one document of each group of duplicates."""
    common, n_shards, partitions = {"settings": record.settings}, len(places.sources), record.partitions
    digests, n_hashed = KeyRanges(partitions), len(places.applied)
    signals = places.signals if record.settings.best else [()] * n_shards
    numbers = places.source_numbers()
    hashing = common | {"ranges": unless_merged(n_hashed, digests)}
    jobs = places.numbered(lambda i: hashing | {"signals": signals[i], "source": numbers[i]})
    hashed = phases.map("hash", exact.hash_shard, jobs)

    compared = sum(counts["compared"] for counts in hashed.values())
    shards = KeyRanges(min(n_shards, partitions_of(compared, exact.DROPPED_BYTES)), n_shards)
    written = exact.hashes_files(phases.folder, n_hashed)
    hashes = merged(phases, "hashes", written, digests)
    among = common | {"ranges": digests, "hashes": hashes, "shards": unless_merged(partitions, shards)}
    phases.map("choose", exact.choose, dict.fromkeys(range(partitions), among))
    remove_merged(hashes, written)

    verdicts = collected(phases, "verdicts", exact.dropped_files(phases.folder, partitions), shards, "shard")
    splitting = common | {"verdicts": verdicts}
    phases.map("split", exact.split_shard, {i: places.shard(i) | splitting for i in places.shards()})
    files.remove(verdicts.folder)
    return {}


class PassageDeduplication(Settings):
    step: SerializeAsAny[passages.Passages]


def passage_dedup(context: RunContext, _: Recipe, corpus: Corpus, step: passages.Passages) -> Corpus:
    """The corpus without repeated passages, in a stage with the step's name. Signals that were measured before are not
    measured again."""
    spec = StageSpec(
        name=step.step,
        version=1,
        body=_cut_passages,
        record=PassageDeduplication(step=step),
        inputs=corpus.inputs(),
        places=corpus.places,
        work=work_of_steps((step,)),
    )
    return corpus.rewritten(context.build(spec))


def _cut_passages(phases: PhaseRunner, record: PassageDeduplication, places: CorpusPlaces) -> dict:
    """Cut passages that occurred earlier."""
    common, n_shards, n_hashed = {"step": record.step}, len(places.sources), len(places.applied)
    partitions = record.step.partitions or passages.partitions(characters(phases, places))
    keys = KeyRanges(partitions)
    hashing = common | {"ranges": unless_merged(n_hashed, keys)}
    hashed = phases.map("hash", passages.hash_shard, places.numbered(lambda i: hashing))

    n_passages = sum(counts["passages"] for counts in hashed.values())
    shards = KeyRanges(min(n_shards, partitions_of(n_passages, passages.REPEATED_BYTES)), n_shards)
    written = passages.passages_files(phases.folder, n_hashed)
    every = merged(phases, "passages", written, keys)
    among = {"ranges": keys, "among": every, "shards": unless_merged(partitions, shards)}
    records = phases.map("find", passages.find_partition, dict.fromkeys(range(partitions), among))
    remove_merged(every, written)

    cuts = collected(phases, "cuts", passages.repeated_files(phases.folder, partitions), shards, "shard")
    cutting = common | {"cuts": cuts}
    phases.map("cut", passages.cut_shard, {i: places.shard(i) | cutting for i in places.shards()})
    files.remove(cuts.folder)
    return {"passages": n_passages, "repeated": sum(counts["repeated"] for counts in records.values())}


def characters(phases: PhaseRunner, places: CorpusPlaces) -> int:
    """Count the characters of documents."""
    counted = phases.map("count", count_characters, {i: {"kept": places.kept[i]} for i in places.shards()})
    return sum(counts["characters"] for counts in counted.values())


@dataclass(frozen=True)
class SubstringDedupPlaces:
    """`spans`: the duplicated spans, by shards."""

    corpus: CorpusPlaces
    spans: CollectedShards


def substring_dedup(context: RunContext, _: Recipe, corpus: Corpus, step: SubstringDedup) -> Corpus:
    """The corpus without duplicated spans, or without the documents that consist of them to a large part."""
    spans = substring_spans(context, corpus, step)
    shards = KeyRanges(spans.result["ranges"], len(corpus.sources), each=substrings.NODES)
    spec = StageSpec(
        name=step.step,
        version=1,
        body=_decide,
        record=step.part(SpanCutting),
        inputs=corpus.inputs(spans),
        places=SubstringDedupPlaces(corpus.places, CollectedShards(files.join(spans.folder, "spans"), shards)),
    )
    stage = context.build(spec)
    remaining = corpus.then(stage, spans)
    return replace(remaining, documents=stage) if step.policy == "cut" else remaining


def _decide(phases: PhaseRunner, record: SpanCutting, places: SubstringDedupPlaces) -> dict:
    """Cut duplicated spans, or drop documents with many of them."""
    work = substring_cuts.cut_shard if record.policy == "cut" else substring_cuts.drop_shard
    common = {"spans": places.spans, "settings": record}
    phases.map(record.policy, work, {i: places.corpus.shard(i) | common for i in places.corpus.shards()})
    return {}


def substring_spans(context: RunContext, corpus: Corpus, step: SubstringDedup) -> StageResult:
    """The stage with the duplicated spans of the documents, by ranges of shards."""
    spec = StageSpec(
        name="substring_spans",
        version=1,
        body=_find,
        record=step.part(SpanSearch),
        inputs=corpus.inputs(),
        places=corpus.places,
        work=Work(steps=(step.step,)),
    )
    return context.build(spec)


def _find(phases: PhaseRunner, record: SpanSearch, places: CorpusPlaces) -> dict:
    """Find duplicated spans."""
    n_shards, n_searched, folder = len(places.sources), len(places.applied), phases.folder
    partitions = substrings.partitions(characters(phases, places), record)
    minimizers = KeyRanges(partitions)
    dividing = {"settings": record, "ranges": unless_merged(n_searched, minimizers)}
    keyed = phases.map("key", substrings.key_shard, places.numbered(lambda i: dividing), True)
    n_runs = sum(counts["runs"] for counts in keyed.values())

    keys = merged_away(phases, "keys", substrings.exchanged(folder, "keys", n_searched), minimizers)
    shards = substrings.by_shard(n_shards, n_runs, substrings.HOT_BYTES)
    among = {"ranges": minimizers, "keys": keys, "shards": unless_merged(partitions, shards)}
    hot = phases.map("match", substrings.match_partition, dict.fromkeys(range(partitions), among), True)
    files.remove(keys.folder)
    runs = collected(phases, "runs", substrings.exchanged(folder, "hot", partitions), shards, "node")

    blocks = substrings.blocks(sum(counts["bytes"] for counts in hot.values()), record)
    divided = KeyRanges(blocks)
    gathering = {"settings": record, "runs": runs, "ranges": unless_merged(n_searched, divided)}
    phases.map("gather", substrings.gather_shard, places.numbered(lambda i: gathering), True)
    texts = merged_away(phases, "texts", substrings.exchanged(folder, "texts", n_searched), divided)
    compared = sum(counts["runs"] for counts in hot.values())
    shards = substrings.by_shard(n_shards, compared, substrings.SPAN_BYTES)
    among = {"settings": record, "ranges": divided, "texts": texts, "shards": unless_merged(blocks, shards)}
    records = phases.map("find", substrings.find_block, dict.fromkeys(range(blocks), among), True)
    written = substrings.exchanged(folder, "found", blocks)
    collected(phases, "spans", written, shards, "node", temporary=False)
    for each in (texts.folder, written.folder, runs.folder, files.join(folder, "hot")):
        files.remove(each)
    return {
        "ranges": shards.ranges,
        "blocks": blocks,
        "windows": sum(counts["windows"] for counts in keyed.values()),
        "runs": n_runs,
        "runs_compared": sum(counts["runs"] for counts in records.values()),
        "bytes_sorted": sum(counts["bytes"] for counts in records.values()),
    }


class HostLineCutting(Settings):
    step: host_line_jobs.HostLines


def host_lines(context: RunContext, _: Recipe, corpus: Corpus, step: host_line_jobs.HostLines) -> Corpus:
    """The corpus without the lines that are on many pages of their host. Signals that were measured before are not
    measured again."""
    spec = StageSpec(
        name=step.step,
        version=1,
        body=_cut_host_lines,
        record=HostLineCutting(step=step),
        inputs=corpus.inputs(),
        places=corpus.places,
        work=work_of_steps((step,)),
    )
    return corpus.rewritten(context.build(spec))


def _cut_host_lines(phases: PhaseRunner, record: HostLineCutting, places: CorpusPlaces) -> dict:
    """Cut lines that are on many pages of a host."""
    step, n_shards, n_read = record.step, len(places.sources), len(places.applied)
    partitions = step.partitions or passages.partitions(characters(phases, places))
    keys = KeyRanges(partitions)
    numbers = dict.fromkeys(range(partitions))

    counting = {"ranges": unless_merged(n_read, keys)}
    counted = phases.map("pages", host_line_jobs.count_pages, places.numbered(lambda i: counting), temporary=True)
    pages = merged_away(phases, "pages-merge", host_line_jobs.pages_files(phases.folder, n_read), keys)
    rows = sum(counts["hosts"] for counts in counted.values())
    shards = KeyRanges(min(n_shards, partitions_of(rows, host_line_jobs.NEEDED_BYTES)), n_shards)
    adding = {"ranges": keys, "counted": pages, "shards": unless_merged(partitions, shards), "step": step}
    added = phases.map("hosts", host_line_jobs.add_pages, dict.fromkeys(numbers, adding), temporary=True)
    needed = host_line_jobs.needed_files(phases.folder, partitions)
    hosts = collected(phases, "hosts-of-shards", needed, shards, "shard")

    hashing = {"step": step, "hosts": hosts, "ranges": unless_merged(n_read, keys)}
    hashed = phases.map("hash", host_line_jobs.hash_lines, places.numbered(lambda i: hashing), temporary=True)
    lines = merged_away(phases, "passages-merge", passages.passages_files(phases.folder, n_read), keys)
    n_lines = sum(counts["passages"] for counts in hashed.values())
    shards = KeyRanges(min(n_shards, partitions_of(n_lines, passages.REPEATED_BYTES)), n_shards)
    finding = {"ranges": keys, "among": lines, "shards": unless_merged(partitions, shards)}
    found = phases.map("find", host_line_jobs.find_lines, dict.fromkeys(numbers, finding), temporary=True)
    repeated = passages.repeated_files(phases.folder, partitions)
    cuts = collected(phases, "cuts", repeated, shards, "shard")

    cutting = {"step": step, "cuts": cuts}
    phases.map("cut", host_line_jobs.cut_lines, {i: places.shard(i) | cutting for i in places.shards()})
    for folder in (pages.folder, needed.folder, hosts.folder, lines.folder, repeated.folder, cuts.folder):
        files.remove(folder)
    return {
        "hosts": sum(counts["hosts"] for counts in added.values()),
        "without_host": sum(counts["without_host"] for counts in counted.values()),
        "lines": sum(counts["lines"] for counts in found.values()),
        "repeated": sum(counts["repeated"] for counts in found.values()),
    }
