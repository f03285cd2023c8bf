"""Clusters by connected components (`threshold: null`) against union-find over all pairs that share a band."""

from itertools import combinations
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError

from gristmill.flows.stages.dedup import near_duplicates
from gristmill.storage import files, parquet
from gristmill.tasks.dedup import exchange
from gristmill.tasks.dedup.near import gather
from gristmill.tasks.dedup.near.settings import MinHash
from gristmill.tasks.dedup.near.sign import band_hashes, signed
from gristmill.tasks.engine.executors import executor
from tests.corpora import Texts, context, fresh, ledger, plain_jaccard, read

WORDS = 60
CONNECTED = MinHash(threshold=None, bands=32, rows=3, partitions=3)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """What is done for large corpora is done here for small ones."""
    monkeypatch.setattr(exchange, "SMALL_BYTES", 5_000)


def planted(seed: int, template: int = 60) -> list[dict]:
    """Chains of windows, copies of a template, equal sets, documents without words, and such as are like none."""
    rng = np.random.default_rng(seed)
    texts = [" ".join(fresh(rng, WORDS)) for _ in range(40)]
    for step in (2, 5, 9, 15):
        chain = fresh(rng, WORDS + 20 * step)
        texts += [" ".join(chain[i * step : i * step + WORDS]) for i in range(20)]
    common = fresh(rng, WORDS)
    for _ in range(template):
        words = list(common)
        for place in rng.integers(WORDS, size=rng.integers(1, 12)):
            words[place] = fresh(rng, 1)[0]
        texts.append(" ".join(words))
    texts += texts[:8] + [text.upper() for text in texts[4:12]] + ["", "... — !", "", "one", "One!"]
    numbers = rng.permutation(len(texts))
    return [
        {"id": f"d{k:04d}", "text": text, "date": f"20{rng.integers(10, 30)}"}
        for k, text in zip(numbers, texts, strict=True)
    ]


def longest(document: dict) -> tuple:
    return -len(document["text"]), document["id"]


def newest(document: dict) -> tuple:
    return -int(document["date"]), document["id"]


def definition(documents: list[dict], settings: MinHash, order) -> dict[str, str]:
    """{dropped: kept}, by brute force over all pairs."""
    rows = {"id": [d["id"] for d in documents], "at": range(len(documents)), "text": [d["text"] for d in documents]}
    found = signed(pa.table(rows), settings)
    bands, sizes = band_hashes(found["signature"], settings), found["size"].to_numpy()
    root = list(range(len(documents)))

    def find(i: int) -> int:
        while root[i] != i:
            i = root[i]
        return i

    for i, j in combinations(np.flatnonzero(sizes).tolist(), 2):
        if (bands[i] == bands[j]).any():
            root[find(i)] = find(j)
    members: dict[int, list[dict]] = {}
    for i, document in enumerate(documents):
        members.setdefault(find(i), []).append(document)
    dropped = {}
    for cluster in members.values():
        first, *others = sorted(cluster, key=order)
        dropped |= {other["id"]: first["id"] for other in others}
    return dropped


def dealt(documents: list[dict], n: int, seed: int) -> list[list[dict]]:
    order = np.random.default_rng(seed).permutation(len(documents)).tolist()
    return [[documents[i] for i in order[shard::n]] for shard in range(n)]


def clustered(home: Path, shards: list[list[dict]], settings: MinHash = CONNECTED, workers=None):
    texts = Texts(shards)
    return near_duplicates.minhash(context(str(home), workers), texts.recipe, texts.corpus(str(home)), settings)


def drops(corpus) -> dict[str, str]:
    rows = ledger(corpus.kept, corpus.places.shards()).to_pylist()
    assert {(row["rule"], row["value"], row["threshold"]) for row in rows} <= {("near_duplicate", None, None)}
    return {row["id"]: row["representative"] for row in rows}


@pytest.mark.extended
@pytest.mark.parametrize(
    ("seed", "shards", "partitions", "template", "keep", "order"),
    [
        (1, 1, 1, 60, ("longest",), longest),
        (2, 3, 3, 0, ("longest",), longest),
        (3, 4, 3, 200, ("newest",), newest),
        (4, 2, 16, 10, (), lambda document: document["id"]),
    ],
)
def test_the_kept_documents_are_the_first_of_each_component(tmp_path, seed, shards, partitions, template, keep, order):
    documents = planted(seed, template)
    settings = CONNECTED.model_copy(update={"partitions": partitions, "keep": keep})
    left = clustered(tmp_path, dealt(documents, shards, seed), settings)
    found, expected = drops(left), definition(documents, settings, order)
    assert found == expected and len(found) > 40
    kept = {row["id"]: row["cluster_size"] for row in read(left.kept, left.places.shards()).to_pylist()}
    assert sorted([*kept, *found]) == sorted(d["id"] for d in documents)
    assert kept == {name: 1 + list(expected.values()).count(name) for name in kept}
    result = left.kept.result
    assert (result["dropped"], result["clusters"]) == (len(expected), len(set(expected.values())))
    assert result["largest_cluster"] == result["largest_component"] == max(kept.values())
    assert result["comparisons"] == result["left_out"] == 0
    # what sets components apart: documents go for one that they are unlike
    texts = {d["id"]: d["text"] for d in documents}
    assert min(plain_jaccard(texts[name], texts[other]) for name, other in found.items()) < 0.1


def test_no_text_is_read_to_decide(tmp_path, monkeypatch):
    documents = planted(5)
    shards = dealt(documents, 2, 1)
    clustered(tmp_path, shards, CONNECTED.model_copy(update={"threshold": 0.9}))

    def refused(*_):
        raise AssertionError("a text was read")

    monkeypatch.setattr(gather, "read_groups", refused)
    left = clustered(tmp_path, shards)
    assert [made.reused for made in left.stages[-3:]] == [True, True, False]
    assert drops(left) == definition(documents, CONNECTED, longest)
    with pytest.raises(AssertionError):
        clustered(tmp_path, shards, CONNECTED.model_copy(update={"threshold": 0.8}))


@pytest.mark.extended
def test_no_byte_depends_on_the_workers_and_no_verdict_on_partitions(tmp_path):
    shards = dealt(planted(6), 4, 2)
    kept, written, ledgers, verdicts = [], [], [], []
    for number, (workers, partitions) in enumerate([(1, 1), (3, 3), (1, 3), (4, 16)]):
        with executor("threads", workers) as pool:
            settings = CONNECTED.model_copy(update={"partitions": partitions})
            left = clustered(tmp_path / str(number), shards, settings, pool)
        folder = Path(left.kept.folder)
        paths = sorted(str(path) for kind in ("part-*", "kept/*") for path in folder.glob(f"{kind}.parquet"))
        kept.append([parquet.read_table(path) for path in paths])
        written.append([files.checksum(path) for path in paths])
        ledgers.append([files.checksum(str(path)) for path in sorted(folder.glob("ledger/*.parquet"))])
        verdicts.append(drops(left))
    assert len(kept[0]) == 8 and all(one == kept[0] for one in kept)
    # a file holds the name of its stage, and so the key of its settings
    assert written[1] == written[2]
    # within a shard's ledger the rows of one partition follow those of another
    assert len(ledgers[1]) == 4 and ledgers[1] == ledgers[2]
    assert all(one == verdicts[0] for one in verdicts)


def test_a_corpus_in_which_nothing_shares_a_band(tmp_path):
    rng = np.random.default_rng(1)
    documents = [{"id": f"u{i}", "text": " ".join(fresh(rng, WORDS))} for i in range(9)] + [{"id": "e", "text": ""}]
    left = clustered(tmp_path, [documents, []])
    assert drops(left) == {} and left.kept.result["clusters"] == left.kept.result["largest_cluster"] == 0
    assert len(read(left.kept, [0, 1])) == 10


def test_two_documents_with_one_id_are_an_error(tmp_path):
    text = " ".join(fresh(np.random.default_rng(1), WORDS))
    with pytest.raises(ValueError, match="have the id 'd0': rename their sources"):
        clustered(tmp_path, [[{"id": "d0", "text": text}], [{"id": "d0", "text": f"{text} more"}]])


def test_what_needs_comparisons_is_refused_in_one_sentence(tmp_path):
    for key, value in (("earlier", "/home/stages/near_duplicates-1"), ("takedowns", "/lists/gone.txt")):
        sentence = f"`{key}` is {value}, but `threshold` is null.*: set a threshold, such as 0.8, or remove `{key}`"
        with pytest.raises(ValidationError, match=sentence):
            MinHash(threshold=None, **{key: (value,)})
    shards = dealt(planted(7), 2, 1)
    made = clustered(tmp_path, shards).kept.folder
    later = CONNECTED.model_copy(update={"threshold": 0.8, "earlier": (made,)})
    with pytest.raises(ValueError, match="whose `threshold` is null, but here it is 0.8"):
        clustered(tmp_path, shards, later)
