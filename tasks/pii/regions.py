"""Which countries' phone numbers are detected in a document of a language."""

from collections.abc import Mapping

# The regions with a numbering plan, as `phonenumbers.SUPPORTED_REGIONS` has them.
REGIONS = tuple(
    (
        "AC AD AE AF AG AI AL AM AO AR AS AT AU AW AX AZ BA BB BD BE BF BG BH BI BJ BL BM BN BO BQ BR BS BT BW BY BZ "
        "CA CC CD CF CG CH CI CK CL CM CN CO CR CU CV CW CX CY CZ DE DJ DK DM DO DZ EC EE EG EH ER ES ET FI FJ FK FM "
        "FO FR GA GB GD GE GF GG GH GI GL GM GN GP GQ GR GT GU GW GY HK HN HR HT HU ID IE IL IM IN IO IQ IR IS IT JE "
        "JM JO JP KE KG KH KI KM KN KP KR KW KY KZ LA LB LC LI LK LR LS LT LU LV LY MA MC MD ME MF MG MH MK ML MM MN "
        "MO MP MQ MR MS MT MU MV MW MX MY MZ NA NC NE NF NG NI NL NO NP NR NU NZ OM PA PE PF PG PH PK PL PM PR PS PT "
        "PW PY QA RE RO RS RU RW SA SB SC SD SE SG SH SI SJ SK SL SM SN SO SR SS ST SV SX SY SZ TA TC TD TG TH TJ TK "
        "TL TM TN TO TR TT TV TW TZ UA UG US UY UZ VA VC VE VG VI VN VU WF WS XK YE YT ZA ZM ZW "
    ).split()
)
# By the codes of the language filter, ISO 639-1: the regions with most speakers on the web (CLDR, territory-language
# information), at most six; in English also two in which it is written most.
BY_LANGUAGE: dict[str, tuple[str, ...]] = {
    language: tuple(regions.split())
    for language, regions in {
        "af": "ZA",
        "am": "ET",
        "ar": "SA EG AE MA DZ IQ",
        "arz": "EG",
        "az": "AZ",
        "be": "BY",
        "bg": "BG",
        "bn": "BD IN",
        "bs": "BA",
        "ca": "ES",
        "cs": "CZ",
        "cy": "GB",
        "da": "DK",
        "de": "DE AT CH",
        "el": "GR CY",
        "en": "US CA GB IE AU NZ SG HK",
        "es": "ES MX AR CO CL PE",
        "et": "EE",
        "eu": "ES",
        "fa": "IR",
        "fi": "FI",
        "fr": "FR BE CH CA",
        "fy": "NL",
        "ga": "IE",
        "gl": "ES",
        "gu": "IN",
        "he": "IL",
        "hi": "IN",
        "hr": "HR",
        "hu": "HU",
        "hy": "AM",
        "id": "ID",
        "is": "IS",
        "it": "IT CH",
        "ja": "JP",
        "jv": "ID",
        "ka": "GE",
        "kk": "KZ",
        "km": "KH",
        "kn": "IN",
        "ko": "KR",
        "ky": "KG",
        "lb": "LU",
        "lo": "LA",
        "lt": "LT",
        "lv": "LV",
        "mk": "MK",
        "ml": "IN",
        "mn": "MN",
        "mr": "IN",
        "ms": "MY",
        "mt": "MT",
        "my": "MM",
        "ne": "NP",
        "nl": "NL BE",
        "nn": "NO",
        "no": "NO",
        "pa": "IN",
        "pl": "PL",
        "ps": "AF",
        "pt": "BR PT",
        "ro": "RO",
        "ru": "RU KZ BY",
        "sh": "RS HR BA",
        "si": "LK",
        "sk": "SK",
        "sl": "SI",
        "sq": "AL XK",
        "sr": "RS",
        "su": "ID",
        "sv": "SE FI",
        "sw": "KE TZ",
        "ta": "IN",
        "te": "IN",
        "tg": "TJ",
        "th": "TH",
        "tl": "PH",
        "tr": "TR",
        "uk": "UA",
        "ur": "PK",
        "uz": "UZ",
        "vi": "VN",
        "yue": "HK",
        "zh": "CN TW HK",
    }.items()
}
# Regions whose numbers are detected only after a word such as `Tel.`: other countries in which the language is written,
# and those of a language that short texts are mistaken for.
_ANNOUNCED: dict[str, tuple[str, ...]] = {
    language: tuple(regions.split())
    for language, regions in {
        "af": "NA",
        "ar": "JO KW QA LB TN LY OM BH YE SY SD PS",
        "bs": "HR RS",
        "ca": "AD",
        "cs": "SK",
        "da": "NO",
        "de": "LU LI",
        "en": "ZA NG KE IN PK MY PH GH UG TZ ZW LK BD JM TT MT",
        "es": "EC VE GT UY PY BO DO CR PA SV HN NI CU PR US",
        "fa": "AF TJ",
        "fr": "LU MA TN DZ SN CI CM CD",
        "hr": "BA RS ME",
        "id": "MY",
        "ms": "ID SG BN",
        "nl": "SR",
        "nn": "DK",
        "no": "DK",
        "pt": "AO MZ",
        "ro": "MD",
        "ru": "UA UZ KG AM AZ GE MD",
        "sk": "CZ",
        "sr": "BA ME HR",
        "sw": "UG CD",
        "ta": "LK SG MY",
        "tr": "CY AZ",
        "uk": "RU",
        "ur": "IN",
        "zh": "SG MO MY",
    }.items()
}


def announced_regions(
    language: str | None, of_words: tuple[str, ...], by_language: Mapping[str, tuple[str, ...]]
) -> tuple[str, ...]:
    """Regions whose numbers are detected only after a word that announces them.

    language: of the document; of_words: those of which the word is, if it is of few; by_language: the regions of the
    setting. A language whose regions the setting changes has no more than these.
    """
    regions = [region for one in of_words for region in by_language.get(one, ())]
    if language in _ANNOUNCED and set(by_language.get(language, ())) == set(BY_LANGUAGE[language]):
        regions += _ANNOUNCED[language]
    return tuple(dict.fromkeys(regions))
