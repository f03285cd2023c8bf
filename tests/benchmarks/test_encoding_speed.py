"""Encoding of a shard beside SentencePiece, tokenizers and datatrove's stage, on the standard library's sources.

One core each; the whole job, which reads Parquet and writes token shards. It asserts no times but the promised ratios.
"""

import json
import os
import sysconfig
import time
from pathlib import Path

import pyarrow as pa
import pytest
from tokenizers import Tokenizer as Theirs

from gristmill.storage import parquet
from gristmill.storage.tokenizer_files import SentencePieceTokenizer
from gristmill.tasks.tokens.encoding import encode_shard, encoder
from gristmill.tasks.tokens.mixture import Mixture
from gristmill.tasks.tokens.tokenizer import Tokenizer, load
from gristmill.training.hub.tokenizer import tokenizer_json
from tests.recorded import recorded
from tests.trained_tokenizers import train

MEGABYTES = 16
# (kind, name of the own library, times that library, times datatrove's stage)
PROMISED = [("bpe", "SentencePiece alone", 8, 10), ("byte_bpe", "tokenizers alone", 25, 10)]


@pytest.fixture(scope="module")
def texts() -> list[str]:
    found, size = [], 0
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("**/*.py")):
        text = path.read_text(encoding="utf-8", errors="ignore")
        found.append(text)
        size += len(text.encode())
        if size > MEGABYTES * 1e6:
            return found
    return found


def seconds(work) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


@pytest.mark.bench
@pytest.mark.parametrize(("kind", "library", "times_library", "times_datatrove"), PROMISED)
def test_a_shard_beside_its_peers(kind, library, times_library, times_datatrove, texts, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    path = str(tmp_path / "documents.parquet")
    ids, kept = [f"{i}" for i in range(len(texts))], str(tmp_path / "kept.parquet")
    parquet.write_table(path, pa.table({"id": ids, "text": texts}))
    parquet.write_table(kept, pa.table({"id": ids}))
    settings = Tokenizer(kind=kind, vocab_size=8_000, sample_bytes=4_000_000)
    record = train(str(tmp_path), {"a": [(path, path)]}, Mixture(weights={"a": 1}), settings, 3)
    model = recorded(tmp_path / record["file"])
    tokenizer = load(model)
    size = sum(len(text.encode()) for text in texts) / 1e6

    ours, alone, encode = [], [], encoder(model, texts)
    for turn in range(3):
        ours.append(seconds(lambda: encode_shard(str(tmp_path / f"{turn}"), 0, path, kept, model)))  # noqa: B023
        alone.append(seconds(lambda: [encode.document(text) for text in texts]))
    whole = "a shard, read and written"
    rates = {whole: size / min(ours), "encoded alone": size / min(alone)}
    rates |= peers(texts, tokenizer, library, tmp_path, size)
    with capsys.disabled():
        print(f"\n{kind}, {size:.0f} MB of Python sources, one core, {os.uname().machine}")
        for name, rate in rates.items():
            print(f"  {name:<28} {rate:7.1f} MB/s  {rates[whole] / rate:5.1f}x")
    assert rates[whole] > times_library * rates[library]
    if "datatrove's stage" in rates:
        assert rates[whole] > times_datatrove * rates["datatrove's stage"]


def peers(texts, tokenizer, library: str, folder: Path, size: float) -> dict[str, float]:
    """MB/s of the tokenizer's own library, and of others that are installed."""
    found = {library: size / seconds(lambda: [tokenizer.encode(text) for text in texts])}
    file = folder / "tokenizer.json"
    if isinstance(tokenizer, SentencePieceTokenizer):
        file.write_text(json.dumps(tokenizer_json(tokenizer)))
        theirs = Theirs.from_file(str(file))
        found["tokenizers alone"] = size / seconds(lambda: [theirs.encode(text).ids for text in texts])
    try:
        from datatrove.data import Document
        from datatrove.pipeline.tokens.tokenizer import DocumentTokenizer
    except ImportError as error:
        print(f"  not measured: {error}; pip install -e '.[bench]'")
        return found
    stage = DocumentTokenizer(str(folder / "datatrove"), str(file), str(folder / "local"), "0", shuffle_documents=False)
    documents = [Document(text=text, id=f"{i}") for i, text in enumerate(texts)]
    return found | {"datatrove's stage": size / seconds(lambda: stage.run(documents))}
