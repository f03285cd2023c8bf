"""The language of short texts, and what of a text is looked at."""

from pathlib import Path

import pyarrow as pa
import pytest
from pydantic import ValidationError

from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe import check
from gristmill.storage.damage import DamagedFileError
from gristmill.tasks.documents.decisions import decide
from gristmill.tasks.documents.measure import schema
from gristmill.tasks.models import fasttext
from gristmill.tasks.models.language import Language
from gristmill.tasks.models.language import measure as measure_languages
from gristmill.tasks.models.model_files import ModelFileError

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
    assert dropped(min_score=0.65) == ["a", "b", "c", "d"], "what is given holds for all languages"
    assert dropped(min_score=0.65, languages={"hr": {"min_score": 0.2}}) == ["a", "c", "d"]
    assert dropped(model="other.bin") == ["a", "b", "c", "d"], "lid.176 alone was measured"
    assert dropped(languages={"en": {"min_score": 0.1}, "hr": {"min_score": 0.1}}) == ["d"]
    with pytest.raises(ValidationError, match="lid.176 does not have"):
        Language(languages={"hrv": {"min_score": 0.1}})
    with pytest.raises(ValidationError, match="hr: only min_score is allowed"):
        Language(keep=("hr",), languages={"hr": {"max_score": 0.1}})
    with pytest.raises(ValidationError, match="hr is not in keep, so all its documents are dropped"):
        Language(languages={"hr": {"min_score": 0.1}})


def test_what_the_model_cannot_tell_is_unknown():
    texts = {
        "": "a text without a letter",
        "12 4,50 | 1998 * 23 17:40 - 100% " * 9: "numbers",
        "ᎣᏏᏲ ᏣᎳᎩ ᎦᏬᏂᎯᏍᏗ ᎤᏍᏆᏂᎩᏗ ᏂᎦᎥ ᎤᏂᎷᏨ " * 4: "a script that no language of the model has",
        "qzv kpf xjwq vvbz hgkt wqpx zzkf ptbv xkcd fgwq " * 4: "letters by chance",
        "Umgayi uvula isango ekuseni, futhi amanzi aphendula isondo kuze kube kusihlwa.": "Zulu, which it has not",
    }
    labels, scores = measure(list(texts))
    assert labels == ["unknown"] * len(texts), dict(zip(texts.values(), labels, strict=True))
    named, same = measure(list(texts), unknown_below=0)
    assert "unknown" not in named
    assert same == scores, "the probability is that of the language that is most probable"
    assert measure(list(TEXTS.values()))[0] == list(TEXTS)
    assert measure(["the mill " + TEXTS["ru"]])[0] == ["ru"], "a few words in other letters do not count"


def test_unknown_texts_are_kept_if_they_are_named():
    signals = pa.table(
        {"id": ["a", "b", "c"], "language": ["en", "unknown", "unknown"], "language_score": [0.9, 0.1, 0.8]}
    )

    def kept(**settings) -> list[str]:
        found = decide(signals, [("language", Language(**settings).decisions())])
        return sorted({"a", "b", "c"} - {row for _, rows in found for row in rows["id"].to_pylist()})

    assert kept() == ["a"]
    assert kept(keep=("en", "unknown")) == ["a", "b", "c"]
    assert kept(keep=("unknown",), min_score=0.9) == ["b", "c"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A model of three languages with labels as those of GlotLID."""
    folder = tmp_path_factory.mktemp("model")
    labels = {"en": "eng_Latn", "de": "deu_Latn", "ru": "rus_Cyrl"}
    lines = [f"__label__{label} {TEXTS[code]}\n" for code, label in labels.items()] * 20
    (folder / "lines.txt").write_text("".join(lines), encoding="utf-8")
    model = fasttext.train_supervised(
        str(folder / "lines.txt"), minn=2, maxn=3, dim=8, bucket=1000, epoch=20, lr=1.0, thread=1, verbose=0
    )
    model.save_model(str(folder / "lid.bin"))
    return folder / "lid.bin"


def test_a_model_by_path_gives_its_own_labels(trained):
    step = Language(model=str(trained), keep=("deu_Latn",)).pinned()
    texts = [TEXTS[code] for code in ("ru", "en", "de")]
    columns = measure_languages(step, pa.table({"text": pa.array(texts, pa.large_string())}))
    assert columns["language"].to_pylist() == ["rus_Cyrl", "eng_Latn", "deu_Latn"]
    own = fasttext.load_model(str(trained)).predict(texts, k=1)[1]
    assert columns["language_score"].to_pylist() == pytest.approx([min(float(row[0]), 1) for row in own])
    assert step.measuring().model_checksum == step.model_checksum != ""


def test_texts_are_unknown_to_another_model_below_the_score_that_is_given(trained):
    step = Language(model=str(trained), keep=("deu_Latn",)).pinned()
    table = pa.table({"text": pa.array(["12 34 56", TEXTS["de"]], pa.large_string())})
    assert "unknown" not in measure_languages(step, table)["language"].to_pylist()
    columns = measure_languages(step.model_copy(update={"unknown_below": 1.0}), table)
    scores = columns["language_score"].to_pylist()
    assert [label == "unknown" for label in columns["language"].to_pylist()] == [score < 1 for score in scores]
    assert Language(model=str(trained), keep=("deu_Latn", "unknown")).pinned().keep == ("deu_Latn", "unknown")


def test_a_model_that_cannot_be_used_is_refused_before_any_document(trained, tmp_path):
    with pytest.raises(ModelFileError, match="no label deu;.* deu_Latn"):
        Language(model=str(trained), keep=("deu",)).pinned()
    with pytest.raises(FileNotFoundError):
        Language(model=str(tmp_path / "none.bin")).pinned()
    cut = tmp_path / "cut.bin"
    cut.write_bytes(trained.read_bytes()[:-1])
    with pytest.raises(ModelFileError, match="not a valid fastText model"):
        Language(model=str(cut), keep=("deu_Latn",)).pinned()
    ((place, what),) = check.step_problems({1: Language(model=str(cut))}, MachineSettings(), deep=False)
    assert place == ("steps", 1, "model")
    assert "copy or make it again" in what


def test_a_model_that_changes_during_a_run_stops_it(trained, tmp_path):
    changing = tmp_path / "lid.bin"
    changing.write_bytes(trained.read_bytes())
    step = Language(model=str(changing), keep=("deu_Latn",)).pinned()
    changing.write_bytes(trained.read_bytes()[:-1] + b"\1")
    with pytest.raises(DamagedFileError):
        measure_languages(step, pa.table({"text": pa.array(["Das Rad"], pa.large_string())}))
