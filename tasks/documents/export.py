"""An export: the curated documents as files for others to read, with what was measured of them,
and their dataset card."""

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import yaml
from pydantic import Field, field_validator

from gristmill.storage import files, parquet
from gristmill.storage.schema import own_of
from gristmill.storage.settings import Address
from gristmill.tasks.documents import measure
from gristmill.tasks.documents.expressions import matching, parsed
from gristmill.tasks.documents.selection import gather, select_groups
from gristmill.tasks.documents.step import UNKNOWN, Kind, Settings, Signal

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd  # the same module, for earlier Pythons

SUFFIXES = {"parquet": "parquet", "jsonl": "jsonl.zst"}
_ZSTD: Mapping[int, int] = {zstd.CompressionParameter.compression_level: 3, zstd.CompressionParameter.checksum_flag: 1}

CARRIED = ("id", "text", "url", "date", "source")


class Column(Settings):
    """A column with what a step measured; `measured`: whether it is in the shards' parts, or null everywhere."""

    name: str
    kind: Kind
    unit: str
    source: str
    description: str
    measured: bool = True

    @property
    def field(self) -> pa.Field:
        return measure.field(Signal(self.name, self.kind, self.unit, self.source, description=self.description))


class OwnColumn(Settings):
    """A column of the sources' own. `type`: Arrow's; `feature`: the type in Hugging Face `datasets`, as its YAML has
    it."""

    name: str
    type: str
    feature: dict[str, Any]


def own_columns(schema: pa.Schema) -> tuple[OwnColumn, ...]:
    """The columns of the sources' own, of the schema of a part with documents."""
    fields = [schema.field(name) for name in own_of(schema)]
    return tuple(OwnColumn(name=f.name, type=str(f.type), feature=_feature(f.type)) for f in fields)


def _feature(kind: pa.DataType) -> dict[str, Any]:
    if pa.types.is_list(kind):
        item = _feature(kind.value_type)
        return {"sequence": item.get("dtype", item)} if "dtype" in item else {"list": item.get("struct", item)}
    if pa.types.is_struct(kind):
        return {"struct": [{"name": field.name, **_feature(field.type)} for field in kind]}
    if pa.types.is_timestamp(kind):
        return {"dtype": f"timestamp[{kind.unit}{f', tz={kind.tz}' if kind.tz else ''}]"}
    return {"dtype": _DTYPES.get(str(kind), str(kind))}


_DTYPES = {"double": "float64", "float": "float32", "halffloat": "float16", "date32[day]": "date32"}


def begin(folder: str, number: int, key: str) -> dict:
    """The first job of an export: its record says, in the folder, whose files these will be."""
    return {"key": key}


def export_shard(
    folder: str,
    shard: int,
    documents: str,
    kept: str,
    signals: tuple[str, ...],
    columns: tuple[Column, ...],
    format: str,
    where: str | None = None,
) -> dict:
    """Write the kept documents of a shard in their order; returns documents and characters by source and language.

    `where`: an expression; only documents for which it is true are written. Holds what `curated` holds, and before it
    the columns that the expression names. Raises LookupError for a document that is not in a part.
    """
    ids = None if where is None else matching(signals, kept, where)["id"].combine_chunks()
    there = parquet.schema(documents)
    schema = curated_schema(there, columns)
    totals: Counter[tuple[str, str | None, str]] = Counter()
    with _writing(folder, shard, format, schema) as write:
        for table in curated(documents, kept, signals, columns, [*schema.names, "characters"]):
            if ids is not None:
                table = table.filter(pc.is_in(table["id"], ids))
            _count(totals, table)
            write(table.select(schema.names))
    return {"written": _rows(totals)}


def curated_schema(documents: pa.Schema, columns: Iterable[Column]) -> pa.Schema:
    """The columns of curated documents as they are exported; `documents`: the columns of the parts with the texts."""
    carried = [documents.field(name) for name in (*CARRIED, *own_of(documents))]
    return pa.schema([*carried, *(column.field for column in columns)])


def curated(
    documents: str, kept: str, signals: tuple[str, ...], columns: Iterable[Column], names: Sequence[str]
) -> Iterator[pa.Table]:
    """The columns `names` of the kept documents of a shard, in their order, row group by row group.

    `signals`: the parts with what steps measured. Holds the measured columns of the shard that are asked for, and a row
    group of the others. Raises LookupError for a document that is not in a part.
    """
    there = parquet.schema(documents)
    column_of = {column.name: column for column in columns if column.name in names}
    schema = pa.schema([column_of[name].field if name in column_of else there.field(name) for name in names])
    names_measured = [name for name, column in column_of.items() if column.measured]
    signal_table = gather(signals, kept, names_measured) if names_measured else None
    for group in select_groups(documents, kept, [name for name in names if name not in column_of]):
        values = {name: group[name] for name in names if name not in column_of}
        for name, column in column_of.items():
            if signal_table is None or not column.measured:
                values[name] = pa.nulls(len(group), column.field.type)
        if signal_table is not None:
            indices = pc.index_in(group["id"], signal_table["id"].combine_chunks())
            values |= {name: signal_table[name].take(indices) for name in names_measured}
        yield pa.table({name: values[name] for name in names}).cast(schema)


def summed(records: Iterable[dict]) -> list[tuple[str, str | None, int, int]]:
    """(source, language, documents, characters) of all shards, by what the jobs returned."""
    totals: Counter[tuple[str, str | None, str]] = Counter()
    for record in records:
        for source, language, documents, characters in record["written"]:
            totals[source, language, "documents"] += documents
            totals[source, language, "characters"] += characters
    return [(row[0], row[1], row[2], row[3]) for row in _rows(totals)]


def _count(totals: Counter[tuple[str, str | None, str]], table: pa.Table) -> None:
    keyed = table.select(["source", "language", "characters"])
    for row in keyed.group_by(["source", "language"]).aggregate([("characters", "sum"), ([], "count_all")]).to_pylist():
        totals[row["source"], row["language"], "documents"] += row["count_all"]
        totals[row["source"], row["language"], "characters"] += row["characters_sum"]


def _rows(totals: Counter[tuple[str, str | None, str]]) -> list[list]:
    keys = sorted({key[:2] for key in totals}, key=lambda key: (key[0], key[1] or ""))
    return [[*key, totals[*key, "documents"], totals[*key, "characters"]] for key in keys]


def shard_name(shard: int, format: str) -> str:
    """The name of a shard within the folder of an export; `format`: one of SUFFIXES."""
    return f"data/part-{shard:05d}.{SUFFIXES[format]}"


def _as_text(value: Any) -> str:
    """What JSON has no type for: decimals in digits, binary values in hexadecimal ones, durations."""
    return value.hex() if isinstance(value, bytes) else str(value)


@contextmanager
def _writing(folder: str, shard: int, format: str, schema: pa.Schema) -> Iterator[Callable[[pa.Table], None]]:
    """A function that appends a table of the schema. The shard appears under its name when the block ends without an
    error. Null is `null` in JSON, and so is a number that is not finite; see `_as_text`."""
    path = files.join(folder, shard_name(shard, format))
    if format == "parquet":
        with parquet.create(path, schema) as out:
            yield out.write_table
        return
    # not ZstdFile, which makes no frame where nothing is written
    packed = zstd.ZstdCompressor(options=_ZSTD)
    with files.create(path) as f:

        def write(table: pa.Table) -> None:
            for row in table.to_pylist():
                f.write(packed.compress(orjson.dumps(row, default=_as_text, option=orjson.OPT_APPEND_NEWLINE)))

        yield write
        f.write(packed.flush())


class Export(Settings):
    """Where and how the curated documents are written. Does not affect the corpus."""

    to: Address = Field(
        min_length=1,
        description="Target folder or address (s3://bucket/prefix). It must be empty or contain this same export.",
    )
    format: Literal["parquet", "jsonl"] = Field(
        "parquet", description="File format. jsonl: JSON Lines, compressed with zstd."
    )
    where: str | None = Field(
        None,
        description="Export only documents for which this SQL expression is true, as in the step `where`. null: all.",
    )

    @field_validator("where")
    @classmethod
    def _readable(cls, where: str | None) -> str | None:
        if where is not None:
            parsed(where)
        return where


# The dataset card of an export: a README.md as the Hugging Face Hub and `datasets.load_dataset` read it.
#
# Layout of the header: https://huggingface.co/docs/hub/datasets-cards and .../datasets-manual-configuration.


# Languages with a smaller share of the documents are not in the header, where a language is a claim.
_MIN_SHARE = 0.01
# https://github.com/huggingface/hub-docs/blob/main/datasetcard.md: size_categories
_SIZES = (
    (10**3, "n<1K"),
    (10**4, "1K<n<10K"),
    (10**5, "10K<n<100K"),
    (10**6, "100K<n<1M"),
    (10**7, "1M<n<10M"),
    (10**8, "10M<n<100M"),
    (10**9, "100M<n<1B"),
    (10**10, "1B<n<10B"),
    (10**11, "10B<n<100B"),
    (10**12, "100B<n<1T"),
)
_CARRIED = {
    "id": "xxh3-128 of source, file, offset, length and record id, hexadecimal",
    "text": "the curated text",
    "url": "where the document was found; null where that is not known",
    "date": "when it was crawled, as the crawler wrote it",
    "source": "the recipe's name of the source",
}


class FunnelStep(Settings):
    """What a step let through, and how many documents each of its rules dropped."""

    step: str
    documents_in: int
    documents_out: int
    drops: dict[str, int]


class Card(Settings):
    """What a card says besides what is counted. `recipe`: as YAML; `releases`: (distribution, release); `where`: the
    expression that chose among the recipe's documents, None where all are here."""

    name: str
    recipe: str
    funnel: tuple[FunnelStep, ...]
    columns: tuple[Column, ...]
    own: tuple[OwnColumn, ...] = ()
    format: str
    releases: tuple[tuple[str, str], ...]
    where: str | None = None


_ZSTANDARD = {"jsonl": ("`datasets` reads these files if the package `zstandard` is installed.", "")}


def write_card(folder: str, number: int, card: Card, written: Sequence[tuple[str, str | None, int, int]]) -> dict:
    """Write README.md. `written`: (source, language, documents, characters)."""
    documents, characters = sum(row[2] for row in written), sum(row[3] for row in written)
    lines = [
        "---",
        *yaml.safe_dump(_header(card, written, documents), sort_keys=False, allow_unicode=True).splitlines(),
        "# license: not filled in. Name the licence of the texts here before you publish them",
        "---",
        "",
        f"# {card.name}",
        "",
        f"{documents:,} documents with {characters:,} characters (Unicode code points), made by Gristmill with the "
        "recipe below.",
        "",
        *_condition(card),
        "**Licence: not filled in.** The texts are those of their authors. Whoever publishes this folder names a "
        "licence here and as `license` in the header.",
        "",
        "```python",
        "from datasets import load_dataset",
        "",
        'documents = load_dataset("PATH OF THIS FOLDER", split="train")',
        "```",
        "",
        *_ZSTANDARD.get(card.format, ()),
        "## Documents by source",
        "",
        *_table_by("source", ((row[0], row[2], row[3]) for row in written), documents),
        "",
        "## Documents by language",
        "",
        *_table_by("language", ((row[1] or "not measured", row[2], row[3]) for row in written), documents),
        "",
        "## Funnel",
        "",
        *markdown_table(
            ("step", "documents in", "documents out", "kept", "dropped by rule"),
            (
                (
                    row.step,
                    f"{row.documents_in:,}",
                    f"{row.documents_out:,}",
                    _share(row.documents_out, row.documents_in),
                    ", ".join(f"{rule} {n:,}" for rule, n in sorted(row.drops.items(), key=lambda d: (-d[1], d[0]))),
                )
                for row in card.funnel
            ),
        ),
        "",
        "## Columns",
        "",
        "What steps measured is null where they did not look at a document, as at the reference of a learned filter.",
        "",
        *markdown_table(
            ("column", "type", "unit", "definition"),
            [(name, "string", "", _CARRIED[name]) for name in CARRIED]
            + [(column.name, column.type, "", "of the source, as its files have it") for column in card.own]
            + [(column.name, column.kind, column.unit, _definition(column)) for column in card.columns],
        ),
        "",
        "## Recipe",
        "",
        "~~~yaml",
        *card.recipe.splitlines(),
        "~~~",
        "",
        "## Made with",
        "",
        *markdown_table(("distribution", "release"), card.releases),
        "",
        "`manifest.json` holds the digest of `parts.json`, and this the size and xxh3-128 of every file.",
        "",
    ]
    files.write_bytes(files.join(folder, "README.md"), "\n".join(lines).encode())
    return {"documents": documents, "characters": characters}


def _header(card: Card, counts: Sequence[tuple[str, str | None, int, int]], documents: int) -> dict:
    by_language: Counter[str] = Counter()
    for _, language, count, _ in counts:
        if language is not None and language != UNKNOWN:
            by_language[language] += count
    languages = sorted(name for name, count in by_language.items() if count >= _MIN_SHARE * documents)
    size = next((name for most, name in _SIZES if documents < most), "n>1T")
    return {
        "pretty_name": card.name,
        **({"language": languages} if languages else {}),
        "task_categories": ["text-generation"],
        "size_categories": [size],
        # without them, types are guessed from the first lines of JSON, and a column without values has none
        "dataset_info": {
            "features": [
                *({"name": name, "dtype": "large_string" if name == "text" else "string"} for name in CARRIED),
                *({"name": column.name, **column.feature} for column in card.own),
                *({"name": column.name, "dtype": column.kind} for column in card.columns),
            ]
        },
        "configs": [{"config_name": "default", "data_files": f"data/*.{SUFFIXES[card.format]}"}],
    }


def _condition(card: Card) -> Sequence[str]:
    if card.where is None:
        return ()
    documents = f"the {card.funnel[-1].documents_out:,} documents" if card.funnel else "the documents"
    fence = "`" * (1 + max(map(len, re.findall("`+", card.where)), default=0))
    return (
        f"Of {documents} that the recipe keeps, these are those for which {fence} {card.where} {fence} is true.",
        "",
    )


def _table_by(what: str, counts: Iterable[tuple[str, int, int]], total: int) -> list[str]:
    """A table of documents and characters by a value, the most documents first."""
    documents: Counter[str] = Counter()
    characters: Counter[str] = Counter()
    for value, some, size in counts:
        documents[value] += some
        characters[value] += size
    ranked = sorted(documents.items(), key=lambda item: (-item[1], item[0]))
    rows = [(value, f"{n:,}", _share(n, total), f"{characters[value]:,}") for value, n in ranked]
    return markdown_table((what, "documents", "share", "characters"), rows)


def _definition(column: Column) -> str:
    if not column.measured:
        return f"{column.description} No step measured it: it is null."
    return f"{column.description} ({column.source})" if column.description else column.source


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.1%}" if whole else "-"


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table in Markdown, a line each."""
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in line) + " |" for line in lines]
