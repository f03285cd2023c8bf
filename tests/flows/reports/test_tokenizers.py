"""Figures of tokenizers, counted anew from their pieces."""

import pytest
import sentencepiece as spm

from gristmill.flows.reports.tokenizers import measured
from tests.recorded import recorded

TEXTS = [(("web", "en"), "the mill by the river\nthe mill"), (("web", "de"), "die Mühle am Fluß"), (("books", ""), "")]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    for name, lines in (("one", ["the mill by the river"]), ("other", ["die Mühle am Fluß", "the river"])):
        spm.SentencePieceTrainer.train(
            sentence_iterator=iter(lines * 20),
            model_prefix=str(folder / name),
            vocab_size=290,
            model_type="bpe",
            byte_fallback=True,
            hard_vocab_limit=False,
            normalization_rule_name="identity",
            add_dummy_prefix=False,
            remove_extra_whitespaces=False,
            minloglevel=2,
        )
    return [(name, recorded(folder / f"{name}.model")) for name in ("one", "other")]


def test_figures_are_those_of_the_pieces(files):
    one, other = measured(files, [TEXTS[:1], TEXTS[1:]], 8)
    for figures, (name, file) in zip((one, other), files, strict=True):
        pieces = spm.SentencePieceProcessor(model_file=file.path)
        cut = {group: pieces.encode(text, out_type=str) for group, text in TEXTS}
        assert figures.name == name and figures.embedding == 8 * pieces.vocab_size()
        assert figures.tokens == {group: len(found) for group, found in cut.items()}
        assert figures.bytes == {group: len(text.encode()) for group, text in TEXTS}
        assert figures.words == {("web", "en"): 7, ("web", "de"): 4, ("books", ""): 0}
        assert figures.fertility(("web", "de")) == len(cut["web", "de"]) / 4
        assert figures.bytes_per_token() == sum(figures.bytes.values()) / sum(map(len, cut.values()))
        ordinary = {pieces.id_to_piece(i) for i in range(3, pieces.vocab_size())}
        assert figures.unused == len(ordinary - {piece for found in cut.values() for piece in found})
        assert figures.inexact == 0
    assert one.shared == 1 and 0 < other.shared < 1


def test_texts_that_do_not_come_back_are_counted(tmp_path):
    spm.SentencePieceTrainer.train(
        sentence_iterator=iter(["the mill"] * 20),
        model_prefix=str(tmp_path / "lossy"),
        vocab_size=280,
        model_type="bpe",
        byte_fallback=True,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    [figures] = measured(
        [("lossy", recorded(tmp_path / "lossy.model"))], [[(("a", ""), "the  mill"), (("a", ""), "mill")]], 1
    )
    assert figures.inexact == 1
