"""How legible bytes are in an encoding: which characters outside ASCII no language has there that is written in it.

Letters are judged by the alphabets of the languages that an encoding was made for (CLDR's main exemplar characters)
and by their place in a word, characters of Chinese, Japanese and Korean by the levels of their national standards.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from functools import cache, lru_cache

_WESTERN = (
    "äöüßéà",  # German, Swedish's share of which is below
    "àâæçéèêëîïôœùûüÿ",  # French
    "áéíñóúü",  # Spanish
    "áâãàçéêíóôõúü",  # Portuguese
    "àèéìíîòóùú",  # Italian
    "åäöéüàšž",  # Swedish, Finnish
    "æøåéèêòóôàäöü",  # Danish, Norwegian
    "áðéíóúýþæö",  # Icelandic
    "àçèéíïòóúüñ",  # Catalan
    "áâäçèéêëíïîóôöúûü",  # Dutch, Afrikaans
    "áéíóúàèìòùâêîôûŵŷẁẃẅÿ",  # Irish, Gaelic, Welsh
    "ëç",  # Albanian
)
_CENTRAL = (
    "ąćęłńóśźż",  # Polish
    "áčďéěíňóřšťúůýž",  # Czech
    "áäčďéíĺľňóôŕšťúýž",  # Slovak
    "áéíóöőúüű",  # Hungarian
    "čćđšž",  # Croatian, Bosnian, Serbian, Slovene
    "ăâîşţșț",  # Romanian
    "äöüß",  # German
    "ëç",  # Albanian
)
_TURKISH = ("âçğıîöşûüi̇",)
_BALTIC = ("ąčęėįšųūž", "āčēģīķļņōŗšūž", "äöõüšž")
_SOUTH = ("ĉĝĥĵŝŭ", "ċġħżàèìòù")
_VIETNAMESE = ("ăâđêôơưáàãảạéèẽẻẹíìĩỉịóòõỏọúùũủụýỳỹỷỵấầẫẩậắằẵẳặếềễểệốồỗổộớờỡởợứừữửự\u0300\u0301\u0303\u0309\u0323",)
_CYRILLIC = (
    "абвгдежзийклмнопрстуфхцчшщъыьэюяё",  # Russian, Bulgarian
    "абвгґдеєжзиіїйклмнопрстуфхцчшщьюя",  # Ukrainian
    "абвгдеёжзійклмнопрстуўфхцчшыьэюя",  # Belarusian
    "абвгдђежзијклљмнњопрстћуфхцчџш",  # Serbian
    "абвгдѓежзѕијклљмнњопрстќуфхцчџш",  # Macedonian
)
_GREEK = ("αβγδεζηθικλμνξοπρσςτυφχψωάέήίόύώϊϋΐΰ",)
_HEBREW = ("".join(map(chr, (*range(0x5B0, 0x5C4), *range(0x5D0, 0x5EB)))),)
_ARABIC = ("".join(map(chr, (*range(0x621, 0x63B), *range(0x640, 0x653)))) + "پچژگکیٹڈڑںھہےۀ",)
_THAI = ("".join(map(chr, (*range(0xE01, 0xE3B), *range(0xE3F, 0xE5C)))),)

# The alphabets that are written in a codec; None for the characters of a national standard.
_ALPHABETS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("cp1252", "iso8859-15", "iso8859-14", "mac-roman", "cp850"), _WESTERN),
    **dict.fromkeys(("cp1250", "iso8859-2", "iso8859-16", "mac-latin2", "cp852"), _CENTRAL),
    "cp1254": (*_TURKISH, *_WESTERN),
    **dict.fromkeys(("cp1257", "iso8859-13", "iso8859-4", "iso8859-10"), (*_BALTIC, _WESTERN[5])),
    "iso8859-3": _SOUTH,
    "cp1258": (*_VIETNAMESE, _WESTERN[1]),
    **dict.fromkeys(("cp1251", "koi8-r", "koi8-u", "iso8859-5", "mac-cyrillic", "cp866", "cp855"), _CYRILLIC),
    **dict.fromkeys(("cp1253", "iso8859-7"), _GREEK),
    **dict.fromkeys(("cp1255", "iso8859-8"), _HEBREW),
    "cp1256": (*_ARABIC, *(_ARABIC[0] + _WESTERN[1],)),
    "iso8859-6": _ARABIC,
    "cp874": _THAI,
}
# Codecs that are mistaken for each other: codecs of one script, twins first.
_FAMILIES = (
    ("cp1252", "iso8859-15", "mac-roman", "cp1250", "cp1254", "cp1257"),
    ("cp1250", "iso8859-2", "cp1252", "mac-latin2"),
    ("iso8859-2", "cp1250", "cp1252"),
    ("iso8859-16", "cp1250", "cp1252"),
    ("iso8859-15", "cp1252", "cp1250", "cp1254"),
    ("cp1254", "cp1252", "iso8859-3"),
    ("cp1257", "iso8859-13", "iso8859-4", "cp1252"),
    ("iso8859-13", "cp1257", "cp1252"),
    ("iso8859-4", "cp1257", "cp1252"),
    ("iso8859-10", "cp1257", "cp1252"),
    ("mac-roman", "cp1252", "cp1250"),
    *(
        (
            name,
            *(other for other in ("cp1251", "koi8-u", "koi8-r", "iso8859-5", "mac-cyrillic", "cp866") if other != name),
        )
        for name in ("cp1251", "koi8-r", "koi8-u", "iso8859-5", "mac-cyrillic", "cp866")
    ),
    ("cp1253", "iso8859-7"),
    ("iso8859-7", "cp1253"),
    ("cp1255", "iso8859-8"),
    ("iso8859-8", "cp1255"),
    ("cp1256", "iso8859-6"),
    ("iso8859-6", "cp1256"),
)
_KIN = {name: others for name, *others in _FAMILIES}
_LEVELS = {
    "gb18030": ("gb2312", 0xD7),
    "big5hkscs": ("big5", 0xC6),
    "cp932": ("euc_jp", 0xCF),
    "euc_jp": ("euc_jp", 0xCF),
    "iso2022_jp": ("euc_jp", 0xCF),
    "cp949": ("euc_kr", 0xC8),
}
_JAPANESE = ("cp932", "euc_jp", "iso2022_jp")
_ANY = tuple(dict.fromkeys(letters for group in _ALPHABETS.values() for letters in group))

# Signs that are nowhere but in text that was read wrong, or in drawings.
_ALIEN = frozenset("¤¦¨¬¯¸ˆ˜´")
# Signs that may be between two letters.
_JOINING = frozenset("’‘·–—…\xa0\xad\u200b\u200c\u200d")
# Chinese and Japanese have no blanks beside punctuation.
_CJK_SIGNS = frozenset(map(chr, (*range(0x3000, 0x3040), *range(0xFF00, 0xFF10), *range(0xFF1A, 0xFF21))))
_NO_BEGINNING = frozenset("¹²³¼½¾™®”»›¶")
_NO_END = frozenset("¿¡«„")
_LETTER = r"[^\W\d_²³¹¼½¾]"
_WORD = re.compile(rf"{_LETTER}*[^\W\d_²³¹¼½¾\x00-\x7f]{_LETTER}*(?:[\u0300-\u0323]{_LETTER}*)*")
# a sign of currency that became a letter
_BEFORE_DIGIT = re.compile(r"(?<!\w)[^\W\d_\x00-\x7f](?=\d)")
# Scripts whose letters are in an alphabet above, and characters of national standards.
_KNOWN_SCRIPTS = re.compile("[\x80-\u024f\u0370-\u04ff\u0590-\u06ff\u0e00-\u0e7f\u1e00-\u1eff]")
_IDEOGRAPH = re.compile("[\u3400-\u9fff\uac00-\ud7a3\ue000-\uf8ff]")
_SIGN = re.compile(r"[^\x00-\x7f]")
# What no text has weighs more than a letter that its language lacks.
_HARD = 2.0
_MIN_JAPANESE = 10
_EXCERPT = 4096
_BEFORE = 256
_HIGH = re.compile(rb"[\x80-\xff]")
_BRACKET = re.compile(rb"[<>]")


_SCRIPTS = (
    ("cp1251", "koi8-r", "koi8-u", "iso8859-5", "mac-cyrillic", "cp866", "cp855"),
    ("cp1253", "iso8859-7"),
    ("cp1255", "iso8859-8"),
    ("cp1256", "iso8859-6"),
    ("cp874",),
    ("gb18030", "hz"),
    ("big5hkscs",),
    ("cp932", "euc_jp", "iso2022_jp"),
    ("cp949", "iso2022_kr"),
)
# All encodings of the web whose legibility is known.
KNOWN = (
    *("cp1250", "cp1251", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp1258", "cp874", "koi8-r", "iso8859-5"),
    *_LEVELS,
)


def kin(codecs: Iterable[str]) -> list[str]:
    """The codecs that these are taken for, the likeliest first."""
    return [other for name in codecs for other in _KIN.get(name, ())]


def script(codec: str) -> int:
    """A number for the script, or the East Asian language, of a codec; 0 for Latin and for what is not known."""
    for number, names in enumerate(_SCRIPTS, 1):
        if codec in names:
            return number
    return 0


def excerpt(payload: bytes) -> bytes:
    """The first 4 KiB of what is outside of tags, or in one, and has bytes outside ASCII; a line for each piece.

    No encoding that is read here has the bytes of `<` and `>` inside a character. A piece is cut between characters
    only where it has a blank: one longer than 4 KiB may be cut inside one.
    """
    pieces: list[bytes] = []
    size = end = 0
    while size < _EXCERPT and (match := _HIGH.search(payload, end)):
        first = match.start()
        begin = max(end, first - _BEFORE, payload.rfind(b"<", end, first) + 1, payload.rfind(b">", end, first) + 1)
        if begin == first - _BEFORE:
            begin = payload.find(b" ", begin, first) + 1 or first
        brackets = _BRACKET.search(payload, first)
        end = min(brackets.start() if brackets else len(payload), first + _EXCERPT - size)
        pieces.append(payload[begin:end])
        size += end - begin
    return b"\n".join(pieces)


def faults(text: str, codec: str) -> tuple[float, int]:
    """The weight of the characters outside ASCII that are wrong in a text that was read in a codec, and how many
    characters outside ASCII there are; a character weighs 2 at most."""
    characters = len(_SIGN.findall(text))
    if codec in _LEVELS:
        return _east_asian(text, codec), characters
    hard = 0
    letters: Counter[str] = Counter()
    for word in _WORD.findall(text):
        hard += _misplaced(word)
        letters.update(_SIGN.findall(word.lower()))
    hard += _alien_signs(text) + len(_BEFORE_DIGIT.findall(text))
    if codec in _ALPHABETS:
        return _HARD * hard + _foreign(letters, _ALPHABETS[codec]), characters
    known = Counter({letter: count for letter, count in letters.items() if _KNOWN_SCRIPTS.match(letter)})
    uncommon = sum(
        count for letter, count in letters.items() if _IDEOGRAPH.match(letter) and not _is_common_in_any(letter)
    )
    return _HARD * hard + uncommon + _foreign(known, _ANY), characters


def _misplaced(word: str) -> int:
    """How many letters have the script of another word, or, outside ASCII, the case."""
    outside = _SIGN.findall(word)
    other = len(outside) - sum(map(_is_latin, outside))
    if other and other < len(word):
        return min(other, len(word) - other)
    if word.islower() or word.isupper() or word[1:].islower():
        return 0
    return sum(character.isupper() for character in _SIGN.findall(word[1:]))


@cache
def _is_latin(character: str) -> bool:
    return unicodedata.name(character, "").startswith(("LATIN", "COMBINING", "MICRO", "FEMININE", "MASCULINE"))


def _alien_signs(text: str) -> int:
    """How many signs, other than letters, no text has, or has in other places."""
    wrong = 0
    last = len(text) - 1
    for match in _SIGN.finditer(text):
        sign, place = match[0], match.start()
        if sign.isalpha() or sign in _JOINING or _is_mark(sign):
            continue
        before = place > 0 and text[place - 1].isalpha()
        after = place < last and text[place + 1].isalpha()
        if sign in _ALIEN or _is_undefined(sign):
            wrong += 1
        elif before and after:
            wrong += sign not in _CJK_SIGNS
        else:
            wrong += after and sign in _NO_BEGINNING or before and sign in _NO_END
    return wrong


@cache
def _is_undefined(sign: str) -> bool:
    """Whether it is a control, of private use, of no meaning, or a part of a drawing."""
    return unicodedata.category(sign) in ("Cc", "Co", "Cn") or sign == "\ufffd" or "\u2500" <= sign <= "\u259f"


@cache
def _is_mark(sign: str) -> bool:
    return unicodedata.category(sign) in ("Mn", "Mc")


@cache
def _is_common_in_any(character: str) -> bool:
    return any(_is_common(character, standard, last) for standard, last in set(_LEVELS.values()))


def _foreign(letters: Counter[str], alphabets: Iterable[str]) -> int:
    """How many letters are not in the alphabet that has most of them."""
    return min(
        (
            sum(count for letter, count in letters.items() if letter not in alphabet and letter not in _SHARED)
            for alphabet in map(_set_of, alphabets)
        ),
        default=0,
    )


_SHARED = frozenset("µªº")


@lru_cache(maxsize=128)
def _set_of(alphabet: str) -> frozenset[str]:
    return frozenset(alphabet)


def _east_asian(text: str, codec: str) -> float:
    standard, last = _LEVELS[codec]
    wrong = 0.0
    ideographs = kana = 0
    for match in _SIGN.finditer(text):
        sign, place = match[0], match.start()
        if sign == "\ufffd" or "\ue000" <= sign <= "\uf8ff" or "\uff61" <= sign <= "\uff9f" or sign < "\xa0":
            wrong += _HARD
        elif "\u3041" <= sign <= "\u30fe":
            kana += 1
        elif "\u3400" <= sign <= "\u9fff" or "\uac00" <= sign <= "\ud7a3" or sign >= "\U00020000":
            ideographs += 1
            if text[place - 1 : place].islower() and text[place + 1 : place + 2].islower() and _is_between(text, place):
                wrong += _HARD
            elif not _is_common(sign, standard, last):
                wrong += 1
    if codec not in _JAPANESE:
        # Korean has spaces between words, Chinese has none; kana are Japanese
        if codec != "cp949":
            wrong += len(_SPACED.findall(text)) + kana
    elif ideographs >= _MIN_JAPANESE and not kana:
        wrong += ideographs
    return wrong


_SPACED = re.compile("[\u4e00-\u9fff] (?=[\u4e00-\u9fff])")


def _is_between(text: str, place: int) -> bool:
    return text[place - 1].isascii() and text[place + 1].isascii()


@cache
def _is_common(character: str, standard: str, last: int) -> bool:
    """Whether it is of the standard's first level, of which nearly all text is."""
    try:
        encoded = character.encode(standard)
    except UnicodeEncodeError:
        return False
    # Python's EUC-KR writes other syllables as eight bytes
    return len(encoded) == 2 and encoded[0] <= last
