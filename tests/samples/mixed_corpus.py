"""A training manifest with three sources, phases, more than one epoch and, if asked for, packed rows. Seeded."""

from functools import cache
from pathlib import Path

import numpy as np
import tokenizers
from tokenizers.pre_tokenizers import ByteLevel

from gristmill.storage import checked_json, files
from gristmill.storage.token_shards import index_bytes
from gristmill.storage.tokenizer_files import prepared
from gristmill.storage.training_manifest import write_rows
from gristmill.tasks.tokens.plan import packed

SEQ_LEN, BATCH, SEED, STEPS = 32, 8, 5, 60
VOCABULARY, END = 500, 2
SHARES = {"web": (0.5, 0.7), "books": (0.3, 0.3), "code": (0.2, 0.0)}  # in two phases
PHASE = STEPS * 7 // 12  # the step at which the second one begins


@cache
def tokenizer(vocabulary: int) -> bytes:
    """A tokenizer.json: bytes, the end-of-text token, and names that no text has."""
    names = [*sorted(ByteLevel.alphabet()), *(f"w{number}" for number in range(vocabulary - 259))]
    vocab = {"pad0": 0, "pad1": 1, "<|endoftext|>": END} | {name: at + 3 for at, name in enumerate(names)}
    made = tokenizers.Tokenizer(tokenizers.models.BPE(vocab, []))
    made.pre_tokenizer = ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    made.add_special_tokens(["<|endoftext|>"])
    return prepared(made.to_str().encode(), None, "tokenizer.json")


def write(
    folder: Path, packing: bool = False, phases: bool = True, vocabulary: int = VOCABULARY, steps: int = STEPS
) -> Path:
    """The path of `mixture.json`; shards lie in a folder `tokens-KEY` beside its own, as in a home."""
    dtype = "<u2" if vocabulary <= 1 << 16 else "<u4"
    key = "0123456789abcdef"
    tokens, mixture = folder / "stages" / f"tokens-{key}", folder / "stages" / f"mixture-{key}"
    tokens.mkdir(parents=True)
    mixture.mkdir()
    rng = np.random.default_rng(7)
    budget, first = steps * BATCH * SEQ_LEN, steps * 7 // 12 * BATCH * SEQ_LEN  # of the second phase
    sources = []
    for number, (name, shares) in enumerate(SHARES.items()):
        shards, lengths = [], []
        for shard in range(2):
            counts = rng.integers(1, 90, 30 + 10 * shard)
            ids = rng.integers(3, vocabulary, counts.sum()).astype(dtype)
            ids[np.cumsum(counts) - 1] = END
            path = tokens / f"train-{2 * number + shard:05d}.bin"
            path.write_bytes(ids.tobytes())
            path.with_suffix(".idx").write_bytes(index_bytes(counts, np.dtype(dtype)))
            shards.append(
                {"path": f"../{tokens.name}/{path.name}", "tokens": len(ids), "digest": files.checksum(str(path))}
            )
            lengths.append(counts)
        total = sum(shard["tokens"] for shard in shards)
        share = (shares[0] * first + shares[1] * (budget - first)) / budget if phases else shares[0]
        source = {"name": name, "share": share, "tokens": total, "epochs": share * budget / total, "shards": shards}
        if packing:
            found = packed(np.concatenate(lengths), SEQ_LEN)
            path = mixture / f"rows-{number:05d}.bin"
            digest = write_rows(str(path), found.first, found.start, found.length)
            entry = {"path": path.name, "rows": found.rows, "pieces": len(found.start), "digest": digest}
            source["rows"] = [entry]
        sources.append(source)
    (tokens / "tokenizer.json").write_bytes(tokenizer(vocabulary))
    manifest = {
        "vocab_size": vocabulary,
        "dtype": dtype,
        "tokenizer": {"path": f"../{tokens.name}/tokenizer.json", "digest": files.digest(tokenizer(vocabulary))},
        "end_of_text": END,
        "token_bytes": [0, 0, 0, *[1] * (vocabulary - 3)],
        "sources": sources,
        "heldout": [{"name": "web", "shards": [sources[0]["shards"][0]]}],
    }
    if phases:
        begins = zip((0, first), zip(*SHARES.values(), strict=True), strict=True)
        manifest["phases"] = [{"first": first, "shares": list(shares)} for first, shares in begins]
    if packing:
        manifest["row_length"] = SEQ_LEN
    checked_json.write(str(mixture / "mixture.json"), manifest)
    return mixture / "mixture.json"
