"""The tokenizer loses nothing, and learns from what the mixture says."""

import random
from collections import Counter
from pathlib import Path
from pydoc_data import topics

import pyarrow as pa
import pytest
import sentencepiece as spm
from pydantic import ValidationError

from gristmill.storage import files, parquet, tokenizer_files
from gristmill.storage.tokenizer_files import TextTokenizer
from gristmill.tasks.tokens.mixture import Mixture
from gristmill.tasks.tokens.strategies import sample_mixture
from gristmill.tasks.tokens.tokenizer import (
    BOS,
    EOS,
    MAX_VOCABULARY,
    UNK,
    Tokenizer,
    _byte_bpe,
    _sentencepiece,
    load,
    sampled_texts,
    sentences,
    take_tokenizer,
)
from tests import trained_tokenizers
from tests.recorded import recorded
from tests.trained_tokenizers import sample, text_sizes

SEED = 5
SETTINGS = Tokenizer(vocab_size=600, sample_bytes=200_000)
PROSE = {name: topics.topics[name] for name in sorted(topics.topics)}


def write(folder, name: str, texts: dict[str, str]) -> tuple[str, str]:
    path = str(folder / f"{name}.parquet")
    parquet.write_table(path, pa.table({"id": list(texts), "text": pa.array(list(texts.values()), pa.large_string())}))
    return path, path


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("documents")
    draw = random.Random(1)
    numbers = {f"n{i}": " ".join(str(draw.randrange(10**6)) for _ in range(60)) + "\n" for i in range(400)}
    names = list(PROSE)
    return {
        "prose": [write(folder, f"prose{i}", {n: PROSE[n] for n in names[i::2]}) for i in range(2)],
        "numbers": [write(folder, "numbers", numbers)],
    }


def train(folder, inputs, weights=None, settings=SETTINGS, seed=SEED) -> dict:
    return trained_tokenizers.train(
        folder, inputs, Mixture(weights=weights or {"prose": 3, "numbers": 1}), settings, seed
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory, inputs):
    folder = tmp_path_factory.mktemp("tokenizer")
    return folder, train(folder, inputs)


@pytest.fixture(scope="module")
def processor(trained) -> TextTokenizer:
    return load(recorded(trained[0] / "tokenizer.model"))


def test_prose_takes_fewer_tokens_than_bytes(processor):
    for text in PROSE.values():
        assert len(processor.encode(text)) < 0.6 * len(text.encode()) + 10


def test_digits_stand_alone(processor):
    assert [processor.names[i] for i in processor.encode("2024")] == ["2", "0", "2", "4"]


def test_the_record_and_the_byte_counts(trained, processor):
    folder, record = trained
    assert record["vocab_size"] == processor.vocab_size == SETTINGS.vocab_size
    counts = files.read_json(str(folder / "token_bytes.json"))
    assert counts == processor.token_bytes()
    assert [i for i, n in enumerate(counts) if n == 0] == [UNK, BOS, EOS]
    assert sum(n == 1 for n in counts) > 256


def test_training_twice_gives_the_same_bytes(trained, tmp_path, inputs):
    folder, record = trained
    assert train(tmp_path, inputs) == record
    for name in ("tokenizer.model", "token_bytes.json"):
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()


def drawn(folder, inputs, weights, settings, seed=SEED) -> tuple[Counter, dict[str, int]]:
    """How often each line is in the sample, and the bytes taken of each source."""
    shards, taken = sample(folder, inputs, Mixture(weights=weights), settings.sample_bytes, seed)
    return Counter(line for text in sampled_texts(str(folder), shards) for line in sentences(text)), taken


@pytest.mark.parametrize("weights", [{"prose": 1, "numbers": 1}, {"prose": 9, "numbers": 1}])
def test_the_sample_follows_the_shares(tmp_path, inputs, weights):
    settings = SETTINGS.model_copy(update={"sample_bytes": 100_000})
    lines, taken = drawn(tmp_path, inputs, weights, settings)
    for name, weight in weights.items():
        # documents are drawn whole: within five standard deviations of their number
        wanted = settings.sample_bytes * weight / sum(weights.values())
        sizes = [len(text.encode()) for part in inputs[name] for text in texts(part).values()]
        deviation = (sum(size**2 for size in sizes) * wanted / sum(sizes)) ** 0.5
        assert abs(taken[name] - wanted) < 5 * deviation
    assert sum(len(line.encode()) * n for line, n in lines.items()) == sum(taken.values())


SHARES = {"web/en": 0.3, "web/de": 0.5, "books/en": 0.2}


@pytest.fixture(scope="module")
def by_language(tmp_path_factory):
    """Two sources of mostly English; the language is in a part with signals, whose rows are in another order."""
    folder = tmp_path_factory.mktemp("languages")
    draw, found = random.Random(2), {}
    for source in ("web", "books"):
        ids = [f"{source}{i}" for i in range(4_000)]
        documents, _ = write(folder, source, {i: "x" * draw.randrange(20, 60) for i in ids})
        languages = {i: draw.choices(("en", "de", None), (8, 1, 1))[0] for i in ids}
        shuffled = draw.sample(ids, len(ids))
        signals = str(folder / f"{source}-signals.parquet")
        parquet.write_table(signals, pa.table({"id": shuffled, "language": [languages[i] for i in shuffled]}))
        found[source] = [(documents, documents, signals)]
    return found


@pytest.mark.parametrize(
    ("given", "shares"),
    [
        ({"weights": {"web/en": 3, "web/de": 5, "books/en": 2}}, SHARES),
        ({"weights": {"web/en/q01": 1, "web/en/q02": 2, "web/de": 5, "books/en": 2}}, SHARES),
        (
            {
                "weights": {"web/de": 1},
                "phases": [{"share": 0.5}, {"share": 0.5, "weights": {"web/en": 6, "books/en": 4}}],
            },
            SHARES,
        ),
        (
            {"strategy": "unimax", "without": ["web/none", "books/none", "books/de"]},
            {"web/en": 1 / 3, "web/de": 1 / 3, "books/en": 1 / 3},
        ),
    ],
)
def test_the_sample_follows_sources_and_languages_by_bytes(tmp_path, by_language, given, shares):
    by = ["source", "language", {"column": "score", "quantiles": 2}]
    mixture = sample_mixture(Mixture(by=by, **given))
    shards, taken = sample(tmp_path, by_language, mixture, 20_000, SEED)
    size = sum(len(text) for text in sampled_texts(str(tmp_path), shards))
    assert sum(taken.values()) == size and set(taken) == set(shares)
    for name, share in shares.items():
        wanted = 20_000 * share
        deviation = (wanted * 45) ** 0.5  # of the sum of documents of 20 to 59 bytes
        assert wanted + 5 * deviation < text_sizes(by_language, mixture)[name]
        assert abs(taken[name] - wanted) < 5 * deviation


def test_by_quantiles_alone_the_sample_has_the_sources_as_they_are(tmp_path, by_language):
    inputs = {name: [part[:2] for part in parts] for name, parts in by_language.items()}
    inputs["small"] = [write(Path(inputs["web"][0][0]).parent, "small", {f"s{i}": "y" * 40 for i in range(400)})]
    by = ({"column": "score", "quantiles": 2},)
    mixture = sample_mixture(Mixture(by=by, weights={"q01": 1, "q02": 2}))
    _, taken = sample(tmp_path, inputs, mixture, 60_000, SEED)
    sizes = text_sizes(inputs, mixture)
    for name, size in sizes.items():
        wanted = 60_000 * size / sum(sizes.values())
        assert abs(taken[name] - wanted) < 5 * (wanted * 45) ** 0.5


def texts(part: tuple[str, str]) -> dict[str, str]:
    table = parquet.read_table(part[0])
    return dict(zip(table["id"].to_pylist(), table["text"].to_pylist(), strict=True))


def test_a_small_source_gives_all_that_it_has(tmp_path):
    documents = {f"d{i}": f"line {i} of the document\nand its own ending {i}" for i in range(300)}
    inputs = {"small": [write(tmp_path, "small", documents)]}
    lines, taken = drawn(tmp_path, inputs, {"small": 1}, SETTINGS)
    assert lines == Counter(line for text in documents.values() for line in text.splitlines(keepends=True))
    assert taken == {"small": sum(len(text.encode()) for text in documents.values())}


def test_a_source_without_a_document_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="has nothing, but no documents of it are left .* mixture.heldout_fraction"):
        text_sizes({"nothing": [write(tmp_path, "nothing", {})]}, Mixture(weights={"nothing": 1}))


def test_a_longer_line_than_sentencepiece_takes_is_cut_not_lost(tmp_path):
    long = "".join(random.Random(1).choices("abcdefghij ", k=20_001))
    inputs = {"a": [write(tmp_path, "a", {f"d{i}": f"{i}{long}" for i in range(9)})]}
    lines, taken = drawn(tmp_path, inputs, {"a": 1}, SETTINGS)
    assert max(map(len, lines)) <= 4000
    assert sum(len(line) * n for line, n in lines.items()) == taken["a"] > 0


def test_a_sample_with_control_characters_trains(tmp_path):
    odd = {f"d{i}": f"nul \0 here {i} ▁ <s> </s> \x0b\x0c\x1c\u2028\ufeff\r\n\r end " * 40 for i in range(50)}
    inputs = {"odd": [write(tmp_path, "odd", odd), write(tmp_path, "prose", PROSE)]}
    train(tmp_path, inputs, {"odd": 1}, SETTINGS)
    small = load(recorded(tmp_path / "tokenizer.model"))
    for text in odd.values():
        assert small.decode(small.encode(text)) == text


@pytest.mark.parametrize("size", [300, MAX_VOCABULARY + 1])
def test_a_vocabulary_that_does_not_fit_is_refused(size):
    with pytest.raises(ValidationError):
        Tokenizer(vocab_size=size)


@pytest.mark.parametrize(("kind", "special"), [("bpe", 3), ("unigram", 3), ("byte_bpe", 1)])
def test_symbols_that_leave_no_room_are_refused_at_once(kind, special):
    """At the smallest vocabulary that is not refused, all tokens of a text without characters of its own fit."""
    symbols = tuple(f"<|{number}|>" for number in range(50))
    needed = 256 + special + 50
    with pytest.raises(ValueError, match=f"are {needed} tokens. Raise vocab_size above that, or give fewer symbols"):
        Tokenizer(kind=kind, vocab_size=needed - 1, symbols=symbols)
    room = 2 if kind != "byte_bpe" else 0  # for the characters
    settings = Tokenizer(kind=kind, vocab_size=needed + room, symbols=symbols, sample_bytes=10_000)
    train = _byte_bpe if kind == "byte_bpe" else _sentencepiece
    name = "tokenizer.json" if kind == "byte_bpe" else "tokenizer.model"
    model = tokenizer_files.read_tokenizer(train(iter(["aaaa" * 50, "bbbb" * 50]), settings), name)
    assert model.vocab_size == needed + room


def test_characters_that_do_not_fit_are_counted():
    """80 characters, 256 bytes, and <unk>, <s> and </s> are 339 tokens."""
    text = "".join(map(chr, range(0x4E00, 0x4E00 + 80)))
    given = {"sample_bytes": 10_000, "character_coverage": 1.0}
    with pytest.raises(ValueError, match="is 338, but 80 characters of the text, 256 bytes and 3 .* 339 tokens"):
        _sentencepiece(iter([text] * 20), Tokenizer(vocab_size=338, **given))
    model = tokenizer_files.read_tokenizer(
        _sentencepiece(iter([text] * 20), Tokenizer(vocab_size=339, **given)), "tokenizer.model"
    )
    assert model.vocab_size == 339


def test_a_tokenizer_is_taken_as_it_is(trained, tmp_path):
    folder, record = trained
    taken = take_tokenizer(str(tmp_path), 0, recorded(folder / "tokenizer.model"))
    assert taken["vocab_size"] == record["vocab_size"]
    for name in ("tokenizer.model", "token_bytes.json"):
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()


def foreign(path, **given):
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(["one two three four"] * 9),
        model_prefix=str(path.with_suffix("")),
        vocab_size=given.pop("vocab_size", 290),
        hard_vocab_limit=False,
        minloglevel=2,
        **given,
    )
    return recorded(path)


def test_a_model_whose_text_ends_by_another_id_is_taken(tmp_path):
    file = foreign(tmp_path / "other.model", model_type="bpe", byte_fallback=True, bos_id=2, eos_id=1)
    taken = take_tokenizer(str(tmp_path / "taken"), 0, file)
    assert taken["end_of_text"] == 1 and taken["file"] == "tokenizer.model"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"model_type": "bpe", "vocab_size": 30}, "has no byte fallback for unknown characters"),
        ({"model_type": "bpe", "byte_fallback": True, "eos_id": -1}, "has no token that ends a text"),
    ],
)
def test_a_model_that_loses_texts_is_refused(tmp_path, given, words):
    file = foreign(tmp_path / "other.model", **given)
    with pytest.raises(ValueError, match=f"other.model {words}"):
        take_tokenizer(str(tmp_path / "taken"), 0, file)


def test_a_file_that_is_no_tokenizer_is_refused(tmp_path):
    (tmp_path / "notes.model").write_bytes(b"some notes")
    with pytest.raises(ValueError, match="notes.model is not a valid SentencePiece model"):
        take_tokenizer(str(tmp_path / "taken"), 0, recorded(tmp_path / "notes.model"))
