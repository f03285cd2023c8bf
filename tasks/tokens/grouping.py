"""Token shards by group: the documents of a shard that share values of columns, in files of their own;
and those of the documents of half of the hosts."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gristmill.storage import files, layout, parquet
from gristmill.storage.token_shards import SPLIT, bin_path, index_path, tokens_of, write_tokens
from gristmill.tasks.documents.expressions import evaluate, parsed
from gristmill.tasks.documents.selection import gather, uniform
from gristmill.tasks.tokens.mixture import CLUSTER_SIZE, SOURCE, Column
from gristmill.tasks.url.canonical import host_columns, hosts

MAX_GROUPS = 1_000  # of a shard, each with files of its own
_POINTS = 500  # of a group's scores in a shard: a range is off by a 500th of the tokens at most
NONE = "none"
_POINT = pa.schema(
    {
        "group": pa.string(),
        "score": pa.float64(),
        "tie": pa.float64(),
        "tokens": pa.int64(),
    }
)

Edges = Mapping[str, Sequence[Sequence[float]]]  # of quantiles by group: score, and a number that parts equal scores


def points_folder(folder: str) -> str:
    """The folder of points while a stage is made."""
    return files.join(folder, "points")


def score_points(folder: str, shard: int, columns: tuple[Column, ...], tokens: str, **places: object) -> dict:
    """For quantiles of the last column: write points (group, score, tie, tokens) that represent the tokens of
    this shard, of each group of the columns before it."""
    documents = _documents(columns, index_path(tokens, shard), **places)  # type: ignore[arg-type]
    names = group_names(documents, columns[:-1])
    score, tie = _scores(documents, columns[-1])
    length = documents["length"].to_numpy()
    tables = [_POINT.empty_table()]
    for name in sorted(set(names)):
        rows = np.flatnonzero((names == name) & ~np.isnan(score))
        rows = rows[np.lexsort((tie[rows], score[rows]))]
        if len(rows):
            last, points = _thinned(length[rows])
            columns_of = [pa.repeat(name, len(last)), score[rows][last], tie[rows][last], points]
            tables.append(pa.table(columns_of, schema=_POINT))
    table = pa.concat_tables(tables)
    parquet.write_table(layout.part(points_folder(folder), shard), table)
    return {"points": len(table)}


def _thinned(length: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """At most _POINTS of sorted documents, each the last of a run with about equally many tokens, and these tokens."""
    ends = np.cumsum(length)
    last = np.unique(np.searchsorted(ends, ends[-1] * np.arange(1, _POINTS + 1) / _POINTS).clip(max=len(ends) - 1))
    return last, np.diff(ends[last], prepend=0)


def find_edges(folder: str, number: int, points: Sequence[str], quantiles: int) -> dict:
    """`edges`: those between ranges of equally many tokens, by group. `points`: what `score_points` has written, which
    is held: 24 bytes a point, of up to 500 for each group and shard."""
    with ThreadPoolExecutor(16) as pool:
        table = pa.concat_tables([_POINT.empty_table(), *pool.map(parquet.read_table, points)])
    edges: dict[str, list[tuple[float, float]]] = {}
    for name in sorted(pc.unique(table["group"]).to_pylist()):
        group_points = table.filter(pc.equal(table["group"], name))
        score, tie, tokens = (group_points[column].to_numpy() for column in ("score", "tie", "tokens"))
        order = np.lexsort((tokens, tie, score))
        ends = np.cumsum(tokens[order])
        indices = order[np.searchsorted(ends, ends[-1] * np.arange(1, quantiles) / quantiles)]
        edges[name] = [*zip(score[indices].tolist(), tie[indices].tolist(), strict=True)]
    return {"edges": edges}


def group_shard(
    folder: str,
    shard: int,
    columns: tuple[Column, ...],
    rehydrate: Mapping[int, int],
    edges: Edges,
    tokens: str,
    **places: object,
) -> dict:
    """Write a token shard for each group; `groups` of the record: name, file, tokens and documents of each.

    `columns`, `rehydrate`: of the mixture; `tokens`: the folder of the token shards. Holds the tokens of one shard.
    Raises ValueError for more than MAX_GROUPS groups, or a column of numbers that is not cut into ranges.
    """
    train = tokens_of(tokens, shard)
    documents = _documents(columns, index_path(tokens, shard), bool(rehydrate), **places)  # type: ignore[arg-type]
    quantiles = columns[-1].quantiles
    names = group_names(documents, columns[:-1] if quantiles else columns)
    labels: list[Sequence[str]] = [names.tolist()]
    if rehydrate:
        labels.append(_repetitions(documents, rehydrate))
    if quantiles:
        labels.append(_ranges(names, *_scores(documents, columns[-1]), edges))
    whole = np.array(["/".join(row) for row in zip(*labels, strict=True)], object)
    distinct = sorted(set(whole))
    if len(distinct) > MAX_GROUPS:
        raise ValueError(
            f"mixture.by cuts the token shard {train.path} into {len(distinct):,} groups, but {MAX_GROUPS:,} "
            "are allowed: use columns with fewer values, or set edges or quantiles"
        )
    dtype = np.dtype(documents.schema.metadata[b"dtype"].decode())
    whole_shard = np.frombuffer(train.read(), dtype)
    ids, offsets, lengths = (documents[name].to_numpy() for name in ("id", "offset", "length"))
    groups = []
    for number, name in enumerate(distinct):
        rows = np.flatnonzero(whole == name)
        file = f"train-{shard:05d}-{number:03d}.bin"
        token_arrays = [whole_shard[offsets[row] : offsets[row] + lengths[row]] for row in rows]
        result = write_tokens(files.join(folder, file), ids[rows].tolist(), token_arrays, dtype)
        groups.append([name, file, result.tokens, result.documents])
    return {"groups": groups}


def _documents(
    columns: tuple[Column, ...],
    index: str,
    clusters: bool = False,
    *,
    source: str,
    documents: str,
    kept: str,
    signals: tuple[str, ...],
) -> pa.Table:
    """A row for each document of a token shard: `id`, `offset`, `length`, and the columns."""
    rows = parquet.read_table(index, ["id", "offset", "length"])
    all_columns = [*columns, *([Column(column=CLUSTER_SIZE)] if clusters else [])]
    return with_columns(rows, all_columns, source, (documents, *signals), kept)


def with_columns(rows: pa.Table, columns: Sequence[Column], source: str, parts: tuple[str, ...], kept: str) -> pa.Table:
    """The rows, which have an `id`, with the columns that `group_names` reads; expressions are computed. Raises
    LookupError for a document that the selection `kept` does not have, or a column that no part has, ExpressionError
    for an expression that has no meaning on the columns."""
    there = [name for part in parts for name in parquet.columns(part)]
    column_names = dict.fromkeys(name for column in columns for name in column.reads(there) if name != SOURCE)
    table = pa.table({"id": rows["id"]})
    if column_names:
        values_of = gather(parts, kept, [*column_names])
        indices = pc.index_in(rows["id"], values_of["id"].combine_chunks())
        if indices.null_count:
            raise LookupError(f"{kept} does not hold {indices.null_count} documents that are to be grouped")
        table = values_of.take(indices)
    table = table.append_column(SOURCE, pa.repeat(source, len(rows)))
    for name in dict.fromkeys([*(column.column for column in columns), SOURCE]):
        values = table[name] if name in (*there, SOURCE) else evaluate(parsed(name), table)
        rows = rows.append_column(f"by {name}", values)
    return rows


def group_names(documents: pa.Table, columns: Sequence[Column]) -> np.ndarray:
    """The name of each document's group, objects (documents,); of documents that `with_columns` has given columns."""
    labels = [_labels(documents[f"by {column.column}"], column) for column in columns]
    rows = zip(*labels, strict=True) if labels else [()] * len(documents)
    return np.array(["/".join(row) for row in rows], object)


def _labels(values: pa.ChunkedArray, column: Column) -> list[str]:
    if column.edges:
        numbers = values.cast(pa.float64()).to_numpy()
        bins = np.searchsorted(column.edges, numbers, side="right")
        edges = [f"{edge:g}" for edge in column.edges]
        ranges = [f"<{edges[0]}", *map("-".join, zip(edges, edges[1:], strict=False)), f">={edges[-1]}"]
        return [NONE if np.isnan(number) else ranges[i] for number, i in zip(numbers, bins, strict=True)]
    if pa.types.is_floating(values.type):
        raise ValueError(
            f"mixture.by has {column.column}, whose values are numbers: set its edges or quantiles, or cast "
            "them to whole numbers, as column::bigint"
        )
    return [NONE if value is None else str(value).replace("/", "-") for value in values.to_pylist()]


def _repetitions(documents: pa.Table, rehydrate: Mapping[int, int]) -> list[str]:
    sizes = np.array(sorted(rehydrate))
    indices = np.searchsorted(sizes, documents[f"by {CLUSTER_SIZE}"].to_numpy(), side="right") - 1
    return [f"x{rehydrate[int(sizes[i])]}" for i in indices]


def _scores(documents: pa.Table, column: Column) -> tuple[np.ndarray, np.ndarray]:
    """Scores, NaN where there is none, and a number in [0, 1) that parts equal ones."""
    score = documents[f"by {column.column}"].cast(pa.float64()).to_numpy()
    return score, uniform(documents["id"], 0, "quantiles")


def _ranges(names: np.ndarray, score: np.ndarray, tie: np.ndarray, edges: Edges) -> list[str]:
    ranks = np.zeros(len(names), int)
    for name in set(names):
        rows = names == name
        for edge_score, edge_tie in edges.get(name, ()):
            ranks[rows] += (score[rows] > edge_score) | ((score[rows] == edge_score) & (tie[rows] > edge_tie))
    return [NONE if np.isnan(one) else f"q{count + 1:02d}" for one, count in zip(score, ranks, strict=True)]


# Token shards of the documents of half of the hosts: which pages a crawl had, drawn again.
#
# The half of a number is drawn by a keyed hash of host and number, so it is the same for all corpora that have a host.


def count_shard(folder: str, shard: int, documents: str, tokens: str, first: int, end: int) -> dict:
    """The tokens of a shard in the halves of the numbers from `first` to before `end`, in their order.

    `documents`: the part with the shard's documents; `tokens`: the stage with their tokens. Holds the ids and URLs of
    the shard.
    """
    index = parquet.read_table(index_path(tokens, shard), ["id", "length"])
    names = pc.dictionary_encode(_hosts(index, documents))
    lengths = np.bincount(names.indices.to_numpy(), index["length"].to_numpy(), len(names.dictionary))
    there = pa.chunked_array([names.dictionary])
    return {"tokens": [int(lengths[in_half(there, number)].sum()) for number in range(first, end)]}


def cut_shard(folder: str, shard: int, documents: str, tokens: str, number: int) -> dict:
    """Write the tokens of the documents of a shard that are in the half of a number. Holds the tokens of the shard, the
    ids and the URLs."""
    index = parquet.read_table(index_path(tokens, shard))
    dtype = np.dtype(index.schema.metadata[b"dtype"].decode())
    rows = index.filter(pa.array(in_half(pa.chunked_array([_hosts(index, documents)]), number)))
    whole = np.frombuffer(tokens_of(tokens, shard).read(), dtype)
    ends = zip(rows["offset"].to_pylist(), rows["length"].to_pylist(), strict=True)
    texts = [whole[offset : offset + length] for offset, length in ends]
    result = write_tokens(bin_path(folder, SPLIT, shard), rows["id"].to_pylist(), texts, dtype)
    return {SPLIT: {"tokens": result.tokens, "documents": result.documents}}


def in_half(names: pa.ChunkedArray, number: int) -> np.ndarray:
    """Whether hosts are in the half of a number, bool (hosts,)."""
    return uniform(names, number, "half of the hosts") < 0.5


def _hosts(index: pa.Table, documents: str) -> pa.Array:
    """The host of each document of a token shard. Raises LookupError for one that the part does not have."""
    table = parquet.read_table(documents, ["id", *host_columns(documents)])
    rows = pc.index_in(index["id"], table["id"].combine_chunks())
    if rows.null_count:
        raise LookupError(f"{documents} does not hold {rows.null_count} documents that have tokens")
    return hosts(table.take(rows))
