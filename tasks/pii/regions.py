"""Which regions have numbering plans, and in which a language is mostly written."""

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
# By the codes of the language filter, ISO 639-1: the regions with most speakers on the web (CLDR, territory-language
# information), at most six; in English also two in which it is written most.
BY_LANGUAGE: dict[str, tuple[str, ...]] = {
    language: tuple(regions.split())
    for language, regions in {
        "ar": "SA EG AE MA DZ IQ",
        "bg": "BG",
        "bn": "BD IN",
        "ca": "ES",
        "cs": "CZ",
        "da": "DK",
        "de": "DE AT CH",
        "el": "GR CY",
        "en": "US CA GB IE AU NZ SG HK",
        "es": "ES MX AR CO CL PE",
        "et": "EE",
        "fa": "IR",
        "fi": "FI",
        "fr": "FR BE CH CA",
        "he": "IL",
        "hi": "IN",
        "hr": "HR",
        "hu": "HU",
        "id": "ID",
        "it": "IT CH",
        "ja": "JP",
        "ko": "KR",
        "lt": "LT",
        "lv": "LV",
        "ms": "MY",
        "nl": "NL BE",
        "no": "NO",
        "pl": "PL",
        "pt": "BR PT",
        "ro": "RO",
        "ru": "RU KZ BY",
        "sk": "SK",
        "sl": "SI",
        "sr": "RS",
        "sv": "SE FI",
        "ta": "IN",
        "th": "TH",
        "tr": "TR",
        "uk": "UA",
        "ur": "PK",
        "vi": "VN",
        "zh": "CN TW HK",
    }.items()
}
