"""Small models that rows name: classifiers, an embedder with heads, language models, a tokenizer. Each is trained or
written here in well under a second."""

import random
from pathlib import Path

import numpy as np

from tests import embedders
from tests.golden.made.words import NOUNS, SENTENCES, prose


def write_models(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    _classifiers(folder)
    _embedder(folder)
    _language_models(folder)


def _classifiers(folder: Path) -> None:
    """fastText files: of topics by nouns, and of tame and wild texts."""
    from gristmill.tasks.models import fasttext

    draw = random.Random("topics")
    topics = {"mills": NOUNS[:20], "ships": NOUNS[20:40], "houses": NOUNS[40:]}
    kinds = {
        "topics": topics,
        "harm": {"tame": NOUNS[:25], "wild": "buy cheap now click here free casino poker".split()},
    }
    for name, labels in kinds.items():
        lines = [
            f"__label__{label} {' '.join(draw.choices(words, k=12))}\n"
            for _ in range(60)
            for label, words in labels.items()
        ]
        (folder / f"{name}.txt").write_text("".join(lines), encoding="utf-8")
        given = {"dim": 8, "bucket": 1000, "epoch": 10, "lr": 0.3, "thread": 1, "verbose": 0}
        fasttext.train_supervised(str(folder / f"{name}.txt"), **given).save_model(str(folder / f"{name}.bin"))


def _embedder(folder: Path) -> None:
    from gristmill.storage import files
    from gristmill.tasks.models import heads
    from gristmill.tasks.models.heads import Head

    embedders.write(folder / "embedder")
    model = folder / "embedder"
    known = {
        name: files.checksum(str(model / f"{file}"))
        for name, file in (("model", "model.onnx"), ("tokenizer", "tokenizer.json"))
    }
    rng = np.random.default_rng(5)
    for name, kind in (("grade", "ridge"), ("kind", "logistic")):
        weight = np.round(rng.standard_normal(embedders.DIMENSION), 3)
        head = Head(kind, weight, 0.25, known, {})
        heads.write(str(folder / f"{name}.safetensors"), head)


def _language_models(folder: Path) -> None:
    from gristmill.tasks.models.ngram_models import Training, train

    for language, texts in language_texts().items():
        train(texts, str(folder), language, Training(vocabulary=300, order=3))
    rows = [f"{percent},{100 + percent * 10},{50 + percent * 5}" for percent in (0, 10, 30, 50, 60, 90, 100)]
    (folder / "cutoffs.csv").write_text("\n".join([",en,de", *rows]) + "\n")


def mill_texts() -> list[dict]:
    """Texts of the embedder's words, some of them nearly the same, with ties in length and date."""
    draw, found = random.Random("mills"), []
    for at in range(90):
        words = draw.choices(embedders.WORDS, k=6 + at % 4)
        found.append(
            {
                "id": f"m{at:03}",
                "text": " ".join(words),
                "date": f"2024-01-{1 + at % 5:02}T00:00:00Z" if at % 3 else None,
            }
        )
        if at % 3 == 0:
            words[at % len(words)] = draw.choice(embedders.WORDS)
            found.append({"id": f"n{at:03}", "text": " ".join(words), "date": "2024-01-02T00:00:00Z"})
        if at % 9 == 0:
            found.append(
                {"id": f"a{at:03}", "text": " ".join(draw.sample(words, len(words))), "date": "2024-01-02T00:00:00Z"}
            )
    return [*found, {"id": "z", "text": "", "date": None}, {"id": "y", "text": "unknown words alone", "date": None}]


def language_texts() -> dict[str, list[str]]:
    """What language models are trained on, by language."""
    return {"en": [prose(f"lm {at}", 2, 4) for at in range(30)], "de": [SENTENCES["de"]] * 12}
