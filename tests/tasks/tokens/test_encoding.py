"""The fast encoder gives the ids of SentencePiece, for any text, or leaves it to SentencePiece."""

import logging
from pydoc_data import topics

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gristmill.storage import parquet
from gristmill.storage.tokenizer_files import SentencePieceTokenizer
from gristmill.tasks.tokens import encoding
from gristmill.tasks.tokens.encoding import encoder
from gristmill.tasks.tokens.mixture import Mixture
from gristmill.tasks.tokens.tokenizer import BOS, EOS, UNK, Tokenizer, load
from tests.recorded import recorded
from tests.trained_tokenizers import train

TEXTS = list(topics.topics.values())
PIECES = st.sampled_from(["<s>", "</s>", "<unk>", "<0x41>", "▁", "▁▁the", "the ", "  ", "\t", "\r\n", "\0", "０", "é"])
TEXT = st.text(st.characters(exclude_categories=["Cs"]))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    path = str(folder / "documents.parquet")
    parquet.write_table(path, pa.table({"id": [f"{i}" for i in range(len(TEXTS))], "text": TEXTS}))
    given = Tokenizer(vocab_size=600, sample_bytes=200_000)
    train(str(folder), {"a": [(path, path)]}, Mixture(weights={"a": 1}), given, 3)
    return recorded(folder / "tokenizer.model")


@pytest.mark.extended
@settings(max_examples=1000, deadline=None)
@given(st.one_of(TEXT, st.lists(st.one_of(PIECES, TEXT)).map("".join)))
@example("")
@example(" ")
@example(" a  b\u00a0c\u3000d\u2581 e▁")
@example("▁")
@example("\ufeffx\ufffe\ufffd\U0010ffff\x00\x85\u2028")
def test_any_text_has_the_ids_of_sentencepiece_and_comes_back(model, text):
    processor = load(model)
    tokens = encoder(model, []).document(text)
    assert tokens.dtype == np.uint16
    assert tokens[:-1].tolist() == processor.encode(text)
    assert tokens[-1] == EOS and EOS not in tokens[:-1]
    assert UNK not in tokens and BOS not in tokens
    assert processor.decode(tokens.tolist()) == text
    assert sum(np.array(processor.token_bytes())[tokens]) == len(text.encode())


def test_gigatoken_encodes_real_texts_as_sentencepiece_does(model, monkeypatch):
    processor = load(model)
    wanted = [processor.encode(text) for text in TEXTS]
    encode = encoder(model, TEXTS)
    monkeypatch.setattr(SentencePieceTokenizer, "encode", None)  # SentencePiece is not asked
    assert [encode(text).tolist() for text in TEXTS] == wanted


def test_where_ids_differ_sentencepiece_encodes(model, monkeypatch, caplog):
    encode, apart = encoding._fast(model)
    monkeypatch.setattr(encoding, "_fast", lambda model: (lambda text: encode(text)[::-1], apart))
    with caplog.at_level(logging.WARNING):
        found = encoder(model, TEXTS)
    assert found(TEXTS[0]).tolist() == load(model).encode(TEXTS[0])
    assert "gives other ids than SentencePiece" in caplog.text
