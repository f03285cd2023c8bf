"""The word class of every code point, and which classes hang together: Unicode word segmentation as two flat tables.

Source: Unicode Standard Annex #29, word boundary rules WB3 to WB16 and the property Word_Break; properties from
`unicodedata`, so of the Unicode version of Python, and where it has none from the lists below (UAX #44, files
WordBreakProperty.txt, LineBreak.txt, PropList.txt, Scripts.txt). It differs from UAX #29 in three things:

- A run of one repeated mark or symbol is one word (`...`, `----`), as for the tokenizers that datatrove and spaCy use:
  else a ruled line would be a hundred words, and most of the n-grams of its document.
- After a zero width joiner any symbol goes on with the word (WB3c: only Extended_Pictographic).
- Scripts without spaces, of which UAX #29 leaves the words to dictionaries, as ICU has them. Here they follow from the
  neighbouring letters alone, so that a phrase has the same words wherever it stands, which n-grams need:
  - each ideograph is a word, and so is each of the most frequent particles of Japanese; other hiragana are words in
    runs, and so are katakana (WB13);
  - in Thai, Lao, Khmer, Myanmar and their relatives a word begins at a vowel written before its consonant, and at a
    letter that a vowel or mark follows: consonants without one close the syllable before.

Against ICU 78, with its dictionaries: number of words with a letter or number, ours to ICU's, and F1 of the boundaries.
119 languages with spaces have F1 1.000 in the median and at least 0.998, Korean 0.978 to 0.991: ICU parts Hangul from
digits and Latin letters. Without spaces, in prose and in the help pages of LibreOffice (Burmese: texts of Firefox):

    Chinese    1.55, 0.82    1.41, 0.88        Khmer                    0.98, 0.93  (U+200B taken out)
    Japanese   1.09, 0.78    1.07, 0.91        Burmese                  1.04, 0.86
    Thai       1.30, 0.82    1.23, 0.83        Lao        1.33, 0.87

So a mean word of Chinese, Thai or Lao is a fifth to a third shorter than by a dictionary, which thresholds by language
have to know. Pairs of ideographs come nearer in number (0.82), not in F1 (0.72), and depend on where their run begins.
"""

import unicodedata
from functools import cache

import numpy as np

from gristmill.tasks.kernels.characters import CODE_POINTS

# Word classes, the lowest five bits of an entry. The first two are no part of words. ATTACHED is the class of no code
# point, but of the end of a word to which only what is IGNORED attaches.
SPACE, SEPARATOR, OTHER, ALPHABETIC, HEBREW, NUMERIC, KATAKANA, EXTENDER, IGNORED, REGIONAL = range(10)
MID_LETTER, MID_NUMBER, MID_BOTH, QUOTE, DOUBLE_QUOTE, ALONE, HIRAGANA = range(10, 17)
VOWEL_BEFORE, VOWEL_BEHIND, SYLLABIC, ATTACHED = range(17, 21)
CLASSES = 32

# Properties of a code point, the bits above.
IS_LETTER, IS_MARK, IS_NUMBER, IS_CAPITAL, IS_LOWER = (1 << b for b in range(5, 10))
IS_TERMINAL, IS_CLOSING, IS_BREAK, IS_SYMBOL, IS_VOWEL = (1 << b for b in range(10, 15))

# What becomes of two neighbours, the first seen without what is IGNORED behind it.
PART, JOIN, JOIN_EQUAL, JOIN_PAIR, JOIN_UNLESS_VOWEL = range(5)
JOIN_BEFORE_LETTER, JOIN_BEFORE_NUMBER, JOIN_BEFORE_HEBREW = range(5, 8)

# The boundaries of `str.splitlines` (Python library reference); "\r\n" is one.
LINE_BREAKS = "\n\v\f\r\x1c\x1d\x1e\x85\u2028\u2029"


def _points(ranges: str) -> np.ndarray:
    """The code points of a list as the Unicode Character Database writes it: "3A B7 2018-2019"."""
    bounds = [[int(bound, 16) for bound in span.split("-")] for span in ranges.split()]
    return np.concatenate([np.arange(span[0], span[-1] + 1) for span in bounds])


# Word_Break.
_MID_LETTER = "3A B7 387 55F 5F4 2027 FE13 FE55 FF1A"
_MID_NUMBER = "2C 3B 37E 589 60C-60D 66C 7F8 2044 FE10 FE14 FE50 FE54 FF0C FF1B"
_MID_BOTH = "2E 2018-2019 2024 FE52 FF07 FF0E"
# What Word_Break=ALetter has besides letters: modifiers, some punctuation, and letters in circles and squares.
_LETTERS_TOO = (
    "2C2-2C5 2D2-2D7 2DE-2DF 2E5-2EB 2ED 2EF-2FF 55A-55C 55E 58A 5F3 A708-A716 A720-A721 A789-A78A AB5B "
    "24B6-24E9 1F130-1F149 1F150-1F169 1F170-1F189"
)
_KATAKANA = (
    "3031-3035 309B-309C 30A0-30FA 30FC-30FF 31F0-31FF 32D0-32FE 3300-3357 FF66-FF9D 1AFF0-1AFFE 1B000 1B120-1B122 "
    "1B164-1B167"
)
# The most frequent particles of Japanese, ga, ni, no, ha, wo: with them F1 against ICU is 0.78 in prose, without 0.74.
_PARTICLES = "304C 306B 306E 306F 3092"
_HIRAGANA = "3041-3096 309D-309F 1B001-1B11F 1B132 1B150-1B152"
_IDEOGRAPHS = "3005-3007 3021-3029 3038-303B 3400-4DBF 4E00-9FFF F900-FAFF 16FE4 17000-18DFF 1B170-1B2FF 20000-3FFFD"
# Line_Break=SA, scripts of South East Asia that set no spaces between words: Thai, Lao, Myanmar, Khmer, Tai, Ahom.
_SYLLABIC = "E00-EFF 1000-109F 1780-17FF 1950-19DF 1A20-1AAF A9E0-A9FF AA60-AADF 11700-1174F"
# Logical_Order_Exception.
_VOWELS_BEFORE = "E40-E44 EC0-EC4 19B5-19B7 19BA AAB5-AAB6 AAB9 AABB-AABC"
# The vowels of Thai and Lao that are letters and stand behind their consonant.
_VOWELS_BEHIND = "E30 E32-E33 E45 EB0 EB2-EB3 EBD"
# Marks of a consonant that closes a syllable or is silent: phinthu, thanthakhat, Lao's cancellation mark; dot below,
# virama, asat; bantoc, toandakhiat, coeng.
_NO_VOWELS = "E3A E4C ECC 1037 1039-103A 17CB 17CD 17D2"
# Sentence_Terminal of Unicode 17.
_TERMINAL = (
    "21 2E 3F 589 61D-61F 6D4 700-702 7F9 837 839 83D-83E 964-965 104A-104B 1362 1367-1368 166E 1735-1736 17D4-17D5 "
    "1803 1809 1944-1945 1AA8-1AAB 1B4E-1B4F 1B5A-1B5B 1B5E-1B5F 1B7D-1B7F 1C3B-1C3C 1C7E-1C7F 2024 203C-203D "
    "2047-2049 2CF9-2CFB 2E2E 2E3C 2E53-2E54 2E60-2E61 3002 A4FF A60E-A60F A6F3 A6F7 A876-A877 A8CE-A8CF A92F "
    "A9C8-A9C9 AA5D-AA5F AAF0-AAF1 ABEB FE12 FE15-FE16 FE52 FE56-FE57 FF01 FF0E FF1F FF61 10A56-10A57 10F55-10F59 "
    "10F86-10F89 11047-11048 110BE-110C1 11141-11143 111C5-111C6 111CD 111DE-111DF 11238-11239 1123B-1123C 112A9 "
    "113D4-113D5 1144B-1144C 115C2-115C3 115C9-115D7 11641-11642 1173C-1173E 11944 11946 11A42-11A43 11A9B-11A9C "
    "11C41-11C42 11EF7-11EF8 11F43-11F44 16A6E-16A6F 16AF5 16B37-16B38 16B44 16D6E-16D6F 16E98 1BC9F 1DA88"
)


# By general category; what is not named is OTHER, without properties.
_BY_CATEGORY = {
    "Lu": ALPHABETIC | IS_LETTER | IS_CAPITAL,
    "Lt": ALPHABETIC | IS_LETTER | IS_CAPITAL,
    "Ll": ALPHABETIC | IS_LETTER | IS_LOWER,
    "Lm": ALPHABETIC | IS_LETTER,
    "Lo": ALPHABETIC | IS_LETTER,
    "Nl": ALPHABETIC | IS_NUMBER,
    "Nd": NUMERIC | IS_NUMBER,
    "No": OTHER | IS_NUMBER,
    "Mn": IGNORED | IS_MARK | IS_VOWEL,
    "Mc": IGNORED | IS_MARK | IS_VOWEL,
    "Me": IGNORED | IS_MARK | IS_VOWEL,
    "Cf": IGNORED,
    "Pc": EXTENDER,
    "Pe": OTHER | IS_CLOSING,
    "Pf": OTHER | IS_CLOSING,
    "Pi": OTHER | IS_CLOSING,
    "Sc": OTHER | IS_SYMBOL,
    "Sk": OTHER | IS_SYMBOL,
    "Sm": OTHER | IS_SYMBOL,
    "So": OTHER | IS_SYMBOL,
}


@cache
def characters() -> np.ndarray:
    """Word class and properties of every code point: uint16, shape (0x110000,), 2.2 MB, made once per process."""
    table = np.full(CODE_POINTS, OTHER, np.uint16)
    # The planes 4 to 13 are empty, 15 and 16 for private use.
    for first, stop in ((0, 0x40000), (0xE0000, 0xF0000)):
        general = map(unicodedata.category, map(chr, range(first, stop)))
        table[first:stop] = [_BY_CATEGORY.get(category, OTHER) for category in general]

    def set_class(points: np.ndarray, kind: int) -> None:
        table[points] = table[points] & ~np.uint16(CLASSES - 1) | kind

    for ranges, kind in (
        (_LETTERS_TOO, ALPHABETIC),
        ("66B", NUMERIC),  # the Arabic decimal separator
        (_MID_LETTER, MID_LETTER),
        (_MID_NUMBER, MID_NUMBER),
        (_MID_BOTH, MID_BOTH),
        ("27", QUOTE),
        ("22", DOUBLE_QUOTE),
        (_KATAKANA, KATAKANA),
        ("1F1E6-1F1FF", REGIONAL),
        ("FF9E-FF9F 1F3FB-1F3FF", IGNORED),  # Other_Grapheme_Extend; the skin colours of emoji
        ("200B", SEPARATOR),
    ):
        set_class(_points(ranges), kind)
    for ranges, kind in (
        ("5D0-5EA 5EF-5F2 FB1D-FB4F", HEBREW),
        (_HIRAGANA, HIRAGANA),
        (_IDEOGRAPHS, ALONE),
        (_PARTICLES, ALONE),
        (_SYLLABIC, SYLLABIC),
        (_VOWELS_BEFORE, VOWEL_BEFORE),
        (_VOWELS_BEHIND, VOWEL_BEHIND),
    ):
        points = _points(ranges)
        set_class(points[np.isin(table[points] % CLASSES, (ALPHABETIC, HIRAGANA, SYLLABIC))], kind)
    table[_points(_TERMINAL)] |= IS_TERMINAL
    table[_points("22 27")] |= IS_CLOSING
    table[_points(_VOWELS_BEHIND)] |= IS_VOWEL
    table[_points(_NO_VOWELS)] ^= IS_VOWEL
    table[_points("1F1E6-1F1FF")] ^= IS_SYMBOL  # WB3c does not concern flags
    table[[c for c in range(0x10000) if chr(c).isspace()]] = SPACE
    table[[ord(c) for c in LINE_BREAKS]] |= IS_BREAK
    return table


@cache
def neighbours() -> np.ndarray:
    """What becomes of two neighbouring classes: uint8, shape (CLASSES * CLASSES,), index first * CLASSES + second."""
    table = np.full((CLASSES, CLASSES), PART, np.uint8)
    letters = (ALPHABETIC, HEBREW)
    # A run of one punctuation mark or symbol is one word.
    for kind in (OTHER, MID_LETTER, MID_NUMBER, MID_BOTH, QUOTE, DOUBLE_QUOTE):
        table[kind, kind] = JOIN_EQUAL
    table[:, IGNORED] = JOIN  # WB4
    for first in (*letters, NUMERIC):  # WB5, WB8, WB9, WB10
        for second in (*letters, NUMERIC):
            table[first, second] = JOIN
    for first in letters:  # WB6, WB7
        table[first, [MID_LETTER, MID_BOTH, QUOTE]] = JOIN_BEFORE_LETTER
    table[HEBREW, DOUBLE_QUOTE] = JOIN_BEFORE_HEBREW  # WB7b, WB7c
    table[NUMERIC, [MID_NUMBER, MID_BOTH, QUOTE]] = JOIN_BEFORE_NUMBER  # WB11, WB12
    table[KATAKANA, KATAKANA] = JOIN  # WB13
    for kind in (*letters, NUMERIC, KATAKANA, EXTENDER):  # WB13a, WB13b
        table[kind, EXTENDER] = table[EXTENDER, kind] = JOIN
    table[REGIONAL, REGIONAL] = JOIN_PAIR  # WB15, WB16
    table[HIRAGANA, HIRAGANA] = JOIN
    for kind in (VOWEL_BEFORE, VOWEL_BEHIND, SYLLABIC):
        table[VOWEL_BEFORE, kind] = table[kind, VOWEL_BEHIND] = JOIN
    table[[VOWEL_BEHIND, SYLLABIC], SYLLABIC] = JOIN_UNLESS_VOWEL
    return table.ravel()
