"""Tokenizers of all kinds: trained twice alike, exact on any text, the same by gigatoken; files of others."""

import json
import random
from functools import cache
from pydoc_data import topics

import numpy as np
import pyarrow as pa
import pytest
import tokenizers
from pydantic import ValidationError

from gristmill.storage import files, parquet
from gristmill.storage.tokenizer_files import read_tokenizer
from gristmill.tasks.tokens.encoding import encoder
from gristmill.tasks.tokens.mixture import Mixture
from gristmill.tasks.tokens.tokenizer import Tokenizer, load, take_tokenizer
from gristmill.training.hub.tokenizer import check_same_ids, tokenizer_json
from tests import trained_tokenizers
from tests.recorded import recorded
from tests.tasks.rules.web import web_texts

TEXTS = [topics.topics[name] for name in sorted(topics.topics)]
SYMBOL = "<|user|>"
KINDS = ("bpe", "unigram", "byte_bpe")
NAMES = ("<s>", "</s>", "<unk>", "<pad>", "<|endoftext|>", "<|end_of_text|>", SYMBOL)
ODD = (" ", "  ", "\n", "\r\n", "\t", "\0", "▁", "▁▁", "e\u0301", "０", "Ⅷ", "'S", "ſ", "'ll", "the", "日本")
BITS = (*NAMES, *ODD)
FUZZED = 1000


def fuzzed(count: int) -> list[str]:
    draw = random.Random(4)
    ranges = ((0, 0x80), (0x80, 0x3000), (0x3000, 0xD800), (0xE000, 0x110000))

    def part() -> str:
        return draw.choice(BITS) if draw.random() < 0.6 else chr(draw.randrange(*draw.choice(ranges)))

    return ["".join(part() for _ in range(draw.randrange(20))) for _ in range(count)]


def train(folder, kind: str, **given) -> dict:
    path = str(folder / "documents.parquet")
    parquet.write_table(path, pa.table({"id": [f"{i}" for i in range(len(TEXTS))], "text": TEXTS}))
    settings = Tokenizer(kind=kind, vocab_size=600, sample_bytes=150_000, symbols=(SYMBOL,), **given)
    return trained_tokenizers.train(str(folder), {"a": [(path, path)]}, Mixture(weights={"a": 1}), settings, 3)


@pytest.fixture(scope="module", params=KINDS)
def made(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    record = train(folder, request.param)
    return request.param, record, recorded(folder / record["file"])


def test_training_twice_gives_the_same_bytes(made, tmp_path):
    kind, record, file = made
    assert train(tmp_path, kind) == record
    assert (tmp_path / record["file"]).read_bytes() == file.read()


@pytest.mark.extended
def test_all_texts_come_back_and_names_of_special_tokens_are_text(made):
    kind, record, file = made
    tokenizer, encode = load(file), encoder(file, TEXTS)
    sizes = np.array(tokenizer.token_bytes())
    assert tokenizer.vocab_size == record["vocab_size"] == 600
    for text in [*TEXTS, *NAMES, *fuzzed(FUZZED)]:
        ids = encode(text)
        assert ids.tolist() == tokenizer.encode(text)
        assert tokenizer.decode(ids.tolist()) == text
        assert sizes[ids].sum() == len(text.encode())
        assert not tokenizer.special & set(ids.tolist())
        assert encode.document(text)[-1] == record["end_of_text"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_real_pages_and_many_odd_texts_come_back(kind, tmp_path):
    texts = [*web_texts(tmp_path / "web"), *NAMES, *fuzzed(10_000)]
    file = recorded(tmp_path / train(tmp_path, kind)["file"])
    tokenizer, encode = load(file), encoder(file, texts)
    for text in texts:
        ids = encode(text).tolist()
        assert ids == tokenizer.encode(text)
        assert tokenizer.decode(ids) == text


def test_a_symbol_is_one_token_and_digits_stand_alone(made):
    tokenizer = load(made[2])
    assert [tokenizer.names[i] for i in tokenizer.encode(SYMBOL)] == [SYMBOL]
    assert [tokenizer.names[i] for i in tokenizer.encode("2024")] == ["2", "0", "2", "4"]


@pytest.mark.parametrize("kind", ["bpe", "byte_bpe"])
def test_gigatoken_encodes(kind, tmp_path, monkeypatch):
    file = recorded(tmp_path / train(tmp_path, kind)["file"])
    wanted = [load(file).encode(text) for text in TEXTS]
    encode = encoder(file, TEXTS)
    monkeypatch.setattr(type(load(file)), "encode", None)  # the tokenizer's own library is not asked
    assert [encode(text).tolist() for text in TEXTS] == wanted


def test_a_unigram_model_says_once_that_it_is_encoded_by_its_own_library(tmp_path, caplog):
    file = recorded(tmp_path / train(tmp_path, "unigram")["file"])
    for _ in range(3):
        encoder(file, TEXTS)
    assert [r.message for r in caplog.records if "gigatoken" in r.message and "SentencePiece encodes" in r.message]
    assert caplog.text.count("gigatoken cannot read") == 1


@pytest.mark.extended
@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_a_sentencepiece_model_is_exported_with_the_same_ids(kind, tmp_path):
    tokenizer = load(recorded(tmp_path / train(tmp_path, kind)["file"]))
    described = tokenizer_json(tokenizer)
    texts = [*(TEXTS if kind == "bpe" else ()), *fuzzed(FUZZED), "a <0x41> b"]
    assert check_same_ids(tokenizer, described, texts) > 0
    # in the library itself, which takes names of special tokens as text with one of its options
    peer = tokenizers.Tokenizer.from_str(json.dumps(described))
    peer.encode_special_tokens = True
    for text in texts:
        assert peer.encode(text, add_special_tokens=False).ids == tokenizer.encode(text)
    if kind == "unigram":  # two ways to cut a run of one character are as likely: each library rounds them otherwise
        with pytest.raises(ValueError, match="other ids than tokenizer.model .* another tokenizer.kind"):
            check_same_ids(tokenizer, described, TEXTS)


@cache
def published() -> str:
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(TEXTS[:20], trainer)
    tokenizer.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>"])
    begin = [("<|begin_of_text|>", tokenizer.token_to_id("<|begin_of_text|>"))]
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="<|begin_of_text|> $A", special_tokens=begin
    )
    tokenizer.enable_truncation(9)
    return tokenizer.to_str()


def of_another(**changes) -> bytes:
    """A tokenizer.json as others publish them: special tokens behind the vocabulary, a text begins with another."""
    return json.dumps(json.loads(published()) | changes).encode()


def test_a_tokenizer_json_of_another_is_taken_with_its_ids(tmp_path):
    data = of_another()
    (tmp_path / "given.json").write_bytes(data)
    record = take_tokenizer(str(tmp_path / "taken"), 0, recorded(tmp_path / "given.json"))
    assert record == {"file": "tokenizer.json", "vocab_size": 402, "end_of_text": 401}
    file = recorded(tmp_path / "taken" / "tokenizer.json")
    peer = tokenizers.Tokenizer.from_buffer(data)
    peer.no_truncation()
    tokenizer, encode = load(file), encoder(file, TEXTS)
    for text in TEXTS:
        assert encode(text).tolist() == peer.encode(text, add_special_tokens=False).ids
    for text in [*NAMES, "<|begin_of_text|> a <|end_of_text|>", *fuzzed(200)]:
        assert encode(text).tolist() == tokenizer.encode(text)
        assert max(encode(text), default=0) < 400 and tokenizer.decode(encode(text).tolist()) == text
    sizes = files.read_json(str(tmp_path / "taken" / "token_bytes.json"))
    assert sizes[400:] == [0, 0] and min(sizes[:400]) == 1
    # what was taken once is taken as it is
    again = take_tokenizer(str(tmp_path / "again"), 0, file)
    assert again == record and (tmp_path / "again" / "tokenizer.json").read_bytes() == file.read()


BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
NO_BLANKS = {"type": "Sequence", "pretokenizers": [{"type": "Whitespace"}, BYTES]}
SPLIT = {"type": "Split", "pattern": {"Regex": r"\s+"}, "behavior": "Removed", "invert": False}
REMOVED = {"type": "Sequence", "pretokenizers": [SPLIT, BYTES]}


@pytest.mark.parametrize(
    ("data", "end", "words"),
    [
        (b"{}", None, "given.json is not a valid tokenizer.json of Hugging Face"),
        (b'{"model": 1', None, "given.json is not a valid tokenizer.json of Hugging Face"),
        (of_another(pre_tokenizer={"type": "Whitespace"}, decoder=None), None, "given.json does not know all bytes"),
        (of_another(pre_tokenizer=NO_BLANKS), None, "given.json removes the blanks between words .*'onetwo'"),
        (of_another(pre_tokenizer=REMOVED), None, "given.json removes the blanks between words"),
        (of_another(added_tokens=[]), None, "given.json has the special tokens none; set tokenizer.end_of_text"),
        (of_another(), "<|end|>", "tokenizer.end_of_text is <|end|>, which is not a special token of .*given.json"),
    ],
)
def test_a_wrong_file_is_one_sentence(tmp_path, data, end, words):
    (tmp_path / "given.json").write_bytes(data)
    with pytest.raises(ValueError, match=words.replace("|", r"\|")) as error:
        take_tokenizer(str(tmp_path / "taken"), 0, recorded(tmp_path / "given.json"), end)
    assert "\n" not in str(error.value) and not (tmp_path / "taken").exists()


@pytest.mark.extended
def test_ids_of_a_large_vocabulary_take_four_bytes(tmp_path):
    described = json.loads(of_another())
    vocab, merges = described["model"]["vocab"], described["model"]["merges"]
    names = [f"Ġx{i}x" for i in range(70_000)]
    vocab |= {name: len(vocab) + at for at, name in enumerate(names)}
    for token in described["added_tokens"]:
        token["id"] += len(names)
    data = json.dumps(described | {"model": described["model"] | {"vocab": vocab, "merges": merges}}).encode()
    (tmp_path / "given.json").write_bytes(data)
    take_tokenizer(str(tmp_path), 0, recorded(tmp_path / "given.json"))
    encode = encoder(recorded(tmp_path / "tokenizer.json"), TEXTS[:1])
    assert encode.document(TEXTS[0]).dtype == np.uint32
    assert encode.document(TEXTS[0])[-1] == 70_401


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"path": "a.json", "vocab_size": 999}, "remove vocab_size, or path"),
        ({"end_of_text": "</s>"}, "there is no path"),
        ({"symbols": ["</s>"]}, "is already a token"),
        ({"symbols": ["<a>", "<a>"]}, "is already a token"),
        ({"symbols": ["a b"]}, "pattern"),
    ],
)
def test_settings_that_contradict_each_other(given, words):
    with pytest.raises(ValidationError, match=words):
        Tokenizer(**given)


def test_a_tokenizer_json_that_says_no_end_is_not_read():
    with pytest.raises(ValueError, match="does not define which token ends a text"):
        read_tokenizer(of_another(post_processor=None), "tokenizer.json")
