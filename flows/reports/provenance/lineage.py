"""croissant.json: the corpus as a data set in Croissant 1.1, and its lineage in the terms of PROV-O.

Croissant: https://docs.mlcommons.org/croissant/docs/croissant-spec-1.1.html, which recommends PROV-O for provenance.
A stage is a `prov:Entity` with the digest of its contents, made by a `prov:Activity` that a release of Gristmill
carried out. Stages have no times of their own: an activity is part of the earliest recorded run that has its stage.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import orjson
import pyarrow as pa

from gristmill.flows.machine.runs import RecordedRun, runs_of
from gristmill.flows.reports.provenance.annotations import ANNOTATIONS, FOLDER
from gristmill.flows.reports.provenance.figures import Answer
from gristmill.flows.reports.provenance.summary import DOMAINS
from gristmill.flows.reports.run import Run
from gristmill.storage import layout
from gristmill.storage.printable import redact_url
from gristmill.tasks.engine.make import StageResult

CROISSANT = "croissant.json"
# Appendix 1 of the specification, with the vocabulary of PROV-O.
_CONTEXT: dict[str, Any] = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "prov": "http://www.w3.org/ns/prov#",
    **{
        name: f"cr:{name}"
        for name in (
            *("annotation", "arrayShape", "citeAs", "column", "containedIn", "equivalentProperty", "excludes"),
            *("extract", "field", "fileObject", "fileProperty", "fileSet", "format", "includes", "isArray"),
            *("isLiveDataset", "jsonPath", "key", "md5", "parentField", "path", "readLines", "recordSet", "references"),
            *("regex", "repeated", "replace", "samplingRate", "sdVersion", "separator", "source", "subField"),
            *("transform", "unArchive", "value"),
        )
    },
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "description": {"@container": "@language"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "name": {"@container": "@language"},
}


def croissant(run: Run, answers: Mapping[str, Answer], about: str, domains: bytes, digest: str) -> bytes:
    """The file's bytes. `about`: a sentence that says what it was written from; `domains`: of top-domains.csv;
    `digest`: the SHA-256 of these."""
    runs = sorted((each for each in runs_of(run.settings.home, run.recipe.name) if each.ended), key=lambda one: one.id)
    languages = [row["language"] for row in answers["languages"].value if len(row["language"]) <= 3]
    newest = next((each for each in reversed(runs) if run.corpus.kept.label in each.stages), None)
    last = run.trained.model if run.trained else run.data.tokens if run.data else run.corpus.kept
    value = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "name": run.recipe.name,
        "conformsTo": "http://mlcommons.org/croissant/1.1",
        "description": f"{about} The texts are not among these files. To be filled in by the provider: license, url, "
        "creator, datePublished and citeAs of the data set.",
        **({"dateModified": _time(newest.ended)} if newest else {}),
        **({"inLanguage": languages} if languages else {}),
        "version": f"1.0.0+{layout.digest_of([stage.contents for _, stage in run.built])[:12]}",
        "distribution": [
            {
                "@type": "cr:FileSet",
                "@id": FOLDER,
                "name": FOLDER,
                "description": "What became of each record of the sources.",
                "encodingFormat": "application/vnd.apache.parquet",
                "includes": f"{FOLDER}/*.parquet",
            },
            {
                "@type": "cr:FileObject",
                "@id": DOMAINS,
                "name": DOMAINS,
                "description": "A tenth of the domain names, by the size of their curated texts.",
                "contentUrl": DOMAINS,
                "contentSize": f"{len(domains)} B",
                "encodingFormat": "text/csv",
                "sha256": digest,
            },
        ],
        "recordSet": [
            _record_set(FOLDER, "fileSet", FOLDER, ANNOTATIONS),
            _record_set("domains", "fileObject", DOMAINS, _DOMAINS),
        ],
        "prov:wasGeneratedBy": {"@id": _activity(last)},
        "prov:wasDerivedFrom": [*_sources(run), *_entities(run, runs)],
        "prov:wasAttributedTo": [*_agents(run)],
        "prov:hadMember": [*_runs(runs)],
    }
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


_DOMAINS = pa.schema([("place", pa.int64()), ("domain", pa.string()), ("documents", pa.int64()), ("bytes", pa.int64())])


def _record_set(name: str, kind: str, source: str, schema: pa.Schema) -> dict[str, Any]:
    fields = [
        {
            "@type": "cr:Field",
            "@id": f"{name}/{field.name}",
            "name": field.name,
            **({"description": field.metadata[b"what"].decode()} if field.metadata else {}),
            "dataType": "sc:Integer" if pa.types.is_integer(field.type) else "sc:Text",
            "source": {kind: {"@id": source}, "extract": {"column": field.name}},
        }
        for field in schema
    ]
    return {"@type": "cr:RecordSet", "@id": f"{name}-rows", "name": f"{name}-rows", "field": fields}


def _entities(run: Run, runs: list[RecordedRun]) -> Iterator[dict[str, Any]]:
    """Each stage, with the stages that it read, and its activity."""
    here = {stage.label for _, stage in run.built}
    for output, stage in run.built:
        read = sorted({label for label in stage.manifest["read"].values() if label in here})
        first = next((each for each in runs if stage.label in each.stages), None)
        derived = [{"@id": _entity(label)} for label in read]
        if "files" in stage.manifest["inputs"]:
            derived += [{"@id": _source(source.name)} for source in run.recipe.sources]
        yield {
            "@id": _entity(stage.label),
            "@type": "prov:Entity",
            "prov:label": stage.label,
            "identifier": stage.contents,
            "additionalType": output,
            **({"prov:wasDerivedFrom": derived} if derived else {}),
            "prov:wasGeneratedBy": {
                "@id": _activity(stage),
                "@type": "prov:Activity",
                "prov:label": f"{stage.name}, version {stage.manifest['version']}",
                **({"prov:used": derived} if derived else {}),
                "prov:wasAssociatedWith": {"@id": _agent(stage)},
                **({"dct:isPartOf": {"@id": _recorded(first)}} if first else {}),
            },
        }


def _sources(run: Run) -> Iterator[dict[str, Any]]:
    """What the recipe reads, without the folders of this machine."""
    digest = run.corpus.extracted.manifest["inputs"]["files"]
    for source in run.recipe.sources:
        given = getattr(source, source.key)
        named = (given,) if isinstance(given, str) else tuple(given)
        read = ", ".join(each.rpartition("/")[2] if each.startswith("/") else redact_url(each) for each in named)
        yield {
            "@id": _source(source.name),
            "@type": "prov:Entity",
            "prov:label": f"{source.name}: {source.key} {read}",
            "identifier": f"files of all sources: {digest}",
        }


def _agents(run: Run) -> Iterator[dict[str, Any]]:
    for release in sorted({str(stage.manifest["release"]) for _, stage in run.built}):
        yield {
            "@id": f"urn:gristmill:release:{release}",
            "@type": ["prov:Agent", "prov:SoftwareAgent"],
            "prov:label": f"Gristmill {release}",
        }


def _runs(runs: list[RecordedRun]) -> Iterator[dict[str, Any]]:
    for each in runs:
        yield {
            "@id": _recorded(each),
            "@type": "prov:Activity",
            "prov:label": f"run {each.label}",
            "prov:startedAtTime": _time(each.began),
            "prov:endedAtTime": _time(each.ended),
        }


def _time(moment: str) -> str:
    """A time of a recorded run, which is in UTC."""
    return f"{moment.replace(' ', 'T')}Z"


def _entity(label: str) -> str:
    return f"urn:gristmill:stage:{label}"


def _activity(stage: StageResult) -> str:
    return f"urn:gristmill:activity:{stage.label}"


def _agent(stage: StageResult) -> str:
    return f"urn:gristmill:release:{stage.manifest['release']}"


def _source(name: str) -> str:
    return f"urn:gristmill:source:{name}"


def _recorded(run: RecordedRun) -> str:
    return f"urn:gristmill:run:{run.label}"
