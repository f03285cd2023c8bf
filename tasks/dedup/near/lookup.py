"""Look-up of one text among signed documents: who shares a band with it, and how like it they are.

Bands are looked up in datasketch's MinHashLSH. It holds the signatures as they are stored, nothing is hashed again, and
lives in memory for one look-up, a shard at a time, or in a Redis, which keeps it:

    gristmill:index:<stage>:16x8:...    datasketch's tables; keys and values are bytes, nothing is pickled
    gristmill:state:<stage>:16x8        `filling`, or the number of documents once all are in
    gristmill:lock:<stage>:16x8         held by the process that fills; runs out if that is killed

A stage's name has its key, and equal keys mean equal signatures, so an index never goes out of date.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import wrapt
import xxhash

from gristmill.storage import parquet
from gristmill.tasks.dedup.near.documents import ROWS, document_ids, row_of
from gristmill.tasks.dedup.near.settings import MinHash
from gristmill.tasks.dedup.near.sign import shingle_sets, signed, unpacked
from gristmill.tasks.documents.selection import read_rows
from gristmill.tasks.engine import extras

if TYPE_CHECKING:
    import datasketch
    from datasketch import LeanMinHash, MinHashLSH
    from redis import Redis
    from redis.lock import Lock
else:
    datasketch = wrapt.lazy_import("datasketch")

Progress = Callable[[int, int], None]  # documents that are in the index, and how many there will be

_BATCH = 1000  # documents, after which progress is reported and a filling's lock kept
_COMMANDS = 2 * _BATCH  # that each of datasketch's tables holds back: two a document
_LOCK_SECONDS = 30


@dataclass(frozen=True)
class Signed:
    """The documents of a finished stage `signatures`.

    `name`: the stage's name-key; `signatures`: its parts; `documents`: the parts with the texts, shard by shard;
    `settings`: the settings of the signatures, and the bands and rows to look up by.
    """

    name: str
    signatures: tuple[str, ...]
    documents: tuple[str, ...]
    settings: MinHash

    @cached_property
    def rows(self) -> tuple[int, ...]:
        return tuple(parquet.rows(part) for part in self.signatures)


@dataclass(frozen=True)
class Sought:
    """A text to look up: its set of shingles, as the stage knows it (`size`, `content`) and as sorted hashes, and its
    signature."""

    size: int
    content: int
    shingles: np.ndarray
    signature: np.ndarray


@dataclass(frozen=True)
class Like:
    """A document like the one that was looked up: its id, where it is (`at`: row of the documents' part), and the exact
    Jaccard similarity of the two sets of shingles."""

    id: str
    shard: int
    at: int
    jaccard: float


def sought(text: str, settings: MinHash) -> Sought:
    """Raises ValueError for a text without a word: it is like nothing."""
    texts = pa.chunked_array([[text]], pa.large_string())
    [row] = _signed(texts, settings).to_pylist()
    if not row["size"]:
        raise ValueError("the text has no words (letters or digits), so it cannot be compared")
    shingles, _ = shingle_sets(texts, settings)
    return Sought(row["size"], row["content"], shingles, np.frombuffer(row["signature"], "<u4"))


def _signed(texts: pa.ChunkedArray, settings: MinHash) -> pa.Table:
    return signed(pa.table({"id": [""] * len(texts), "at": range(len(texts)), "text": texts}), settings)


def in_memory(among: Signed, signature: np.ndarray, progress: Progress) -> np.ndarray:
    """Global ids of the documents that share a band with a signature, in order. Holds the index of one shard."""
    matches: list[bytes] = []
    for shard in range(len(among.signatures)):
        index = _index(among.settings, {"type": "dict"})
        for done in _fill(index, among, shard):
            progress(done, sum(among.rows))
        matches += index.query(_lean(signature, among.settings))
    return _docs(matches)


def in_redis(among: Signed, signature: np.ndarray, address: str, progress: Progress) -> np.ndarray:
    """The same as `in_memory`, from an index in a Redis, which is filled first if it is not there.

    A filling that was killed is begun again; one that another process is at is waited for. Holds the commands of a few
    thousand documents. Raises RuntimeError, without the address's password, where Redis does not do what it is asked
    to, and where the index is not what was put there.
    """
    with _connected(address) as (client, label):
        _refuse_eviction(client, label)
        bands = f"{among.name}:{among.settings.bands}x{among.settings.rows}"
        base = f"gristmill:index:{bands}:".encode()
        storage = {"type": "redis", "basename": base, "redis": {"connection_pool": client.connection_pool}}
        index = _index(among.settings, storage | {"redis_buffer": {"transaction": False}})
        state = f"gristmill:state:{bands}"
        if not _is_filled(client, state, index):
            with _alone(client, f"gristmill:lock:{bands}") as lock:
                if not _is_filled(client, state, index):
                    _refill(client, state, base, index, among, lock, progress)
        keys = index.query(_lean(signature, among.settings))
        if not _has_documents(among, keys):
            raise RuntimeError(
                f"Redis at {label} has unexpected content under {base.decode()}: delete the key {state}, and "
                "the next look-up fills the index again"
            )
        return _docs(keys)


def alike(among: Signed, this: Sought, docs: np.ndarray, least: float) -> list[Like]:
    """The documents whose Jaccard similarity to a text is at least `least`, the most similar first, then by id.

    Of documents with equal sets, and of those too short or too long to be like it, no text is read. Holds the sets of
    one shard's candidates. Raises RuntimeError where texts and signatures are not of the same documents.
    """
    likes: list[Like] = []
    similarities = {(this.size, this.content): 1.0}
    for shard in np.unique(docs // ROWS).tolist():
        rows = row_of(docs[docs // ROWS == shard])
        facts = read_rows(among.signatures[shard], rows, ["id", "at", "size", "content"]).to_pylist()
        unknown = {
            (fact["size"], fact["content"]): fact
            for fact in facts
            if (fact["size"], fact["content"]) not in similarities
            and min(fact["size"], this.size) / max(fact["size"], this.size) >= least
        }
        if unknown:
            similarities |= _similarities(among, shard, this, unknown)
        likes += [
            Like(fact["id"], shard, fact["at"], jaccard)
            for fact in facts
            if (jaccard := similarities.get((fact["size"], fact["content"]), -1.0)) >= least
        ]
    return sorted(likes, key=lambda like: (-like.jaccard, like.id))


def _similarities(
    among: Signed, shard: int, this: Sought, facts: dict[tuple[int, int], dict]
) -> dict[tuple[int, int], float]:
    """Jaccard similarity to a text of some of a shard's sets, by size and content."""
    facts = dict(sorted(facts.items(), key=lambda item: item[1]["at"]))
    positions = np.array([fact["at"] for fact in facts.values()], np.int64)
    texts = read_rows(among.documents[shard], positions, ["id", "text"])
    if texts["id"].to_pylist() != [fact["id"] for fact in facts.values()]:
        raise RuntimeError(
            f"{among.signatures[shard]} and {among.documents[shard]} are not of the same documents; "
            "remove the folder of the signatures to compute them again"
        )
    hashes, ends = shingle_sets(texts["text"], among.settings)
    similarities = {}
    for nth, one in enumerate(facts):
        other = hashes[ends[nth] : ends[nth + 1]]
        same = len(np.intersect1d(this.shingles, other, assume_unique=True))
        similarities[one] = same / (len(other) + this.size - same)
    return similarities


def _index(settings: MinHash, storage: dict[str, Any]) -> "MinHashLSH":
    # a hash of eight bytes instead of a band's values: a fourth of the memory in Redis, and half of the time
    return datasketch.MinHashLSH(
        params=(settings.bands, settings.rows),
        num_perm=settings.permutations,
        hashfunc=xxhash.xxh3_64_digest,
        prepickle=False,
        storage_config=storage,
    )


def _lean(signature: np.ndarray, settings: MinHash) -> "LeanMinHash":
    return datasketch.LeanMinHash(seed=settings.seed, hashvalues=signature, scheme="affine32")


def _fill(index: "MinHashLSH", among: Signed, shard: int) -> Iterator[int]:
    """Put a shard's documents into the index, and say from time to time how many of all shards are done. Those without
    a word, whose signatures are all equal, stay out."""
    before = sum(among.rows[:shard])
    table = parquet.read_table(among.signatures[shard], ["size", "signature"])
    signatures = unpacked(table["signature"], "<u4")
    rows = np.flatnonzero(table["size"].to_numpy())
    with index.insertion_session(_COMMANDS) as session:
        for first in range(0, len(rows), _BATCH):
            some = rows[first : first + _BATCH]
            for row, doc in zip(some, document_ids(0, shard, some).tolist(), strict=True):
                key = doc.to_bytes(8, "big")
                session.insert(key, _lean(signatures[row], among.settings), check_duplication=False)
            yield before + int(some[-1]) + 1
    yield before + len(table)


def _docs(keys: list[bytes]) -> np.ndarray:
    return np.frombuffer(b"".join(sorted(keys)), ">i8").astype(np.int64)


def _has_documents(among: Signed, keys: list[bytes]) -> bool:
    """Whether all keys name documents that there are."""
    if any(len(key) != 8 for key in keys):
        return False
    docs, rows = _docs(keys), np.array(among.rows)
    shard = docs // ROWS
    there = (shard >= 0) & (shard < len(rows))
    return bool(there.all() and (row_of(docs) < rows[shard]).all())


def _is_filled(client: "Redis", state: str, index: "MinHashLSH") -> bool:
    """Whether all documents were put into the index, and are still there."""
    filled = client.get(state)
    return filled is not None and filled.isdigit() and int(filled) == index.keys.size()


@contextmanager
def _alone(client: "Redis", name: str) -> Iterator["Lock"]:
    """Hold a lock, which a thread keeps: on a busy machine a batch may take longer than a killed process's lock should
    last."""
    from redis import RedisError

    stop = Event()
    lock = client.lock(name, timeout=_LOCK_SECONDS, thread_local=False, raise_on_release_error=False)

    def keep() -> None:
        while not stop.wait(_LOCK_SECONDS / 5):
            # who fills finds out, too, where it matters
            with suppress(RedisError):
                lock.reacquire()

    with lock:
        keeper = Thread(target=keep, daemon=True)
        keeper.start()
        try:
            yield lock
        finally:
            stop.set()
            keeper.join()


def _refill(
    client: "Redis",
    state: str,
    base: bytes,
    index: "MinHashLSH",
    among: Signed,
    lock: "Lock",
    progress: Progress,
) -> None:
    if client.exists(state) or index.keys.size():
        with client.pipeline(transaction=False) as several:
            for key in client.scan_iter(match=base + b"*", count=_BATCH):
                several.unlink(key)
                if len(several) >= _BATCH:
                    several.execute()
            several.execute()
    client.set(state, "filling")
    for shard in range(len(among.signatures)):
        for done in _fill(index, among, shard):
            lock.reacquire()
            progress(done, sum(among.rows))
    sizes = [parquet.read_table(part, ["size"])["size"].to_numpy() for part in among.signatures]
    client.set(state, int(np.count_nonzero(np.concatenate(sizes))))


@contextmanager
def _connected(address: str) -> Iterator[tuple["Redis", str]]:
    """A client, and the address as it may be shown. Errors within become RuntimeErrors."""
    extras.require("redis", "an index in Redis")
    import redis

    try:
        pool = redis.ConnectionPool.from_url(address)
    except ValueError:
        # what urllib and redis say of it may hold the password
        raise ValueError(
            "the address of Redis cannot be parsed: write redis://user:password@host:port/db, rediss://... "
            "or unix:///path; in a password, write %2F for / and so on"
        ) from None
    options = pool.connection_kwargs
    label = (
        options.get("path") or f"{options.get('host', 'localhost')}:{options.get('port', 6379)}/{options.get('db', 0)}"
    )
    try:
        with redis.Redis(connection_pool=pool) as client:
            yield client, label
    except redis.RedisError as error:
        raise RuntimeError(f"Redis at {label}: {error}") from None
    finally:
        pool.disconnect()


def _refuse_eviction(client: "Redis", label: str) -> None:
    policy = client.info("memory")["maxmemory_policy"]
    if policy.startswith("allkeys"):
        raise RuntimeError(
            f"Redis at {label} may evict any key (maxmemory-policy {policy}), and an incomplete index misses "
            "documents: set maxmemory-policy to noeviction"
        )
