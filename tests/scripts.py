"""Texts of random words in the scripts of the world, and edits of them, to see what an edit costs in each."""

import random
from dataclasses import dataclass

EDITS = ("replaced", "inserted", "deleted")


@dataclass(frozen=True)
class Script:
    """Letters of words, marks that every third letter has, `mean` letters of a word, what stands between two words, and
    behind `phrase` words."""

    letters: str
    mean: float
    marks: str = ""
    apart: str = " "
    phrase: int = 12
    stop: str = ". "


def _letters(first: int, last: int) -> str:
    return "".join(map(chr, range(first, last + 1)))


# Lengths are about those of running text in each script, marks counted: of words 4.8 in English, 6.1 in Russian, 5.5 in
# Greek, 4.9 in Arabic, 4.1 in Hebrew, 4.0 in Hindi, 3.5 in Korean, 2.9 of a syllable in Dzongkha; of what stands
# between spaces and punctuation 8 in Chinese and Japanese, 13 in Thai, 12 in Lao, 10 in Khmer.
SCRIPTS = {
    "Latin": Script("etaoinshrdlcumwfgypbvk", 4.7),
    "Cyrillic": Script(_letters(0x430, 0x44F), 6.0),
    "Greek": Script(_letters(0x3B1, 0x3C9), 5.4),
    "Arabic": Script(_letters(0x627, 0x63A) + _letters(0x641, 0x64A), 4.8, stop="، "),
    "Hebrew": Script(_letters(0x5D0, 0x5EA), 4.1),
    "Devanagari": Script(_letters(0x915, 0x939), 2.9, _letters(0x93E, 0x948), stop="। "),
    "Hangul": Script(_letters(0xAC00, 0xD7A3), 3.4),
    "Tibetan": Script(_letters(0xF40, 0xF42) + _letters(0xF49, 0xF4B), 2.1, "\u0f72\u0f74\u0f7a\u0f7c", "་", stop="། "),
    "Han": Script(_letters(0x4E00, 0x9FA5), 2, apart="", phrase=4, stop="，"),
    "Japanese": Script(_letters(0x3041, 0x308F) + "ーアイウエオカキ日本人大学生", 2, apart="", phrase=4, stop="、"),
    "Thai": Script(_letters(0xE01, 0xE2E), 3, _letters(0xE34, 0xE39) + "\u0e48\u0e49", "", 3, " "),
    "Lao": Script("ກຂຄງຈຊຍດຕຖທນບປພມຢລວຫອ", 3, _letters(0xEB4, 0xEB9), "", 3, " "),
    "Khmer": Script(_letters(0x1780, 0x17A2), 3, _letters(0x17B7, 0x17C5), "", 3, "។ "),
    "Burmese": Script(_letters(0x1000, 0x1020), 3, _letters(0x102B, 0x1032) + "\u103a", "", 3, "၊ "),
}


def text_of(script: str, characters: int, draw: random.Random) -> str:
    """Words by chance, until there are so many code points."""
    kind = SCRIPTS[script]
    text = ""
    while len(text) < characters:
        for place in range(kind.phrase):
            text += kind.apart if place else ""
            for _ in range(max(1, round(draw.gauss(kind.mean, kind.mean / 2)))):
                text += draw.choice(kind.letters)
                if kind.marks and draw.random() < 1 / 3:
                    text += draw.choice(kind.marks)
        text += kind.stop
    return text[: characters - 1] + draw.choice(kind.letters)


def edited(text: str, kind: str, edits: int, script: str, draw: random.Random) -> str:
    """The text with so many letters replaced by others, inserted or deleted, at places by chance."""
    letters = SCRIPTS[script].letters
    places = [i for i, c in enumerate(text) if c in letters]
    for at in sorted(draw.sample(places, edits), reverse=True):
        new = draw.choice([c for c in letters if c != text[at]])
        text = text[:at] + {"replaced": new, "inserted": new + text[at], "deleted": ""}[kind] + text[at + 1 :]
    return text
