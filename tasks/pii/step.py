"""The step `pii`: personal data and keys are masked, documents with much of them dropped."""

from collections.abc import Mapping
from typing import ClassVar, Literal, get_args

from pydantic import Field, field_validator

from gristmill.tasks.documents.step import Bound, Cut, EditStep, Settings, Signal
from gristmill.tasks.models.language.language import CODES
from gristmill.tasks.pii.regions import BY_LANGUAGE, REGIONS
from gristmill.tasks.url.canonical import PUBLIC_SUFFIXES

Kind = Literal["email", "api_key", "iban", "credit_card", "national_id", "ip", "phone"]
# Of two that overlap, the earlier kind is masked: the one whose form leaves less to chance.
KINDS: tuple[Kind, ...] = get_args(Kind)
# The countries whose identity numbers `gristmill.tasks.pii.national_ids` knows.
NATIONAL_IDS = tuple(
    (
        "AR AU BE BG BR CA CH CL CN CZ DE DK EE ES FI FR GB GR HR IE IL IN IT JP KR LT MX NL NO PL PT RO SE TH TR US ZA"
    ).split()
)

_SOURCE = "tasks/pii"
_DOLMA = "tasks/pii; the count by which Dolma masks or drops (Soldaini et al. 2024, arXiv 2402.00159)"


class Replacements(Settings):
    """What stands in the text instead. The defaults are Dolma's, and of the same form where Dolma has no such kind.

    FineWeb puts `email@example.com` and `22.214.171.124` (datatrove src/datatrove/pipeline/formatters/pii.py).
    """

    email: str = Field("|||EMAIL_ADDRESS|||", description="for an e-mail address")
    api_key: str = Field("|||API_KEY|||", description="for a key or a token of a service")
    iban: str = Field("|||IBAN|||", description="for the number of a bank account")
    credit_card: str = Field("|||CREDIT_CARD|||", description="for the number of a credit card")
    national_id: str = Field("|||NATIONAL_ID|||", description="for an identity number")
    ip: str = Field("|||IP_ADDRESS|||", description="for an IP address")
    phone: str = Field("|||PHONE_NUMBER|||", description="for a phone number")


class Pii(EditStep):
    """Masks e-mail and IP addresses, phone, account, card and identity numbers and keys; drops documents with many.

    What counts as one of them, and what does not, stands in `tasks/pii/emails.py` and its neighbours: where a kind
    cannot be known from what looks like it, the text stays as it is. The texts in stages made before this step stay,
    and so do titles and URLs unless `columns` names them; what is masked there is counted nowhere. A kind that is not
    looked for counts 0. `edit` holds 32 bytes for every 64 of the batch, and a tuple for each span that it finds.
    """

    work: ClassVar = "gristmill.tasks.pii.step_work"
    libraries: ClassVar = ("phonenumbers", "python-stdnum")  # which carry numbering plans
    package_data: ClassVar = (PUBLIC_SUFFIXES,)

    step: Literal["pii"] = "pii"
    keeps_removed: ClassVar[bool] = False
    kinds: tuple[Kind, ...] = Field(KINDS, min_length=1, description="what is looked for")
    max_spans: int | None = Field(
        5, ge=0, description="most spans of a document that stays (Dolma: 5); null: all stay, masked"
    )
    regions: tuple[str, ...] = Field(
        ("US",), description="whose phone numbers are found without a country code: ISO 3166 codes of countries"
    )
    regions_by_language: Mapping[str, tuple[str, ...]] = Field(
        BY_LANGUAGE,
        description="the regions whose phone numbers are found, too, in documents of a language, if a step `language` "
        "stands before this one; {} switches it off",
    )
    national_ids: tuple[str, ...] = Field(
        (), description="the countries whose identity numbers are found: ISO 3166 codes, see tasks/pii/national_ids.py"
    )
    columns: tuple[Literal["title", "url", "canonical_url"], ...] = Field(
        (), description="what is masked in the same way as the text"
    )
    replacements: Replacements = Field(Replacements(), description="what stands in the text instead")

    cuts: ClassVar = tuple(
        Cut(kind, (), description=f"Spans of the kind `{kind}`, if `kinds` has it.") for kind in KINDS
    )
    signals: ClassVar = (
        Signal("pii_spans", "int64", "spans", _DOLMA, description="Spans of all kinds that are masked."),
        *(
            Signal(
                f"pii_{kind}s", "int64", "spans", _SOURCE, description=f"Spans of the kind `{kind}` that are masked."
            )
            for kind in KINDS
        ),
        Signal("pii_characters", "int64", "characters", _SOURCE, description="Characters that the step leaves."),
    )
    signal_fields: ClassVar[tuple[str, ...]] = (
        *("kinds", "regions", "regions_by_language", "national_ids", "columns", "replacements"),
    )

    @field_validator("kinds", "regions", "national_ids", "columns")
    @classmethod
    def _as_a_set(cls, values: tuple[str, ...]) -> tuple[str, ...]:
        """In one order, each once: the order has no meaning, and must not make another stage of the same settings."""
        return tuple(sorted(set(values)))

    @field_validator("regions")
    @classmethod
    def _known(cls, regions: tuple[str, ...]) -> tuple[str, ...]:
        if unknown := [region for region in regions if region not in REGIONS]:
            raise ValueError(
                f"has {', '.join(unknown)}, without a numbering plan in phonenumbers; give codes like US, GB, DE"
            )
        return regions

    @field_validator("regions_by_language")
    @classmethod
    def _all_known(cls, by_language: Mapping[str, tuple[str, ...]]) -> Mapping[str, tuple[str, ...]]:
        if unknown := sorted(by_language.keys() - CODES):
            raise ValueError(
                f"has {', '.join(unknown)}, which the step `language` never names; give ISO 639 codes like en, de, zh"
            )
        return {language: cls._known(tuple(sorted(set(by_language[language])))) for language in sorted(by_language)}

    @field_validator("national_ids")
    @classmethod
    def _with_a_form(cls, countries: tuple[str, ...]) -> tuple[str, ...]:
        if unknown := [country for country in countries if country not in NATIONAL_IDS]:
            raise ValueError(f"has {', '.join(unknown)}; there are {', '.join(NATIONAL_IDS)}")
        return countries

    @property
    def considers(self) -> tuple[str, ...]:
        return ("language",) if self.regions_by_language and "phone" in self.kinds else ()

    @property
    def rewrites(self) -> tuple[str, ...]:
        return self.columns

    def decisions(self) -> list[Bound]:
        return [Bound("spans", "pii_spans", high=self.max_spans), self.not_empty()]
