"""Phases of an exchange (`gristmill.tasks.dedup.exchange`): files that many jobs read are first merged, or collected by
shards. They are removed before the stage ends, except the files of `collected` that it keeps."""

from gristmill.storage import files
from gristmill.tasks.dedup.exchange import CollectedShards, KeyRanges, SortedFiles, collect_shards, fan_ins, merge_files
from gristmill.tasks.engine.phases import PhaseRunner


def merged(phases: PhaseRunner, phase: str, source: SortedFiles, ranges: KeyRanges) -> SortedFiles:
    """The rows of sorted files in as few files as one job may read: themselves, or merged ones in the stage's folder
    `<phase>-<pass>`. `ranges`: those that they are then read by."""
    passes = fan_ins(source.files)
    for number, fan_in in enumerate(passes):
        name, is_last = f"{phase}-{number}", number == len(passes) - 1
        target = SortedFiles(files.join(phases.folder, name), -(-source.files // fan_in))
        common = {"source": source, "fan_in": fan_in, "target": name, "ranges": ranges if is_last else None}
        phases.map(name, merge_files, dict.fromkeys(range(target.files), common), temporary=True)
        if number:
            files.remove(source.folder)
        source = target
    return source


def remove_merged(few: SortedFiles, source: SortedFiles) -> None:
    """Remove the result of `merged`, unless it is the source itself."""
    if few != source:
        files.remove(few.folder)


def merged_away(phases: PhaseRunner, phase: str, source: SortedFiles, ranges: KeyRanges) -> SortedFiles:
    """As `merged`, but removes the source."""
    few = merged(phases, phase, source, ranges)
    remove_merged(source, few)
    return few


def collected(
    phases: PhaseRunner, phase: str, source: SortedFiles, ranges: KeyRanges, key: str, temporary: bool = True
) -> CollectedShards:
    """The rows of sorted files by ranges of shards, so that a shard opens one of them, in the stage's folder `<phase>`.
    Files are merged before that, where there are many of them. `temporary`: see `PhaseRunner.map`."""
    few = merged(phases, f"{phase}-merge", source, ranges)
    common = {"source": few, "target": phase, "ranges": ranges, "key": key}
    phases.map(phase, collect_shards, dict.fromkeys(range(ranges.ranges), common), temporary)
    remove_merged(few, source)
    return CollectedShards(files.join(phases.folder, phase), ranges)
