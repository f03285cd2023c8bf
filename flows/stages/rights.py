"""`site_files`, `site_rights`: what the files of sites, and lists of hosts, take out of a corpus after all steps.

A newer list acts as a takedown. `site_files` has the lists as a table by host. `site_rights` looks at every shard,
which takes little, and the token shards of those from which it takes nothing are reused.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from gristmill.flows.machine.context import RunContext
from gristmill.flows.recipe.recipe import Recipe
from gristmill.flows.stages.corpus import Corpus, CorpusPlaces, pinned, work_of_steps
from gristmill.flows.stages.removal import AllowedCorpus
from gristmill.storage import files
from gristmill.storage.fingerprint import fingerprint
from gristmill.tasks.documents.by_shard import Parts
from gristmill.tasks.documents.decisions import keep_shard
from gristmill.tasks.documents.step import Settings
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.engine.phases import Each, PhaseRunner
from gristmill.tasks.engine.spec import StageSpec, Work
from gristmill.tasks.reading.listing import files_of
from gristmill.tasks.rights.shards import STEP, SitePolicy, keep_permitted
from gristmill.tasks.rights.sites import write_sites
from gristmill.tasks.rights.step import Rights
from gristmill.tasks.url.step import Url


class SiteLists(Settings):
    """`lists`: (robots or tdmrep, name of the list) in their order; their digests are inputs."""

    lists: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class SiteRightsPlaces:
    """`extracted`: the parts with what pages state; `sites`: the table of their sites' files."""

    corpus: CorpusPlaces
    extracted: Parts
    sites: str


def site_files(context: RunContext, step: Rights) -> StageResult:
    """The lists of sites' files of the step as a table. Raises FileNotFoundError for a list that is not there."""
    local = context.placed(step)
    named = {"robots": local.robots, "tdmrep": local.tdmrep}
    notes = f"{context.settings.local_folder}/fingerprints"

    def look() -> list[tuple[str, str, str, str]]:
        return [
            (kind, files.absolute(path), name, fingerprint(path, notes, context.settings.remote_io))
            for kind, addresses in named.items()
            for path, name in _in_order(addresses).items()
        ]

    lists = context.outside({"site files": {kind: [*addresses] for kind, addresses in named.items()}}, look)
    spec = StageSpec(
        name="site_files",
        # 2: an answer without information does not replace an earlier one of the same archive
        # 3: tables may name a host with a path or with the usual port
        version=3,
        body=_collect,
        record=SiteLists(lists=tuple((kind, name) for kind, _, name, _ in lists)),
        inputs={f"list {number}": digest for number, (_, _, _, digest) in enumerate(lists)},
        places=tuple(path for _, path, _, _ in lists),
    )
    return context.build(spec)


def _in_order(addresses: Sequence[str]) -> dict[str, str]:
    """The names of lists by path, in the order of the recipe, since of a host the last one counts; those of a glob by
    their paths. A list that several addresses name is at its last place."""
    named: dict[str, str] = {}
    for address in addresses:
        for path, name in files_of([address]).items():
            named.pop(path, None)
            named[path] = name
    return named


def _collect(phases: PhaseRunner, record: SiteLists, places: tuple[str, ...]) -> dict:
    """Collect the files of sites."""
    lists = tuple((kind, path, name) for (kind, name), path in zip(record.lists, places, strict=True))
    return phases.once("collect", write_sites, {"lists": lists})


def site_rights(context: RunContext, recipe: Recipe, corpus: Corpus) -> Corpus:
    """The corpus without the documents that the lists of the steps exclude; as it is for a recipe without any."""
    before = corpus
    for step in recipe.steps:
        if isinstance(step, Rights) and step.has_lists:
            corpus = _permitted(context, step, corpus.for_step(step), before)
    return corpus


def _permitted(context: RunContext, step: Rights, corpus: Corpus, before: Corpus) -> Corpus:
    [hosts] = pinned(context, (Url(takedowns=step.hosts),))
    sites = site_files(context, step)
    policy = SitePolicy(
        agents=step.tokens,
        protocols=step.protocols,
        hosts=hosts,
        drops_silence=step.is_silence_decided_late,
        reads_pages=step.reads_pages,
    )
    places = SiteRightsPlaces(corpus.places, Parts(corpus.extracted.folder, corpus.places.shards()), sites.part(0))
    spec = StageSpec(
        name="site_rights",
        version=1,
        body=_keep,
        record=policy,
        inputs=corpus.inputs(sites) | {"extracted": corpus.extracted},
        places=places,
        work=_work(hosts, step),
    )
    stage = context.build(spec)
    stages = (*corpus.stages, sites, stage)
    return AllowedCorpus(corpus.sources, corpus.documents, stage, corpus.measured, stages, before=before)


def _keep(phases: PhaseRunner, record: SitePolicy, places: SiteRightsPlaces) -> dict:
    """Drop documents that the files of their sites reserve."""
    corpus = places.corpus
    judged, passed = corpus.judged()
    jobs = Each(judged, lambda i: {**corpus.shard(i), "extracted": places.extracted[i]})
    phases.map("keep", keep_permitted, jobs, common={"sites": places.sites, "policy": record})
    phases.map("pass", keep_shard, passed, common={"step": STEP})
    return {}


def _work(hosts: Url, step: Rights) -> Work:
    """The step's version is that of pages; that of sites is the stage's. protego and http-sf decide verdicts."""
    work = work_of_steps((hosts,))
    return replace(work, libraries=tuple(sorted({*work.libraries, *step.libraries})))
