"""Texts that sit at, just under and just over the bounds of the rules: ladders of words, marks, lines and repeats."""

import random
from collections.abc import Iterator
from itertools import product

from tests.golden.made.drawn import odd_words, wordless
from tests.golden.made.odd_lines import line_texts
from tests.golden.made.words import NOUNS, SENTENCES, Text, fresh, paragraph, plain_words, prose, snippets


def edge_texts() -> list[Text]:
    found = [*_words(), *_lengths(), *_marks(), *_lines(), *_repeats(), *_ngrams(), *_stops()]
    found += [*line_texts(), *_special(), *_scripts(), *_snippets(), *_mixtures(), *_drawn(), *_odd()]
    return found


def _spaced(words: list[str]) -> str:
    """Words of English with its stop words, 12 a line, each line a sentence."""
    lines = [" ".join(words[at : at + 12]) + "." for at in range(0, len(words), 12)]
    return "\n".join(lines)


def _words() -> Iterator[Text]:
    """Counts of words around 1, 2, 5, 12, 30, 50 and 100,000; of characters around 50, 100, 150, 200, 300."""
    for count in (0, 1, 2, 3, 4, 5, 6, 11, 12, 13, 29, 30, 31, 48, 49, 50, 51, 52, 99, 100, 101):
        yield f"words {count}", _spaced(plain_words(count, f"w{count}"))
    for count in (99_999, 100_000, 100_001):
        yield f"words {count}", " ".join(("the mill of stone and flour to grind with corn " * 10_001).split()[:count])
    for size in (1, 49, 50, 51, 99, 100, 101, 149, 150, 151, 199, 200, 201, 299, 300, 301, 400, 401):
        text = paragraph(f"size {size}", 8)
        yield f"characters {size}", text[: size - 1] + "."
        yield f"wide characters {size}", ("ä€𐍈é" + text)[: size - 1] + "."


def _lengths() -> Iterator[Text]:
    """Mean lengths of words around 3 and 10."""
    draw = random.Random("lengths")
    for mean, count in product((2, 3, 10), (60, 100)):
        for off in (-2, -1, 0, 1, 2):
            words = ["".join(draw.choices("abcdefghijklmnop", k=mean)) for _ in range(count)]
            for at in range(abs(off)):
                words[at] = words[at] + "z" if off > 0 else words[at][:-1]
            yield f"mean length {mean} {count} {off}", " ".join(words)


def _marks() -> Iterator[Text]:
    """So many hash signs and ellipses to 60 words; alone, together, and at the ends of lines."""
    for sign, count in product(("#", "...", "…", ". . .", "# ..."), (0, 1, 5, 6, 7, 9, 10, 11, 12, 13)):
        words = plain_words(60, f"marks {sign}")
        for at in range(count):
            words[at * 4 + 1] += f" {sign}"
        yield f"marks {sign} {count}", _spaced(words)
    for sign, count in product(("#", "..."), (4, 5, 6)):
        words = plain_words(50 - count, f"tied {sign}{count}")
        for at in range(count):
            words[at * 4 + 1] += f" {sign}"
        yield f"tied {sign} {count}", " ".join(words)
    for share in range(0, 13):
        words = plain_words(48, f"symbols {share}")
        for at in range(share):
            words[at * 3 + 1] = ("12", "---", "%%", "||", "=>", "3.5", "***")[at % 7]
        yield f"alpha {share}", _spaced(words)
    yield "dots in a row", "one .... two ..... three ...... four . . . . five . . . . . . six ….… seven.. .eight ..."
    yield "dots across", "ends with ..\n. begins .\n.. and\n…"


def _lines() -> Iterator[Text]:
    """Shares of lines that begin with a bullet, end with an ellipsis, end a sentence, are short."""
    beginnings = ("- ", "• ", "* ", "● ", "  - ", "\t• ", "-", "‣ ", "– ")
    for count in (0, 8, 9, 10):
        for bullet in beginnings if count == 9 else beginnings[:2]:
            lines = [f"{bullet if at < count else ''}{paragraph(f'bullet {at}', 1)}" for at in range(10)]
            yield f"bullets {bullet!r} {count}", "\n".join(lines)
    for count, ending in product((2, 3, 4), ("...", "…", ". . .", "... ", "....", " …\t")):
        lines = [paragraph(f"ellipsis {at}", 1).rstrip(".") + (ending if at < count else ".") for at in range(10)]
        yield f"ellipsis lines {ending!r} {count}", "\n".join(lines)
    for count in (0, 1, 2, 3, 4, 12, 13):
        lines = [" ".join(plain_words(8, f"stop {at}")) + ("." if at < count else "") for at in range(25)]
        yield f"punctuated {count} of 25", "\n".join(lines)
        yield f"punctuated {count} of 25, blank", "\n\n".join(lines)
    for ending in (".", "!", "?", "。", "।", "։", "؟", "…", ":", ";", ".)", '."', ".'", ".”", ".»", " . ", ".\u200b"):
        yield f"all lines end {ending!r}", "\n".join(" ".join(plain_words(9, f"e{at}")) + ending for at in range(8))
    for count in (65, 66, 67, 68, 69):
        lines = ["a" * 30 if at < count else f"{at} " + "b" * 40 + "." for at in range(100)]
        yield (
            f"short lines {count}",
            "\n".join(f"{line[: len(str(at))]}{line[len(str(at)) :]}" for at, line in enumerate(lines)),
        )
    for size in (28, 29, 30, 31, 32):
        yield f"lines of {size}", "\n".join(f"{at:02}" + "x" * (size - 3) + "." for at in range(12))
    for feeds in (14, 15, 16, 17, 18, 19):
        words = plain_words(50, f"feeds {feeds}")
        yield f"line feeds {feeds}", "".join(f"{word}{chr(10) if at < feeds else ' '}" for at, word in enumerate(words))
    for end in ("\r\n", "\r", "\x0b", "\x0c", "\x85", "\u2028", "\u2029", "\n \n", "\n\t\n\n"):
        yield f"line ends {end!r}", end.join(paragraph(f"end {at % 4}", 1) for at in range(8))


def _repeats() -> Iterator[Text]:
    """Lines and paragraphs that repeat: shares of them and of characters around .2, .3, .01 and .7."""
    for total, same in product((10, 20), (1, 2, 3, 4, 5, 6, 7)):
        lines = [paragraph(f"repeat {at}", 1) for at in range(total)]
        for at in range(same):
            lines[at + 1] = lines[0]
        yield f"lines {same} of {total}", "\n".join(lines)
        yield f"paragraphs {same} of {total}", "\n\n".join(lines)
        random.Random(f"{total}{same}").shuffle(lines)
        yield f"lines {same} of {total}, apart", "\n".join(lines)
        yield f"short lines {same} of {total}", "\n".join([*lines, *["mill"] * same])
    for run in (2, 3, 4, 5):
        yield (
            f"in a row {run}",
            "\n".join([paragraph("a", 2), *["  The same line.  ", "The same line."] * run][: run + 1]),
        )
        yield (
            f"in a row {run} with blanks",
            "\n\n".join([paragraph("b", 2), *["The same line."] * run, paragraph("c", 1)]),
        )
    for share in (1, 2, 3, 4):
        lines = [f"{at:03} " + "y" * 45 + "." for at in range(100)]
        lines[50] = lines[3][: 12 * share]
        lines[3] = lines[3][: 12 * share]
        yield f"repeated characters {share}", "\n".join(lines)
    for size in (18, 19, 20, 21, 22):
        lines = ["r" * size, "s" * (100 - 2 * size), "r" * size]
        yield f"tied repeat {size}", "\n".join(lines)
        yield f"tied repeat paragraphs {size}", "\n\n".join(lines)


def _ngrams() -> Iterator[Text]:
    """N-grams that repeat, of so many words among 100: the shares of their characters go up by small steps."""
    for size, times in product((2, 3, 4, 5, 6, 7, 8, 9, 10, 11), (1, 2, 3, 4)):
        words = plain_words(100, f"gram {size}")
        gram = fresh(f"the gram {size}", size)
        for at in range(times):
            begin = at * (size + 9)
            words[begin : begin + size] = gram
        yield f"gram {size} times {times}", _spaced(words)
    for size in range(2, 11):
        yield (
            f"overlapping {size}",
            " ".join([*fresh("o", size), *["la"] * (size + 3), *fresh("p", 20), *["la"] * size]),
        )
        for step in range(0, 4):
            total = 100
            gram = ["ab"] * (size - 1) + ["cd"]
            others = fresh(f"tie {size}", total)
            text = " ".join([*gram, *others[: 10 + 7 * step], *gram, *others[50 : 60 + 3 * step]])
            yield f"tied gram {size} {step}", text
    yield "two top grams", "aa bb x1 aa bb x2 cccc dddd x3 cccc dddd x4 " + " ".join(fresh("tops", 60))
    yield "joined", "1 11 a q w e r t y 11 1 a z " + " ".join(fresh("joined", 30))


def _stops() -> Iterator[Text]:
    for count, word in product((0, 1, 2, 3), ("the", "The", "THE", "the,", "thee")):
        words = fresh(f"stops {word}", 60)
        for at, other in enumerate((word, "of", "and")[:count]):
            words[at * 7] = other
        yield f"stop words {word} {count}", " ".join(words)
    yield "one stop word twice", " ".join(["the", *fresh("twice", 55), "the"])
    for code in ("de", "fr", "ru"):
        yield f"stop words of {code}", " ".join([SENTENCES[code]] * 4)


def _special() -> Iterator[Text]:
    """Shares of characters that are no letters around .3; fields of symbols around a tenth."""
    for count in (80, 88, 89, 90, 91, 92):
        text = paragraph("special", 12).replace(".", "").replace(" ", "")[: 300 - count]
        yield (
            f"special characters {count} of 300",
            " ".join([text[at : at + 9] for at in range(0, len(text), 9)]) + "$" * count,
        )
    for count in (4, 5, 6, 7, 8):
        words = fresh("fields", 60)
        for at in range(count):
            words.insert(at * 5, ("|", "=>", "***", "—", "☃")[at % 5])
        yield f"symbol fields {count} of 60", " ".join(words)
    yield "only symbols", "*** --- === ||| *** --- +++"
    yield "invisible", "so\u00adft hy\u200bphen \ufeffmark\u200d of\u2060 words e\u0301 ﬁne Ǆ ß İ ŉ"


def _scripts() -> Iterator[Text]:
    for code, line in SENTENCES.items():
        yield f"language {code}", " ".join([line] * 3)
        yield f"language {code} in capitals", "\n".join([line.upper()] * 3)
        yield f"language {code} and English", f"{paragraph(code, 3)}\n{line}\n{line} {line}\n{paragraph(code + 'b', 2)}"
        yield f"language {code} short", line[:39]
    yield "emoji", "A family 👨‍👩‍👧‍👦 and a flag 🏳️‍🌈 and keycap 1️⃣ and skin 👍🏽 and regional 🇩🇪🇫🇷 marks."
    yield (
        "decomposed",
        "Die Mu\u0308hle am Fluss, où la me\u0301re est alle\u0301e; "
        "Å and A\u030a and q\u0307\u0323 and q\u0323\u0307.",
    )
    yield "hangul", "각 가\u11a8 \u1100\u1161\u11a8 방앗간"
    yield "points", "בְּרֵאשִׁית בָּרָא אֱלֹהִים אֵת הַשָּׁמַיִם וְאֵת הָאָרֶץ"
    yield "mixed capitals", "THIS IS AN EIGHTH of what stands here in low letters and goes on for long."
    for count in (7, 8, 9, 10):
        yield (
            f"capitals {count} of 72",
            "A" * count + "the mill stands at the river and grinds the grain of the farmers"[: 72 - count],
        )


def _snippets() -> Iterator[Text]:
    for name in ("texts", "languages"):
        for at, text in enumerate(snippets(name)):
            yield f"{name} {at}", text
            if at % 5 == 0:
                yield f"{name} {at} within", f"{paragraph(f'in {at}', 2)}\n{text}\n{paragraph(f'in {at} b', 2)}"


def _mixtures() -> Iterator[Text]:
    """Documents that are well but for one thing, as most of a crawl are."""
    khmer = ["នេះជាប្រយោគទីមួយ។", "នេះជាប្រយោគទីពីរ។", "នេះជាប្រយោគទីបី៕", "នេះជាប្រយោគទីបួន។"]
    yield "Khmer", " ".join(khmer[:3])
    yield "Khmer again", " ".join([*khmer[:2], khmer[3]])
    for at in range(30):
        yield f"good {at}", prose(f"good {at}", 3, 4)
    for at, name in enumerate(NOUNS[:20]):
        yield f"bad word {name}", f"{paragraph(f'bad {at}', 2)} {name.upper()}! {paragraph(f'bad {at} b', 1)}"


def _odd() -> Iterator[Text]:
    for at, text in enumerate([*odd_words(), *wordless()]):
        yield f"odd {at}", text


def _drawn() -> Iterator[Text]:
    """Short texts of few kinds of words and marks, which meet many bounds exactly by chance."""
    draw = random.Random("drawn")
    atoms = "the of and mill a ab abc # ... … - • . ! 12 THE Mill , : é 水 | \n \n\n".split(" ")
    for at in range(150):
        count = draw.choice((3, 8, 20, 50))
        yield f"drawn {at}", " ".join(draw.choices(atoms, k=count))
    for at in range(60):
        lines = [
            " ".join(draw.choices(("the", "mill", "of", "stone", "Be", "5"), k=draw.randint(1, 4))) for _ in range(4)
        ]
        yield f"drawn lines {at}", "\n".join(draw.choices(lines, k=draw.choice((5, 10, 20))))
