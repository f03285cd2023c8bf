"""Scores of documents beside a loop over lines, on Python's help texts, and the share of that loop which the calls of
the two libraries take. One core each; it asserts no times."""

import re
import time
import unicodedata
from pydoc_data import topics

import pytest

from gristmill.tasks.models import ngram_models
from gristmill.tasks.models.ngram_models import PUNCTUATION, Training, fold, load, load_pieces, score_pieces, train
from tests.recorded import recorded

TEXTS = [text for text in topics.topics.values() if text.strip()]
DIGIT = re.compile(r"\d")
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")


def folded(line: str) -> str:
    """Character by character, as cc_net does."""
    decomposed = unicodedata.normalize("NFD", line.strip().lower())
    plain = DIGIT.sub("0", "".join(c for c in decomposed if unicodedata.category(c) != "Mn"))
    return CONTROL.sub("", "".join(PUNCTUATION.get(c, c) for c in plain))


@pytest.mark.bench
def test_documents_beside_a_loop_over_lines(tmp_path, capsys):
    train(TEXTS, str(tmp_path), "en", Training(vocabulary=4000))
    kenlm_model, pieces_model = map(recorded, ngram_models.names(str(tmp_path), "en"))
    model, pieces = load(kenlm_model), load_pieces(pieces_model)

    def loop() -> list[float]:
        found = []
        for text in TEXTS:
            score = length = 0
            for line in filter(str.strip, text.split("\n")):
                tokens = " ".join(pieces.encode_as_pieces(folded(line)))
                score += model.score(tokens)
                length += len(tokens.split()) + 1
            found.append(10 ** (-score / length))
        return found

    def batch() -> list[float]:
        return score_pieces(model, pieces, TEXTS, by_line=True).perplexity.tolist()

    lines = list(dict.fromkeys(fold(line) for text in TEXTS for line in text.split("\n") if line.strip()))
    written = [b" ".join(each) for each in pieces.encode(lines, out_type=bytes)]

    def libraries() -> None:
        pieces.encode(lines, out_type=bytes, num_threads=1)
        for line in written:
            model.score(line)

    took = {}
    for work in (loop, batch, libraries) * 5:
        began = time.process_time()
        work()
        took[work.__name__] = min(took.get(work.__name__, 1e9), time.process_time() - began)
    assert batch() == pytest.approx(loop(), rel=1e-12)
    characters = sum(map(len, TEXTS))
    with capsys.disabled():
        rates = ", ".join(f"{name} {characters / each / 1e6:.1f}" for name, each in took.items())
        print(f"\nmillion characters a second: {rates}; {took['loop'] / took['batch']:.2f} times the loop")
        print(f"the calls of SentencePiece and KenLM take {took['libraries'] / took['loop']:.2f} of the loop's time")
