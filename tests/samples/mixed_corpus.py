"""A training manifest with three sources, phases, more than one epoch and, if asked for, packed rows. Seeded."""

from pathlib import Path

import numpy as np

from gristmill.storage import checked_json, files
from gristmill.storage.tokens.token_shards import index_bytes
from gristmill.storage.tokens.training_manifest import write_rows
from gristmill.tasks.tokens.packing_work import packed

SEQ_LEN, BATCH, SEED, STEPS = 32, 8, 5, 120
VOCABULARY, END = 500, 2
SHARES = {"web": (0.5, 0.7), "books": (0.3, 0.3), "code": (0.2, 0.0)}  # in two phases
FIRST = 70 * BATCH * SEQ_LEN  # target tokens ahead of the second phase


def write(folder: Path, packing: bool = False, phases: bool = True, vocabulary: int = VOCABULARY) -> Path:
    """The path of `mixture.json`; shards lie in a folder `tokens-KEY` beside its own, as in a home."""
    dtype = "<u2" if vocabulary <= 1 << 16 else "<u4"
    key = "0123456789abcdef"
    tokens, mixture = folder / "stages" / f"tokens-{key}", folder / "stages" / f"mixture-{key}"
    tokens.mkdir(parents=True)
    mixture.mkdir()
    rng = np.random.default_rng(7)
    budget = STEPS * BATCH * SEQ_LEN
    sources = []
    for number, (name, shares) in enumerate(SHARES.items()):
        shards, lengths = [], []
        for shard in range(2):
            counts = rng.integers(1, 90, 60 + 20 * shard)
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
        share = (shares[0] * FIRST + shares[1] * (budget - FIRST)) / budget if phases else shares[0]
        source = {"name": name, "share": share, "tokens": total, "epochs": share * budget / total, "shards": shards}
        if packing:
            found = packed(np.concatenate(lengths), SEQ_LEN)
            path = mixture / f"rows-{number:05d}.bin"
            digest = write_rows(str(path), found.first, found.start, found.length)
            entry = {"path": path.name, "rows": found.rows, "pieces": len(found.start), "digest": digest}
            source["rows"] = [entry]
        sources.append(source)
    (tokens / "tokenizer.json").write_text("{}")
    manifest = {
        "vocab_size": vocabulary,
        "dtype": dtype,
        "tokenizer": {"path": f"../{tokens.name}/tokenizer.json", "digest": files.digest(b"{}")},
        "end_of_text": END,
        "token_bytes": [0, 0, 0, *[1] * (vocabulary - 3)],
        "sources": sources,
        "heldout": [{"name": "web", "shards": [sources[0]["shards"][0]]}],
    }
    if phases:
        begins = zip((0, FIRST), zip(*SHARES.values(), strict=True), strict=True)
        manifest["phases"] = [{"first": first, "shares": list(shares)} for first, shares in begins]
    if packing:
        manifest["row_length"] = SEQ_LEN
    checked_json.write(str(mixture / "mixture.json"), manifest)
    return mixture / "mixture.json"
