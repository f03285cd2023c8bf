"""Token shards by group have each document once, in the group that its columns say."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from storage import parquet
from storage.token_shards import write_tokens
from tasks.tokens.grouping_work import group_shard, quantile_edges, score_points
from tasks.tokens.mixture import Column
from tests.recorded import recorded

SHARDS, DOCUMENTS = 3, 200


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Shards with a language, a score with ties and gaps, and cluster sizes; every tenth document is held out."""
    folder, rng, shards = tmp_path_factory.mktemp("grouping"), np.random.default_rng(0), []
    for shard in range(SHARDS):
        ids = [f"{shard}-{i}" for i in range(DOCUMENTS)]
        score = np.where(rng.random(DOCUMENTS) < 0.1, np.nan, rng.integers(0, 20, DOCUMENTS) / 4)
        language = [["en", "de", None][i] for i in rng.choice(3, DOCUMENTS, p=[0.6, 0.3, 0.1])]
        table = pa.table(
            {
                "id": ids,
                "language": pa.array(language, pa.string()),
                "score": pa.array(score, from_pandas=True),
                "cluster_size": rng.integers(1, 6, DOCUMENTS),
            }
        )
        parquet.write_table(f"{folder}/signals-{shard}.parquet", table)
        train = [i for i in range(DOCUMENTS) if i % 10]
        tokens = [np.append(rng.integers(3, 500, rng.integers(1, 60)), 2).astype("<u2") for _ in train]
        write_tokens(f"{folder}/train-{shard:05d}.bin", [ids[i] for i in train], tokens)
        shards.append((table.take(train).to_pylist(), dict(zip([ids[i] for i in train], tokens, strict=True))))
    return folder, shards


def arguments(folder, shard: int, columns: tuple[Column, ...]) -> dict:
    signals = f"{folder}/signals-{shard}.parquet"
    index = f"{folder}/train-{shard:05d}.parquet"
    places = {"index": index, "source": "web", "documents": signals, "kept": signals, "signals": (signals,)}
    return places | {"columns": columns}


def grouped(corpus, to, columns, rehydrate=None):
    """group: [(document, its tokens as they were written)]"""
    folder, shards = corpus
    edges = {}
    if columns[-1].quantiles:
        records = [score_points(str(to), i, **arguments(folder, i, columns)) for i in range(SHARDS)]
        edges = quantile_edges(records, columns[-1].quantiles)
    found: dict[str, list] = {}
    for i, (rows, _) in enumerate(shards):
        train = recorded(folder / f"train-{i:05d}.bin")
        made = group_shard(
            str(to), i, rehydrate=rehydrate or {}, edges=edges, train=train, **arguments(folder, i, columns)
        )
        known = {row["id"]: row for row in rows}
        for name, file, tokens, documents in made["groups"]:
            ids = np.fromfile(to / file, "<u2")
            index = parquet.read_table(str(to / file.replace(".bin", ".parquet"))).to_pylist()
            assert (len(ids), len(index)) == (tokens, documents)
            cut = [ids[row["offset"] : row["offset"] + row["length"]] for row in index]
            found.setdefault(name, []).extend((known[row["id"]], part) for row, part in zip(index, cut, strict=True))
    every = {row["id"]: part for group in found.values() for row, part in group}
    assert sum(map(len, found.values())) == len(every) == sum(len(tokens) for _, tokens in shards)
    for _, tokens in shards:
        for name, part in tokens.items():
            assert np.array_equal(every[name], part)
    return found


def test_each_document_is_in_the_group_of_its_values(corpus, tmp_path):
    columns = (Column(column="source"), Column(column="language"), Column(column="score", edges=(1, 2.5)))
    found = grouped(corpus, tmp_path, columns)
    for name, documents in found.items():
        for row, _ in documents:
            score = row["score"]
            ranged = "none" if score is None else "<1" if score < 1 else "1-2.5" if score < 2.5 else ">=2.5"
            assert name == f"web/{row['language'] or 'none'}/{ranged}"


def test_cluster_sizes_become_repetitions(corpus, tmp_path):
    found = grouped(corpus, tmp_path, (Column(column="source"),), {1: 1, 2: 3, 4: 2})
    for name, documents in found.items():
        assert {row["cluster_size"] for row, _ in documents} == {"web/x1": {1}, "web/x3": {2, 3}, "web/x2": {4, 5}}[
            name
        ]


def test_ranges_have_equally_many_tokens_in_each_language_and_ascend(corpus, tmp_path):
    columns = (Column(column="language"), Column(column="score", quantiles=4))
    found = grouped(corpus, tmp_path, columns)
    for language in ("en", "de"):
        ranges = [found[f"{language}/q{n:02d}"] for n in range(1, 5)]
        sizes = [sum(len(part) for _, part in documents) for documents in ranges]
        assert max(sizes) - min(sizes) < 2 * 61 + 0.01 * sum(sizes)  # a document at each edge, and the points
        ends = [(min(row["score"] for row, _ in each), max(row["score"] for row, _ in each)) for each in ranges]
        assert all(a[1] <= b[0] for a, b in zip(ends, ends[1:], strict=False))
    assert all(row["score"] is None for name in found if name.endswith("/none") for row, _ in found[name])


def test_numbers_that_are_not_cut_are_refused(corpus, tmp_path):
    with pytest.raises(ValueError, match="score.*edges or quantiles"):
        grouped(corpus, tmp_path, (Column(column="score"),))
    assert Counter(
        name.split("/")[0] for name in grouped(corpus, tmp_path, (Column(column="cluster_size"),))
    ) == Counter("12345")
