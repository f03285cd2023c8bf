"""The step `pii`: personal data and keys are masked, documents with much of them dropped."""

from typing import ClassVar, Literal, get_args

from pydantic import Field, field_validator

from tasks.documents.step import Bound, Cut, EditStep, Settings, Signal

Kind = Literal["email", "api_key", "iban", "credit_card", "ip", "phone"]
# Of two that overlap, the earlier kind is masked: the one whose form leaves less to chance.
KINDS: tuple[Kind, ...] = get_args(Kind)

_SOURCE = "tasks/pii"
_DOLMA = "tasks/pii; the count by which Dolma masks or drops (Soldaini et al. 2024, arXiv 2402.00159)"
# The regions with a numbering plan, as `phonenumbers.SUPPORTED_REGIONS` has them.
REGIONS = tuple(
    (
        "AC AD AE AF AG AI AL AM AO AR AS AT AU AW AX AZ BA BB BD BE BF BG BH BI BJ BL BM BN BO BQ BR BS BT "
        "BW BY BZ CA CC CD CF CG CH CI CK CL CM CN CO CR CU CV CW CX CY CZ DE DJ DK DM DO DZ EC EE EG EH ER "
        "ES ET FI FJ FK FM FO FR GA GB GD GE GF GG GH GI GL GM GN GP GQ GR GT GU GW GY HK HN HR HT HU ID IE "
        "IL IM IN IO IQ IR IS IT JE JM JO JP KE KG KH KI KM KN KP KR KW KY KZ LA LB LC LI LK LR LS LT LU LV "
        "LY MA MC MD ME MF MG MH MK ML MM MN MO MP MQ MR MS MT MU MV MW MX MY MZ NA NC NE NF NG NI NL NO NP "
        "NR NU NZ OM PA PE PF PG PH PK PL PM PR PS PT PW PY QA RE RO RS RU RW SA SB SC SD SE SG SH SI SJ SK "
        "SL SM SN SO SR SS ST SV SX SY SZ TA TC TD TG TH TJ TK TL TM TN TO TR TT TV TW TZ UA UG US UY UZ VA "
        "VC VE VG VI VN VU WF WS XK YE YT ZA ZM ZW "
    ).split()
)


class Replacements(Settings):
    """What stands in the text instead. The defaults are Dolma's, and of the same form where Dolma has no such kind.

    FineWeb puts `email@example.com` and `22.214.171.124` (datatrove src/datatrove/pipeline/formatters/pii.py).
    """

    email: str = "|||EMAIL_ADDRESS|||"
    api_key: str = "|||API_KEY|||"
    iban: str = "|||IBAN|||"
    credit_card: str = "|||CREDIT_CARD|||"
    ip: str = "|||IP_ADDRESS|||"
    phone: str = "|||PHONE_NUMBER|||"


class Pii(EditStep):
    """Masks e-mail and IP addresses, phone, account and card numbers and keys; drops documents with many of them.

    What counts as one of them, and what does not, stands in `tasks/pii/emails.py` and its neighbours: where a kind
    cannot be known from what looks like it, the text stays as it is. Only the text is masked: the title and the
    URLs stay, and so do the texts in stages made before this step. A kind that is not looked for counts 0. `edit`
    holds 32 bytes for every 64 of the batch, and a tuple for each span that it finds.
    """

    work: ClassVar = "tasks.pii.step_work"
    libraries: ClassVar = ("phonenumbers", "publicsuffixlist", "python-stdnum")

    step: Literal["pii"] = "pii"
    keeps_removed: ClassVar[bool] = False
    kinds: tuple[Kind, ...] = Field(KINDS, min_length=1, description="what is looked for")
    max_spans: int | None = Field(
        5, ge=0, description="most spans of a document that stays (Dolma: 5); null: all stay, masked"
    )
    regions: tuple[str, ...] = Field(
        ("US",), description="whose phone numbers are found without a country code: ISO 3166 codes of countries"
    )
    replacements: Replacements = Replacements()

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
    signal_fields: ClassVar[tuple[str, ...]] = ("kinds", "regions", "replacements")

    @field_validator("kinds", "regions")
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

    def decisions(self) -> list[Bound]:
        return [Bound("spans", "pii_spans", high=self.max_spans), self.not_empty()]
