"""The annotation table: whether each record of the sources was kept, or the rule that dropped it, by the key of web
indexes.

A row joins the index of Common Crawl by `surt` and `timestamp`, or by `digest`. A part has the records of one shard,
which is all that is held.
"""

import re
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from gristmill.flows.reports.run import Run
from gristmill.storage import files, layout, parquet
from gristmill.storage.printable import redact_user
from gristmill.tasks.engine.make import StageResult
from gristmill.tasks.url.surt import surt_key

FOLDER = "annotations"
_EXTRACTED = ("id", "source", "url", "date", "digest")
_DROPS = ("id", "step", "rule", "url")
_DAY = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.\d+)?Z")  # WARC-Date, always in UTC
_DIGITS = re.compile(r"\d{14}")

ANNOTATIONS = pa.schema(
    [
        pa.field("surt", pa.string(), metadata={"what": "key of the URL, as url_surtkey of Common Crawl's index"}),
        pa.field("timestamp", pa.string(), metadata={"what": "14 digits in UTC; null where the date is not one"}),
        pa.field("digest", pa.string(), metadata={"what": "of the payload, as in WARC-Payload-Digest"}),
        pa.field("url", pa.string(), metadata={"what": "without user and password; null where it is unknown"}),
        pa.field("verdict", pa.string(), nullable=False, metadata={"what": "kept or dropped"}),
        pa.field("rule", pa.string(), metadata={"what": "step.rule that dropped it"}),
        pa.field("source", pa.string(), nullable=False, metadata={"what": "the recipe's name of the source"}),
        pa.field("id", pa.string(), nullable=False, metadata={"what": "of the document in the other tables"}),
    ]
)


def write_shard(run: Run, shard: int, to: str, about: str) -> int:
    """Write the part of a shard, and return its rows."""
    table = annotate(run, shard).replace_schema_metadata({"about": about})
    parquet.write_table(layout.part(files.join(to, FOLDER), shard), table)
    return len(table)


def annotate(run: Run, shard: int) -> pa.Table:
    """A row for each document of a shard, and for each record that never became one, sorted by key and time. Kept are
    the documents that training may see, or those of the corpus where there is no training data."""
    documents = parquet.read_table(run.corpus.extracted.part(shard), list(_EXTRACTED))
    drops = _drops(run.document_stages, shard)
    left = run.data.split.train if run.data else run.corpus
    kept = parquet.read_table(left.kept.part(shard), ["id"])["id"].combine_chunks()
    of_drop = pc.index_in(documents["id"], drops["id"].combine_chunks())
    rules = drops["rule"].take(of_drop)
    verdicts = pc.if_else(pc.is_in(documents["id"], kept), "kept", "dropped")
    never = drops.filter(pc.invert(pc.is_in(drops["id"], documents["id"].combine_chunks())))
    ids = pa.concat_arrays([*documents["id"].chunks, *never["id"].chunks])
    source = run.corpus.sources[shard]
    urls = [redact_user(url) if url else None for url in (*documents["url"].to_pylist(), *never["url"].to_pylist())]
    nothing = [None] * len(never)
    table = pa.table(
        {
            "surt": pa.array(map(surt_key, urls), pa.string()),
            "timestamp": pa.array([*map(timestamp, documents["date"].to_pylist()), *nothing], pa.string()),
            "digest": pa.array([*documents["digest"].to_pylist(), *nothing], pa.string()),
            "url": pa.array(urls, pa.string()),
            "verdict": pa.concat_arrays([*verdicts.chunks, pa.array(["dropped"] * len(never), pa.string())]),
            "rule": pa.array([*rules.to_pylist(), *never["rule"].to_pylist()], pa.string()),
            "source": pa.array([source] * len(ids), pa.string()),
            "id": ids,
        }
    ).cast(ANNOTATIONS)
    return table.sort_by([("surt", "ascending"), ("timestamp", "ascending"), ("id", "ascending")])


def _drops(stages: Sequence[StageResult], shard: int) -> pa.Table:
    """`id`, `rule` as step.rule, and `url` of what the stages dropped of a shard."""
    paths = [layout.ledger_part(stage.folder, shard) for stage in stages if stage.step_counts]
    schema = pa.schema([(name, pa.string()) for name in _DROPS])
    rows = [parquet.read_table(path, list(_DROPS)).cast(schema) for path in paths]
    table = pa.concat_tables([schema.empty_table(), *rows]).combine_chunks()
    rules = pc.binary_join_element_wise(table["step"], table["rule"], ".")
    return table.set_column(table.schema.get_field_index("rule"), "rule", rules)


def timestamp(date: str | None) -> str | None:
    """A date in the 14 digits of an index; None for one of another form than WARC and ARC files have."""
    if date is None:
        return None
    if match := _DAY.fullmatch(date):
        return "".join(match.groups())
    return date if _DIGITS.fullmatch(date) else None
