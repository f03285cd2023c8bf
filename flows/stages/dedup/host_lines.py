"""The stage of `host_lines`: how many pages a host has, then on how many of them each line is, then the cuts."""

from dataclasses import replace

from gristmill.flows.machine.context import RunContext
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.stages.corpus import Corpus, CorpusPlaces, work_of_steps
from gristmill.flows.stages.dedup.exact_duplicates import characters
from gristmill.flows.stages.dedup.exchange import collected, merged_away
from gristmill.storage import files
from gristmill.tasks.dedup import host_lines as tasks
from gristmill.tasks.dedup import passages
from gristmill.tasks.dedup.exchange import KeyRanges, partitions_of, unless_merged
from gristmill.tasks.documents.step import Settings
from gristmill.tasks.engine.phases import PhaseRunner
from gristmill.tasks.engine.spec import StageSpec


class HostLineCutting(Settings):
    step: tasks.HostLines


def host_lines(context: RunContext, _: Recipe, corpus: Corpus, step: tasks.HostLines) -> Corpus:
    """The corpus of the documents without the lines that are on many pages of their host.

    Signals that were measured before it stay those of the texts that it found.
    """
    spec = StageSpec(
        name=step.step,
        version=1,
        body=_cut,
        record=HostLineCutting(step=step),
        inputs=corpus.inputs(),
        places=corpus.places,
        work=work_of_steps((step,)),
    )
    stage = context.build(spec)
    return replace(corpus, documents=stage, kept=stage, stages=(*corpus.stages, stage))


def _cut(phases: PhaseRunner, record: HostLineCutting, places: CorpusPlaces) -> dict:
    """Cut lines that are on many pages of a host."""
    step, n_shards, n_read = record.step, len(places.sources), len(places.applied)
    partitions = step.partitions or passages.partitions(characters(phases, places))
    keys = KeyRanges(partitions)
    numbers = dict.fromkeys(range(partitions))

    counting = {"ranges": unless_merged(n_read, keys)}
    counted = phases.map("pages", tasks.count_pages, places.numbered(lambda i: counting), temporary=True)
    pages = merged_away(phases, "pages-merge", tasks.pages_files(phases.folder, n_read), keys)
    rows = sum(counts["hosts"] for counts in counted.values())
    shards = KeyRanges(min(n_shards, partitions_of(rows, tasks.NEEDED_BYTES)), n_shards)
    adding = {"ranges": keys, "counted": pages, "shards": unless_merged(partitions, shards), "step": step}
    added = phases.map("hosts", tasks.add_pages, dict.fromkeys(numbers, adding), temporary=True)
    needed = tasks.needed_files(phases.folder, partitions)
    hosts = collected(phases, "hosts-of-shards", needed, shards, "shard")

    hashing = {"step": step, "hosts": hosts, "ranges": unless_merged(n_read, keys)}
    hashed = phases.map("hash", tasks.hash_lines, places.numbered(lambda i: hashing), temporary=True)
    lines = merged_away(phases, "passages-merge", passages.passages_files(phases.folder, n_read), keys)
    n_lines = sum(counts["passages"] for counts in hashed.values())
    shards = KeyRanges(min(n_shards, partitions_of(n_lines, passages.REPEATED_BYTES)), n_shards)
    finding = {"ranges": keys, "among": lines, "shards": unless_merged(partitions, shards)}
    found = phases.map("find", tasks.find_lines, dict.fromkeys(numbers, finding), temporary=True)
    repeated = passages.repeated_files(phases.folder, partitions)
    cuts = collected(phases, "cuts", repeated, shards, "shard")

    cutting = {"step": step, "cuts": cuts}
    phases.map("cut", tasks.cut_lines, {i: places.shard(i) | cutting for i in places.shards()})
    for folder in (pages.folder, needed.folder, hosts.folder, lines.folder, repeated.folder, cuts.folder):
        files.remove(folder)
    return {
        "hosts": sum(counts["hosts"] for counts in added.values()),
        "without_host": sum(counts["without_host"] for counts in counted.values()),
        "lines": sum(counts["lines"] for counts in found.values()),
        "repeated": sum(counts["repeated"] for counts in found.values()),
    }
