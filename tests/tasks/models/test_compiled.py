"""The compiled modules leave the names of a user's own fastText and KenLM alone, and their releases are in keys."""

import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from gristmill.tasks.engine.bundled import BUNDLED
from gristmill.tasks.engine.code_version import releases
from gristmill.tasks.models import fasttext

ROOT = Path(__file__).parents[3]
IMPORT = """
import sys
from gristmill.tasks.models import fasttext
from gristmill.tasks.models.compiled import fasttext_pybind, kenlm
print(*{"fasttext", "fasttext_pybind", "kenlm"} & sys.modules.keys())
print(kenlm.__name__, kenlm.Model.__module__, fasttext_pybind.fasttext.__module__)
"""


def test_modules_are_imported_under_no_other_name():
    done = subprocess.run([sys.executable, "-c", IMPORT], cwd=ROOT, capture_output=True, text=True, check=True)
    compiled = "gristmill.tasks.models.compiled"
    assert done.stdout.splitlines() == ["", f"{compiled}.kenlm {compiled}.kenlm {compiled}.fasttext_pybind"]


def test_releases_of_compiled_libraries_need_no_distribution(monkeypatch):
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("gristmill.tasks.engine.code_version.version", missing)
    # stages of earlier homes have these in their keys: another release makes them again
    assert releases(tuple(BUNDLED)) == {"fasttext-ng": "0.9.3", "kenlm": "0.3.0"}


def test_training_has_the_defaults_of_fasttext(tmp_path):
    """The header of a model's file has the settings: Args::save, 12 of int32 after magic and version."""
    (tmp_path / "lines.txt").write_text("__label__a one two\n__label__b three four\n" * 3)
    fasttext.train_supervised(str(tmp_path / "lines.txt"), dim=3, epoch=2, verbose=0).save_model(str(tmp_path / "m"))
    header = (tmp_path / "m").read_bytes()[8:56]
    dim, window, epoch, min_count, negatives, word_ngrams, softmax, supervised = 3, 5, 2, 1, 5, 1, 3, 3
    values = (dim, window, epoch, min_count, negatives, word_ngrams, softmax, supervised, 0, 0, 0, 100)
    assert header == b"".join(value.to_bytes(4, "little") for value in values)


def test_a_line_break_in_a_line_is_an_error(tmp_path):
    (tmp_path / "lines.txt").write_text("__label__a one two\n__label__b three four\n" * 3)
    model = fasttext.train_supervised(str(tmp_path / "lines.txt"), dim=3, epoch=2, verbose=0)
    assert sorted(model.labels) == ["__label__a", "__label__b"]
    with pytest.raises(ValueError, match="line break"):
        model.predict(["one\ntwo"])
    with pytest.raises(AttributeError, match="epochs"):
        fasttext.train_supervised(str(tmp_path / "lines.txt"), epochs=2)
