"""Words, fields, lines, paragraphs and sentences of a text in plain Python: slow, and plain to read.

Written from Unicode Standard Annex #29 (the rules' numbers are its own) and from this project's words for things: white
space and U+200B are no part of words; a run of one repeated mark or symbol is one word; a script that sets no spaces
has words by a rule of ours. Independent of the product's code.
"""

import unicodedata
from functools import lru_cache

MID_LETTER = ":·\u0387\u055f\u05f4\u2027\ufe13\ufe55\uff1a"
MID_NUMBER = ",;\u037e\u0589\u060c\u060d\u066c\u07f8\u2044\ufe10\ufe14\ufe50\ufe54\uff0c\uff1b"
MID_BOTH = ".\u2018\u2019\u2024\ufe52\uff07\uff0e'"  # MidNumLetQ
TERMINAL = (
    "!.?։؝؞؟۔܀܁܂߹࠷࠹࠽࠾।॥၊။።፧፨᙮᜵᜶᠃᠉᥄᥅᪨᪩᪪᪫᭚᭛᭞᭟᭽᭾᰻᰼᱾᱿‼‽⁇⁈⁉⸮⸼⹓⹔。꓿꘎꘏꛳꛷꡶꡷꣎꣏꤯꧈꧉꩝꩞꩟꫰꫱꯫﹒﹖﹗！．？｡"
    "𐩖𐩗𐽕𐽖𐽗𐽘𐽙𐾆𐾇𐾈𐾉𑁇𑁈𑂾𑂿𑃀𑃁𑅁𑅂𑅃𑇅𑇆𑇍𑇞𑇟𑈸𑈹𑈻𑈼𑊩𑑋𑑌𑗂𑗃𑗉𑗊𑗋𑗌𑗍𑗎𑗏𑗐𑗑𑗒𑗓𑗔𑗕𑗖𑗗𑙁𑙂𑜼𑜽𑜾𑥄𑥆𑩂𑩃𑪛𑪜𑱁𑱂𑻷𑻸𖩮𖩯𖫵𖬷𖬸𖭄𖺘𛲟𝪈"
    "\u17d4\u17d5\u1b4e\u1b4f\u1b7f\u2024\u2cf9\u2cfa\u2cfb\u2e60\u2e61\ufe12\ufe15\ufe16"  # from Unicode 15 on
    "\U000113d4\U000113d5\U00011f43\U00011f44\U00016d6e\U00016d6f"
)

# Of Thai, Lao, Khmer, Myanmar and their relatives: vowels written before and behind their consonant, marks of a
# consonant without a vowel, marks that put the next consonant under the one before.
VOWELS_BEFORE = "เแโใไເແໂໃໄ\u19b5\u19b6\u19b7\u19ba\uaab5\uaab6\uaab9\uaabb\uaabc"
VOWELS_BEHIND = "ะาำๅະາຳຽ"
NO_VOWELS = "\u0e3a\u0e4c\u0ecc\u1037\u1039\u103a\u17cb\u17cd\u17d2"
STACKING = "\u1039\u17d2\u1a60"


def within(c: str, *spans: tuple[int, int]) -> bool:
    return any(first <= ord(c) <= last for first, last in spans)


def alone(c: str) -> bool:
    """Ideographs and the most frequent particles of Japanese."""
    return (
        c in "がにのはを"
        or unicodedata.category(c)[0] in "LN"
        and within(
            c,
            *(
                (0x3005, 0x3007),
                (0x3021, 0x3029),
                (0x3038, 0x303B),
                (0x3400, 0x4DBF),
                (0x4E00, 0x9FFF),
                (0xF900, 0xFAFF),
            ),
            *((0x16FE4, 0x16FE4), (0x17000, 0x18DFF), (0x1B170, 0x1B2FF), (0x20000, 0x3FFFD)),
        )
    )


def hiragana(c: str) -> bool:
    spans = ((0x3041, 0x3096), (0x309D, 0x309F), (0x1B001, 0x1B11F), (0x1B132, 0x1B132), (0x1B150, 0x1B152))
    return c.isalpha() and within(c, *spans) and not alone(c)


def katakana(c: str) -> bool:
    return within(
        c,
        *((0x3031, 0x3035), (0x309B, 0x309C), (0x30A0, 0x30FA), (0x30FC, 0x30FF), (0x31F0, 0x31FF), (0x32D0, 0x32FE)),
        *((0x3300, 0x3357), (0xFF66, 0xFF9D), (0x1AFF0, 0x1AFFE), (0x1B000, 0x1B000), (0x1B120, 0x1B122)),
        (0x1B164, 0x1B167),
    )


def spaceless(c: str) -> bool:
    """Letters of Thai, Lao, Myanmar, Khmer and their relatives."""
    spans = ((0xE00, 0xEFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x1950, 0x19DF), (0x1A20, 0x1AAF), (0xA9E0, 0xA9FF))
    return c.isalpha() and within(c, *spans, (0xAA60, 0xAADF), (0x11700, 0x1174F))


def letter(c: str) -> bool:
    """Word_Break=ALetter."""
    if alone(c) or hiragana(c) or katakana(c) or spaceless(c) or hebrew(c):
        return False
    if c.isalpha() or unicodedata.category(c) == "Nl":
        return True
    return c in "՚՛՜՞֊׳꜠꜡꞉꞊꭛" or within(
        c,
        *((0x2C2, 0x2C5), (0x2D2, 0x2D7), (0x2DE, 0x2DF), (0x2E5, 0x2EB), (0x2ED, 0x2ED), (0x2EF, 0x2FF)),
        *((0xA708, 0xA716), (0x24B6, 0x24E9), (0x1F130, 0x1F149), (0x1F150, 0x1F169), (0x1F170, 0x1F189)),
    )


def hebrew(c: str) -> bool:
    return c.isalpha() and within(c, (0x590, 0x5FF), (0xFB1D, 0xFB4F))


def numeric(c: str) -> bool:
    return unicodedata.category(c) == "Nd" or c == "\u066b"


def extender(c: str) -> bool:
    return unicodedata.category(c) == "Pc"


def regional(c: str) -> bool:
    return within(c, (0x1F1E6, 0x1F1FF))


def ignored(c: str) -> bool:
    """Extend, Format and ZWJ, which WB4 hangs on what stands before."""
    if c == "\u200b":
        return False
    return unicodedata.category(c) in ("Mn", "Mc", "Me", "Cf") or within(c, (0xFF9E, 0xFF9F), (0x1F3FB, 0x1F3FF))


def real(word: str) -> bool:
    """Whether it has a letter, mark or number."""
    return any(unicodedata.category(c)[0] in "LMN" for c in word)


def word_spans(text: str) -> list[tuple[int, int]]:
    """First and last-but-one place of every word."""
    spans, start = [], 0
    for i, c in enumerate(text + " "):
        if c.isspace() or c == "\u200b":
            spans += [(start + a, start + b) for a, b in _run(text[start:i])]
            start = i + 1
    return spans


@lru_cache(1 << 16)  # most runs come again
def _run(run: str) -> list[tuple[int, int]]:
    """Words of a run without white space."""
    if not run:
        return []
    starts = [i for i, c in enumerate(run) if i == 0 or not ignored(c)]
    characters = [run[i] for i in starts]
    bounds, first = [0], 0
    for k in range(1, len(characters)):
        if not _together(run, starts[k], characters, k, first, run[starts[first] : starts[k]]):
            bounds.append(starts[k])
            first = k
    return list(zip(bounds, [*bounds[1:], len(run)], strict=True))


def _together(run: str, at: int, characters: list[str], k: int, first: int, word: str) -> bool:
    """Whether character k, at a place of the run, goes on with the word that began with character `first`.

    `characters` are those that WB4 leaves; `word` is what the word reads so far, with all others.
    """
    before = characters[k - 2] if k - 2 >= first else ""
    a, b = characters[k - 1], characters[k]
    after = characters[k + 1] if k + 1 < len(characters) else ""

    def alphabetic(c: str) -> bool:
        return c != "" and (letter(c) or hebrew(c))

    if set(word) == {b} and not (letter(b) or alone(b) or spaceless(b) or numeric(b)):
        return not regional(b) or len(word) == 1
    if word[-1] == "\u200d" and unicodedata.category(b)[0] == "S" and not regional(b):  # WB3c, for all symbols
        return True
    if alphabetic(a) and alphabetic(b):  # WB5
        return True
    if alphabetic(a) and b in MID_LETTER + MID_BOTH and alphabetic(after):  # WB6
        return True
    if before and alphabetic(before) and a in MID_LETTER + MID_BOTH and alphabetic(b):  # WB7
        return True
    if hebrew(a) and b == "'":  # WB7a
        return True
    if hebrew(a) and b == '"' and after and hebrew(after):  # WB7b
        return True
    if before and hebrew(before) and a == '"' and hebrew(b):  # WB7c
        return True
    if (numeric(a) or alphabetic(a)) and (numeric(b) or alphabetic(b)):  # WB8, WB9, WB10
        return True
    if before and numeric(before) and a in MID_NUMBER + MID_BOTH and numeric(b):  # WB11
        return True
    if numeric(a) and b in MID_NUMBER + MID_BOTH and after and numeric(after):  # WB12
        return True
    if katakana(a) and katakana(b):  # WB13
        return True
    if extender(b) and (alphabetic(a) or numeric(a) or katakana(a) or extender(a)):  # WB13a
        return True
    if extender(a) and (alphabetic(b) or numeric(b) or katakana(b)):  # WB13b
        return True
    if regional(a) and regional(b):  # WB15, WB16
        return (k - first) % 2 == 1
    if hiragana(a) and hiragana(b):
        return True
    if spaceless(a) and spaceless(b):
        if a in VOWELS_BEFORE or b in VOWELS_BEHIND:
            return True
        return b not in VOWELS_BEFORE and (word[-1] in STACKING or not _has_vowel(run, at))
    return False


def _has_vowel(run: str, at: int) -> bool:
    """Whether a vowel, or a mark that is none of a closing or silent consonant, follows the letter at this place."""
    following = run[at + 1 : at + 2]
    if following in NO_VOWELS:
        return False
    return following in VOWELS_BEHIND or unicodedata.category(following)[0] == "M"


def words(text: str) -> list[str]:
    return [text[a:b] for a, b in word_spans(text)]


def fields(text: str) -> list[str]:
    return [field for field in text.split() if words(field)]


def lines(text: str) -> list[str]:
    return text.splitlines()


def paragraphs(text: str) -> list[str]:
    """The text from the first line of each paragraph to the last one's end."""
    found, open_ = [], ""
    for line in text.splitlines(keepends=True):
        if words(line):
            open_ += line
            continue
        if open_:
            found.append(open_)
        open_ = ""
    if open_:
        found.append(open_)
    return [_without_break(paragraph) for paragraph in found]


def _without_break(paragraph: str) -> str:
    last = paragraph.splitlines(keepends=True)[-1]
    return paragraph[: len(paragraph) - len(last)] + last.splitlines()[0]


def sentences(text: str) -> list[str]:
    """From the first word of each sentence to its last.

    A sentence ends with its line, or with terminal punctuation and the closing quotes and brackets at it, if white
    space follows, or anything after a mark that is not ASCII; but not with a full stop before a lower-case letter.
    """
    found = []
    for line in text.splitlines():
        spans = word_spans(line)
        start, mark = 0, ""
        for i, (a, b) in enumerate(spans):
            word = line[a:b]
            if all(c in TERMINAL for c in word):
                mark = word[-1]
            elif mark and not (closing(word) and not _spaced(line, spans, i)):
                follows = _spaced(line, spans, i) or not mark.isascii()
                if follows and not (mark == "." and unicodedata.category(word[0]) == "Ll"):
                    found.append(line[spans[start][0] : spans[i - 1][1]])
                    start = i
                mark = ""
        if spans:
            found.append(line[spans[start][0] : spans[-1][1]])
    return found


def closing(word: str) -> bool:
    return all(unicodedata.category(c) in ("Pe", "Pf", "Pi") or c in "'\"" for c in word)


def _spaced(line: str, spans: list[tuple[int, int]], i: int) -> bool:
    """Whether white space stands before word i."""
    return i == 0 or any(c.isspace() for c in line[spans[i - 1][1] : spans[i][0]])
