"""A small corpus with real structure: sentences of a Markov chain over words, in a real SentencePiece BPE."""

import multiprocessing
import random

import numpy as np
import pytest
import sentencepiece
import torch

from gristmill.storage import checked_json, files
from gristmill.training.config import RunConfig, TrainingConfig
from gristmill.training.denoisers import MASK
from gristmill.training.model_config import ModelConfig

torch.set_num_threads(1)  # for tensors this small a second thread only waits
# What is forked for a rank has imported training already, which takes seconds of CPU time.
multiprocessing.get_context("forkserver").set_forkserver_preload(["gristmill.training.run.loop"])

WORDS = 150
FOLLOWERS = 3  # of each word: what a model can learn and a unigram cannot
VOCABULARY = 420


def documents(seed: int, count: int) -> list[str]:
    rng = random.Random("words")
    words = ["".join(rng.choice("aeioubdfgklmnprst") for _ in range(rng.randint(2, 7))) for _ in range(WORDS)]
    chain = [[rng.randrange(WORDS) for _ in range(FOLLOWERS)] for _ in range(WORDS)]
    rng = random.Random(seed)
    result = []
    for _ in range(count):
        word, text = rng.randrange(WORDS), []
        for _ in range(rng.randint(20, 120)):
            text.append(words[word])
            word = rng.choice(chain[word])
        result.append(" ".join(text) + " é☃")
    return result


def token_bytes(pieces: sentencepiece.SentencePieceProcessor) -> list[int]:
    return [
        0
        if pieces.is_control(i) or pieces.is_unknown(i)
        else 1
        if pieces.is_byte(i)
        else len(pieces.id_to_piece(i).replace("▁", " ").encode())
        for i in range(pieces.vocab_size())
    ]


def write_corpus(folder, symbols: tuple[str, ...] = ()):
    """The path of a mixture's JSON file: two sources of two shards each, both with held-out text. `symbols`: special
    tokens of the tokenizer."""
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(documents(0, 300)),
        model_prefix=str(folder / "tokenizer"),
        vocab_size=VOCABULARY,
        model_type="bpe",
        byte_fallback=True,
        normalization_rule_name="identity",
        add_dummy_prefix=False,
        remove_extra_whitespaces=False,
        user_defined_symbols=list(symbols),
        minloglevel=2,
    )
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))

    def shard(name: str, seed: int, count: int) -> dict:
        ids = [np.array([*pieces.encode(text), pieces.eos_id()], "<u2") for text in documents(seed, count)]
        np.concatenate(ids).tofile(folder / name)
        return {"path": name, "tokens": sum(map(len, ids)), "digest": files.checksum(str(folder / name))}

    mixture = {
        "vocab_size": pieces.vocab_size(),
        "tokenizer": {"path": "tokenizer.model", "digest": files.checksum(str(folder / "tokenizer.model"))},
        "end_of_text": pieces.eos_id(),
        "token_bytes": token_bytes(pieces),
        "sources": [
            {
                "name": name,
                "share": share,
                "epochs": 4,
                "shards": [shard(f"{name}-{i}.bin", 10 * seed + i, 60 + 40 * i) for i in range(2)],
            }
            for seed, (name, share) in enumerate([("web", 0.7), ("books", 0.3)], start=1)
        ],
        "heldout": [
            {"name": name, "shards": [shard(f"{name}-heldout.bin", 100 + seed, 20)]}
            for seed, name in enumerate(["web", "books"])
        ],
    }
    for source in mixture["sources"]:
        source["tokens"] = sum(part["tokens"] for part in source["shards"])
    path = folder / "mixture.json"
    checked_json.write(str(path), mixture)
    return path


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="session")
def masked_corpus(tmp_path_factory):
    """That of a tokenizer that has the token of the objective masked."""
    return write_corpus(tmp_path_factory.mktemp("masked-corpus"), (MASK,))


@pytest.fixture(scope="session")
def make_run(corpus):
    """A small run: 7 sequences a step, which neither 2 nor 3 ranks nor micro-batches of 2 divide."""

    def make(out, model=None, training=None, **rest) -> RunConfig:
        model = {
            "dim": 32,
            "layers": 2,
            "heads": 4,
            "kv_heads": 2,
            "seq_len": 32,
            "qk_norm": False,
            "tie_embeddings": True,
            **(model or {}),
        }
        training = {
            "steps": 40,
            "batch": 7,
            "micro_batch": 2,
            "optimizer": "adamw",  # whose formula tests write out, and with which ranks round alike
            "learning_rate": 0.01,
            "warmup_steps": 4,
            "eval_every": 20,
            "eval_tokens": 1500,
            "checkpoint_every": 10,
            "sample_tokens": 12,
            **(training or {}),
        }
        return RunConfig(
            model=ModelConfig(**model),
            training=TrainingConfig(**training),
            **{"data": corpus, "out": out, "timeout_seconds": 60, **rest},
        )

    return make


@pytest.fixture(scope="session")
def run_small(make_run, tmp_path_factory):
    """Trains make_run's run in this process; for tests that only look at a finished run."""
    from gristmill.training.run.loop import train

    run = make_run(tmp_path_factory.mktemp("alone"))
    train(run)
    return run
