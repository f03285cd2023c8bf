"""The scripts that the languages of lid.176 are written in, as the Unicode property Script names them.

After CLDR 47, languageData; for languages that it lacks, and for a second script, after their Wikipedias, which the
model was trained on. Languages that are not named here are written in Latin letters.
"""

_BY_SCRIPT = {
    "Arabic": "ar arz az azb ckb diq fa kk ks ku ky lrc ms mzn pa pnb ps sd tg tk ug ur uz",
    "Armenian": "hy",
    "Bengali": "as bn bpy",
    "Bopomofo": "yue zh",
    "Cyrillic": (
        "av az ba be bg bs bxr ce cv kk krc ku kv ky lez mhr mk mn mrj myv os ro ru rue sah sh sr tg tk tt tyv ug uk "
        "uz xal"
    ),
    "Devanagari": "bh dty gom hi hif mai mr ne new sa sd",
    "Ethiopic": "am",
    "Georgian": "ka xmf",
    "Greek": "el",
    "Gujarati": "gu",
    "Gurmukhi": "pa",
    "Han": "ja ko wuu yue zh",
    "Hangul": "ko",
    "Hebrew": "he yi",
    "Hiragana": "ja",
    "Kannada": "gom kn",
    "Katakana": "ja",
    "Khmer": "km",
    "Lao": "lo",
    "Latin": "az bs diq gom hif ku ky ms ro sh sr tg tk tt ug uz",
    "Malayalam": "ml",
    "Mongolian": "bxr mn xal",
    "Myanmar": "my",
    "Oriya": "or",
    "Sinhala": "si",
    "Tamil": "ta",
    "Telugu": "te",
    "Thaana": "dv",
    "Thai": "th",
    "Tibetan": "bo",
}
_SCRIPTS: dict[str, tuple[str, ...]] = {}
for _script, _codes in _BY_SCRIPT.items():
    for _code in _codes.split():
        _SCRIPTS[_code] = (*_SCRIPTS.get(_code, ()), _script)


def scripts_of(code: str) -> tuple[str, ...]:
    """The scripts of a language, given by its code in lid.176."""
    return _SCRIPTS.get(code, ("Latin",))
