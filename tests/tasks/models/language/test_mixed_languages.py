"""Lines in other languages than their document's: documents glued together of lines whose languages are known."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from gristmill.tasks.documents.decisions import decide
from gristmill.tasks.documents.measure import measured
from gristmill.tasks.models import fasttext
from gristmill.tasks.models.mixed_languages import MixedLanguages

LINES = {
    "en": [
        "The miller opens the gate early in the morning, and the water drives the wheel until the evening.",
        "Whoever brings his rye to the mill has to wait until the sacks of those before him have been ground.",
    ],
    "de": [
        "Der Müller öffnet früh am Morgen das Wehr, und das Wasser treibt das Rad bis zum Abend an.",
        "Wer seinen Roggen zur Mühle bringt, muss warten, bis die Säcke der anderen gemahlen worden sind.",
    ],
    "ru": ["Мельник рано утром открывает затвор, и вода вращает колесо до самого позднего вечера."],
}
SHORT = ["Home", "12 Mai 2004", ""]


def run(texts: list[str], languages: list[str], **settings) -> tuple[list[float], list[str], list[dict]]:
    table = pa.table(
        {
            "id": [f"{i:032x}" for i in range(len(texts))],
            "url": [""] * len(texts),
            "text": pa.array(texts, pa.large_string()),
            "language": pa.array(languages, pa.string()),
        }
    )
    found = measured(table, [MixedLanguages(**settings)])
    return (
        found.table["other_languages"].to_pylist(),
        found.table["text"].to_pylist(),
        found.edits.to_pylist(),
    )


@given(
    st.lists(
        st.tuples(
            st.sampled_from(sorted(LINES)),
            st.lists(
                st.sampled_from([(code, text) for code in LINES for text in LINES[code]] + [("", s) for s in SHORT])
            ),
        ),
        min_size=1,
        max_size=4,
    )
)
@hypothesis_settings(deadline=None, max_examples=25)
def test_the_share_and_the_lines_that_go_are_those_that_were_planted(documents):
    texts = ["\n".join(text for _, text in lines) for _, lines in documents]
    codes = [code for code, _ in documents]
    shares, same, edits = run(texts, codes)
    assert (same, edits) == (texts, [])
    _, left, edits = run(texts, codes, cut=True)
    for (code, lines), share, text, rest in zip(documents, shares, texts, left, strict=True):
        told = [(each, len(line)) for each, line in lines if each]
        others = sum(size for each, size in told if each != code)
        assert share == pytest.approx(others / max(1, sum(size for _, size in told)))
        stay = [line for each, line in lines if each in ("", code)]
        assert [line for line in rest.splitlines() if line] == [line for line in stay if line]
        if not others:
            assert rest == text
    assert {row["rule"] for row in edits} <= {"other_language"}
    alone = [run([text], [code], cut=True) for text, code in zip(texts, codes, strict=True)]
    assert shares == [share for [share], _, _ in alone]
    assert left == [text for _, [text], _ in alone]


def test_a_paragraph_goes_with_the_blank_line_behind_it():
    [english, more], [german, _] = LINES["en"], LINES["de"]
    text = f"{english}\n\n{german}\n\n{more}"
    shares, [left], [row] = run([text], ["en"], cut=True)
    assert left == f"{english}\n\n{more}"
    assert text[: row["start"]] + text[row["stop"] :] == left
    assert shares == [len(german) / (len(english) + len(german) + len(more))]
    assert run([text], ["en"], cut=True, keep=("de",))[1] == [text]
    assert run([text], ["en"], cut=True, min_characters=1000)[0] == [0]


def test_a_long_line_with_text_in_the_language_of_its_document_stays():
    english, german = " ".join(LINES["en"] * 3), " ".join(LINES["de"] * 3)
    assert min(len(english), len(german)) > 400  # more than the model reads at once
    assert run([f"{english} {german * 3}"], ["de"], cut=True)[:2] == ([0], [f"{english} {german * 3}"])
    assert run([f"{english * 2} {german} {english * 2}"], ["de"])[0] == [0]
    assert run([f"{english * 4}\n{german}"], ["de"], cut=True)[1] == [german]
    assert run([english + "x" * len(english)], ["de"])[0] == [1]


def test_no_line_is_in_another_language_than_an_unknown_one():
    text = "\n".join([*LINES["en"], *LINES["de"]])
    [share, own], texts, edits = run([text, text], ["unknown", "en"], cut=True)
    assert (share, texts[0], len(edits)) == (None, text, 1) and own == pytest.approx(0.5, abs=0.1)
    signals = pa.table({"id": ["a"], "other_languages": pa.nulls(1, pa.float64()), "mixed_languages_characters": [9]})
    [(_, rows)] = decide(signals, [("mixed_languages", MixedLanguages(max_share=0.3).decisions())])
    assert len(rows) == 0


def test_relatives_and_unknown_lines_are_no_other_languages():
    croatian = "Mlinar rano ujutro otvara branu, a voda okreće kolo sve do kasne večeri i noći."
    numbers = "1998 | 2004 | 12,50 | 13:45 | 19.90 | 2,718 | 3,141 | 100 % | 404 | 8080 | 443"
    assert run([f"{croatian}\n{numbers}"] * 3, ["sr", "hr", "bs"], min_score=0)[0] == [0, 0, 0]
    assert run([f"{croatian}\n{numbers}"] * 3, ["sr", "sh", "bs"], min_score=0, model="lid.176")[0] == [0, 0, 0]
    [share] = run([f"{croatian}\n{numbers}"], ["en"], min_score=0)[0]
    assert share == pytest.approx(len(croatian) / (len(croatian) + len(numbers)))


def test_documents_with_too_much_are_dropped_and_empty_ones():
    signals = pa.table(
        {"id": ["a", "b", "c"], "other_languages": [0.2, 0.31, 0.1], "mixed_languages_characters": [9, 9, 0]}
    )
    [(_, rows)] = decide(signals, [("mixed_languages", MixedLanguages(max_share=0.3, cut=True).decisions())])
    assert rows.select(["id", "rule"]).to_pylist() == [
        {"id": "b", "rule": "other_languages"},
        {"id": "c", "rule": "empty_text"},
    ]
    [(_, rows)] = decide(signals, [("mixed_languages", MixedLanguages().decisions())])
    assert rows["id"].to_pylist() == ["c"]


def test_the_language_of_another_model_is_refused(tmp_path):
    with pytest.raises(ValueError, match="eng_Latn is not a label of py3langid; give the `model`"):
        run([LINES["en"][0]], ["eng_Latn"])
    rows = [f"__label__{code}_X {line}\n" for code in ("en", "de") for line in LINES[code]] * 20
    (tmp_path / "lines.txt").write_text("".join(rows), encoding="utf-8")
    model = fasttext.train_supervised(
        str(tmp_path / "lines.txt"), minn=2, maxn=3, dim=8, bucket=1000, epoch=20, lr=1.0, thread=1, verbose=0
    )
    model.save_model(str(tmp_path / "lid.bin"))
    step = MixedLanguages(model=str(tmp_path / "lid.bin"), keep=("de_X",)).pinned()
    text = "\n".join([*LINES["en"], *LINES["de"]])
    sizes = [sum(map(len, LINES[code])) for code in ("en", "de")]
    assert run([text], ["en_X"], **step.model_dump(exclude={"step"}))[0] == pytest.approx([sizes[1] / np.sum(sizes)])
