"""The language of short texts, and what of a text is looked at."""

import pyarrow as pa
import pytest
from pydantic import ValidationError

from tasks.documents.batch import schema
from tasks.documents.decisions import decide
from tasks.models.language import Language
from tasks.models.language_work import measure as measure_languages

TEXTS = {
    "en": "The miller opens the gate early in the morning, and the water drives the wheel until the evening.",
    "de": "Der Müller öffnet früh am Morgen das Wehr, und das Wasser treibt das Rad bis zum Abend an.",
    "fr": "Le meunier ouvre la vanne tôt le matin, et l'eau fait tourner la roue jusqu'au soir.",
    "es": "El molinero abre la compuerta por la mañana temprano y el agua mueve la rueda hasta la noche.",
    "ru": "Мельник рано утром открывает затвор, и вода вращает колесо до самого вечера.",
    "ja": "粉屋は朝早く水門を開け、水は夕方まで水車を回し続けます。",
    "el": "Ο μυλωνάς ανοίγει το φράγμα νωρίς το πρωί και το νερό γυρίζει τον τροχό μέχρι το βράδυ.",
}


def measure(texts: list[str], **settings) -> tuple[list[str], list[float]]:
    columns = measure_languages(Language(**settings), pa.table({"text": pa.array(texts, pa.large_string())}))
    return columns["language"].to_pylist(), columns["language_score"].to_pylist()


def test_languages_are_found():
    found, scores = measure(list(TEXTS.values()))
    assert found == list(TEXTS)
    assert all(0.65 < score <= 1 for score in scores)


def test_scores_are_probabilities_whatever_the_text():
    texts = ["", " \n\t ", "\0", "1234", "🦀" * 50, "a", "the " * 5000, "\u2028\x85\x0b", *TEXTS.values()]
    found, scores = measure(texts)
    assert len(found) == len(scores) == len(texts)
    assert all(isinstance(label, str) and not label.startswith("__label__") for label in found)
    assert all(0 <= score <= 1 for score in scores)


def test_only_the_first_characters_matter():
    for n in (10, 25):
        cut = [text[:n] for text in TEXTS.values()]
        followed = [text + TEXTS["en"] * 3 for text in cut]
        assert measure(followed, characters=n) == measure(cut, characters=n)
    assert measure([TEXTS["fr"][:60] + TEXTS["en"] * 9], characters=60)[0] == ["fr"]
    assert measure([TEXTS["fr"][:60] + TEXTS["en"] * 9])[0] == ["en"]


def test_line_breaks_do_not_matter():
    assert measure([TEXTS["de"].replace(" ", "\r\n")]) == measure([TEXTS["de"]])


def test_a_text_is_measured_alone():
    together = measure(list(TEXTS.values()))
    alone = [measure([text]) for text in TEXTS.values()]
    assert together == ([labels[0] for labels, _ in alone], [scores[0] for _, scores in alone])


def test_an_empty_batch_has_typed_columns():
    columns = measure_languages(Language(), pa.table({"text": pa.array([], pa.large_string())}))
    assert {name: column.type for name, column in columns.items()} == {f.name: f.type for f in schema(Language)}
    assert all(len(column) == 0 for column in columns.values())


def test_decisions_keep_the_named_languages_above_the_score():
    step = Language(keep=("fr", "de"), min_score=0.7)
    signals = pa.table({"id": list("abcd"), "language": ["fr", "en", "de", "fr"], "language_score": [0.9, 1, 0.6, 0.7]})
    ((_, dropped),) = decide(signals, [("language", step.decisions())])
    assert dropped.select(["id", "rule", "detail"]).to_pylist() == [
        {"id": "b", "rule": "language", "detail": "en"},
        {"id": "c", "rule": "language_score", "detail": None},
    ]
    assert step.measuring() == Language().measuring()
    assert Language(characters=10).measuring() != Language().measuring()
    with pytest.raises(ValidationError):
        Language(keep=())


def test_capitals_do_not_hide_the_language():
    capitals = [text.upper() for text in TEXTS.values()]
    assert measure(capitals) == measure([text.upper().lower() for text in TEXTS.values()])
    assert measure(capitals)[0] == list(TEXTS)
    titles = [text.title() for text in TEXTS.values()]
    assert measure(titles) == measure([text.title().lower() for text in TEXTS.values()])


def test_a_language_may_have_a_threshold_of_its_own():
    signals = pa.table(
        {
            "id": ["a", "b", "c", "d"],
            "language": ["hr", "hr", "en", "sl"],
            "language_score": pa.array([0.19, 0.3, 0.3, 0.9], pa.float32()),
        }
    )

    def dropped(**settings) -> list[str]:
        step = Language(keep=("hr", "en"), **settings)
        found = decide(signals, [("language", step.decisions())])
        return sorted(row for _, rows in found for row in rows["id"].to_pylist())

    assert dropped() == ["a", "c", "d"]
    assert dropped(languages={}) == ["a", "b", "c", "d"]
    assert dropped(languages={"en": {"min_score": 0.1}, "hr": {"min_score": 0.1}}) == ["d"]
    with pytest.raises(ValidationError, match="lid.176 never names"):
        Language(languages={"hrv": {"min_score": 0.1}})
    with pytest.raises(ValidationError, match="hr: give min_score, and it alone"):
        Language(languages={"hr": {"max_score": 0.1}})
