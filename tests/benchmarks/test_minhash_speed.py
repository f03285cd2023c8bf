"""Signatures a second, ours and of others, from the same documents in one run on one core, and the core's limit.

Each round has documents of its own, which each of them processes once. A first round, which is not measured, loads and
compiles what each needs once.
"""

import os
import time
from collections.abc import Callable
from importlib.util import find_spec

import numba as nb
import numpy as np
import pyarrow as pa
import pytest
import xxhash
from datasketch import MinHash as Datasketch
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from gristmill.tasks.dedup.near.settings import MinHash
from gristmill.tasks.kernels import minhash, shingles
from gristmill.tasks.kernels.buffers import utf8

# Times as fast as datasketch's `bulk`, from text: what the README promises.
LEAST = 10

DOCUMENTS = 1_000
WORDS = 500
ROUNDS = 6

# Lower case of letters and digits, a space for what separates: of ASCII, which the documents are.
ASCII = bytes(ord(chr(b).lower()) if b < 0x80 and chr(b).isalnum() else 0x20 for b in range(0x100))
SETTINGS = MinHash()
KEY = SETTINGS.permutations, SETTINGS.seed


def corpus(seed: int) -> list[str]:
    """Documents of 400 to 600 words with Zipf's frequencies and the lengths of English words, 3 kB each."""
    rng = np.random.default_rng(seed)
    letters = np.array(list("etaoinshrdlcumwfgypbvk"))
    vocabulary = np.array(["".join(rng.choice(letters, n)) for n in rng.integers(2, 10, 30_000)])
    texts = []
    for _ in range(DOCUMENTS):
        words = vocabulary[(rng.zipf(1.2, rng.integers(0.8 * WORDS, 1.2 * WORDS)) - 1) % len(vocabulary)]
        texts.append(". ".join(" ".join(words[i : i + 17]).capitalize() for i in range(0, len(words), 17)) + ".")
    return texts


def plain_shingles(texts: list[str]) -> list[list[bytes]]:
    """Word n-grams of ASCII texts by the fastest means of Python that we know."""
    made = []
    for text in texts:
        words = text.encode().translate(ASCII).split()
        made.append([b" ".join(gram) for gram in zip(*(words[k:] for k in range(SETTINGS.shingle)), strict=False)])
    return made


def ours(texts: list[str]) -> minhash.Signed:
    data, offsets = utf8(pa.array(texts, pa.large_string()))
    return minhash.signed(data, offsets, SETTINGS.shingle, SETTINGS.unit, *KEY)


def datasketch(made: list[list[bytes]]) -> list[Datasketch]:
    return Datasketch.bulk(made, num_perm=KEY[0], seed=KEY[1], hashfunc=xxhash.xxh32_intdigest)


def rensa(made: list[list[bytes]]) -> dict[str, Callable]:
    """From shingles: full-set R-MinHash and C-MinHash, and `rho`, which looks at a sample of them."""
    from rensa import CMinHash, RMinHash

    hashed = RMinHash.hash_token_sets(made)
    flat = np.concatenate([np.array(row, np.uint64) for row in hashed])
    offsets = np.cumsum([0, *map(len, hashed)]).astype(np.uint64)
    return {
        "rensa R-MinHash": lambda: RMinHash.digest_matrix_from_token_byte_sets(made, *KEY),
        "rensa C-MinHash": lambda: CMinHash.digests64_from_token_sets(made, *KEY),
        "rensa rho (sample)": lambda: RMinHash.digest_matrix_from_token_sets_rho(made, *KEY),
        "rensa R-MinHash of hashes": lambda: RMinHash.digest_matrix_from_flat_token_hashes(flat, offsets, *KEY),
    }


def gaoya(texts: list[str], made: list[list[bytes]]) -> tuple[Callable, Callable]:
    """From strings, whose words are what stands between white space, and from shingles (into an index, as it must)."""
    from gaoya.minhash import MinHashStringIndex

    def index():
        grams = (SETTINGS.shingle, SETTINGS.shingle)
        made = MinHashStringIndex(32, 0.8, SETTINGS.bands, SETTINGS.rows, None, "word", True, grams, "vec")
        return made.minhash_index

    tokens = [[shingle.decode() for shingle in document] for document in made]
    ids = list(range(len(tokens)))
    bands = index()
    return lambda: bands.bulk_hash_docs(texts), lambda: index().bulk_insert_tokens(ids, tokens)


def datatrove(texts: list[str], folder: str) -> tuple[Callable, Callable]:
    """Stage 1 with as many hashes: the signatures alone, and its step with the sorted files that it writes."""
    from datatrove.data import Document
    from datatrove.pipeline.dedup import MinhashDedupSignature
    from datatrove.pipeline.dedup.minhash import MinhashConfig
    from datatrove.utils.logging import logger

    logger.remove()
    config = MinhashConfig(SETTINGS.shingle, SETTINGS.bands, SETTINGS.rows, SETTINGS.seed)
    step = MinhashDedupSignature(folder, config)
    # datatrove 0.10.1 hands strings to xxhash, which since 4.0 takes bytes only.
    step._hash_func = lambda shingle: xxhash.xxh64_intdigest(shingle.encode())
    documents = [Document(text, str(i)) for i, text in enumerate(texts)]
    step.get_shingles(texts[0])  # its tokenizer loaded
    return lambda: [step.get_signature(step.get_shingles(text)) for text in texts], lambda: step.run(iter(documents))


def works(texts: list[str], folder: str) -> dict[str, Callable]:
    """What each does with the documents, by its name."""
    made = plain_shingles(texts)
    data, offsets = utf8(pa.array(texts, pa.large_string()))
    values, ends = shingles.word_shingle_sets(data, offsets, SETTINGS.shingle)
    found = {
        "ours": lambda: ours(texts),
        "ours, Arrow column": lambda: minhash.signed(data, offsets, SETTINGS.shingle, SETTINGS.unit, *KEY),
        "ours, sorted sets": lambda: shingles.word_shingle_sets(data, offsets, SETTINGS.shingle),
        "ours, signatures of sets": lambda: minhash.signatures(values, ends, *KEY),
        "limit": lambda: multiply_adds(DOCUMENTS * 500, np.uint32(12345)),
        "shingles in Python": lambda: plain_shingles(texts),
        "datasketch bulk": lambda: datasketch(made),
    }
    if find_spec("rensa"):
        found |= rensa(made)
    if find_spec("gaoya"):
        found["gaoya"], found["gaoya of shingles"] = gaoya(texts, made)
    if find_spec("datatrove"):
        few = texts[: DOCUMENTS // 10]  # for the slow
        found["datatrove"], found["datatrove, its step"] = datatrove(few, folder)
    return found


def seconds_of_first_passes(folder: str) -> dict[str, float]:
    """The processor's time of each in the median round, in which all have the same documents and take turns."""
    taken: dict[str, list[float]] = {}
    for number in range(ROUNDS + 1):
        for name, work in works(corpus(2 + number), f"{folder}/{number}").items():
            start = time.process_time()
            work()
            taken.setdefault(name, []).append(time.process_time() - start)
    return {name: float(np.median(each[1:])) for name, each in taken.items()}


@intrinsic
def _multiply_add_min(typing_context, rounds, seed):
    """Minima of x * a + b for six multipliers and eight lanes of x, all in vector registers: uint32."""
    lanes, chains = 8, 6

    def loop(context, builder, signature, arguments):
        word = ir.IntType(32)
        vector = ir.VectorType(word, lanes)
        b = builder.insert_element(ir.Constant(vector, ir.Undefined), arguments[1], word(0))
        b = builder.shuffle_vector(b, ir.Constant(vector, ir.Undefined), ir.Constant(vector, [0] * lanes))
        first = builder.add(b, ir.Constant(vector, list(range(lanes))))
        multipliers = [builder.mul(first, ir.Constant(vector, [2 * i + 3] * lanes)) for i in range(chains)]
        minima = [cgutils.alloca_once_value(builder, first) for _ in range(chains)]
        xs = cgutils.alloca_once_value(builder, first)
        with cgutils.for_range(builder, arguments[0]):
            x = builder.load(xs)
            builder.store(builder.add(x, b), xs)
            for a, least in zip(multipliers, minima, strict=True):
                value, before = builder.add(builder.mul(x, a), b), builder.load(least)
                builder.store(builder.select(builder.icmp_unsigned("<", value, before), value, before), least)
        total = builder.load(minima[0])
        for least in minima[1:]:
            total = builder.xor(total, builder.load(least))
        return builder.extract_element(total, word(0))

    return types.uint32(types.int64, types.uint32), loop


@nb.njit
def multiply_adds(rounds, seed):
    """48 multiply-adds and minima of 32 bits a round."""
    return _multiply_add_min(rounds, seed)


@pytest.fixture
def one_core(monkeypatch):
    """Pins this thread, and those that the libraries in Rust start from it, of which each may have one."""
    monkeypatch.setenv("RAYON_NUM_THREADS", "1")
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    yield
    os.sched_setaffinity(0, before)


@pytest.mark.bench
@pytest.mark.usefixtures("one_core")
def test_signatures_per_second(capsys, tmp_path):
    texts = corpus(1)
    made = plain_shingles(texts)
    data, offsets = utf8(pa.array(texts, pa.large_string()))
    values, ends = shingles.word_shingle_sets(data, offsets, SETTINGS.shingle)
    signed = ours(texts)

    # The same sets: as many shingles in each, and so the same signatures once datasketch is given our hash.
    assert [len(set(m)) for m in made] == signed.size.tolist()
    folded = [minhash.fold(values[a:b]).tolist() for a, b in zip(ends, ends[1:], strict=False)]
    same = Datasketch.bulk(folded, num_perm=KEY[0], seed=KEY[1], hashfunc=int)
    assert np.array_equal(signed.signature, [m.hashvalues for m in same])

    seconds = seconds_of_first_passes(str(tmp_path))
    missing = [name for name in ("rensa", "gaoya", "datatrove") if find_spec(name) is None]
    each = {name: s / (DOCUMENTS // 10 if "datatrove" in name else DOCUMENTS) for name, s in seconds.items()}

    lines = [
        f"{DOCUMENTS} documents, {len(values) / DOCUMENTS:.0f} shingles each, {KEY[0]} permutations, one core,"
        f" the processor's time of a first pass, median of {ROUNDS} rounds",
        "",
        f"{'':44}documents/s   ours from strings : it",
    ]

    def line(name: str, time: float) -> None:
        lines.append(f"  {name:42}{1 / time:11,.0f}   {time / each['ours']:8.2f}")

    line("ours, from strings", each["ours"])
    line("ours, from the Arrow column", each["ours, Arrow column"])
    line("ours, from strings to sorted sets", each["ours, sorted sets"])
    line("ours, from sets of hashes", each["ours, signatures of sets"])
    in_python = each["shingles in Python"]
    line("shingles in Python", in_python)
    for name in [name for name in each if name.startswith(("datasketch", "rensa")) and "of hashes" not in name]:
        line(f"{name}, from strings (by Python)", in_python + each[name])
        line(f"{name}, given shingles", each[name])
    for name, note in {
        "rensa R-MinHash of hashes": "given hashes",
        "gaoya": "from strings",
        "gaoya of shingles": "given shingles",
        "datatrove": "from strings",
        "datatrove, its step": "from strings, to its files",
    }.items():
        if name in each:
            line(f"{name}, {note}", each[name])
    lines += [f"  {name} is not measured: it is not installed (pip install {name})" for name in missing]
    needed = len(values) / DOCUMENTS * KEY[0]
    limit = 48 * DOCUMENTS * 500 / seconds["limit"]
    lines += [
        "",
        f"32-bit multiply-adds with minimum that the core can do: {limit / 1e9:.1f}e9/s; {needed:,.0f} a document:"
        f" at most {limit / needed:,.0f} documents/s",
        f"  ours, from sets of hashes   {needed / each['ours, signatures of sets'] / limit:4.0%} of this",
        f"  ours, from strings          {needed / each['ours'] / limit:4.0%} of this",
    ]
    with capsys.disabled():
        print("\n" + "\n".join(lines))
    bulk = [each[name] for name in each if name.startswith("datasketch bulk") and "of hashes" not in name]
    assert (in_python + min(bulk)) / each["ours"] >= LEAST
