"""Models of languages: their scores against CCNet's formula written down plainly, garbled pages, buckets, and files."""

import csv
import json
import random
import unicodedata
from pathlib import Path
from pydoc_data import topics

import numpy as np
import pyarrow as pa
import pytest
import sentencepiece
from pydantic import ValidationError

from gristmill.storage import files, parquet
from gristmill.tasks.documents.decisions import decide
from gristmill.tasks.models import ngram_models
from gristmill.tasks.models.compiled import kenlm
from gristmill.tasks.models.model_files import ModelFileError
from gristmill.tasks.models.ngram_models import Training, fold, pieces_of, score_pieces, train
from gristmill.tasks.models.perplexity import (
    CutoffsError,
    Perplexity,
    bounds,
    bucket_ends,
    bucket_shard,
    pinned,
    score_shard,
)
from tests.planted.text import prose
from tests.recorded import recorded

NAMES = [name for name in sorted(topics.topics) if len(topics.topics[name]) > 500]
LEARNED, UNSEEN = ([topics.topics[name] for name in NAMES[i::2]] for i in range(2))
GERMAN = ["\n".join(prose(random.Random(i), "de", 120)) for i in range(40)]
SMALL = Training(vocabulary=700, order=3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Models of `en` and `de`."""
    folder = tmp_path_factory.mktemp("models")
    train(LEARNED, str(folder), "en", SMALL)
    train(GERMAN[:30], str(folder), "de", SMALL)
    return folder


@pytest.fixture(scope="module")
def english(folder) -> tuple[kenlm.Model, sentencepiece.SentencePieceProcessor]:
    model = str(folder / "en.arpa.bin")
    return kenlm.Model(model), sentencepiece.SentencePieceProcessor(model_file=pieces_of(model))


def test_text_is_folded_as_ccnet_does():
    # what cc_net's text_normalizer.normalize gives
    given = "  Der GROẞE Ä¢ € naïve Ⅷ İstanbul\t12,5 ٣४ １２\x85 «Zitat» – so… ‘nein’ （ja）。％ 한글 ►x—y  "
    folded = 'der große a¢ € naive ⅷ istanbul00,0 00 00 "zitat" - so... ‘nein\' (ja).% 한글 -x - y'
    assert fold(given) == unicodedata.normalize("NFD", folded)
    assert fold(" \x00\n") == fold("") == ""


def plain(model: kenlm.Model, pieces: sentencepiece.SentencePieceProcessor, lines: list[str]) -> float:
    """CCNet's perplexity of sentences, word by word as KenLM gives it."""
    score, length = 0.0, 0
    for line in lines:
        state, after = kenlm.State(), kenlm.State()
        model.BeginSentenceWrite(state)
        for piece in [*pieces.encode(fold(line), out_type=str), "</s>"]:
            score += model.BaseScore(state, piece, after)
            state, after = after, state
            length += 1
    return 10 ** (-score / length)


@pytest.mark.parametrize("by_line", [True, False])
def test_scores_are_those_of_the_formula(english, by_line):
    texts = [*UNSEEN[:25], "", " \n ", "One line.\n\nOne line.\n  \nAnother…", "日本語 \x00 été"]
    found = score_pieces(*english, texts, by_line)
    for text, perplexity, lines in zip(
        texts, found.perplexity, np.split(found.lines, np.cumsum(found.lengths)[:-1]), strict=True
    ):
        split = ([line for line in text.split("\n") if line.strip()] if by_line else [text]) or [""]
        assert perplexity == pytest.approx(plain(*english, split), rel=1e-5)
        assert lines.tolist() == pytest.approx([plain(*english, [line]) for line in split], rel=1e-5)
    alone = np.concatenate([score_pieces(*english, [text], by_line).perplexity for text in reversed(texts)])
    assert alone[::-1].tobytes() == found.perplexity.tobytes(), "the batch changes no bit"


def _swapped(draw: random.Random, word: str) -> str:
    if len(word) < 4 or draw.random() > 0.2:
        return word
    i = draw.randrange(1, len(word) - 2)
    return word[:i] + word[i + 1] + word[i] + word[i + 2 :]


def test_garbled_pages_score_above_their_originals(english):
    draw = random.Random(4)
    navigation = "Home About Contact Login Register Search Menu Next Previous Share Help Cart Sitemap Privacy".split()

    def garbled(text: str) -> list[str]:
        lines = [line.split() for line in text.split("\n")]
        return [
            "\n".join(" ".join(draw.sample(words, len(words))) for words in lines),
            "\n".join(" ".join(_swapped(draw, word) for word in words) for words in lines),
            "\n".join(" ".join(words) + "\n" + " | ".join(draw.sample(navigation, 6)) for words in lines),
        ]

    pages = [garbled(text) for text in UNSEEN]
    originals = score_pieces(*english, UNSEEN, True).perplexity
    for kind in range(3):
        found = score_pieces(*english, [page[kind] for page in pages], True).perplexity
        assert np.mean(found > originals) >= 0.95, kind


@pytest.mark.extended
def test_training_gives_the_same_files_twice_and_describes_them(folder, tmp_path):
    counts = train(iter(LEARNED), str(tmp_path), "en", SMALL)
    for name in ("en.arpa.bin", "en.sp.model", "en.arpa.bin.json"):
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()
    lines = [line for text in LEARNED for line in text.split("\n") if line.strip()]
    assert (counts["documents"], counts["lines"]) == (len(LEARNED), len(lines))
    told = json.loads((folder / "en.arpa.bin.json").read_text())
    assert told["files"]["en.arpa.bin"]["digest"] == files.checksum(str(folder / "en.arpa.bin"))
    assert Training.model_validate(told["settings"]) == SMALL
    train(LEARNED, str(tmp_path), "unpruned", SMALL.model_copy(update={"prune": (0,)}))
    assert (tmp_path / "unpruned.arpa.bin").stat().st_size > (tmp_path / "en.arpa.bin").stat().st_size
    with pytest.raises(ValueError, match=r"no text to train on \(1 documents\)"):
        train([" \n"], str(tmp_path), "none", SMALL)
    for prune, order in (((0, 0, 1), 2), ((1, 0), 3)):
        with pytest.raises(ValueError, match=f"prune is .* up to order {order}; give one number"):
            train(LEARNED, str(tmp_path), "none", SMALL.model_copy(update={"prune": prune, "order": order}))


@pytest.mark.extended
def test_pieces_are_learned_from_lines_of_any_length(tmp_path):
    lines = [" ".join(text.split()) for text in LEARNED]
    assert max(map(len, lines)) > 20_000
    draw = random.Random(5)
    unspaced = "".join(chr(0x4E00 + draw.randrange(500)) for _ in range(60_000))
    for name, given, least in (("one", ["\n".join(lines), *["a b c"] * 9], 700), ("zh", [unspaced] * 3, 400)):
        assert train(given, str(tmp_path), name, SMALL)["vocabulary"] >= least


def test_files_that_are_missing_damaged_or_exchanged_are_named(folder, tmp_path):
    model = str(tmp_path / "en.arpa.bin")

    def copied() -> None:
        for path in folder.glob("en.*"):
            (tmp_path / path.name).write_bytes(path.read_bytes())

    copied()
    ngram_models.check(model)
    for name, change, wrong in (
        ("en.sp.model", None, "en.sp.model does not exist; train one"),
        ("en.arpa.bin", None, "en.arpa.bin does not exist; train one"),
        ("en.sp.model", lambda data: b"\xff" + data[:99], "en.sp.model is not a valid SentencePiece model"),
        ("en.arpa.bin", lambda data: b"x" + data[1:], "en.arpa.bin is not a valid KenLM model"),
        ("en.arpa.bin", lambda data: data[:-9], "en.arpa.bin does not match .*json; copy both again"),
        ("en.arpa.bin", lambda data: data[:-1] + b"\7", "en.arpa.bin does not match .*json"),
    ):
        copied()
        path = tmp_path / name
        data = path.read_bytes()
        path.unlink() if change is None else path.write_bytes(change(data))
        with pytest.raises((FileNotFoundError, ModelFileError), match=wrong):
            ngram_models.check(model)
    copied()
    for content in ("", "{}", "[]", '{"files": 3}'):
        (tmp_path / "en.arpa.bin.json").write_text(content)
        with pytest.raises(ModelFileError, match="bin.json is not a description of .*; copy it again, or remove"):
            ngram_models.check(model)
    (tmp_path / "en.arpa.bin.json").unlink()
    ngram_models.check(model)
    (tmp_path / "en.arpa.bin").write_bytes((folder / "en.arpa.bin").read_bytes()[:5000])
    with pytest.raises(ModelFileError, match="en.arpa.bin is not a valid KenLM model"):
        ngram_models.check(model)


def settings(folder: Path, **given) -> Perplexity:
    return Perplexity(models={name: str(folder / f"{name}.arpa.bin") for name in ("en", "de")}, **given)


def written(path: Path, languages: dict[str, np.ndarray]) -> str:
    """A part with scores, shuffled; those of `fr` are null."""
    rows = [(name, score) for name, scores in languages.items() for score in scores.tolist()]
    random.Random(1).shuffle(rows)
    table = {
        "id": [f"{i}" for i in range(len(rows))],
        "language": [name for name, _ in rows],
        "perplexity": pa.array([None if name == "fr" else score for name, score in rows], pa.float64()),
    }
    parquet.write_table(str(path), pa.table(table))
    return str(path)


def test_documents_are_scored_by_the_model_of_their_language(folder, english, tmp_path, shard):
    texts = {"a": UNSEEN[0], "b": GERMAN[35], "c": UNSEEN[1], "d": "Le moulin tourne.", "e": ""}
    languages = {"a": "en", "b": "de", "c": "de", "d": "fr", "e": "en", "f": "en"}
    documents, kept = shard("web", texts | {"f": "dropped"}, kept=list(texts))
    signals = str(tmp_path / "signals.parquet")
    parquet.write_table(signals, pa.table({"id": list(languages), "language": list(languages.values())}))
    step = settings(folder, lines=True)
    models = [recorded(path) for path in step.named_models]
    score_shard(str(tmp_path), 3, documents, kept, models, step.scoring_settings(), (documents, signals))
    table = parquet.read_table(str(tmp_path / "part-00003.parquet"))
    found = {row["id"]: row for row in table.to_pylist()}
    path = str(folder / "de.arpa.bin")
    german = kenlm.Model(path), sentencepiece.SentencePieceProcessor(model_file=pieces_of(path))
    for name, model in (("a", english), ("b", german), ("c", german), ("e", english)):
        alone = score_pieces(*model, [texts[name]], True)
        assert found[name]["perplexity"] == alone.perplexity[0]
        assert found[name]["line_perplexities"] == alone.lines.tolist()
    assert (found["d"]["perplexity"], found["d"]["line_perplexities"], found["d"]["language"]) == (None, None, "fr")
    assert list(found) == list(texts)


def test_buckets_and_cuts_are_percentiles_of_each_language(folder, tmp_path):
    draw = np.random.default_rng(2)
    scores = {"en": draw.lognormal(5, 1, 900), "de": draw.lognormal(7, 0.5, 300), "fr": np.ones(50)}
    part = written(tmp_path / "scores.parquet", scores)
    step = settings(folder, min_percentile=2, max_percentile=90, keep_buckets=("head", "middle"))
    ends = bucket_ends(step.decision_settings(), [part])
    assert ends == {name: np.percentile(scores[name], [30, 60]).tolist() for name in ("de", "en")}
    bucket_shard(str(tmp_path), 0, part, True, ends)
    table = parquet.read_table(part)
    buckets = parquet.read_table(str(tmp_path / "part-00000.parquet"))
    assert buckets["id"].equals(table["id"])
    [(_, dropped)] = decide(table, [("perplexity", bounds(step.decision_settings(), [part]))])
    rules = dict(zip(dropped["id"].to_pylist(), dropped["rule"].to_pylist(), strict=True))
    for row, bucket in zip(table.to_pylist(), buckets["perplexity_bucket"].to_pylist(), strict=True):
        if (value := row["perplexity"]) is None:
            expected, rule = "all", None
        else:
            low, head, middle, high = np.percentile(scores[row["language"]], [2, 30, 60, 90])
            expected = "head" if value <= head else "middle" if value <= middle else "tail"
            rule = "min_percentile" if value < low else "max_percentile" if value > high else None
            if rule is None and expected == "tail":
                rule = "bucket"
        assert (bucket, rules.get(row["id"])) == (expected, rule)


def test_of_a_language_with_few_documents_none_is_dropped(folder, tmp_path):
    scores = {"en": np.arange(1, 101.0), "de": np.arange(1, 20.0)}
    part = written(tmp_path / "scores.parquet", scores)
    table = parquet.read_table(part)

    def dropped(**given) -> list[str]:
        step = settings(folder, keep_buckets=("head", "middle"), **given)
        bucket_shard(str(tmp_path), 0, part, True, bucket_ends(step.decision_settings(), [part]))
        buckets = parquet.read_table(str(tmp_path / "part-00000.parquet"))["perplexity_bucket"].to_pylist()
        [(_, rows)] = decide(table, [("perplexity", bounds(step.decision_settings(), [part]))])
        gone = set(rows["id"].to_pylist())
        found = zip(table["id"].to_pylist(), table["language"].to_pylist(), buckets, strict=True)
        for id_, language, bucket in found:
            if language == "de" and step.min_documents > 19:
                assert (bucket, id_ in gone) == ("all", False)
            else:
                assert (bucket == "tail") == (id_ in gone)
        return sorted({row["language"] for row in table.to_pylist() if row["id"] in gone})

    assert dropped() == ["en"]
    assert dropped(min_documents=19) == ["de", "en"]
    assert dropped(min_documents=101) == []


@pytest.mark.parametrize("kept", [("head",), ("middle",), ("tail",), ("middle", "tail")])
def test_kept_buckets_are_those_of_published_cutoffs(folder, tmp_path, kept):
    path = tmp_path / "cutoff.csv"
    rows = [["", "de", "en"], [10, 10, 20], [30, 150, 340], [60, 320, 520]]
    with open(path, "w", newline="") as f:
        csv.writer(f).writerows(rows)
    step = pinned(settings(folder, cutoffs=str(path), keep_buckets=kept, max_percentile=100))
    english = np.array([1, 339.9, 340, np.nextafter(520, 0), 520, 9999])
    part = written(tmp_path / "scores.parquet", {"en": english, "de": np.array([320.0]), "fr": np.ones(2)})
    table = parquet.read_table(part)
    bucket_shard(str(tmp_path), 0, part, True, bucket_ends(step.decision_settings(), [part]))
    buckets = parquet.read_table(str(tmp_path / "part-00000.parquet"))["perplexity_bucket"].to_pylist()
    # as cc_net's get_bucket has it
    expected = {1: "head", 339.9: "head", 340: "middle", np.nextafter(520, 0): "middle", 520: "tail", 9999: "tail"}
    values = table["perplexity"].to_pylist()
    assert buckets == ["all" if v is None else "tail" if v == 320 else expected[v] for v in values]
    [(_, dropped)] = decide(table, [("perplexity", bounds(step.decision_settings(), [part]))])
    ids = set(dropped["id"].to_pylist())
    assert ids == {i for i, b in zip(table["id"].to_pylist(), buckets, strict=True) if b not in (*kept, "all")}


@pytest.mark.parametrize(
    ("content", "given", "wrong"),
    [
        (",en\n30,1\n60,2\n", {"middle_percentile": 50}, "no row for the percentile 50; set .* two of 30, 60"),
        (",en\n30,x\n60,2\n", {}, "is not a table of numbers"),
        (",en,de\n30,1\n60,2,3\n", {}, "is not a table of numbers"),
        ("", {}, "is not a table of numbers"),
        (",en,de\r30,1,1\r60,2,2\r", {}, "is not a table of numbers"),
        (",en\n30,1\n60,2\n", {}, "has no column for de, which have models in `models`; add it"),
        (",en,de\n30,1,5\n60,2,4\n", {}, "has the perplexities 5 and 4 for de .* are not ascending"),
        (",en,de\n30,1,nan\n60,2,4\n", {}, "has the perplexities nan and 4 for de .* are not ascending"),
    ],
)
def test_cutoffs_that_cannot_be_used_are_refused(folder, tmp_path, content, given, wrong):
    path = tmp_path / "cutoff.csv"
    path.write_text(content)
    with pytest.raises(CutoffsError, match=wrong):
        pinned(settings(folder, cutoffs=str(path), **given))


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ({}, "neither `reference` nor `models`; give one"),
        ({"reference": ["a"], "models": {"en": "en.arpa.bin"}}, "both `reference` and `models`"),
        ({"models": {"en": "en.bin"}}, "en.bin for en, whose name does not end in .arpa.bin; rename"),
        ({"reference": ["a"], "cutoffs": "cutoff.csv"}, "`cutoffs` cutoff.csv, .*; set `models`"),
        ({"reference": ["a"], "unit": "document"}, "`unit: document`.*; set `models`"),
        ({"reference": ["a"], "keep_buckets": ["tail", "head"]}, "add `middle`"),
        ({"reference": ["a"], "head_percentile": 60}, "head_percentile 60.0 is not below middle_percentile 60.0"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(given, wrong):
    with pytest.raises(ValidationError, match=wrong):
        Perplexity(**given)


def test_an_order_is_for_a_model_that_the_run_trains():
    with pytest.raises(ValueError, match="order 3, but the models in `models` have their own; remove it"):
        Perplexity(models={"en": "en.arpa.bin"}, order=3)
