"""Look-up of single texts: candidates are those of brute force over the stored signatures, similarities are exact."""

import os
import pickle
import random
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from gristmill.storage import parquet
from gristmill.tasks.dedup.near import lookup
from gristmill.tasks.dedup.near.documents import document_ids
from gristmill.tasks.dedup.near.settings import MinHash
from gristmill.tasks.dedup.near.sign import by_this_code, signed, unpacked
from tests.corpora import plain_jaccard

SETTINGS = MinHash(shingle=3, permutations=64, bands=16, rows=4, seed=5)
CHARACTERS = SETTINGS.model_copy(update={"unit": "characters", "shingle": 9})


def edited(draw: random.Random, words: list[str], changes: int) -> str:
    words = list(words)
    for _ in range(changes):
        at = draw.randrange(len(words))
        words[at : at + draw.randrange(3)] = [f"new{draw.randrange(10**6)}"]
    return " ".join(words)


def made_up(seed: int, families: int) -> list[str]:
    """Families of near-copies with a few and with many changes, beginnings, copies that differ in case and marks; and
    texts without words."""
    draw = random.Random(seed)
    texts = ["", "... -- !", "one", "One!", "one two three"]
    for _ in range(families):
        words = [f"w{draw.randrange(3000)}" for _ in range(draw.randrange(30, 200))]
        texts += [" ".join(words), " ".join(words).upper() + ".", " ".join(words[: len(words) * 11 // 20])]
        texts += [edited(draw, words, draw.choice([1, 3, 10, 40])) for _ in range(5)]
    draw.shuffle(texts)
    return texts


def write(folder: Path, texts: list[str], settings: MinHash = SETTINGS, pieces: int = 3) -> lookup.Signed:
    """Shards of documents, of which every seventh was not selected, with the signatures of the others."""
    table = pa.table(
        {
            "id": [f"{i:04x}" for i in range(len(texts))],
            "text": pa.array(texts, pa.large_string()),
        }
    )
    documents, signatures = [], []
    for piece in range(pieces):
        own = table.take(np.arange(piece, len(texts), pieces))
        at = np.array([i for i in range(len(own)) if i % 7 != 3])
        chosen = own.take(at).append_column("at", pa.array(at))
        documents.append(str(folder / f"documents-{piece}.parquet"))
        signatures.append(str(folder / f"signatures-{piece}.parquet"))
        parquet.write_table(documents[-1], own)
        parquet.write_table(signatures[-1], signed(chosen, settings))
    return lookup.Signed(f"signatures-{folder.name}", tuple(signatures), tuple(documents), settings)


def stored(among: lookup.Signed) -> list[dict]:
    """The rows of all signatures with their text, signature and global id."""
    rows = []
    for shard, (part, documents) in enumerate(zip(among.signatures, among.documents, strict=True)):
        table = parquet.read_table(part)
        texts = parquet.read_table(documents)["text"].to_pylist()
        values = unpacked(table["signature"], "<u4")
        for nth, row in enumerate(table.select(["id", "at", "size"]).to_pylist()):
            [place] = document_ids(0, shard, np.array([nth])).tolist()
            rows.append(row | {"doc": place, "signature": values[nth], "text": texts[row["at"]]})
    return rows


def sharing(rows: list[dict], signature: np.ndarray, settings: MinHash) -> list[int]:
    """Documents that share a band, by comparing the values of every band with those of each that has words."""
    bands = [slice(at, at + settings.rows) for at in range(0, settings.bands * settings.rows, settings.rows)]
    return [
        row["doc"]
        for row in rows
        if row["size"] and any((row["signature"][band] == signature[band]).all() for band in bands)
    ]


def silent(done: int, total: int) -> None: ...


class Told:
    def __init__(self) -> None:
        self.lines: list[tuple[int, int]] = []

    def __call__(self, done: int, total: int) -> None:
        self.lines.append((done, total))


@pytest.fixture(scope="module", params=[SETTINGS, CHARACTERS], ids=["words", "characters"])
def corpus(request, tmp_path_factory) -> lookup.Signed:
    return write(tmp_path_factory.mktemp("corpus"), made_up(1, 12), request.param)


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> lookup.Signed:
    return write(tmp_path_factory.mktemp("small"), made_up(2, 4))


def queries(among: lookup.Signed) -> list[str]:
    draw = random.Random(3)
    texts = [row["text"] for row in stored(among) if row["size"]]
    return [*draw.sample(texts, 12), edited(draw, texts[0].split(), 2), "nothing like the others", "one"]


def check(among: lookup.Signed, find) -> None:
    """`find` finds whom brute force finds, and `alike` those whose plain Jaccard is high enough, with that Jaccard."""
    rows = stored(among)
    found = 0
    for text in queries(among):
        sought = lookup.sought(text, among.settings)
        docs = find(among, sought.signature)
        assert docs.tolist() == sharing(rows, sought.signature, among.settings)
        for least in (0.05, 0.5, 1.0):
            like = lookup.alike(among, sought, docs, least)
            truth = [
                (-jaccard, row["id"])
                for row in rows
                if row["doc"] in docs and (jaccard := plain_jaccard(text, row["text"], among.settings)) >= least
            ]
            assert [(-one.jaccard, one.id) for one in like] == sorted(truth)
            assert all(stored_at(rows, one) for one in like)
            found += len(like)
    assert found > 50


def stored_at(rows: list[dict], like: lookup.Like) -> bool:
    [row] = [row for row in rows if row["id"] == like.id]
    return (row["at"], row["doc"] >> 32) == (like.at, like.shard)


def test_in_memory_whom_brute_force_finds(corpus):
    check(corpus, lambda among, signature: lookup.in_memory(among, signature, silent))


def test_progress_ends_with_all_documents(corpus):
    told = Told()
    lookup.in_memory(corpus, lookup.sought("one", corpus.settings).signature, told)
    total = sum(map(parquet.rows, corpus.signatures))
    assert told.lines[-1] == (total, total)
    assert told.lines == sorted(told.lines)


def test_a_text_without_a_word_is_refused():
    with pytest.raises(ValueError, match="no word"):
        lookup.sought("... -- !", SETTINGS)


def test_signatures_that_are_not_what_signing_gives_are_known(small):
    assert by_this_code(small.signatures, small.documents, small.settings)
    assert not by_this_code(small.signatures, small.documents[::-1], small.settings)
    assert not by_this_code(small.signatures, small.documents, SETTINGS.model_copy(update={"seed": 6}))


def test_of_documents_with_equal_sets_no_text_is_read(tmp_path):
    among = write(tmp_path, ["the same five words here", "The same five words, here!"] * 8)
    gone = replace(among, documents=("nowhere",) * 3)
    this = lookup.sought("THE SAME FIVE WORDS HERE", SETTINGS)
    like = lookup.alike(gone, this, lookup.in_memory(gone, this.signature, silent), 0.1)
    assert [one.id for one in like] == sorted(row["id"] for row in stored(among))
    assert {one.jaccard for one in like} == {1.0}


def test_texts_of_other_documents_are_an_error(corpus):
    swapped = replace(corpus, documents=corpus.documents[1:] + corpus.documents[:1])
    this = lookup.sought(queries(corpus)[12], corpus.settings)
    docs = lookup.in_memory(swapped, this.signature, silent)
    with pytest.raises(RuntimeError, match="not of the same documents"):
        lookup.alike(swapped, this, docs, 0.1)


def test_in_redis_whom_brute_force_finds(corpus, redis_server):
    check(corpus, lambda among, signature: lookup.in_redis(among, signature, redis_server.address, silent))


def test_other_bands_are_another_index(corpus, redis_server):
    for bands, rows in ((8, 8), (32, 2), (16, 4), (1, 4), (16, 40)):
        settings = corpus.settings.model_copy(update={"bands": bands, "rows": rows})
        among = replace(corpus, settings=settings)
        if bands == 1 or bands * rows > 64:
            with pytest.raises(ValueError):
                lookup.in_redis(among, np.zeros(64, np.uint32), redis_server.address, silent)
        else:
            check(among, lambda among, signature: lookup.in_redis(among, signature, redis_server.address, silent))


def looked_up(among: lookup.Signed, server, progress=silent) -> list[int]:
    this = lookup.sought(queries(among)[0], among.settings)
    return lookup.in_redis(among, this.signature, server.address, progress).tolist()


def truth(among: lookup.Signed) -> list[int]:
    return sharing(stored(among), lookup.sought(queries(among)[0], among.settings).signature, among.settings)


def keys(server, among: lookup.Signed, kind: str = "index") -> list[bytes]:
    return list(server.client.scan_iter(match=f"gristmill:{kind}:{among.name}:16x4*"))


@pytest.fixture
def empty(redis_server):
    redis_server.client.flushall()
    yield redis_server
    redis_server.client.config_set("maxmemory-policy", "noeviction")


def test_an_index_is_filled_once_and_holds_places_of_documents_only(small, empty):
    first, second = Told(), Told()
    assert looked_up(small, empty, first) == looked_up(small, empty, second) == truth(small)
    assert first.lines and not second.lines
    with_words = [row["doc"].to_bytes(8, "big") for row in stored(small) if row["size"]]
    buckets = [key for key in keys(empty, small) if empty.client.type(key) == b"set"]
    members = [member for key in buckets for member in empty.client.smembers(key)]
    assert sorted(members) == sorted(with_words * SETTINGS.bands)
    assert empty.client.get(keys(empty, small, "state")[0]) == str(len(with_words)).encode()
    assert keys(empty, small, "lock") == []


def test_what_others_put_into_a_bucket_is_never_unpickled(small, empty, tmp_path):
    class Planted:
        def __reduce__(self):
            return Path.touch, (tmp_path / "unpickled",)

    looked_up(small, empty)
    for bucket in keys(empty, small):
        if empty.client.type(bucket) == b"set":
            empty.client.sadd(bucket, pickle.dumps(Planted()))
    with pytest.raises(RuntimeError, match="unexpected content"):
        looked_up(small, empty)
    assert not (tmp_path / "unpickled").exists()
    pickle.loads(pickle.dumps(Planted()))
    assert (tmp_path / "unpickled").exists()
    # the remedy that the error names
    empty.client.delete(*keys(empty, small, "state"))
    assert looked_up(small, empty) == truth(small)


@pytest.mark.parametrize("planted", [(9 << 32).to_bytes(8, "big"), (10**6).to_bytes(8, "big"), b"\xff" * 8, b"short"])
def test_places_that_the_stage_does_not_have_are_an_error(small, empty, planted):
    looked_up(small, empty)
    for bucket in keys(empty, small):
        if empty.client.type(bucket) == b"set":
            empty.client.sadd(bucket, planted)
    with pytest.raises(RuntimeError, match="unexpected content"):
        looked_up(small, empty)


def test_an_index_that_lost_documents_is_filled_again(small, empty):
    looked_up(small, empty)
    [table] = [key for key in keys(empty, small) if key.endswith(b":_keys")]
    empty.client.hdel(table, empty.client.hkeys(table)[0])
    told = Told()
    assert looked_up(small, empty, told) == truth(small)
    assert told.lines


FILL = """
import sys, time
import numpy as np
from gristmill.tasks.dedup.near import lookup
from gristmill.tasks.dedup.near.settings import MinHash
lookup._BATCH, lookup._COMMANDS, lookup._LOCK_SECONDS = 5, 10, 1
settings, name, address, *parts = sys.argv[1:]
among = lookup.Signed(name, tuple(parts), (), MinHash.model_validate_json(settings))
def told(done, total):
    print(done, flush=True)
    if done > total / 2:
        time.sleep(60)
lookup.in_redis(among, np.zeros(64, np.uint32), address, told)
"""


def test_a_filling_that_was_killed_is_begun_again(small, empty):
    given = [SETTINGS.model_dump_json(), small.name, empty.address, *small.signatures]
    command = [sys.executable, "-c", FILL, *given]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": os.getcwd()})
    total = sum(small.rows)
    while int(child.stdout.readline()) <= total / 2:
        pass
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert empty.client.get(keys(empty, small, "state")[0]) == b"filling"
    left = len(keys(empty, small))
    assert left > 0
    told = Told()
    assert looked_up(small, empty, told) == truth(small)
    assert told.lines[-1] == (total, total)
    assert len(keys(empty, small)) > left
    check_places(small, empty)


def check_places(among: lookup.Signed, server) -> None:
    """Each document has one place a band, no more: nothing was put in twice."""
    [table] = [key for key in keys(server, among) if key.endswith(b":_keys")]
    held = [server.client.llen(table + key) for key in server.client.hkeys(table)]
    assert held == [SETTINGS.bands] * len([row for row in stored(among) if row["size"]])


def test_of_two_who_find_no_index_one_fills_it(small, empty):
    told = [Told(), Told()]
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda one: looked_up(small, empty, one), told))
    assert found == [truth(small)] * 2
    assert sorted(bool(one.lines) for one in told) == [False, True]
    check_places(small, empty)


def test_a_redis_that_throws_keys_away_is_refused(small, empty):
    empty.client.config_set("maxmemory-policy", "allkeys-lru")
    with pytest.raises(RuntimeError, match="allkeys-lru.*noeviction"):
        looked_up(small, empty)


def test_a_redis_that_is_full_is_an_error_and_no_index(small, empty):
    empty.client.config_set("maxmemory", empty.client.info("memory")["used_memory"] + 50_000)
    try:
        with pytest.raises(RuntimeError, match="maxmemory"):
            looked_up(small, empty)
    finally:
        empty.client.config_set("maxmemory", 0)
    assert looked_up(small, empty) == truth(small)


def test_errors_do_not_tell_the_password(small, redis_server):
    wrong = redis_server.address.replace(redis_server.password, "hunter2hunter2")
    with pytest.raises(RuntimeError, match="redis.sock") as told:
        lookup.in_redis(small, np.zeros(64, np.uint32), wrong, silent)
    assert "hunter2" not in str(told.value)


@pytest.mark.parametrize(
    ("address", "error", "expected"),
    [
        ("redis://:hunter2@localhost:1/3", RuntimeError, "Redis at localhost:1/3: .*refused"),
        ("redis://:hun/ter2@localhost:1/3", ValueError, "cannot be parsed: write redis://"),
        ("http://:hunter2@localhost", ValueError, "cannot be parsed: write redis://"),
    ],
)
def test_an_address_without_a_redis_is_told_without_its_password(small, address, error, expected):
    with pytest.raises(error, match=expected) as told:
        lookup.in_redis(small, np.zeros(64, np.uint32), address, silent)
    assert "hun" not in str(told.value)


def test_without_the_package_redis_its_extra_is_named(small, monkeypatch):
    monkeypatch.setitem(sys.modules, "redis", None)
    with pytest.raises(RuntimeError, match=r"pip install 'gristmill\[redis\]'"):
        lookup.in_redis(small, np.zeros(64, np.uint32), "redis://localhost", silent)
