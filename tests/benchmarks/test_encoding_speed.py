"""Encoding of a shard beside SentencePiece, tokenizers and datatrove's stage, on the standard library's sources.

One core each; the whole job, which reads Parquet and writes token shards. Each text is encoded once by each: a second
pass over it finds its words in a cache and is up to twice as fast. A first part of the texts, which is not measured,
loads what each loads once. It asserts no times but the promised ratios.
"""

import json
import os
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from tokenizers import Tokenizer as Theirs

from gristmill.storage import parquet
from gristmill.storage.tokenizer_files import SentencePieceTokenizer
from gristmill.tasks.tokens.encoding import encode_shard
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
    parts = [texts[::10], [text for i, text in enumerate(texts) if i % 10]]
    files = [_written(tmp_path, number, part) for number, part in enumerate(parts)]
    path, kept = files[1]
    settings = Tokenizer(kind=kind, vocab_size=8_000, sample_bytes=4_000_000)
    record = train(str(tmp_path), {"a": [(path, path)]}, Mixture(weights={"a": 1}), settings, 3)
    model = recorded(tmp_path / record["file"])
    tokenizer = load(model)
    size = sum(len(text.encode()) for text in parts[1]) / 1e6

    for number, (documents, remaining) in enumerate(files):
        ours = seconds(lambda: encode_shard(str(tmp_path / f"{number}"), 0, documents, remaining, model))  # noqa: B023
    whole = "a shard, read and written"
    rates = {whole: size / ours} | peers(parts, tokenizer, library, tmp_path, size)
    with capsys.disabled():
        print(f"\n{kind}, {size:.0f} MB of Python sources, one core, {os.uname().machine}")
        for name, rate in rates.items():
            print(f"  {name:<28} {rate:7.1f} MB/s  {rates[whole] / rate:5.1f}x")
    assert rates[whole] > times_library * rates[library]
    if "datatrove's stage" in rates:
        assert rates[whole] > times_datatrove * rates["datatrove's stage"]


def _written(folder: Path, number: int, texts: list[str]) -> tuple[str, str]:
    """The files of a shard: its documents, and those that are kept."""
    path, kept, ids = (
        f"{folder}/documents-{number}.parquet",
        f"{folder}/kept-{number}.parquet",
        [*map(str, range(len(texts)))],
    )
    parquet.write_table(path, pa.table({"id": ids, "text": texts}))
    parquet.write_table(kept, pa.table({"id": ids}))
    return path, kept


def _second(encode: Callable[[str], object], parts: list[list[str]]) -> float:
    """Seconds for the second part, after the first."""
    return [seconds(lambda: [encode(text) for text in part]) for part in parts][1]  # noqa: B023


def peers(parts: list[list[str]], tokenizer, library: str, folder: Path, size: float) -> dict[str, float]:
    """MB/s of the tokenizer's own library, and of others that are installed."""
    found = {library: size / _second(tokenizer.encode, parts)}
    file = folder / "tokenizer.json"
    if isinstance(tokenizer, SentencePieceTokenizer):
        file.write_text(json.dumps(tokenizer_json(tokenizer)))
        theirs = Theirs.from_file(str(file))
        found["tokenizers alone"] = size / _second(lambda text: theirs.encode(text).ids, parts)
    try:
        from datatrove.data import Document
        from datatrove.pipeline.tokens.tokenizer import DocumentTokenizer
    except ImportError as error:
        print(f"  not measured: {error}; pip install -e '.[bench]'")
        return found
    taken = []
    for number, part in enumerate(parts):
        places = (str(folder / f"datatrove-{number}"), str(file), str(folder / f"local-{number}"), "0")
        stage = DocumentTokenizer(*places, shuffle_documents=False)
        documents = [Document(text=text, id=f"{i}") for i, text in enumerate(part)]
        taken.append(seconds(lambda: stage.run(documents)))  # noqa: B023
    return found | {"datatrove's stage": size / taken[1]}
