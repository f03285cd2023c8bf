"""One flipped bit, or an end that is cut off, in each kind of file that is read back: one error that names the file and
the remedy, or the same value. Never another value."""

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from gristmill.samples.shards import Tokens
from gristmill.storage import checked_json, files, layout, parquet, sorted_files
from gristmill.storage.damage import DamagedFileError, RecordedFile
from gristmill.storage.layout import ManifestError
from gristmill.storage.training_manifest import load_training_manifest
from gristmill.tasks.documents.selection import Heldout
from gristmill.tasks.models import classifiers, perplexity, quality
from gristmill.tasks.models.classifiers import Classifier
from gristmill.tasks.models.ngram_models import load, score_words
from gristmill.tasks.models.perplexity import LanguageModel
from gristmill.tasks.tokens import tokenizer as tokenizers
from gristmill.tasks.tokens.mixture import Mixture
from gristmill.tasks.tokens.tokenizer import Tokenizer
from gristmill.training.batches import check_digests
from gristmill.training.checkpoint.commit import Progress, Saver, load_checkpoint
from gristmill.training.config import RunConfig, TrainingConfig
from gristmill.training.model_config import ModelConfig
from gristmill.training.run.tracking import METRICS, Tracker
from gristmill.training.world import processes
from tests import trained_tokenizers
from tests.recorded import recorded

LABEL = "rules-0123456789abcdef"
WORDS = ("word", "meadow", "river", "mill", "grain", "stone", "lantern")
REFUSED = (DamagedFileError, ManifestError, ValueError)


@dataclass(frozen=True)
class Kind:
    """A file, what reads it, and where in it bits are flipped: parts of the file by name."""

    path: Path
    read: Callable[[], Any]
    parts: dict[str, list[int]]


def whole(path: Path) -> dict[str, list[int]]:
    return {"all": list(range(path.stat().st_size))}


def parts_of_parquet(path: Path) -> dict[str, list[int]]:
    """Bytes of page headers (the first 16 of each column chunk), of page data, of the trailer, and of the footer."""
    size, metadata = path.stat().st_size, pq.read_metadata(path)
    groups = map(metadata.row_group, range(metadata.num_row_groups))
    columns = [group.column(i) for group in groups for i in range(metadata.num_columns)]
    begins = [column.dictionary_page_offset or column.data_page_offset for column in columns]
    chunks = [(begin, begin + column.total_compressed_size) for begin, column in zip(begins, columns, strict=True)]
    footer, end = size - 8 - int.from_bytes(path.read_bytes()[-8:-4], "little"), max(stop for _, stop in chunks)
    return {
        "page headers": [at for begin, stop in chunks for at in range(begin, min(begin + 16, stop))],
        "page data": [at for begin, stop in chunks for at in range(begin + 16, stop)],
        "trailer": list(range(end, footer)),
        "footer": list(range(footer, size)),
    }


def table(rows: int) -> pa.Table:
    rng = np.random.default_rng(5)
    texts = [" ".join(f"{WORDS[n % 7]}{n}" for n in rng.integers(0, 300, 12)) for _ in range(rows)]
    return pa.table(
        {
            "id": [f"{i:032x}" for i in range(rows)],
            "source": ["web"] * rows,
            "text": pa.array(texts, pa.large_string()),
            "hash": pa.array([rng.bytes(16) for _ in range(rows)], pa.binary(16)),
            "score": rng.random(rows),
            "doc": rng.integers(0, 1 << 62, rows),
        }
    )


def shard(folder: Path) -> Kind:
    path = folder / "part-00000.parquet"
    parquet.write_table(str(path), table(400))
    return Kind(path, lambda: parquet.read_table(str(path)), parts_of_parquet(path))


def sorted_file(folder: Path) -> Kind:
    path = folder / "bands" / "00000.parquet"
    sorted_files.write(str(path), table(400).select(["doc", "text", "score"]), "doc", row_group=100)
    return Kind(path, lambda: sorted_files.read(str(path), *sorted_files.EVERYTHING), parts_of_parquet(path))


def manifest_and_parts(folder: Path) -> dict[str, Any]:
    given = {"stage": "rules", "key": "0123456789abcdef", "record": {"low": 0.25, "text": "é"}, "inputs": {}}
    steps = [{"step": "c4", "rows_in": 9, "rows_out": 7, "characters_in": 90, "characters_out": 70, "drops": {"a": 2}}]
    jobs = [layout.Part("decide", i, {"rows_in": 9, "rows_out": 7, "steps": steps}, {}) for i in range(3)]
    return layout.write_manifest(str(folder), {**given, "result": {"seen": 3}}, jobs)


def manifest(folder: Path) -> Kind:
    manifest_and_parts(folder)
    path = folder / "manifest.json"
    return Kind(path, lambda: layout.manifest(str(folder)), whole(path))


def list_of_parts(folder: Path) -> Kind:
    value = manifest_and_parts(folder)
    path = folder / "parts.json"
    return Kind(path, lambda: list(layout.parts(str(folder), value)), whole(path))


def done_marker(folder: Path) -> Kind:
    layout.mark_done(str(folder), "decide", 0, {"record": {"rows": 412, "low": 0.125}, "files": {"a": {"bytes": 7}}})
    path = folder / "done" / "decide-00000.json"
    return Kind(path, lambda: layout.done_record(str(folder), "decide", 0), whole(path))


def run_settings(folder: Path) -> Kind:
    path = folder / "run.json"
    model = ModelConfig(dim=32, layers=2, heads=4, seq_len=32)
    training = TrainingConfig(steps=30, batch=2, learning_rate=0.01)
    run = RunConfig(model=model, training=training, data=folder / "mixture.json", out=folder)
    checked_json.write(str(path), run.model_dump(mode="json"))
    return Kind(path, lambda: RunConfig.model_validate(checked_json.read(str(path))), whole(path))


def planned(folder: Path) -> Path:
    """A training manifest with one shard of tokens beside it, of a vocabulary that all ids fit."""
    np.random.default_rng(3).integers(0, 1 << 16, 3000).astype("<u2").tofile(folder / "train-00000.bin")
    entry = {"path": "train-00000.bin", "tokens": 3000, "digest": files.checksum(str(folder / "train-00000.bin"))}
    source = {"name": "web", "share": 1.0, "tokens": 3000, "epochs": 2.0, "shards": [entry]}
    model = {"path": "tokenizer.model", "digest": "0" * 32}
    given = {"vocab_size": 1 << 16, "end_of_text": 2, "tokenizer": model, "token_bytes": [1] * (1 << 16)}
    given["sources"] = [source]
    checked_json.write(str(folder / "mixture.json"), {**given, "heldout": [{"name": "web", "shards": [entry]}]})
    return folder / "mixture.json"


def mixture(folder: Path) -> Kind:
    path = planned(folder)
    return Kind(path, lambda: load_training_manifest(path), whole(path))


def token_shard(folder: Path) -> Kind:
    plan = load_training_manifest(planned(folder))
    path = folder / "train-00000.bin"

    def read() -> list[int]:
        check_digests(plan)
        return Tokens(plan.sources[0].shards, plan.vocab_size).read(0, 3000).tolist()

    return Kind(path, read, whole(path))


def model(folder: Path, name: str, use: Callable[[RecordedFile], Any]) -> Kind:
    path = folder / name
    file = recorded(path)
    return Kind(path, lambda: use(file), whole(path))


def reference(folder: Path) -> tuple[str, str]:
    path = str(folder / "reference.parquet")
    parquet.write_table(path, table(60))
    return path, path


HELDOUT = Heldout(fractions={"web": 0.05})
SENTENCE = "word0 meadow1 river2 lantern6"


def tokenizer(folder: Path) -> Kind:
    settings = Tokenizer(vocab_size=301, sample_bytes=10_000)
    trained_tokenizers.train(str(folder), {"a": [reference(folder)]}, Mixture(weights={"a": 1}), settings, 1)
    return model(folder, "tokenizer.model", lambda file: tokenizers.load.__wrapped__(file).encode(SENTENCE))


def kenlm(folder: Path) -> Kind:
    perplexity.train_model(str(folder), 0, [reference(folder)], [], LanguageModel(order=2), HELDOUT)
    return model(
        folder,
        "model.bin",
        lambda file: score_words(load.__wrapped__(file), [SENTENCE]).perplexity.tolist(),
    )


def fasttext(folder: Path) -> Kind:
    settings = Classifier(dimensions=4, buckets=100, epochs=1)
    quality.train_model(str(folder), 0, [reference(folder)], [reference(folder)], settings, HELDOUT)
    return model(
        folder,
        "model-0.bin",
        lambda file: [str(v) for v in classifiers.load.__wrapped__(file).predict([SENTENCE], k=2)],
    )


def checkpoint_file(name: str) -> Callable[[Path], Kind]:
    def made(folder: Path) -> Kind:
        state = {"model.w": torch.arange(3000, dtype=torch.float32)}
        with processes(60) as world:
            with Saver(folder / "checkpoints", {"seed": "1"}, world, 60) as saver:
                saved = saver.save(state, Progress(step=1, last={"loss": 0.5}))

        def read() -> tuple[list[float], Any]:
            into = {"model.w": torch.zeros(3000)}
            return load_checkpoint(saved, into, {"seed": "1"}), into["model.w"].tolist()

        return Kind(saved / name, read, whole(saved / name))

    return made


def metrics(folder: Path) -> Kind:
    tracker = Tracker(folder, -1, None, {})
    for step in range(1, 21):
        tracker.log(step, {"train/loss": 1 / step}, {"train/tokens_per_second": 10.0 * step})
        written = tracker.checkpoint()
    tracker.close()
    path = folder / METRICS

    def read() -> list[dict]:
        again = Tracker(folder, 20, None, written)
        again.close()
        return again.metrics.history

    return Kind(path, read, whole(path))


KINDS: dict[str, Callable[[Path], Kind]] = {
    "Parquet shard": shard,
    "sorted partition file": sorted_file,
    "manifest": manifest,
    "list of parts": list_of_parts,
    "done marker": done_marker,
    "training manifest": mixture,
    "run settings": run_settings,
    "token shard": token_shard,
    "metrics of training": metrics,
    "tokenizer": tokenizer,
    "KenLM model": kenlm,
    "fastText model": fasttext,
    "checkpoint tensors": checkpoint_file("__0_0.distcp"),
    "checkpoint layout": checkpoint_file(".metadata"),
    "checkpoint COMMIT": checkpoint_file("COMMIT"),
}


@contextmanager
def ranks() -> Iterator[None]:
    """A group of one process, in which collectives work."""
    with processes(60):
        yield


def same(value: Any, other: Any) -> bool:
    return value.equals(other) if isinstance(value, pa.Table) else value == other


def outcome(kind: Kind, data: bytes, expected: Any) -> str:
    """`refused` or `same`; an AssertionError for all else."""
    # another file, since files in use are mapped
    kind.path.unlink()
    kind.path.write_bytes(data)
    try:
        value = kind.read()
    except REFUSED as error:
        message = str(error)
        assert kind.path.name in message and "; remove " in message and " again" in message, message
        assert len(message.splitlines()) == 1
        return "refused"
    assert same(value, expected), f"{kind.path.name} gives another value"
    return "same"


def trials(name: str, folder: Path, flips: int, cuts: int) -> dict[str, Counter]:
    """What becomes of flips in each part of the file, spread over the parts alike, and of cuts."""
    draw = random.Random(f"{name} 17")
    stage = folder / "stages" / LABEL
    stage.mkdir(parents=True)
    kind = KINDS[name](stage)
    sound = kind.path.read_bytes()
    found: dict[str, Counter] = {}
    with ranks():
        expected = kind.read()
        for turn in range(flips):
            part = list(kind.parts)[turn % len(kind.parts)]
            data = bytearray(sound)
            data[draw.choice(kind.parts[part])] ^= 1 << draw.randrange(8)
            found.setdefault(part, Counter())[outcome(kind, data, expected)] += 1
        for _ in range(cuts):
            found.setdefault("cut off", Counter())[outcome(kind, sound[: draw.randrange(len(sound))], expected)] += 1
        assert outcome(kind, sound, expected) == "same"
    return found


@pytest.mark.parametrize("name", KINDS)
def test_some_flips_and_cuts(tmp_path, name):
    found = trials(name, tmp_path, 12, 3)
    assert found["cut off"] == {"refused": 3}


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_all_flips_and_cuts(tmp_path, name, capsys):
    found = trials(name, tmp_path, 150, 20)
    with capsys.disabled():
        for part, counts in found.items():
            print(f"\n{name:24} {part:14} {dict(counts)}", end="")
