"""Uses everything compiled in an installed wheel once: a model of fastText, and one of n-grams. Prints one line.

    python native/check_wheel.py

Run it outside a checkout, or the checkout's own package is imported.
"""

import tempfile
from pathlib import Path

import gristmill
from gristmill.tasks.models import fasttext, language, ngram_models
from gristmill.tasks.models.compiled import kenlm

TEXT = "the mill grinds grain\nthe river turns the wheel\nthe miller sells flour\n" * 20


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "text").write_text(TEXT)
        (folder / "lines").write_text("".join(f"__label__{line.split()[1]} {line}\n" for line in TEXT.splitlines()))
        settings = {"dim": 8, "epoch": 20, "lr": 0.5, "wordNgrams": 2, "bucket": 1000, "verbose": 0}
        model = fasttext.train_supervised(str(folder / "lines"), **settings)
        assert model.predict(["the river turns the wheel"])[0] == [["__label__river"]]
        ngram_models.estimate(folder / "text", folder / "model.bin", order=3)
        scores = [kenlm.Model(str(folder / "model.bin")).score(line) for line in ("the river turns", "turns river the")]
        assert scores[0] > scores[1]
    assert language.model().predict(["the river turns the wheel of the old mill"])[0] == [["__label__en"]]
    print(f"lmplz, build_binary, kenlm and fasttext_pybind work in {Path(gristmill.__file__).parent}")


if __name__ == "__main__":
    main()
