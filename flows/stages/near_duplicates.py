"""Near-duplicates by MinHash-LSH: the stages of the step `minhash`."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from flows.context import PhaseRunner, RunContext, StageResult, StageSpec, stage
from flows.recipe import Recipe
from flows.stages.all_stages import Corpus, inputs_of, measured_by, placed
from storage import files, layout, sorted_files
from tasks.dedup.near import components, crowds, phases
from tasks.dedup.near.candidates import (
    Place,
    band_partitions,
    band_shard,
    edges_run,
    found_again,
    index_run,
    know_shard,
    label_partitions,
    match_partition,
    members_run,
    sign_shard,
)
from tasks.dedup.near.settings import MinHash, curve_told
from tasks.dedup.takedowns import lists


@dataclass(frozen=True)
class Segment:
    """The near-duplicate removal of an earlier crawl, as its finished stage `near_duplicates` tells of it."""

    folder: str
    manifest: Mapping[str, Any]

    @property
    def key(self) -> str:
        return self.manifest["key"]

    def index(self, low: int, high: int) -> list[str]:
        """The runs of its band hashes that have those from `low` up to `high`."""
        ends = sorted_files.bounds(self.manifest["lies"]["partitions"])
        having = [p for p, (begin, end) in enumerate(pairwise(ends)) if begin < high and end > low]
        return [index_run(self._beside("candidates"), p) for p in having]

    def places(self, number: int) -> list[Place]:
        return [
            Place(
                segment=number,
                shard=shard,
                documents=layout.part(self._beside("documents"), shard),
                signatures=layout.part(self._beside("signatures"), shard),
                known=phases.survivors_run(self.folder, shard),
            )
            for shard in range(len(self.manifest["shards"]))
        ]

    def _beside(self, name: str) -> str:
        """The folder of a stage of the same home, wherever that has been moved."""
        home, _, _ = self.folder.rstrip("/").rpartition("/")
        return files.join(home, self.manifest["lies"][name])


def minhash(context: RunContext, recipe: Recipe, corpus: Corpus, step: MinHash) -> Corpus:
    """Signatures; who may be compared with whom; who survives."""
    step = placed(step, context)
    earlier = segments(step)
    signatures = _signatures(context, corpus, step)
    candidates = _candidates(context, corpus, step, signatures, earlier)
    names = [source.name for source in recipe.sources]
    sources = [names.index(source) for source in corpus.sources]
    kept = _survivors(context, corpus, step, signatures, candidates, sources, earlier)
    return corpus.then(kept, signatures, candidates).measuring(kept)


def segments(step: MinHash) -> list[Segment]:
    """The earlier crawls of a step. Raises ValueError where they were not made as this one, each with all before it."""
    found: list[Segment] = []
    for folder in step.earlier:
        manifest = layout.manifest(folder)
        if manifest is None or "lies" not in manifest:
            raise ValueError(f"`earlier` names {folder}, which is no finished stage `near_duplicates`")
        segment = Segment(folder, manifest)
        if manifest["lies"]["earlier"] != [before.key for before in found]:
            raise ValueError(
                f"`earlier` names {folder}, which has itself {manifest['lies']['earlier'] or 'nothing'} as `earlier`; "
                f"here {[before.key for before in found] or 'nothing'} comes before it: name all earlier crawls, the "
                "oldest first, each made with those before it"
            )
        for name, value in _alike(step).items():
            if (theirs := manifest["lies"]["settings"][name]) != value:
                raise ValueError(f"`earlier` names {folder}, whose `{name}` is {theirs}; here it is {value}")
        places = segment.places(len(found))
        if places and not files.exists(places[0].known):
            raise ValueError(
                f"`earlier` names {folder}, which has no {places[0].known}: it was removed, or an older version made "
                "the stage; run the recipe of that crawl again"
            )
        try:
            again = found_again(places, segment.index, step)
        except sorted_files.SortedFileError as error:
            raise ValueError(
                f"`earlier` names {folder}, whose index is damaged or was made by an older version: run the recipe of "
                "that crawl again"
            ) from error
        if not again:
            raise ValueError(
                f"`earlier` names {folder}, whose signatures are not those that this version gives the same texts: run "
                "the recipe of that crawl again, or install the version that made it"
            )
        found.append(segment)
    return found


def _alike(step: MinHash) -> dict[str, Any]:
    """The settings that an earlier crawl must share, for the result to be that of one run over both."""
    settings = step.signature_settings() | step.candidate_settings() | step.decision_settings()
    return {name: value for name, value in settings.items() if name != "partitions"}


def _signatures(context: RunContext, corpus: Corpus, step: MinHash) -> StageResult:
    def body(phases: PhaseRunner) -> dict:
        jobs = {i: corpus.shard(i) | {"settings": step} for i in corpus.shards()}
        return {"records": list(phases.map("sign", sign_shard, jobs).values())}

    made = stage("signatures", (sign_shard,), step.signature_settings(), inputs_of(corpus))
    return context.build(StageSpec(made, body))


def _candidates(
    context: RunContext, corpus: Corpus, step: MinHash, signatures: StageResult, earlier: list[Segment]
) -> StageResult:
    def body(phases: PhaseRunner) -> dict:
        phases.say(curve_told(step))
        signed = sum(record["documents"] for record in signatures.manifest["records"])
        dealt = step.model_copy(update={"partitions": band_partitions(signed, step)})
        jobs = {i: {"signatures": signatures.part(i), "settings": dealt} for i in corpus.shards()}
        phases.map("band", band_shard, jobs)
        given = {"own": len(earlier), "parts": corpus.shards(), "settings": dealt}
        jobs = {
            p: given | {"indexes": [run for segment in earlier for run in segment.index(low, high)]}
            for p, (low, high) in enumerate(pairwise(sorted_files.bounds(dealt.partitions)))
        }
        matched = phases.map("match", match_partition, jobs)
        partitions = label_partitions(sum(record["edges"] for record in matched.values()), step)
        edges = [edges_run(phases.folder, p) for p in jobs]
        large = components.components(phases.map, phases.folder, partitions, edges, step.memory)
        return {"matched": list(matched.values()), "labels": partitions, "crowds": large}

    works = (match_partition, components.components)
    inputs = inputs_of(corpus, signatures) | _keys(earlier)
    return context.build(StageSpec(stage("candidates", works, step.candidate_settings(), inputs), body))


def _survivors(
    context: RunContext,
    corpus: Corpus,
    step: MinHash,
    signatures: StageResult,
    candidates: StageResult,
    sources: list[int],
    earlier: list[Segment],
) -> StageResult:
    own = len(earlier)
    signals = corpus.signals if step.best else lambda _: ()
    before = [place for number, segment in enumerate(earlier) for place in segment.places(number)]
    takedowns = lists(step.takedowns)

    def body(phases: PhaseRunner) -> dict:
        partitions = candidates.manifest["labels"]
        labels = [components.labels_run(candidates.folder, p) for p in range(partitions)]
        members = [members_run(candidates.folder, p) for p in range(len(candidates.manifest["matched"]))]
        given = {"takedowns": takedowns, "settings": step.model_copy(update={"partitions": partitions})}
        ours = [
            Place(own, i, corpus.documents.part(i), signatures.part(i), phases.known_run(phases.folder, i))
            for i in corpus.shards()
        ]
        arriving = {i: given | {"place": ours[i], "kept": corpus.shard(i)["kept"]} for i in corpus.shards()}
        jobs = {i: arriving[i] | {"signals": signals(i), "source": sources[i]} for i in corpus.shards()}
        phases.map("know", know_shard, jobs)
        leaders = _leaders(phases, [*before, *ours], given | {"labels": labels}, candidates.manifest["crowds"])
        places = [*phases.together(before), *([place] for place in ours)]
        counts = _decided(phases, own, places, given | {"labels": labels, "members": members, "leaders": leaders})
        decided = [phases.decided_run(phases.folder, p) for p in range(partitions)]
        jobs = {i: arriving[i] | {"decided": decided} for i in corpus.shards()}
        shards = phases.map("split", phases.split_shard, jobs)
        phases.forget_dealt(phases.folder)
        lies = {
            "documents": _name(corpus.documents),
            "signatures": _name(signatures),
            "candidates": _name(candidates),
            "partitions": len(candidates.manifest["matched"]),
            "earlier": [segment.key for segment in earlier],
            "settings": _alike(step),
        }
        return {"lies": lies, **counts, "shards": list(shards.values())}

    lists_then = [checksum for _, checksum in takedowns.checksums]
    settings = step.decision_settings() | {"sources": sources, "takedowns": lists_then}
    inputs = inputs_of(corpus, candidates) | (measured_by(corpus) if step.best else {}) | _keys(earlier)
    works = (phases.settle_partition, crowds.choose, know_shard)
    return context.build(StageSpec(stage("near_duplicates", works, settings, inputs), body))


def _decided(phases: PhaseRunner, own: int, places: list[list[Place]], given: dict[str, Any]) -> dict[str, list]:
    """Decide on the candidates of places, of which some are dealt together; what the phases counted."""
    settings = given["settings"]
    dealing = dict(enumerate(places))
    jobs = {
        # documents of earlier crawls are dropped for nobody
        n: given | {"places": some, "leaders": given["leaders"] if some[0].segment == own else None}
        for n, some in dealing.items()
    }
    dealt = phases.map("deal", phases.deal_shards, jobs)
    among = {"own": own, "settings": settings}
    facts = [phases.dealt_run(phases.folder, n) for n in dealing]
    screening = dict.fromkeys(range(settings.partitions), among | {"dealt": facts})
    counts = phases.map("screen", phases.screen_partition, screening)
    screened = [phases.screened_run(phases.folder, p) for p in screening]
    jobs = {n: {"places": some, "screened": screened, "settings": settings} for n, some in dealing.items()}
    asked = phases.map("texts", phases.deal_texts, jobs)
    texts = [phases.texts_run(phases.folder, n) for n, record in asked.items() if record["texts"]]
    jobs = {p: among | {"screened": screened[p], "texts": texts} for p in screening}
    settled = phases.map("settle", phases.settle_partition, jobs)
    return {"dealt": list(dealt.values()), "screened": list(counts.values()), "settled": list(settled.values())}


def _leaders(phases: PhaseRunner, places: list[Place], given: dict[str, Any], large: list[int]) -> str | None:
    """The leaders of the crowds, where there are any."""
    if not large:
        return None
    jobs = {n: given | {"place": place, "crowds": large} for n, place in enumerate(places)}
    led = phases.map("lead", crowds.lead_shard, jobs)
    having = [n for n, record in led.items() if record["candidates"]]
    if not having:
        return None
    among = {"numbers": having, "crowds": large, "settings": given["settings"]}
    return crowds.leaders_run(phases.folder) if phases.once("leaders", crowds.choose, among)["leaders"] else None


def _keys(earlier: list[Segment]) -> dict[str, str]:
    return {f"earlier {number}": segment.key for number, segment in enumerate(earlier)}


def _name(built: StageResult) -> str:
    return f"{built.name}-{built.key}"
