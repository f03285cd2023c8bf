"""croissant.json: the corpus as a data set in Croissant 1.1, and its lineage in the terms of PROV-O.

Croissant: https://docs.mlcommons.org/croissant/docs/croissant-spec-1.1.html, which recommends PROV-O for provenance.
The data set has its sources and the run that recorded it. The record sets `stages` and `derivations` have the stages
between them, with fields that stand for properties of PROV-O. They are rows and no nodes that refer to each other: a
reader of JSON-LD that embeds each node where it is named takes exponential time for those. Stages have no times of
their own, so a stage has those of the earliest recorded run that has it.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import orjson
import pyarrow as pa

from gristmill.flows.machine.runs import RecordedRun, runs_of
from gristmill.flows.reports.provenance.annotations import ANNOTATIONS, FOLDER
from gristmill.flows.reports.provenance.figures import Answer
from gristmill.flows.reports.provenance.papers import DOMAINS
from gristmill.flows.reports.run import Run
from gristmill.storage import layout
from gristmill.storage.printable import redact_url

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
    last = run.trained.model if run.trained else run.data.tokens if run.data else run.corpus.kept
    newest = next((each for each in reversed(runs) if last.label in each.stages), None)
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
                "encodingFormat": "application/x-parquet",
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
            _record_set("records", ANNOTATIONS, {}, {"fileSet": {"@id": FOLDER}}),
            _record_set("domains", _DOMAINS, {}, {"fileObject": {"@id": DOMAINS}}),
            _record_set("stages", _STAGES, _MEANINGS, data=_stages(run, runs)),
            _record_set("derivations", _DERIVATIONS, _MEANINGS, data=_derivations(run)),
        ],
        "prov:wasDerivedFrom": [*_sources(run)],
        **({"prov:wasGeneratedBy": _activity(newest)} if newest else {}),
    }
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def _fields(*names: str) -> pa.Schema:
    return pa.schema([(name, pa.string()) for name in names])


_DOMAINS = pa.schema([("place", pa.int64()), ("domain", pa.string()), ("documents", pa.int64()), ("bytes", pa.int64())])
_STAGES = _fields("stage", "contents", "activity", "release", "run", "run_began", "run_ended")
_DERIVATIONS = _fields("stage", "derived_from")
# Which property of PROV-O a field of a stage stands for.
_MEANINGS = {
    "derived_from": "prov:wasDerivedFrom",
    "activity": "prov:wasGeneratedBy",
    "release": "prov:wasAttributedTo",
    "run": "prov:wasInfluencedBy",
    "run_began": "prov:startedAtTime",
    "run_ended": "prov:endedAtTime",
}


def _record_set(
    name: str,
    schema: pa.Schema,
    meanings: Mapping[str, str],
    source: Mapping[str, Any] | None = None,
    data: list[dict[str, Any]] | None = None,
) -> dict[str, Any]:
    """Rows of a file, or `data`, rows by name of the field."""
    fields = [
        {
            "@type": "cr:Field",
            "@id": f"{name}/{field.name}",
            "name": field.name,
            **({"description": field.metadata[b"what"].decode()} if field.metadata else {}),
            **({"equivalentProperty": meanings[field.name]} if field.name in meanings else {}),
            "dataType": "sc:Integer" if pa.types.is_integer(field.type) else "sc:Text",
            **({"source": {**source, "extract": {"column": field.name}}} if source else {}),
        }
        for field in schema
    ]
    value: dict[str, Any] = {"@type": "cr:RecordSet", "@id": name, "name": name, "field": fields}
    if data is not None:
        value["data"] = [{f"{name}/{key}": cell for key, cell in row.items()} for row in data]
    return value


_UNKNOWN = "unknown"  # of a stage that no recorded run has


def _stages(run: Run, runs: list[RecordedRun]) -> list[dict[str, Any]]:
    rows = []
    for _, stage in run.built:
        first = next((each for each in runs if stage.label in each.stages), None)
        rows.append(
            {
                "stage": stage.label,
                "contents": stage.contents,
                "activity": f"{stage.name}, version {stage.manifest['version']}",
                "release": f"Gristmill {stage.manifest['release']}",
                "run": first.label if first else _UNKNOWN,
                "run_began": _time(first.began) if first else _UNKNOWN,
                "run_ended": _time(first.ended) if first else _UNKNOWN,
            }
        )
    return rows


def _derivations(run: Run) -> list[dict[str, Any]]:
    """A row for each stage that another one read, and for each source that the first one read."""
    rows = []
    for _, stage in run.built:
        rows += [{"stage": stage.label, "derived_from": label} for label in sorted({*stage.manifest["read"].values()})]
        if stage.label == run.corpus.extracted.label:
            rows += [{"stage": stage.label, "derived_from": _source(source.name)} for source in run.recipe.sources]
    return rows


def _sources(run: Run) -> Iterator[dict[str, Any]]:
    """What the recipe reads, without the folders of this machine."""
    digest = run.corpus.extracted.manifest["inputs"]["files"]
    for source in run.recipe.sources:
        given = getattr(source, "files" if source.key == "reader" else source.key)  # `reader` names a function
        named = (given,) if isinstance(given, str) else tuple(given)
        read = ", ".join(each.rpartition("/")[2] if each.startswith("/") else redact_url(each) for each in named)
        yield {
            "@id": _source(source.name),
            "@type": "prov:Entity",
            "prov:label": f"{source.name}: {source.key} {read}",
            "identifier": f"files of all sources: {digest}",
        }


def _activity(run: RecordedRun) -> dict[str, Any]:
    return {
        "@id": f"urn:gristmill:run:{run.label}",
        "@type": "prov:Activity",
        "prov:label": f"run {run.label}",
        "prov:startedAtTime": _time(run.began),
        "prov:endedAtTime": _time(run.ended),
        "prov:wasAssociatedWith": {
            "@id": f"urn:gristmill:release:{run.release}",
            "@type": "prov:SoftwareAgent",
            "prov:label": f"Gristmill {run.release}",
        },
    }


def _time(moment: str) -> str:
    """A time of a recorded run, which is in UTC."""
    return f"{moment.replace(' ', 'T')}Z"


def _source(name: str) -> str:
    return f"urn:gristmill:source:{name}"
